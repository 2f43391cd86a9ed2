//! Unix: names of files are bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The name that these bytes are, as programs print it.
pub fn os_string(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use crate::socket_file::SocketFile;

    #[test]
    fn the_name_in_a_redirect_need_not_be_text() {
        let file = SocketFile::parse(b"%Assuan%\nsocket=/\xff/${\xfe}\n").unwrap();
        let SocketFile::Redirect(redirect) = file else { panic!("{file:?}") };
        let path = redirect.expand(|name| Some(name.to_owned())).unwrap();
        assert_eq!(path.as_os_str().as_bytes(), b"/\xff/\xfe");
    }
}
