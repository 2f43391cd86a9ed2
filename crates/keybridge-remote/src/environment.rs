//! The user of the target, and the environment variables that matter. `/etc/passwd` is read here: the
//! C library would need modules that a static program doesn't have.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use keybridge_proto::printable;
use keybridge_proto::report::User;

use crate::home::safe_path::euid;

/// The parts of the process's environment that matter.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `GNUPGHOME`.
    pub gnupg_home: Option<OsString>,
    /// `SSH_AUTH_SOCK`.
    pub ssh_auth_sock: Option<PathBuf>,
    /// The user's name: in `/etc/passwd`, else `USER`, else `LOGNAME`.
    pub user: Option<String>,
    /// The user's home: in `/etc/passwd`, where ssh looks for it, else `HOME`.
    pub home: Option<PathBuf>,
    /// `HOME`, where git looks for its settings.
    pub home_variable: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub xdg_config_home: Option<PathBuf>,
    /// `GIT_CONFIG_GLOBAL`.
    pub git_config_global: Option<PathBuf>,
    /// The folder of GnuPG's programs, instead of those of `PATH`.
    pub programs: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let raw = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let path = |name| raw(name).map(PathBuf::from);
        let entry = PasswdEntry::of(euid());
        Self {
            gnupg_home: raw("GNUPGHOME"),
            ssh_auth_sock: path("SSH_AUTH_SOCK"),
            // An exec into a container sets no USER, or leaves that of its image.
            user: entry
                .as_ref()
                .map(|entry| entry.name.clone())
                .or_else(|| text("USER"))
                .or_else(|| text("LOGNAME")),
            home: entry
                .and_then(|entry| entry.home)
                .or_else(|| path("HOME"))
                .filter(|home| home.is_absolute()),
            home_variable: path("HOME").filter(|home| home.is_absolute()),
            xdg_config_home: path("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute()),
            git_config_global: path("GIT_CONFIG_GLOBAL"),
            programs: None,
        }
    }

    /// The user that this process runs as.
    pub fn user(&self) -> User {
        User { name: self.user.clone(), uid: euid() }
    }
}

/// No file of users is larger; the rest isn't searched.
const PASSWD_LIMIT: u64 = 1024 * 1024;

/// A user, as `/etc/passwd` has it.
#[derive(Debug, PartialEq, Eq)]
pub struct PasswdEntry {
    /// The name, printable.
    pub name: String,
    /// The number of the first group.
    pub group: Option<u32>,
    /// The home.
    pub home: Option<PathBuf>,
}

impl PasswdEntry {
    /// The entry of a user. The C library's way would load the system's libraries.
    pub fn of(uid: u32) -> Option<Self> {
        let mut passwd = Vec::new();
        std::fs::File::open("/etc/passwd")
            .ok()?
            .take(PASSWD_LIMIT)
            .read_to_end(&mut passwd)
            .ok()?;
        entry_of(uid, &passwd)
    }
}

fn entry_of(uid: u32, passwd: &[u8]) -> Option<PasswdEntry> {
    let uid = uid.to_string();
    passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        if name.is_empty() || number != uid.as_bytes() {
            return None;
        }
        let group = fields.next().and_then(|group| std::str::from_utf8(group).ok()?.parse().ok());
        let home = fields.nth(1).filter(|home| home.starts_with(b"/"));
        Some(PasswdEntry {
            name: printable(name).to_string(),
            group,
            home: home.map(|home| PathBuf::from(OsStr::from_bytes(home))),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_the_first_entry_with_its_number() {
        let passwd =
            b"root:x:0:0::/root:/bin/sh\nbroken\n:x:7:\ndev:x:1000:100:A, B:/home/dev:\nb:x:1000:\n";
        let entry = |uid| entry_of(uid, passwd).map(|entry| (entry.name, entry.group, entry.home));
        assert_eq!(entry(1000), Some(("dev".into(), Some(100), Some("/home/dev".into()))));
        assert_eq!(entry(0), Some(("root".into(), Some(0), Some("/root".into()))));
        assert_eq!(entry(7), None);
        assert_eq!(entry(100), None);
        let odd = entry_of(5, b"\x1b[31m:x:5:\n").unwrap();
        assert_eq!((odd.name.as_str(), odd.home), ("\\u{1b}[31m", None));
        assert_eq!(entry_of(5, b"a:x:5:5::relative:").unwrap().home, None);
    }
}
