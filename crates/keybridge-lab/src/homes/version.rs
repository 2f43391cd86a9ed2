//! The GnuPG of this machine, of whatever version.

use std::sync::OnceLock;

use crate::{command, run, text};

/// The version of this machine's gpg-agent, which is that of its gpg: `2.2.40`.
pub fn gpg_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let said = text(&run(command("gpg-agent").arg("--version")));
        let first = said.lines().next().unwrap_or_default();
        let version = first.rsplit(' ').next().unwrap_or_default();
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let numbers = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        assert!(numbers >= (2, 2), "the tests need GnuPG 2.2 or later, and this is: {first}");
        version.to_owned()
    })
}

/// What this machine's gpg-agent answers to `GETINFO version`.
pub fn version_answer() -> String {
    format!("D {}\nOK\n", gpg_version())
}
