//! Assuan as gpg-agent speaks it: lines and their limit, verbs, escapes, error codes.

mod error_code;
mod escape;
mod line;
mod request;
mod response;
mod summary;

pub use error_code::{ErrorCode, Reply};
pub(crate) use escape::hex_digit;
pub use escape::{BadEscape, escape_into, unescape};
pub use line::{Cut, LineBuffer, LineTooLong, MAX_LINE, content};
pub use request::{Command, NulByte, RequestLine, Verb, is_keygrip};
pub use response::{NotAResponse, ResponseLine};
pub use summary::Summary;
