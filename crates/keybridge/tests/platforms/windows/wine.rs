//! Windows as Wine has it: a drive, a registry and processes of a test's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;

use crate::lab::{PATIENCE, USER, command, make_private, output, run, shipped, short_folder, text};

/// How a program ended, and what it said. The ends of lines are those of Linux.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Every process in it ends with it.
pub struct Wine {
    folder: TempDir,
}

impl Wine {
    /// A new user's machine, with a GnuPG home without keys.
    pub fn new() -> Self {
        let wine = Self { folder: short_folder("kbw") };
        make_private(&wine.at("home"));
        fs::create_dir(wine.prefix()).unwrap();
        let new = setting("KEYBRIDGE_WINE");
        // Nobody writes to the files of Wine's own, of which there are 700 MB. Links are only possible on
        // the same file system.
        let copy = |how: &str| {
            output(command("cp").arg(how).arg(new.join("drive_c")).arg(wine.prefix())).status
        };
        if !copy("-al").success() {
            assert!(copy("-a").success());
        }
        // It writes into a file that has several names, and else makes a new one.
        let files = ["system.reg", "user.reg", "userdef.reg", ".update-timestamp", "dosdevices"];
        let mut kept = command("cp");
        run(kept.arg("-a").args(files.map(|name| new.join(name))).arg(wine.prefix()));
        fs::create_dir(wine.drive().join("h")).unwrap();
        wine
    }

    /// A GnuPG home with a key that signs, and a subkey that decrypts.
    pub fn with_key() -> Self {
        let wine = Self::new();
        let words =
            ["--passphrase", "", "--quick-gen-key", USER, "future-default", "default", "never"];
        wine.ok("gpg.exe", ["--batch"].into_iter().chain(words));
        wine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prefix(&self) -> PathBuf {
        self.at("p")
    }

    /// The drive `C:`.
    pub fn drive(&self) -> PathBuf {
        self.prefix().join("drive_c")
    }

    /// A program of Linux that works on this Wine.
    fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.at("home"))
            .env("WINEPREFIX", self.prefix())
            .env("WINEDEBUG", "-all")
            // It would add entries to menus of this machine.
            .env("WINEDLLOVERRIDES", "winemenubuilder.exe=d")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// A program of Windows, by its name or its path, with GnuPG and the relay on its PATH.
    pub fn program(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.command("wine");
        let path =
            [&setting("KEYBRIDGE_WINDOWS_GNUPG"), setting("KEYBRIDGE_RELAY").parent().unwrap()]
                .map(path)
                .join(";");
        command.arg(program.as_ref()).env("WINEPATH", path).env("GNUPGHOME", r"C:\h");
        command
    }

    /// `keybridge.exe`.
    pub fn keybridge<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.program(shipped("windows/keybridge.exe"));
        command.args(words);
        command
    }

    /// Runs a program of Windows to its end. What it says goes to files: a process that it leaves behind
    /// would keep a pipe open.
    #[track_caller]
    pub fn run(&self, mut command: Command) -> Ended {
        let said = TempDir::new_in(self.folder.path()).unwrap();
        let files = ["out", "err"].map(|name| said.path().join(name));
        let [out, err] = files.each_ref().map(|file| File::create(file).unwrap());
        let mut child = command.stdout(out).stderr(err).spawn().unwrap();
        let status = wait(&mut child);
        let [stdout, stderr] =
            files.map(|file| text(&fs::read(file).unwrap()).replace("\r\n", "\n"));
        let status =
            status.unwrap_or_else(|| panic!("{command:?} didn't end in time:\n{stdout}\n{stderr}"));
        Ended { status, stdout, stderr }
    }

    /// Runs a program that has to succeed; what it wrote.
    #[track_caller]
    pub fn ok<'a>(&self, program: &str, words: impl IntoIterator<Item = &'a str>) -> String {
        let mut command = self.program(program);
        command.args(words);
        self.succeeds(command)
    }

    /// Runs `keybridge.exe`, which has to succeed; what it wrote.
    #[track_caller]
    pub fn keybridge_ok<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> String {
        self.succeeds(self.keybridge(words))
    }

    #[track_caller]
    fn succeeds(&self, command: Command) -> String {
        let shown = format!("{command:?}");
        let Ended { status, stdout, stderr } = self.run(command);
        assert!(status.success(), "{shown}: {status}\n{stdout}\n{stderr}");
        stdout
    }

    /// The fingerprint of the first key at home.
    pub fn fingerprint(&self) -> String {
        let listing = self.ok("gpg.exe", ["--batch", "--with-colons", "--list-keys"]);
        let line = listing.lines().find(|line| line.starts_with("fpr:")).unwrap();
        line.split(':').nth(9).unwrap().to_owned()
    }

    /// What the agent has written into the file of its restricted socket: its port and its nonce.
    pub fn socket_file(&self) -> Vec<u8> {
        let told = self.ok("gpgconf.exe", ["--list-dirs", "agent-extra-socket"]);
        let path = told.trim_end().replace("%3a", ":").replace('\\', "/");
        fs::read(self.drive().join(path.strip_prefix("C:/").unwrap())).unwrap()
    }

    /// Kills the agent, whatever it does.
    #[track_caller]
    pub fn kill_agent(&self) {
        let said = self.ok("gpg-connect-agent.exe", ["--no-autostart", "GETINFO pid", "/bye"]);
        let pid = said.lines().find_map(|line| line.strip_prefix("D ")).unwrap().to_owned();
        self.ok("taskkill.exe", ["/F", "/PID", &pid]);
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        // It answers when all processes have ended.
        let _ = output(self.command("wineserver").arg("-k"));
        let _ = output(self.command("wineserver").arg("-w"));
    }
}

/// Waits for the end of a child, or kills it.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let ended = keybridge_lab::within(PATIENCE, || child.try_wait().unwrap().is_some());
    if !ended {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    ended.then_some(status)
}

/// A path of this machine, as a program of Windows names it.
pub fn path(path: &Path) -> String {
    format!("Z:{}", path.display()).replace('/', r"\")
}

/// A path that the environment names.
pub fn setting(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value.unwrap_or_else(|| panic!("{name} isn't set: run scripts/test --platforms")).into()
}
