//! Windows: names of files are text, which programs print in UTF-8.

use std::ffi::OsString;

/// The name that these bytes are, as programs print it. What isn't UTF-8 can't name a file, and no file
/// is found by it.
pub fn os_string(bytes: Vec<u8>) -> OsString {
    match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_utf_8() {
        assert_eq!(os_string("C:\\Users\\Zo\u{eb}".into()), "C:\\Users\\Zo\u{eb}");
        assert_eq!(os_string(b"a\xffb".to_vec()), "a\u{fffd}b");
    }
}
