//! HELLO: the first frame of version 2, `2 PROGRAM-VERSION FEATURE FEATURE...` in ASCII.

use super::LinkError;
use super::frame_type::HELLO_LIMIT;

/// The version of the link that HELLO names.
const VERSION: u32 = 2;

/// What the peer says about itself: printable ASCII, but untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The version of the link, always 2.
    pub version: u32,
    /// The version of the peer's program.
    pub program: String,
    /// What the peer can do beyond the base.
    pub features: Vec<String>,
}

impl Hello {
    pub(super) fn decode(payload: &[u8]) -> Result<Self, LinkError> {
        let text = std::str::from_utf8(payload).map_err(|_| LinkError::HelloMalformed)?;
        let mut words = text.split(' ');
        let version = words.next().unwrap_or_default();
        // The version is checked first: a later one may change the rest.
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LinkError::HelloMalformed);
        }
        let theirs = version.parse().map_err(|_| LinkError::HelloMalformed)?;
        if theirs != VERSION {
            return Err(LinkError::VersionMismatch { ours: VERSION, theirs });
        }
        let program = words.next().unwrap_or_default();
        let features: Vec<&str> = words.collect();
        if !is_word(program) || !features.iter().copied().all(is_word) {
            return Err(LinkError::HelloMalformed);
        }
        Ok(Self {
            version: theirs,
            program: program.to_owned(),
            features: features.into_iter().map(str::to_owned).collect(),
        })
    }

    pub(super) fn encode(program: &str, features: &[String]) -> Result<Vec<u8>, LinkError> {
        let mut text = VERSION.to_string();
        for word in std::iter::once(program).chain(features.iter().map(String::as_str)) {
            if !is_word(word) {
                return Err(LinkError::BadHelloWords);
            }
            text.push(' ');
            text.push_str(word);
        }
        if text.len() > HELLO_LIMIT {
            return Err(LinkError::BadHelloWords);
        }
        Ok(text.into_bytes())
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let features = vec!["ssh".to_owned(), "x=1".to_owned()];
        let payload = Hello::encode("0.1.0", &features);
        assert_eq!(payload.as_deref(), Ok(&b"2 0.1.0 ssh x=1"[..]));
        assert_eq!(
            Hello::decode(b"2 0.1.0 ssh x=1"),
            Ok(Hello { version: 2, program: "0.1.0".to_owned(), features })
        );
    }

    #[test]
    fn another_version_names_both() {
        assert_eq!(
            Hello::decode(b"3 what ever"),
            Err(LinkError::VersionMismatch { ours: 2, theirs: 3 })
        );
    }

    #[test]
    fn what_is_no_list_of_words_is_refused() {
        for payload in [
            &b""[..],
            b"2",
            b"2 ",
            b" 2 a",
            b"2  a",
            b"2 a ",
            b"2 a\n",
            b"2 \xc3\xa9",
            b"+2 a",
            b"99999999999 a",
        ] {
            assert_eq!(Hello::decode(payload), Err(LinkError::HelloMalformed), "{payload:?}");
        }
        for word in ["", "a b", "a\n", "é", &"x".repeat(1023)] {
            assert_eq!(Hello::encode(word, &[]), Err(LinkError::BadHelloWords), "{word:?}");
        }
    }
}
