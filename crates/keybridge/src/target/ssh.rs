//! `ssh://[USER@]HOST[:PORT]`, over the system's ssh with the user's own configuration.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use keybridge_proto::{last_line, printable};
use tokio::process::Command;

use crate::program::{self, RunError};
use crate::shell_quote::quoted;
use crate::target::TargetCommand;
use crate::target::command::{Connection, Questions};
use crate::target::says;
use crate::{Error, ErrorKind, Result};

/// Where `ssh://` leads. Nothing in it can be taken for an option of ssh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SshAddress {
    user: Option<String>,
    /// A host's name or number, or a name that only ssh's configuration knows.
    host: String,
    port: Option<u16>,
}

/// The exit status of ssh itself; any other is the remote command's.
pub(crate) const FAILED: i32 = 255;

/// Nothing of the host is lent by the way: no X11 display (`-x`), no Kerberos tickets (`-k`), no agent,
/// no ports, no network device, whatever the configuration says.
const NOTHING_FORWARDED: [&str; 8] =
    ["-x", "-k", "-o", "ClearAllForwardings=yes", "-o", "ForwardAgent=no", "-o", "Tunnel=no"];

/// Nothing but our shell: no command of the configuration's.
const OPTIONS: [&str; 7] =
    ["-T", "-o", "PermitLocalCommand=no", "-o", "RemoteCommand=none", "-o", "SessionType=default"];

/// For a login at which nobody is asked. TCP asks for a connection after 0, 1, 3 and 7 s: after that,
/// another attempt finds a network that is back sooner.
const UNATTENDED: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=8"];

impl FromStr for SshAddress {
    type Err = Error;

    /// Reads what stands behind `ssh://`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let message = format!("ssh://{}: not the address of a host", printable(text));
            Error::new(ErrorKind::Usage, message).hint("write ssh://[USER@]HOST[:PORT]")
        };
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if rest.is_empty() => (host, None),
                    None => return Err(wrong()),
                }
            }
            None => match place.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let is_bracketed = place.starts_with('[');
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err(wrong()),
        };
        if !is_host(host, is_bracketed) || !user.is_none_or(is_user) {
            return Err(wrong());
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

/// A host's name, in characters that mean nothing to a shell: ssh puts it into commands of the user's
/// configuration.
fn is_host(host: &str, is_bracketed: bool) -> bool {
    let colon = if is_bracketed { ":%" } else { "" };
    let allowed = |character: char| {
        character.is_ascii_alphanumeric() || "._-+".contains(character) || colon.contains(character)
    };
    !host.is_empty() && !host.starts_with('-') && host.chars().all(allowed)
}

fn is_user(user: &str) -> bool {
    let allowed =
        |character: char| character.is_ascii_alphanumeric() || "._-+@".contains(character);
    !user.is_empty() && !user.starts_with('-') && user.chars().all(allowed)
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl SshAddress {
    /// The same host, for a user there.
    pub(crate) fn for_user(self, user: &str) -> Result<Self> {
        if !is_user(user) {
            let message = format!("{}: not the name of a user", printable(user));
            return Err(Error::new(ErrorKind::Usage, message));
        }
        match &self.user {
            Some(named) if named != user => {
                let message = format!("ssh://{self} names another user than {user}");
                Err(Error::new(ErrorKind::Usage, message).hint("leave --user out"))
            }
            Some(_) | None => Ok(Self { user: Some(user.to_owned()), ..self }),
        }
    }

    /// The host and how to log in to it, as arguments of ssh.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]));
        words.extend(self.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]));
        words.extend(["--".to_owned(), self.host.clone()]);
        words
    }
}

/// How long ssh may take to tell its version or its configuration, for which it can run the user's programs.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Its configuration can name many files.
const ANSWER_LIMIT: usize = 1024 * 1024;

/// The command to which the name of a shell is appended.
pub(crate) async fn shell(
    address: &SshAddress,
    questions: &Questions,
    connection: Connection,
) -> Result<Command> {
    let options = NOTHING_FORWARDED.iter().chain(options().await);
    let mut options: Vec<String> = options.map(|word| (*word).to_owned()).collect();
    if !questions.are_asked() {
        options.extend(UNATTENDED.map(str::to_owned));
    }
    if connection == Connection::Own {
        options.extend(["-o", "ControlPath=none"].map(str::to_owned));
    }
    if accepts_changed_keys(address, &options).await? {
        // New keys are accepted as the user wants, and changed ones are not.
        options.extend(["-o", "StrictHostKeyChecking=accept-new"].map(str::to_owned));
    }
    let mut command = Command::new("ssh");
    command.args(options).args(address.arguments());
    Ok(command)
}

/// The options that this ssh knows: the last one is new in 8.7.
async fn options() -> &'static [&'static str] {
    static ALL_ARE_KNOWN: tokio::sync::OnceCell<bool> = tokio::sync::OnceCell::const_new();
    let all_are_known = ALL_ARE_KNOWN
        .get_or_init(async || {
            // It reads its options in order, and ends with a failure at one that it doesn't know.
            let mut ssh = Command::new("ssh");
            ssh.args(OPTIONS).arg("-V");
            let asked = program::run(ssh, ANSWER_LIMIT, ANSWER_TIME).await;
            asked.is_ok_and(|asked| asked.status.success())
        })
        .await;
    match (all_are_known, OPTIONS.split_last_chunk::<2>()) {
        (false, Some((older, _))) => older,
        (true | false, _) => &OPTIONS,
    }
}

/// Whether the user's configuration accepts a host key that has changed.
async fn accepts_changed_keys(address: &SshAddress, options: &[String]) -> Result<bool> {
    let mut ssh = Command::new("ssh");
    ssh.args(options).arg("-G").args(address.arguments());
    let asked = match program::run(ssh, ANSWER_LIMIT, ANSWER_TIME).await {
        Ok(asked) => asked,
        // It fails when it is to do its work.
        Err(RunError::NotStarted(_)) => return Ok(false),
        Err(RunError::Failed(error)) => return Err(error.context(format!("ssh://{address}"))),
    };
    if !asked.status.success() {
        let why = printable(last_line(&asked.messages)).to_string();
        return Err(Error::failed(format!("ssh://{address}: ssh's configuration: {why}")));
    }
    let settings = String::from_utf8_lossy(&asked.stdout);
    let strictness = settings.lines().find_map(|line| line.strip_prefix("stricthostkeychecking "));
    Ok(!matches!(strictness, Some("true" | "yes" | "ask" | "accept-new")))
}

/// What it means that ssh has ended by itself, by its last words. They are the same in every language.
pub(crate) fn explain(address: &SshAddress, said: &str, questions: &Questions) -> Error {
    let has_said = |words: &str| said.contains(words);
    let last = said.lines().last().unwrap_or("it gave no reason");
    // The host may have chosen them.
    let last = says("ssh", last.strip_prefix("ssh: ").unwrap_or(last));
    let failed = |kind, why: &str| Error::new(kind, format!("ssh://{address}: {why}"));
    let try_ssh = || format!("see if `ssh {}` logs in", address.arguments().join(" "));
    let host = &address.host;
    if has_said("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        return failed(ErrorKind::LoginRefused, "the host's key has changed").hint(format!(
            "somebody may be in its place; if the change is right: ssh-keygen -R {}",
            quoted(host)
        ));
    }
    let refusals = ["Host key verification failed", "Permission denied", "authentication"];
    if !refusals.iter().any(|words| has_said(words)) {
        return failed(ErrorKind::NoTarget, &last).hint(try_ssh());
    }
    let refused = failed(ErrorKind::LoginRefused, &format!("the login was refused: {last}"));
    if questions.are_asked() {
        refused.hint(try_ssh())
    } else {
        refused.hint(format!(
            "run `keybridge up ssh://{address}` again at a terminal, where ssh can ask"
        ))
    }
}

/// ssh does this best: it knows terminals.
pub(crate) fn in_the_foreground(
    address: &SshAddress,
    command: &TargetCommand,
    terminal: bool,
) -> std::process::Command {
    let mut program = std::process::Command::new("ssh");
    program.arg(if terminal { "-t" } else { "-T" }).args(NOTHING_FORWARDED);
    program.args(["-o", "RemoteCommand=none"]).args(address.arguments());
    // The user's shell there reads it.
    let words = command.with_env();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    program.arg(format!("exec {}", shell_words::join(words)));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, user, host, port) in [
            ("web", None, "web", None),
            ("dev@web.example.org:2222", Some("dev"), "web.example.org", Some(2222)),
            ("a@b@web", Some("a@b"), "web", None),
            ("[fe80::1%eth0]:22", None, "fe80::1%eth0", Some(22)),
            ("[::1]", None, "::1", None),
        ] {
            let address: SshAddress = text.parse().unwrap();
            assert_eq!(
                (address.user.as_deref(), address.host.as_str(), address.port),
                (user, host, port)
            );
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_could_be_an_option_or_a_command_is_refused() {
        for text in [
            "",
            "-oProxyCommand=x",
            "-x",
            "a@-x",
            "-l@web",
            "web:0",
            "web:x",
            "web:70000",
            "a b",
            "$(x)",
            "web;x",
            "web/path",
            "::1",
            "[::1",
            "[::1]x",
            "@web",
            "a'b@web",
            "\u{1b}[31m",
        ] {
            let error = text.parse::<SshAddress>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
        }
    }

    #[test]
    fn the_host_stands_behind_all_options() {
        let address: SshAddress = "dev@web:2222".parse().unwrap();
        assert_eq!(address.arguments(), ["-l", "dev", "-p", "2222", "--", "web"]);
    }

    crate::platform::tests_on_unix! {
    #[tokio::test]
    async fn nothing_is_forwarded_whatever_the_configuration_says() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        let settings = "ForwardX11 yes\nForwardAgent yes\nTunnel yes\n\
                        GSSAPIDelegateCredentials yes\nLocalForward 127.0.0.1:1 127.0.0.1:1\n";
        std::fs::write(&config, settings).unwrap();
        let address: SshAddress = "web".parse().unwrap();
        let shell = shell(&address, &Questions::NotAsked, Connection::Own).await.unwrap();
        let foreground = in_the_foreground(&address, &TargetCommand::new(["true"]), true);
        for command in [shell.into_std(), foreground] {
            let mut ssh = Command::new("ssh");
            let asked = ssh.arg("-F").arg(&config).arg("-G").args(command.get_args()).output();
            let shown = String::from_utf8(asked.await.unwrap().stdout).unwrap();
            for line in [
                "forwardx11 no",
                "forwardagent no",
                "tunnel false",
                "gssapidelegatecredentials no",
                "clearallforwardings yes",
            ] {
                assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
            }
        }
    }
    }

    #[test]
    fn the_last_words_of_ssh_tell_who_is_to_act() {
        let address: SshAddress = "web".parse().unwrap();
        for (said, kind) in [
            ("ssh: Could not resolve hostname web: Name or service not known", ErrorKind::NoTarget),
            ("ssh: connect to host web port 22: Network is unreachable", ErrorKind::NoTarget),
            ("dev@web: Permission denied (publickey,password).", ErrorKind::LoginRefused),
            ("Host key verification failed.", ErrorKind::LoginRefused),
            (
                "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.",
                ErrorKind::LoginRefused,
            ),
        ] {
            assert_eq!(explain(&address, said, &Questions::NotAsked).kind, kind, "{said}");
        }
    }
}
