//! GnuPG homes.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A GnuPG home with a short path. Its agent ends with it.
pub struct Home(TempDir);

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kb").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(folder)
    }

    /// A home with a key of this name that signs and decrypts.
    pub async fn with_key(name: &str) -> Self {
        let home = Self::new();
        let made = home
            .gpg(&["--batch", "--passphrase", "", "--quick-gen-key", name, "default", "default"])
            .await;
        assert!(made.status.success(), "{made:?}");
        home
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.file("S.gpg-agent")
    }

    pub fn extra_socket(&self) -> PathBuf {
        self.file("S.gpg-agent.extra")
    }

    pub fn has_socket(&self) -> bool {
        std::fs::symlink_metadata(self.socket()).is_ok_and(|file| file.file_type().is_socket())
    }

    pub async fn gpg(&self, arguments: &[&str]) -> Output {
        self.gpg_with_input(arguments, b"").await
    }

    pub async fn gpg_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        self.run("gpg", arguments, input).await
    }

    pub async fn run(&self, program: &str, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = Command::from(keybridge_lab::command(program))
            .args(arguments)
            .env("GNUPGHOME", self.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let write = async {
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        output.unwrap()
    }

    /// Starts this home's own agent.
    pub async fn start_agent(&self) {
        let started = self.run("gpgconf", &["--launch", "gpg-agent"], b"").await;
        assert!(started.status.success(), "{started:?}");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What a test has put at the path may never answer.
        let _ = keybridge_lab::command("timeout")
            .args(["3", "gpgconf", "--kill", "gpg-agent"])
            .env("GNUPGHOME", self.path())
            .stderr(Stdio::null())
            .status();
    }
}
