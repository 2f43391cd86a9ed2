//! HELLO: the first frame of version 2, `2 PROGRAM-VERSION WORD WORD...` in ASCII. A later program may add words.

use super::LinkError;

/// The version of the link that HELLO names.
const VERSION: u32 = 2;

/// What the peer says about itself: printable ASCII, but untrusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The version of the peer's program.
    pub program: String,
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
        if !is_word(program) || !words.all(is_word) {
            return Err(LinkError::HelloMalformed);
        }
        Ok(Self { program: program.to_owned() })
    }

    /// That of this end.
    pub(super) fn encode() -> Vec<u8> {
        format!("{VERSION} {}", env!("CARGO_PKG_VERSION")).into_bytes()
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
        let program = env!("CARGO_PKG_VERSION").to_owned();
        assert_eq!(Hello::decode(&Hello::encode()), Ok(Hello { program }));
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
    }
}
