//! JSON, as far as a list of sockets needs it: every text of RFC 8259 is read, and what isn't needed is
//! dropped.

use std::iter::Peekable;
use std::str::Chars;

/// A list of objects has two levels; what is dropped may have some more.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Debug, PartialEq)]
pub(super) enum JsonValue {
    Text(String),
    List(Vec<JsonValue>),
    Object(Vec<(String, JsonValue)>),
    /// A number, a truth value or null.
    Other,
}

/// What isn't JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: {0}")]
pub(super) struct JsonError(&'static str);

/// Reads one value that is the whole text.
pub(super) fn parse(text: &str) -> Result<JsonValue, JsonError> {
    let mut reader = JsonReader { chars: text.chars().peekable() };
    let value = reader.value(0)?;
    reader.skip_blanks();
    match reader.chars.next() {
        None => Ok(value),
        Some(_) => Err(JsonError("something follows the value")),
    }
}

struct JsonReader<'a> {
    chars: Peekable<Chars<'a>>,
}

impl JsonReader<'_> {
    fn value(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError("too many levels"));
        }
        self.skip_blanks();
        match self.chars.peek() {
            Some('"') => self.text().map(JsonValue::Text),
            Some('[') => self.list(depth),
            Some('{') => self.object(depth),
            Some('-' | '0'..='9') => self.number(),
            Some('a'..='z') => self.word(),
            Some(_) | None => Err(JsonError("a value is missing")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        let mut values = Vec::new();
        self.items(']', |reader| {
            values.push(reader.value(depth + 1)?);
            Ok(())
        })?;
        Ok(JsonValue::List(values))
    }

    fn object(&mut self, depth: usize) -> Result<JsonValue, JsonError> {
        let mut members = Vec::new();
        self.items('}', |reader| {
            reader.skip_blanks();
            let name = reader.text()?;
            reader.skip_blanks();
            reader.expect(':', "a colon is missing")?;
            members.push((name, reader.value(depth + 1)?));
            Ok(())
        })?;
        Ok(JsonValue::Object(members))
    }

    /// What stands between brackets, with commas.
    fn items(
        &mut self,
        end: char,
        mut item: impl FnMut(&mut Self) -> Result<(), JsonError>,
    ) -> Result<(), JsonError> {
        self.chars.next();
        self.skip_blanks();
        if self.chars.next_if_eq(&end).is_some() {
            return Ok(());
        }
        loop {
            item(self)?;
            self.skip_blanks();
            if self.chars.next_if_eq(&end).is_some() {
                return Ok(());
            }
            self.expect(',', "a comma or the end of a list is missing")?;
        }
    }

    fn text(&mut self) -> Result<String, JsonError> {
        self.expect('"', "a text is missing")?;
        let mut text = String::new();
        loop {
            match self.chars.next().ok_or(JsonError("a text has no end"))? {
                '"' => return Ok(text),
                '\\' => text.push(self.escaped()?),
                '\0'..'\x20' => return Err(JsonError("a control character in a text")),
                next => text.push(next),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, JsonError> {
        Ok(match self.chars.next() {
            Some(next @ ('"' | '\\' | '/')) => next,
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => self.code_point()?,
            Some(_) | None => return Err(JsonError("an escape that there isn't")),
        })
    }

    /// One unit of UTF-16, or the two of a pair.
    fn code_point(&mut self) -> Result<char, JsonError> {
        const WRONG: JsonError = JsonError("a \\u escape that is no character");
        let first = self.unit().ok_or(WRONG)?;
        let mut units = vec![first];
        if (0xd800..0xdc00).contains(&first) {
            self.expect('\\', "the other half of a pair is missing")?;
            self.expect('u', "the other half of a pair is missing")?;
            units.push(self.unit().ok_or(WRONG)?);
        }
        char::decode_utf16(units).next().and_then(Result::ok).ok_or(WRONG)
    }

    fn unit(&mut self) -> Option<u16> {
        let digits: String = self.chars.by_ref().take(4).collect();
        let plain = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(&digits, 16).ok().filter(|_| plain)
    }

    fn number(&mut self) -> Result<JsonValue, JsonError> {
        const WRONG: JsonError = JsonError("a number that is none");
        self.chars.next_if_eq(&'-');
        if self.chars.next_if_eq(&'0').is_none() {
            self.digits().ok_or(WRONG)?;
        }
        if self.chars.next_if_eq(&'.').is_some() {
            self.digits().ok_or(WRONG)?;
        }
        if self.chars.next_if(|next| matches!(next, 'e' | 'E')).is_some() {
            self.chars.next_if(|next| matches!(next, '+' | '-'));
            self.digits().ok_or(WRONG)?;
        }
        Ok(JsonValue::Other)
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<()> {
        let mut any = None;
        while self.chars.next_if(char::is_ascii_digit).is_some() {
            any = Some(());
        }
        any
    }

    fn word(&mut self) -> Result<JsonValue, JsonError> {
        let mut word = String::new();
        while let Some(next) = self.chars.next_if(char::is_ascii_lowercase) {
            word.push(next);
        }
        match word.as_str() {
            "true" | "false" | "null" => Ok(JsonValue::Other),
            _ => Err(JsonError("a word that there isn't")),
        }
    }

    fn expect(&mut self, next: char, otherwise: &'static str) -> Result<(), JsonError> {
        self.chars.next_if_eq(&next).map(drop).ok_or(JsonError(otherwise))
    }

    fn skip_blanks(&mut self) {
        while self.chars.next_if(|next| matches!(next, ' ' | '\t' | '\n' | '\r')).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let text = r#" [ {"path" : "\/a\"\\b\u00e4\ud83d\ude00\n", "x": [1, -0.5e+3, true, null, {}]} , [] ] "#;
        let inner = vec![
            JsonValue::Other,
            JsonValue::Other,
            JsonValue::Other,
            JsonValue::Other,
            JsonValue::Object(vec![]),
        ];
        let object = JsonValue::Object(vec![
            ("path".into(), JsonValue::Text("/a\"\\bä😀\n".into())),
            ("x".into(), JsonValue::List(inner)),
        ]);
        assert_eq!(parse(text), Ok(JsonValue::List(vec![object, JsonValue::List(vec![])])));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            " ",
            "[",
            "[1",
            "[1,]",
            "[,1]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{\"a\":1,}",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\n\"",
            "01",
            "1.",
            "-",
            "1e",
            "nul",
            "True",
            "[] []",
            "[]x",
            &"[".repeat(100_000),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&format!("{}{}", "[".repeat(16), "]".repeat(16))).is_ok());
    }
}
