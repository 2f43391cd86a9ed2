//! GnuPG in the target: which one, its home, and where its agent's socket has to be.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use keybridge_link::ProgramOutput;
use keybridge_proto::assuan::unescape;
use keybridge_proto::report::FailureKind;
use keybridge_proto::{last_line, printable};

use crate::error::{Error, how_to_make};
use crate::home::lane_folder::LaneFolder;
use crate::home::lock::LaneLock;
use crate::home::safe_path::FolderRole;
use crate::subprocess::{command, run};
use crate::systemd::UserUnits;
use crate::{Environment, FileId};

/// `GETINFO restricted` and the extra socket are there from this version on.
const OLDEST: [u32; 3] = [2, 1, 0];

/// What gpgconf names.
#[derive(Debug, Clone)]
pub(crate) struct GnupgPaths {
    pub(crate) home: PathBuf,
    pub(crate) socket: PathBuf,
}

/// GnuPG in the target, found and checked.
#[derive(Debug, Clone)]
pub struct Gnupg {
    environment: Environment,
    version: String,
    folder: LaneFolder,
    socket: PathBuf,
    follows_logins: bool,
    units: Option<UserUnits>,
}

impl Gnupg {
    /// Finds GnuPG and checks its home. Changes nothing.
    pub async fn find(environment: Environment, host_home: Option<FileId>) -> Result<Self, Error> {
        let version = environment.gpg_version().await?;
        Self::check_version(&version)?;
        let paths = environment.gnupg_paths().await?;
        Self::at(environment, version, paths, host_home)
    }

    /// Checks that a version isn't too old.
    pub(crate) fn check_version(version: &str) -> Result<(), Error> {
        if numbers(version) < Some(OLDEST) {
            return Err(no_gnupg(format!("GnuPG {version} is too old; 2.1.0 is the oldest")));
        }
        Ok(())
    }

    /// Checks the home of the GnuPG that is there. Changes nothing.
    pub(crate) fn at(
        environment: Environment,
        version: String,
        paths: GnupgPaths,
        host_home: Option<FileId>,
    ) -> Result<Self, Error> {
        let GnupgPaths { home, socket } = paths;
        let folder = environment.find_home(home, host_home)?;
        let units = UserUnits::find(&environment);
        Ok(Self { environment, version, folder, socket, follows_logins: true, units })
    }

    /// Finds the GnuPG whose agent is looked for at this path: the one of the environment, or the one
    /// whose home the path is in.
    pub(crate) async fn find_at(environment: Environment, socket: PathBuf) -> Result<Self, Error> {
        let found = Self::find(environment.clone(), None).await?;
        if found.socket == socket {
            return Ok(found);
        }
        let gnupg_home = socket.parent().map(|home| home.as_os_str().to_owned());
        let other = Self::find(Environment { gnupg_home, ..environment }, None).await;
        match other {
            Ok(other) if other.socket == socket => Ok(other),
            Ok(_) | Err(_) => {
                let expected = found.socket.display();
                tracing::warn!(
                    "gpg looks for its agent at {expected}, not at {}",
                    socket.display()
                );
                Ok(Self { socket, follows_logins: false, ..found })
            }
        }
    }

    /// The version, as gpg says it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The home.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Whether the home is where gpg has it for a user who names no other.
    pub(crate) fn has_usual_home(&self) -> bool {
        let usual = self.environment.home.as_ref().map(|home| home.join(".gnupg"));
        usual.as_deref() == Some(self.home())
    }

    pub(crate) fn folder(&self) -> &LaneFolder {
        &self.folder
    }

    /// Where gpg looks for its agent.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where gpg looks for its agent by now: a login or the last logout may have changed that.
    pub(crate) async fn current_socket(&self) -> Result<PathBuf, Error> {
        self.environment.gnupg_paths().await.map(|paths| paths.socket)
    }

    /// Whether that depends on logins: it does, unless somebody else has chosen the path.
    pub(crate) fn socket_follows_logins(&self) -> bool {
        self.follows_logins
    }

    pub(crate) fn user_units(&self) -> Option<&UserUnits> {
        self.units.as_ref()
    }

    /// Whether the home has secret keys; true if that is unknown.
    pub(crate) fn has_secret_keys(&self) -> bool {
        match std::fs::read_dir(self.home().join("private-keys-v1.d")) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Whether a helper uses or has used the home, even if there is no GnuPG by now.
    pub fn is_in_use(environment: &Environment) -> bool {
        let usual = || environment.home.as_ref().map(|home| home.join(".gnupg"));
        let home = environment.gnupg_home.as_ref().map(PathBuf::from).or_else(usual);
        home.is_some_and(|home| LaneLock::path_in(&home).exists())
    }

    /// Lets gpgconf create the folder of the sockets, where that isn't the home.
    pub(crate) async fn make_socket_folder(&self) -> Result<(), Error> {
        self.environment.run("gpgconf", &["--create-socketdir"]).await.map(drop)
    }

    /// gpg, ready to be given its arguments.
    pub(crate) fn gpg(&self) -> tokio::process::Command {
        self.environment.command("gpg")
    }
}

impl Environment {
    /// The version of gpg.
    pub(crate) async fn gpg_version(&self) -> Result<String, Error> {
        // Without its options, because gpg hangs if gpg.conf is a folder.
        let gpg = self.run("gpg", &["--no-options", "--version"]).await?;
        parse_version(&gpg.stdout).ok_or_else(|| {
            let line = gpg.stdout.split(|&byte| byte == b'\n').next().unwrap_or_default();
            no_gnupg(format!("expected the version of gpg, got: {}", printable(line)))
        })
    }

    /// Where GnuPG's home is, and where gpg looks for its agent.
    pub(crate) async fn gnupg_paths(&self) -> Result<GnupgPaths, Error> {
        let dirs = self.run("gpgconf", &["--list-dirs"]).await?;
        let home = directory(&dirs.stdout, b"homedir")?;
        Ok(GnupgPaths { home, socket: directory(&dirs.stdout, b"agent-socket")? })
    }

    fn command(&self, program: &str) -> tokio::process::Command {
        let path = match &self.programs {
            Some(folder) => folder.join(program),
            None => PathBuf::from(program),
        };
        let mut command = command(&path);
        match &self.gnupg_home {
            Some(home) => command.env("GNUPGHOME", home),
            None => command.env_remove("GNUPGHOME"),
        };
        command
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<ProgramOutput, Error> {
        let output = run(self.command(program).args(arguments)).await.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                no_gnupg(format!("there is no {program} on the PATH of the target"))
            } else {
                no_gnupg(format!("can't run {program}: {error}"))
            }
        })?;
        if output.status.success() {
            return Ok(output);
        }
        let (status, line) = (output.status, printable(last_line(&output.stderr)));
        let arguments = arguments.join(" ");
        Err(Error::other(format!("`{program} {arguments}` failed: {status}: {line}"))
            .hint(format!("run it in the target and see what it prints: {program} {arguments}")))
    }

    /// The home, or an error if we may not use it.
    fn find_home(&self, home: PathBuf, host_home: Option<FileId>) -> Result<LaneFolder, Error> {
        let folder = LaneFolder::find(FolderRole::GnupgHome, home)?;
        let shown = folder.path().display();
        if folder.id().is_none() && self.gnupg_home.is_some() {
            let message = format!("GNUPGHOME {shown} doesn't exist");
            return Err(Error::new(FailureKind::NotFound, message).hint(how_to_make(folder.path())));
        }
        if folder.id().is_some() && folder.id() == host_home {
            let message =
                format!("{shown} is the host's own GnuPG home; there is nothing to bridge");
            let error = Error::new(FailureKind::SameHome, message);
            return Err(error.hint("set GNUPGHOME to another folder in the target"));
        }
        Ok(folder)
    }
}

fn no_gnupg(message: String) -> Error {
    Error::new(FailureKind::NoGnupg, message).hint("install gnupg in the target")
}

/// The version in `gpg (GnuPG) 2.2.40`.
fn parse_version(stdout: &[u8]) -> Option<String> {
    let line = stdout.split(|&byte| byte == b'\n').next()?;
    let word = std::str::from_utf8(line).ok()?.strip_prefix("gpg ")?.split(' ').next_back()?.trim();
    let sane = word.len() <= 32
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+~".contains(&byte));
    (sane && numbers(word).is_some()).then(|| word.to_owned())
}

/// The three numbers that a version begins with.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let end = version.find(|letter: char| letter != '.' && !letter.is_ascii_digit());
    let mut parts = version.get(..end.unwrap_or(version.len()))?.split('.');
    let major = parts.next()?.parse().ok()?;
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    Some([major, next(), next()])
}

/// The value of one line of `gpgconf --list-dirs`.
fn directory(stdout: &[u8], name: &[u8]) -> Result<PathBuf, Error> {
    let value = stdout.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(b":")?;
        unescape(value).ok().map(|path| PathBuf::from(OsString::from_vec(path)))
    });
    value.filter(|path| path.is_absolute() && !path.as_os_str().as_bytes().contains(&0)).ok_or_else(
        || {
            let name = OsStr::from_bytes(name).display();
            no_gnupg(format!("gpgconf doesn't name an absolute path for {name}"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_first_line() {
        for (line, version) in [
            ("gpg (GnuPG) 2.2.40\nlibgcrypt 1.10.1\n", Some("2.2.40")),
            ("gpg (GnuPG/MacGPG2) 2.2.41\n", Some("2.2.41")),
            ("gpg (GnuPG) 2.5.0-beta12\n", Some("2.5.0-beta12")),
            ("gpg (GnuPG) \u{1b}[2J2.4.7\n", None),
            ("gpg (GnuPG) new\n", None),
            ("", None),
        ] {
            assert_eq!(parse_version(line.as_bytes()).as_deref(), version, "{line:?}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("2.0.31") < Some(OLDEST));
        assert!(numbers("1.4.23") < Some(OLDEST));
        assert!(numbers("2.1.0-beta") >= Some(OLDEST));
        assert!(numbers("2.10") > numbers("2.9.9"));
    }

    #[test]
    fn paths_of_gpgconf_are_unescaped() {
        let stdout = b"sysconfdir:/etc/gnupg\nhomedir:/home/a%3ab%25\nagent-socket:relative\n";
        assert_eq!(directory(stdout, b"homedir").unwrap(), PathBuf::from("/home/a:b%"));
        assert!(directory(stdout, b"agent-socket").is_err());
        assert!(directory(stdout, b"home").is_err());
    }
}
