//! Users with a home of their own, to whom ssh listens.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::Setup;

/// Runs a program for which another file is `/etc/passwd`, since ssh takes the home from there, and
/// for which there is no `/run/user`, so that GnuPG's sockets are in the home.
const AS_USER: &str = "[ ! -d /run/user ] || /bin/mount -t tmpfs none /run/user || exit
/bin/mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"";

/// The user whom a test runs as, with a new home.
pub struct User(TempDir);

impl User {
    pub fn new() -> Self {
        let folder = keybridge_lab::short_folder("kbu");
        let user = Self(folder);
        std::fs::create_dir(user.home()).unwrap();
        let others = std::fs::read_to_string("/etc/passwd").unwrap();
        let others = others.lines().filter(|line| line.split(':').nth(2) != Some("0"));
        let own = format!("root:x:0:0::{}:/bin/sh", user.home().display());
        let lines: Vec<&str> = [own.as_str()].into_iter().chain(others).collect();
        std::fs::write(user.passwd(), lines.join("\n") + "\n").unwrap();
        user
    }

    /// Gives the home to a user who isn't root. Programs still run as root.
    pub fn give_home_to(&self, uid: u32) {
        let home = self.home();
        std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
        // It is on the way to the home.
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.0.path(), mode).unwrap();
        let home = home.display();
        let users = format!("root:x:0:0::/root:/bin/sh\ndev:x:{uid}:{uid}::{home}:/bin/sh\n");
        std::fs::write(self.passwd(), users).unwrap();
    }

    fn passwd(&self) -> PathBuf {
        self.0.path().join("passwd")
    }

    /// The home.
    pub fn home(&self) -> PathBuf {
        self.0.path().join("home")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    /// A place outside of the home.
    pub fn elsewhere(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Where the agent's socket is, unless the environment names another place.
    pub fn socket(&self) -> PathBuf {
        self.file(".ssh/agent.sock")
    }

    pub fn has_socket(&self) -> bool {
        std::fs::symlink_metadata(self.socket()).is_ok_and(|file| file.file_type().is_socket())
    }

    pub fn make_folder(&self) {
        std::fs::create_dir(self.file(".ssh")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(self.file(".ssh"), mode).unwrap();
    }

    /// All that is in the home: paths, and what is in the files.
    pub fn content(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        fn walk(folder: &Path, all: &mut Vec<(PathBuf, Option<Vec<u8>>)>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                all.push((path.clone(), std::fs::read(&path).ok()));
                if path.is_dir() && !path.is_symlink() {
                    walk(&path, all);
                }
            }
        }
        let mut all = Vec::new();
        walk(&self.home(), &mut all);
        all.sort();
        all
    }

    /// A program that this user runs.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(keybridge_lab::program("unshare"));
        command.args(["--mount", "/bin/sh", "-c", AS_USER, "sh"]).arg(self.passwd()).arg(program);
        command
            .env("HOME", self.home())
            .env("LC_ALL", "C")
            .env_remove("SSH_AUTH_SOCK")
            .env_remove("GNUPGHOME")
            .env_remove("XDG_CONFIG_HOME")
            .kill_on_drop(true);
        command
    }

    /// What a program prints.
    pub async fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.run_with(program, arguments, &[]).await
    }

    /// The same with some of its environment set.
    pub async fn run_with(
        &self,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> Output {
        let mut command = self.command(program);
        command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
        timeout(keybridge_lab::PATIENCE, command.output()).await.expect(program).unwrap()
    }

    /// A helper of this user whose streams of the ssh lane lead to an agent.
    pub fn helper(&self, lanes: &str, ssh_agent: &Path) -> Setup {
        self.helper_with(lanes, Path::new("/nonexistent"), ssh_agent)
    }

    pub fn helper_with(&self, lanes: &str, gpg_agent: &Path, ssh_agent: &Path) -> Setup {
        let command = self.command(super::program());
        Setup::with_lanes(command, lanes, gpg_agent, ssh_agent)
    }

    /// What `undo` says.
    pub async fn undo(&self, arguments: &[&str]) -> String {
        let words = [&["undo"], arguments].concat();
        let output = self.run(super::program(), &words).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}
