//! A target on this machine: its programs have a home and sockets of their own, by a mount namespace.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use tempfile::TempDir;

use super::Port;
use crate::lab::{command, feed, make_private, need_root, output, short_folder, text};

/// Its user is root. Agents that run there end with it.
pub struct Target {
    folder: TempDir,
}

impl Target {
    /// An empty home.
    pub fn new() -> Self {
        need_root();
        let folder = short_folder("kbt");
        for name in ["home", "run"] {
            make_private(&folder.path().join(name));
        }
        Self { folder }
    }

    /// The home, from outside.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// What makes the words behind it a program of the target.
    fn before(&self) -> Vec<String> {
        // GnuPG's sockets would be in the folder of this machine's user otherwise.
        let script = format!(
            "mount --bind {0}/home /root
            if test -d /run/user; then mount --bind {0}/run /run/user; fi
            cd
            exec env -i HOME=/root PATH=\"$PATH\" LC_ALL=C \"$@\"",
            self.folder.path().display()
        );
        ["unshare", "--mount", "sh", "-ec", &script, "sh"].map(str::to_owned).into()
    }

    /// The port by which `keybridge.exe` gets here.
    pub fn port(&self) -> Port {
        Port::to_programs(self.before())
    }

    /// The port behind which a program runs with the words that are sent.
    pub fn port_to(&self, program: PathBuf) -> Port {
        let program = program.into_os_string().into_string().unwrap();
        Port::to_programs(self.before().into_iter().chain([program]).collect())
    }

    /// Runs a script.
    pub fn sh(&self, script: &str) -> Output {
        let words = self.before();
        output(command(&words[0]).args(&words[1..]).args(["sh", "-ec", script]))
    }

    /// A text that is signed here by gpg, and verified here; the fingerprint of the key.
    #[track_caller]
    pub fn signs(&self) -> String {
        let words = self.before();
        let mut sign = command(&words[0]);
        sign.args(&words[1..]).args(["gpg", "--batch", "--no-tty", "--yes", "--sign"]);
        let signed = feed(&mut sign, b"a text");
        assert!(signed.status.success(), "{}", text(&signed.stderr));
        let mut verify = command(&words[0]);
        verify.args(&words[1..]).args(["gpg", "--batch", "--status-fd=1", "--verify"]);
        let verified = feed(&mut verify, &signed.stdout);
        let said = text(&verified.stdout);
        assert!(verified.status.success(), "{said}{}", text(&verified.stderr));
        let line = said.lines().find_map(|line| line.strip_prefix("[GNUPG:] VALIDSIG "));
        let line = line.unwrap_or_else(|| panic!("no valid signature: {said}"));
        // The last word is the primary key's.
        line.split(' ').next_back().unwrap().to_owned()
    }

    /// The names of the sockets in the home and in the folder of the user's sockets.
    pub fn sockets(&self) -> String {
        text(&self.sh("find /root /run/user -type s").stdout)
    }

    /// Whether a file in the home is there.
    pub fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.home().join(name)).is_ok()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.sh("gpgconf --kill all");
    }
}
