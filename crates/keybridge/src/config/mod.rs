//! Settings and their three layers: a flag, then an environment variable `KEYBRIDGE_…`, then
//! `config.toml`, with the same names in all of them.

mod file;
mod narrowing;
mod options;
mod settings;

pub use file::ConfigFile;
pub(crate) use file::default_path;
pub(crate) use narrowing::Narrowing;
pub use options::{AbsolutePath, Options};
pub(crate) use options::{Environment, Invocation};
pub(crate) use settings::{LaneScope, Settings};

use crate::{Error, ErrorKind};

fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message)
}
