//! JSON, as far as a list of sockets needs it: every text of RFC 8259 is read, and what isn't needed is
//! dropped.

use std::iter::Peekable;
use std::str::Chars;

/// A list of objects has two levels; what is dropped may have some more.
const MAX_DEPTH: usize = 16;

/// A value.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
    /// A number, a truth value or null.
    Other,
}

/// What isn't JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON: {0}")]
pub(super) struct NotJson(&'static str);

/// Reads one value that is the whole text.
pub(super) fn parse(text: &str) -> Result<Value, NotJson> {
    let mut reader = Reader { signs: text.chars().peekable() };
    let value = reader.value(0)?;
    reader.skip_blanks();
    match reader.signs.next() {
        None => Ok(value),
        Some(_) => Err(NotJson("something follows the value")),
    }
}

struct Reader<'a> {
    signs: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, NotJson> {
        if depth > MAX_DEPTH {
            return Err(NotJson("too many levels"));
        }
        self.skip_blanks();
        match self.signs.peek() {
            Some('"') => self.text().map(Value::Text),
            Some('[') => self.list(depth),
            Some('{') => self.object(depth),
            Some('-' | '0'..='9') => self.number(),
            Some('a'..='z') => self.word(),
            Some(_) | None => Err(NotJson("a value is missing")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, NotJson> {
        let mut values = Vec::new();
        self.items(']', |reader| {
            values.push(reader.value(depth + 1)?);
            Ok(())
        })?;
        Ok(Value::List(values))
    }

    fn object(&mut self, depth: usize) -> Result<Value, NotJson> {
        let mut members = Vec::new();
        self.items('}', |reader| {
            reader.skip_blanks();
            let name = reader.text()?;
            reader.skip_blanks();
            reader.expect(':', "a colon is missing")?;
            members.push((name, reader.value(depth + 1)?));
            Ok(())
        })?;
        Ok(Value::Object(members))
    }

    /// What stands between brackets, with commas.
    fn items(
        &mut self,
        end: char,
        mut item: impl FnMut(&mut Self) -> Result<(), NotJson>,
    ) -> Result<(), NotJson> {
        self.signs.next();
        self.skip_blanks();
        if self.signs.next_if_eq(&end).is_some() {
            return Ok(());
        }
        loop {
            item(self)?;
            self.skip_blanks();
            if self.signs.next_if_eq(&end).is_some() {
                return Ok(());
            }
            self.expect(',', "a comma or the end of a list is missing")?;
        }
    }

    fn text(&mut self) -> Result<String, NotJson> {
        self.expect('"', "a text is missing")?;
        let mut text = String::new();
        loop {
            match self.signs.next().ok_or(NotJson("a text has no end"))? {
                '"' => return Ok(text),
                '\\' => text.push(self.escaped()?),
                '\0'..'\x20' => return Err(NotJson("a control character in a text")),
                sign => text.push(sign),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, NotJson> {
        Ok(match self.signs.next() {
            Some(sign @ ('"' | '\\' | '/')) => sign,
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => self.code_point()?,
            Some(_) | None => return Err(NotJson("an escape that there isn't")),
        })
    }

    /// One unit of UTF-16, or the two of a pair.
    fn code_point(&mut self) -> Result<char, NotJson> {
        const WRONG: NotJson = NotJson("a \\u escape that is no character");
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
        let digits: String = self.signs.by_ref().take(4).collect();
        let plain = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(&digits, 16).ok().filter(|_| plain)
    }

    fn number(&mut self) -> Result<Value, NotJson> {
        const WRONG: NotJson = NotJson("a number that is none");
        self.signs.next_if_eq(&'-');
        if self.signs.next_if_eq(&'0').is_none() {
            self.digits().ok_or(WRONG)?;
        }
        if self.signs.next_if_eq(&'.').is_some() {
            self.digits().ok_or(WRONG)?;
        }
        if self.signs.next_if(|sign| matches!(sign, 'e' | 'E')).is_some() {
            self.signs.next_if(|sign| matches!(sign, '+' | '-'));
            self.digits().ok_or(WRONG)?;
        }
        Ok(Value::Other)
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<()> {
        let mut any = None;
        while self.signs.next_if(char::is_ascii_digit).is_some() {
            any = Some(());
        }
        any
    }

    fn word(&mut self) -> Result<Value, NotJson> {
        let mut word = String::new();
        while let Some(sign) = self.signs.next_if(char::is_ascii_lowercase) {
            word.push(sign);
        }
        match word.as_str() {
            "true" | "false" | "null" => Ok(Value::Other),
            _ => Err(NotJson("a word that there isn't")),
        }
    }

    fn expect(&mut self, sign: char, otherwise: &'static str) -> Result<(), NotJson> {
        self.signs.next_if_eq(&sign).map(drop).ok_or(NotJson(otherwise))
    }

    fn skip_blanks(&mut self) {
        while self.signs.next_if(|sign| matches!(sign, ' ' | '\t' | '\n' | '\r')).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let text = r#" [ {"path" : "\/a\"\\b\u00e4\ud83d\ude00\n", "x": [1, -0.5e+3, true, null, {}]} , [] ] "#;
        let inner =
            vec![Value::Other, Value::Other, Value::Other, Value::Other, Value::Object(vec![])];
        let object = Value::Object(vec![
            ("path".into(), Value::Text("/a\"\\bä😀\n".into())),
            ("x".into(), Value::List(inner)),
        ]);
        assert_eq!(parse(text), Ok(Value::List(vec![object, Value::List(vec![])])));
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
