//! The addresses of targets, as people write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use keybridge_proto::printable;

use super::SshAddress;
use crate::config::LaneScope;
use crate::shell_quote::quoted;
use crate::{Error, ErrorKind};

/// Where a bridge leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetAddress {
    /// `here`, the sandboxes of coding agents on the host.
    Here,
    /// `local:DIR`, a second GnuPG home on the host; an absolute path.
    Local(PathBuf),
    /// `NAME`, a container of whichever engine has it, by its name, its id or a prefix of that.
    Container(String),
    /// `docker://NAME`, a container of Docker's.
    Docker(String),
    /// `podman://NAME`, a container of Podman's.
    Podman(String),
    /// `ssh://[USER@]HOST[:PORT]`, a host that ssh leads to.
    Ssh(SshAddress),
    /// `wsl://DISTRO`, a distribution in the Windows Subsystem for Linux.
    Wsl(String),
    /// `exec:COMMAND`, what a command leads to, by its words.
    Exec(Vec<String>),
    /// `vscode:AUTHORITY`, the remote of an editor's window.
    Editor(String),
}

impl TargetAddress {
    /// How each kind is written, for a hint.
    pub(crate) const FORMS: &str = "a target is a container (NAME, docker://NAME, podman://NAME), \
                                    ssh://[USER@]HOST[:PORT], wsl://DISTRO, exec:COMMAND, here (sandboxes on \
                                    the host), or local:DIR (a second GnuPG home there)";

    /// How sandboxes on the host are written.
    pub(crate) const HERE: &str = "here";

    /// Which lanes it can have.
    pub(crate) const fn lane_scope(&self) -> LaneScope {
        match self {
            Self::Here => LaneScope::Sandboxes,
            Self::Local(_) => LaneScope::SecondHome,
            Self::Container(_)
            | Self::Docker(_)
            | Self::Podman(_)
            | Self::Ssh(_)
            | Self::Wsl(_)
            | Self::Exec(_)
            | Self::Editor(_) => LaneScope::Target,
        }
    }

    /// Refuses sandboxes on the host, for a command that they have no use for.
    pub(crate) fn check_not_here(&self, command: &str) -> Result<(), Error> {
        if *self != Self::Here {
            return Ok(());
        }
        let message =
            format!("{command} doesn't apply to here: only git in a sandbox asks the bridge");
        Err(usage(message).hint("everything else there is the host's own: keys, agents, settings"))
    }

    /// The address as a word of a shell command that a person may copy.
    pub(crate) fn as_word(&self) -> String {
        quoted(&self.to_string())
    }

    /// The name or id of a container.
    pub(crate) fn container(&self) -> Option<&str> {
        match self {
            Self::Container(name) | Self::Docker(name) | Self::Podman(name) => Some(name),
            Self::Here
            | Self::Local(_)
            | Self::Ssh(_)
            | Self::Wsl(_)
            | Self::Exec(_)
            | Self::Editor(_) => None,
        }
    }

    /// The name that a person knows it by: a container's, or the address.
    pub(crate) fn name(&self) -> String {
        self.container().map_or_else(|| self.to_string(), str::to_owned)
    }

    /// Whether a login there may ask a person something.
    pub(crate) const fn may_ask(&self) -> bool {
        match self {
            Self::Ssh(_) | Self::Exec(_) => true,
            Self::Here
            | Self::Local(_)
            | Self::Container(_)
            | Self::Docker(_)
            | Self::Podman(_)
            | Self::Wsl(_)
            | Self::Editor(_) => false,
        }
    }

    /// Whether a target whose full address was noted may be meant.
    pub(crate) fn may_mean(&self, noted: &str) -> bool {
        match self {
            Self::Container(name) => [Self::Docker(name.clone()), Self::Podman(name.clone())]
                .iter()
                .any(|address| address.to_string() == noted),
            Self::Here
            | Self::Local(_)
            | Self::Docker(_)
            | Self::Podman(_)
            | Self::Ssh(_)
            | Self::Wsl(_)
            | Self::Exec(_)
            | Self::Editor(_) => self.to_string() == noted,
        }
    }
}

impl FromStr for TargetAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == Self::HERE {
            return Ok(Self::Here);
        }
        if let Some(folder) = text.strip_prefix("local:") {
            if folder.is_empty() {
                return Err(usage("local: needs a folder").hint("write local:DIR"));
            }
            if folder.starts_with('~') {
                let message = format!("{}: the shell didn't expand the ~", printable(text));
                return Err(usage(message).hint("write local:$HOME/…"));
            }
            // Not resolved: the helper looks at the folder without following links.
            let absolute = std::path::absolute(Path::new(folder))
                .map_err(|error| usage(format!("{}: {error}", printable(folder))))?;
            return Ok(Self::Local(absolute));
        }
        if let Some(authority) = text.strip_prefix("vscode:") {
            return editor(authority);
        }
        if let Some(address) = text.strip_prefix("ssh://") {
            return address.parse().map(Self::Ssh);
        }
        if let Some(distro) = text.strip_prefix("wsl://") {
            return wsl(distro);
        }
        if let Some(command) = text.strip_prefix("exec:") {
            return exec(command);
        }
        if let Some(name) = text.strip_prefix("docker://") {
            return container(name, text).map(Self::Docker);
        }
        if let Some(name) = text.strip_prefix("podman://") {
            return container(name, text).map(Self::Podman);
        }
        container(text, text).map(Self::Container)
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here => f.write_str(Self::HERE),
            Self::Container(name) => write!(f, "{}", printable(name)),
            Self::Podman(name) => write!(f, "podman://{}", printable(name)),
            Self::Docker(name) => write!(f, "docker://{}", printable(name)),
            Self::Ssh(address) => write!(f, "ssh://{address}"),
            Self::Wsl(distro) => write!(f, "wsl://{}", printable(distro)),
            Self::Exec(words) => write!(f, "exec:{}", shell_words::join(words)),
            Self::Editor(authority) => write!(f, "vscode:{}", printable(authority)),
            Self::Local(folder) => {
                write!(f, "local:{}", printable(folder.as_os_str().as_encoded_bytes()))
            }
        }
    }
}

/// The longest authority that makes sense: an editor puts whole descriptions of containers there.
const MAX_AUTHORITY: usize = 4096;

/// What an editor calls the remote of a window.
fn editor(authority: &str) -> Result<TargetAddress, Error> {
    if (1..=MAX_AUTHORITY).contains(&authority.len()) {
        return Ok(TargetAddress::Editor(authority.to_owned()));
    }
    let message = format!("vscode: needs an authority, of at most {MAX_AUTHORITY} bytes");
    Err(usage(message).hint("keybridge status lists the windows that are bridged"))
}

/// A container's name or id, in the characters that the engine allows. `written` is the whole address.
fn container(name: &str, written: &str) -> Result<String, Error> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(allowed) {
        return Ok(name.to_owned());
    }
    let written = if written.is_empty() { "an empty word" } else { written };
    Err(usage(format!("{}: not the address of a target", printable(written)))
        .hint(TargetAddress::FORMS))
}

/// The name of a distribution, as `wsl.exe -l` shows it.
fn wsl(distro: &str) -> Result<TargetAddress, Error> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    if distro.starts_with(|first: char| first.is_ascii_alphanumeric())
        && distro.chars().all(allowed)
    {
        return Ok(TargetAddress::Wsl(distro.to_owned()));
    }
    let message = format!("wsl://{}: not the name of a distribution", printable(distro));
    Err(usage(message).hint("wsl.exe -l lists them"))
}

/// A command, split into words as a shell does it, with nothing expanded.
fn exec(command: &str) -> Result<TargetAddress, Error> {
    let shown = printable(command).to_string();
    let wrong = |why: &str| {
        usage(format!("exec:{shown}: {why}"))
            .hint("write the whole command in quotes: exec:'docker exec -i web'")
    };
    // It is shown as it is, and has to be read again.
    if shown != command {
        return Err(wrong("it has control characters, or is too long"));
    }
    match shell_words::split(command) {
        Ok(words) if words.is_empty() => Err(wrong("there is no command")),
        Ok(words) => Ok(TargetAddress::Exec(words)),
        Err(_) => Err(wrong("a quote is not closed")),
    }
}

fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_is_an_absolute_folder() {
        let second = std::env::temp_dir().join("second");
        let address: TargetAddress = format!("local:{}", second.display()).parse().unwrap();
        assert_eq!(address, TargetAddress::Local(second.clone()));
        assert_eq!(address.to_string(), format!("local:{}", second.display()));
        let Ok(TargetAddress::Local(folder)) = "local:here".parse() else { panic!("not local") };
        assert!(folder.is_absolute() && folder.ends_with("here"));
    }

    #[test]
    fn a_container_is_named_with_or_without_its_engine() {
        let addresses = [
            ("web", TargetAddress::Container("web".into())),
            ("docker://web", TargetAddress::Docker("web".into())),
            ("podman://web", TargetAddress::Podman("web".into())),
        ];
        for (text, address) in addresses {
            assert_eq!(text.parse(), Ok(address.clone()));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_command_is_split_into_words_and_nothing_is_expanded() {
        for (text, words) in [
            ("exec:docker exec -i web", &["docker", "exec", "-i", "web"][..]),
            ("exec:lxc exec 'my web' --", &["lxc", "exec", "my web", "--"]),
            (r#"exec:a "$HOME" `b` \$c *"#, &["a", "$HOME", "`b`", "$c", "*"]),
        ] {
            let address: TargetAddress = text.parse().unwrap();
            assert_eq!(
                address,
                TargetAddress::Exec(words.iter().map(|word| word.to_string()).collect())
            );
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for text in
            ["exec:", "exec: ", "exec:'a", "exec:a\u{1b}", "wsl://", "wsl://-x", "wsl://a b"]
        {
            let error = text.parse::<TargetAddress>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
        }
    }

    #[test]
    fn a_name_alone_may_mean_a_container_of_either_engine() {
        let address: TargetAddress = "web".parse().unwrap();
        assert!(address.may_mean("docker://web") && address.may_mean("podman://web"));
        assert!(!address.may_mean("docker://web2") && !address.may_mean("local:web"));
        let address: TargetAddress = "podman://web".parse().unwrap();
        assert!(address.may_mean("podman://web") && !address.may_mean("docker://web"));
    }

    #[test]
    fn other_words_are_refused_with_the_right_form() {
        for text in
            ["local:", "local:~/x", "docker://", "a/b", "-x", "podman://", "podman://a/b", ""]
        {
            let error = text.parse::<TargetAddress>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
            assert!(error.hints.iter().any(|hint| hint.to_string().contains("local:")), "{text}");
        }
        for (text, shown) in [("docker://", "docker://: "), ("", "an empty word: ")] {
            let error = text.parse::<TargetAddress>().unwrap_err();
            assert!(error.message.starts_with(shown), "{error}");
        }
        let error = "\u{1b}[31mred".parse::<TargetAddress>().unwrap_err();
        assert!(!error.message.contains('\u{1b}'));
    }
}
