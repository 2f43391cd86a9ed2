//! GnuPG in the target: which one, its home, and where its agent's socket has to be.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use keybridge_proto::assuan::unescape;
use keybridge_proto::printable;

use crate::command::{Output, command, last_line, run};
use crate::error::{Problem, StartError};
use crate::quoted::quoted;
use crate::{FileId, folder};

/// `GETINFO restricted` and the extra socket are there from this version on.
const OLDEST: [u32; 3] = [2, 1, 0];

/// What of the process's environment counts.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `GNUPGHOME`.
    pub gnupg_home: Option<OsString>,
    /// The user's name: in `/etc/passwd`, else `USER`, else `LOGNAME`.
    pub user: Option<String>,
    /// Finds the programs in another folder than those of `PATH`.
    pub programs: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            gnupg_home: std::env::var_os("GNUPGHOME").filter(|home| !home.is_empty()),
            // An exec into a container sets no USER, or leaves that of its image.
            user: name_in_passwd().or_else(|| text("USER")).or_else(|| text("LOGNAME")),
            programs: None,
        }
    }
}

/// GnuPG in the target, found and judged fit.
#[derive(Debug, Clone)]
pub struct Gnupg {
    environment: Environment,
    version: String,
    home: PathBuf,
    home_exists: bool,
    home_id: Option<FileId>,
    socket: PathBuf,
}

impl Gnupg {
    /// Finds GnuPG and judges its home. Changes nothing.
    pub async fn find(
        environment: Environment,
        host_home: Option<FileId>,
    ) -> Result<Self, StartError> {
        // Without its options: gpg reads a folder in the place of gpg.conf for ever.
        let gpg = environment.run("gpg", &["--no-options", "--version"]).await?;
        let version = parse_version(&gpg.stdout).ok_or_else(|| {
            let line = gpg.stdout.split(|&byte| byte == b'\n').next().unwrap_or_default();
            no_gnupg(format!("gpg doesn't say its version, but: {}", printable(line)))
        })?;
        if numbers(&version) < Some(OLDEST) {
            return Err(no_gnupg(format!("GnuPG {version} is too old; 2.1.0 is the oldest")));
        }
        let dirs = environment.run("gpgconf", &["--list-dirs"]).await?;
        let home = directory(&dirs.stdout, b"homedir")?;
        let socket = directory(&dirs.stdout, b"agent-socket")?;
        let home_id = environment.check_home(&home, host_home)?;
        Ok(Self { environment, version, home, home_exists: home_id.is_some(), home_id, socket })
    }

    /// The version, as gpg says it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where gpg looks for its agent.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Who we are, for a person.
    pub fn user(&self) -> String {
        let uid = folder::euid();
        match &self.environment.user {
            Some(name) => format!("{name} (uid {uid})"),
            None => format!("uid {uid}"),
        }
    }

    /// Whether the home holds secret keys; if that can't be told, it does.
    pub(crate) fn has_secret_keys(&self) -> bool {
        match std::fs::read_dir(self.home.join("private-keys-v1.d")) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Makes the default home if it isn't there.
    pub(crate) fn make_home(&mut self) -> Result<(), StartError> {
        if !self.home_exists {
            folder::make_private(&self.home)?;
            let metadata = std::fs::symlink_metadata(&self.home)
                .map_err(|error| StartError::io("looking at", &self.home, &error))?;
            self.home_id = Some(FileId::of(&metadata));
        }
        self.check_home()
    }

    /// Whether the home is still the one that was found, and fit to be used.
    pub(crate) fn check_home(&self) -> Result<(), StartError> {
        let id = folder::check("the GnuPG home", &self.home)?.as_ref().map(FileId::of);
        if id.is_some() && id == self.home_id {
            return Ok(());
        }
        let shown = self.home.display();
        let problem = Problem::new(format!("the GnuPG home {shown} is not the folder that it was"))
            .hint("start the bridge again");
        Err(StartError::NotPermitted(problem))
    }

    /// Whether another folder has the home's place, so that nothing of ours can be in there.
    pub(crate) fn is_home_replaced(&self) -> bool {
        std::fs::symlink_metadata(&self.home)
            .is_ok_and(|metadata| self.home_id != Some(FileId::of(&metadata)))
    }

    /// Takes a home away again that [`Self::make_home`] made and nobody used.
    pub(crate) fn unmake_home(&self) {
        if !self.home_exists
            && let Err(error) = std::fs::remove_dir(&self.home)
        {
            tracing::debug!(%error, "the new home stays");
        }
    }

    /// Has the folder of the sockets made, where that isn't the home.
    pub(crate) async fn make_socket_folder(&self) -> Result<(), StartError> {
        self.environment.run("gpgconf", &["--create-socketdir"]).await.map(drop)
    }

    /// gpg, ready to be given its arguments.
    pub(crate) fn gpg(&self) -> tokio::process::Command {
        self.environment.command("gpg")
    }
}

impl Environment {
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

    async fn run(&self, program: &str, arguments: &[&str]) -> Result<Output, StartError> {
        let output = run(self.command(program).args(arguments)).await.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                no_gnupg(format!("there is no {program} on the PATH of the target"))
            } else {
                no_gnupg(format!("running {program}: {error}"))
            }
        })?;
        if output.status.success() {
            return Ok(output);
        }
        let (status, line) = (output.status, printable(last_line(&output.stderr)));
        let arguments = arguments.join(" ");
        let problem = Problem::new(format!("{program} {arguments}: {status}: {line}"))
            .hint(format!("see what it prints in the target: {program} {arguments}"));
        Err(StartError::Other(problem))
    }

    /// Which folder the home is, if it is there; an error if it is none that we may use.
    fn check_home(
        &self,
        home: &Path,
        host_home: Option<FileId>,
    ) -> Result<Option<FileId>, StartError> {
        let shown = home.display();
        let Some(metadata) = folder::check("the GnuPG home", home)? else {
            if self.gnupg_home.is_none() {
                return Ok(None);
            }
            let problem = Problem::new(format!("GNUPGHOME {shown} doesn't exist"))
                .hint(format!("mkdir -m 700 {}", quoted(home)));
            return Err(StartError::NotFound(problem));
        };
        let id = FileId::of(&metadata);
        if host_home == Some(id) {
            let message =
                format!("{shown} is the host's own GnuPG home; there is nothing to bridge");
            let problem = Problem::new(message).hint("name another home for the target");
            return Err(StartError::SameHome(problem));
        }
        Ok(Some(id))
    }
}

/// More than a file of users has; beyond it the name is not worth the time.
const PASSWD_LIMIT: u64 = 1024 * 1024;

/// Our name in `/etc/passwd`. The C library's way would load the system's libraries.
fn name_in_passwd() -> Option<String> {
    let mut passwd = Vec::new();
    std::fs::File::open("/etc/passwd").ok()?.take(PASSWD_LIMIT).read_to_end(&mut passwd).ok()?;
    name_of(folder::euid(), &passwd)
}

fn name_of(uid: u32, passwd: &[u8]) -> Option<String> {
    let uid = uid.to_string();
    let name = passwd.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (!name.is_empty() && number == uid.as_bytes()).then_some(name)
    })?;
    Some(printable(name).to_string())
}

fn no_gnupg(message: String) -> StartError {
    StartError::NoGnupg(Problem::new(message).hint("install gnupg in the target"))
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
    let end = version.find(|sign: char| sign != '.' && !sign.is_ascii_digit());
    let mut parts = version.get(..end.unwrap_or(version.len()))?.split('.');
    let major = parts.next()?.parse().ok()?;
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    Some([major, next(), next()])
}

/// The value of one line of `gpgconf --list-dirs`.
fn directory(stdout: &[u8], name: &[u8]) -> Result<PathBuf, StartError> {
    let value = stdout.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(b":")?;
        unescape(value).ok().map(|path| PathBuf::from(OsString::from_vec(path)))
    });
    value.filter(|path| path.is_absolute() && !path.as_os_str().as_bytes().contains(&0)).ok_or_else(
        || {
            let name = OsStr::from_bytes(name).display();
            no_gnupg(format!("gpgconf names no absolute path for {name}"))
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
    fn the_name_of_a_user_is_the_first_with_its_number() {
        let passwd = b"root:x:0:0::/root:/bin/sh\nbroken\n:x:7:\ndev:x:1000:1000::/:\nb:x:1000:\n";
        assert_eq!(name_of(1000, passwd).as_deref(), Some("dev"));
        assert_eq!(name_of(0, passwd).as_deref(), Some("root"));
        assert_eq!(name_of(7, passwd), None);
        assert_eq!(name_of(100, passwd), None);
        assert_eq!(name_of(5, b"\x1b[31m:x:5:\n").as_deref(), Some("\\u{1b}[31m"));
    }

    #[test]
    fn paths_of_gpgconf_are_unescaped() {
        let stdout = b"sysconfdir:/etc/gnupg\nhomedir:/home/a%3ab%25\nagent-socket:relative\n";
        assert_eq!(directory(stdout, b"homedir"), Ok(PathBuf::from("/home/a:b%")));
        assert!(directory(stdout, b"agent-socket").is_err());
        assert!(directory(stdout, b"home").is_err());
    }
}
