//! What is known about each system: where things are, and what a person is told to do. It is data, so
//! that the search of every system is tested on any of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::Hint;

/// How a service of the system is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "only some systems have such a service")]
pub(crate) enum ServiceState {
    /// It can be started.
    Enabled,
    Disabled,
}

/// The shell that a person types commands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shell {
    Posix,
    PowerShell,
}

/// A system that this program runs on. In a place, `~` stands for the user's home and `$NAME` for a
/// variable.
#[derive(Debug)]
pub(crate) struct System {
    /// Containers share its kernel, the helper and Podman's service can run on it, and it may have
    /// systemd.
    pub(crate) is_linux: bool,
    /// The variable that names the user's home.
    home_variable: &'static str,
    /// The variables by which programs find the user's files, and without which they don't run.
    pub(crate) home_variables: &'static [&'static str],
    /// What the files of programs end in.
    program_suffix: &'static str,
    /// What stands before a local socket in the address of an engine.
    engine_scheme: &'static str,
    /// Where Docker's engine listens, the most usual place first.
    pub(crate) docker_sockets: &'static [&'static str],
    /// Whether a socket where nothing listens is passed over, since several engines can be installed
    /// and one that was stopped leaves its socket.
    pub(crate) skips_dead_sockets: bool,
    /// Where Podman's service of this user listens.
    pub(crate) podman_sockets: &'static [&'static str],
    /// Where that of root listens.
    pub(crate) podman_sockets_of_root: &'static [&'static str],
    /// Where programs are looked for after `PATH`, which is short in programs that no shell started.
    pub(crate) program_folders: &'static [&'static str],
    /// Where the configuration of programs is.
    pub(crate) config_folders: &'static [&'static str],
    /// Where running programs keep their state, if the folder is there. A socket's path has 107 bytes
    /// at most, 103 on Apple's systems.
    pub(crate) state_folders: &'static [&'static str],
    /// Where ssh looks for the keys of hosts: the user's files, then the system's.
    pub(crate) known_hosts: &'static [&'static str],
    /// Where the record is kept, which is to outlive a restart.
    pub(crate) record_folders: &'static [&'static str],
    /// How to get GnuPG.
    pub(crate) install_gnupg: &'static str,
    /// The pipe of the system's own ssh-agent, if it has one.
    pub(crate) openssh_pipe: Option<&'static str>,
    /// How to start an ssh-agent.
    pub(crate) start_ssh_agent: &'static str,
    /// The command that installs GnuPG, if no other package manager is found.
    pub(crate) gnupg_command: (&'static str, &'static str),
    /// The shell that a person types commands in.
    pub(crate) shell: Shell,
    /// How to get ssh.
    pub(crate) install_ssh: &'static str,
    /// How to start Docker.
    pub(crate) start_docker: Hint,
    /// How to start Podman.
    pub(crate) start_podman: Hint,
    /// How to be allowed to use an engine's socket.
    pub(crate) use_socket: Hint,
}

/// It sets a variable of the shell that starts it.
const START_SSH_AGENT: &str =
    "start one with `eval \"$(ssh-agent)\"`, and run `keybridge up` again in that shell";

const KNOWN_HOSTS: &[&str] = &[
    "~/.ssh/known_hosts",
    "~/.ssh/known_hosts2",
    "/etc/ssh/ssh_known_hosts",
    "/etc/ssh/ssh_known_hosts2",
];

static LINUX: System = System {
    is_linux: true,
    home_variable: "HOME",
    home_variables: &["HOME", "GNUPGHOME"],
    program_suffix: "",
    engine_scheme: "unix://",
    docker_sockets: &[
        "/var/run/docker.sock",
        "$XDG_RUNTIME_DIR/docker.sock",
        "~/.docker/run/docker.sock",
        "~/.docker/desktop/docker.sock",
    ],
    skips_dead_sockets: false,
    podman_sockets: &["$XDG_RUNTIME_DIR/podman/podman.sock"],
    podman_sockets_of_root: &["/run/podman/podman.sock"],
    program_folders: &[],
    config_folders: &["$XDG_CONFIG_HOME", "~/.config"],
    state_folders: &["$XDG_RUNTIME_DIR"],
    known_hosts: KNOWN_HOSTS,
    record_folders: &["$XDG_STATE_HOME", "~/.local/state"],
    install_gnupg: "install GnuPG 2.1 or later (the package is called gnupg, or gpg)",
    openssh_pipe: None,
    start_ssh_agent: START_SSH_AGENT,
    gnupg_command: ("apt-get", "sudo apt-get install -y gnupg"),
    shell: Shell::Posix,
    install_ssh: "install ssh (openssh-client)",
    start_docker: Hint::run("sudo systemctl start docker", "starts it, where systemd does"),
    start_podman: Hint::run(
        "systemctl --user start podman.socket",
        "starts its socket, where systemd does",
    ),
    use_socket: Hint::run(
        "sudo usermod -aG docker \"$(id -un)\"",
        "adds you to the group that usually owns it; log in again after that",
    ),
};

/// Podman's machine listens in the temporary folder since version 5, and in the home before. The link
/// `machine/podman.sock` leads to the machine that was started first.
const PODMAN_MACHINE: &[&str] = &[
    "$TMPDIR/podman/podman-machine-default-api.sock",
    "~/.local/share/containers/podman/machine/podman.sock",
    "~/.local/share/containers/podman/machine/podman-machine-default/podman.sock",
];

static APPLE: System = System {
    is_linux: false,
    home_variable: "HOME",
    home_variables: &["HOME", "GNUPGHOME"],
    program_suffix: "",
    engine_scheme: "unix://",
    docker_sockets: &[
        // A link to that of the engine that took it last, if the user allowed that.
        "/var/run/docker.sock",
        // Docker Desktop.
        "~/.docker/run/docker.sock",
        "~/.orbstack/run/docker.sock",
        "$COLIMA_HOME/default/docker.sock",
        "~/.colima/default/docker.sock",
        "$XDG_CONFIG_HOME/colima/default/docker.sock",
        // Rancher Desktop.
        "~/.rd/docker.sock",
    ],
    skips_dead_sockets: true,
    podman_sockets: PODMAN_MACHINE,
    podman_sockets_of_root: PODMAN_MACHINE,
    // Homebrew on Apple's processors and on Intel's, GPG Suite, MacPorts, Podman's own installer.
    program_folders: &[
        "/opt/homebrew/bin",
        "/usr/local/bin",
        "/usr/local/MacGPG2/bin",
        "/opt/local/bin",
        "/opt/podman/bin",
    ],
    config_folders: &["$XDG_CONFIG_HOME", "~/Library/Application Support"],
    // Not the temporary folder: macOS deletes files there that haven't been read for three days, and a
    // bridge's lock would be one of them.
    state_folders: &["$XDG_RUNTIME_DIR", "~/Library/Caches"],
    known_hosts: KNOWN_HOSTS,
    record_folders: &["$XDG_STATE_HOME", "~/Library/Application Support"],
    install_gnupg: "install GnuPG 2.1 or later: `brew install gnupg`, or GPG Suite",
    openssh_pipe: None,
    start_ssh_agent: START_SSH_AGENT,
    gnupg_command: ("brew", "brew install gnupg"),
    shell: Shell::Posix,
    install_ssh: "ssh is a part of the system, in /usr/bin: see if PATH has that folder",
    start_docker: Hint::say(
        "start Docker Desktop, OrbStack, Rancher Desktop, or Colima (`colima start`)",
    ),
    start_podman: Hint::say("start Podman's machine with: podman machine start"),
    use_socket: Hint::say(
        "see who owns the socket: the engine may have been started by another user",
    ),
};

const PODMAN_PIPE: &[&str] = &["//./pipe/podman-machine-default"];

static WINDOWS: System = System {
    is_linux: false,
    // Another one, HOME, is set by Git's shell for its own programs.
    home_variable: "USERPROFILE",
    home_variables: &[
        "USERPROFILE",
        "HOME",
        "GNUPGHOME",
        "APPDATA",
        "LOCALAPPDATA",
        "SYSTEMROOT",
        "SYSTEMDRIVE",
    ],
    program_suffix: ".exe",
    engine_scheme: "npipe://",
    // Docker Desktop has both, and the second one also while it runs containers of Windows.
    docker_sockets: &["//./pipe/docker_engine", "//./pipe/dockerDesktopLinuxEngine"],
    skips_dead_sockets: false,
    podman_sockets: PODMAN_PIPE,
    podman_sockets_of_root: PODMAN_PIPE,
    // GnuPG and Gpg4win, OpenSSH of Windows, Git with its own GnuPG, Docker Desktop, Podman.
    program_folders: &[
        "$ProgramFiles/GnuPG/bin",
        "$ProgramFiles(x86)/GnuPG/bin",
        "$ProgramFiles/Gpg4win/bin",
        "$ProgramFiles(x86)/Gpg4win/bin",
        "$SystemRoot/System32/OpenSSH",
        "$ProgramFiles/Git/usr/bin",
        "$LOCALAPPDATA/Programs/Git/usr/bin",
        "$ProgramFiles/Docker/Docker/resources/bin",
        "$ProgramFiles/RedHat/Podman",
    ],
    config_folders: &["$APPDATA"],
    state_folders: &["$LOCALAPPDATA"],
    known_hosts: &[
        "~/.ssh/known_hosts",
        "~/.ssh/known_hosts2",
        "$ProgramData/ssh/ssh_known_hosts",
        "$ProgramData/ssh/ssh_known_hosts2",
    ],
    record_folders: &["$LOCALAPPDATA"],
    install_gnupg: "install Gpg4win: `winget install GnuPG.Gpg4win`, or from gpg4win.org",
    openssh_pipe: Some(r"\\.\pipe\openssh-ssh-agent"),
    start_ssh_agent: "start the service ssh-agent, as an administrator in PowerShell: Set-Service ssh-agent -StartupType Automatic; Start-Service ssh-agent",
    gnupg_command: ("winget", "winget install --id GnuPG.Gpg4win"),
    shell: Shell::PowerShell,
    install_ssh: "install OpenSSH in Windows' settings: System, Optional features, OpenSSH Client",
    start_docker: Hint::say("start Docker Desktop"),
    start_podman: Hint::say("start Podman's machine with: podman machine start"),
    use_socket: Hint::say(
        "add yourself to the group docker-users, and log in again after that: `net localgroup docker-users \"%USERNAME%\" /add`, as an administrator",
    ),
};

impl System {
    /// The one that this program was built for.
    pub(crate) fn here() -> &'static Self {
        Self::of(std::env::consts::OS)
    }

    /// By its name, as `std::env::consts::OS` has it.
    pub(crate) fn of(name: &str) -> &'static Self {
        match name {
            "macos" => &APPLE,
            "windows" => &WINDOWS,
            _ => &LINUX,
        }
    }

    /// The file of a program.
    pub(crate) fn program_file(&self, name: &str) -> String {
        match name.strip_suffix(self.program_suffix) {
            Some(stem) => format!("{stem}{}", self.program_suffix),
            None => format!("{name}{}", self.program_suffix),
        }
    }

    /// The address of an engine that listens at a local socket.
    pub(crate) fn engine_host(&self, socket: &Path) -> String {
        format!("{}{}", self.engine_scheme, socket.display())
    }
}

/// The paths of places. One that needs a variable which isn't set is left out.
pub(crate) fn expand(places: &[&str], variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let path = |place: &&str| {
        let (first, rest) = place.split_once('/').unwrap_or((place, ""));
        let folder = match (first, first.strip_prefix('$')) {
            ("~", _) => variable("HOME")?,
            (_, Some(name)) => variable(name)?,
            (_, None) => return Some(PathBuf::from(place)),
        };
        let folder = Some(PathBuf::from(folder)).filter(|folder| !folder.as_os_str().is_empty())?;
        // Joining nothing would append a slash.
        Some(if rest.is_empty() { folder } else { folder.join(rest) })
    };
    places.iter().filter_map(path).collect()
}

/// A variable of this process, unless it is empty. The temporary folder has a default.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    match name {
        "TMPDIR" => Some(std::env::temp_dir().into()),
        "HOME" => std::env::var_os(System::here().home_variable).filter(|value| !value.is_empty()),
        _ => std::env::var_os(name).filter(|value| !value.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(name: &str) -> Option<OsString> {
        match name {
            "HOME" => Some("/Users/ann".into()),
            "TMPDIR" => Some("/var/folders/x/y/T/".into()),
            "EMPTY" => Some(OsString::new()),
            _ => None,
        }
    }

    #[test]
    fn a_place_without_its_variable_is_left_out() {
        let places =
            ["/a/b", "~/c d/e", "~", "$TMPDIR/f", "$TMPDIR", "$EMPTY/g", "$NONE/h", "$NONE"];
        let expected = [
            "/a/b",
            "/Users/ann/c d/e",
            "/Users/ann",
            "/var/folders/x/y/T/f",
            "/var/folders/x/y/T/",
        ];
        assert_eq!(expand(&places, made_up), expected.map(PathBuf::from));
        assert_eq!(expand(&["~/x"], |_| None), Vec::<PathBuf>::new());
    }

    #[test]
    fn on_apple_the_places_are_those_of_its_products() {
        let apple = System::of("macos");
        let docker = expand(apple.docker_sockets, made_up);
        let expected = [
            "/var/run/docker.sock",
            "/Users/ann/.docker/run/docker.sock",
            "/Users/ann/.orbstack/run/docker.sock",
            "/Users/ann/.colima/default/docker.sock",
            "/Users/ann/.rd/docker.sock",
        ];
        assert_eq!(docker, expected.map(PathBuf::from));
        let podman = expand(apple.podman_sockets, made_up);
        let api = "/var/folders/x/y/T/podman/podman-machine-default-api.sock";
        assert_eq!(podman.first(), Some(&PathBuf::from(api)));
    }

    #[test]
    fn on_apple_a_person_is_told_nothing_that_only_linux_has() {
        let System { install_gnupg, install_ssh, start_docker, start_podman, use_socket, .. } =
            System::of("macos");
        let hints = [start_docker, start_podman, use_socket].map(ToString::to_string);
        for text in hints.iter().map(String::as_str).chain([*install_gnupg, *install_ssh]) {
            let of_linux = ["systemctl", "package", "apt", "openssh-client", "group"];
            assert!(!of_linux.iter().any(|word| text.contains(word)), "{text}");
        }
        assert!(install_gnupg.contains("brew install gnupg"), "{install_gnupg}");
    }

    #[test]
    fn a_socket_in_the_state_folder_fits_into_an_address_on_apple() {
        // The longest name of an account there.
        let home = format!("/Users/{}", "a".repeat(31));
        let folders = expand(System::of("macos").state_folders, |name| {
            (name == "HOME").then(|| home.clone().into())
        });
        let [folder] = &folders[..] else { panic!("{folders:?}") };
        let socket = folder.join("keybridge").join("0".repeat(16)).join("control");
        assert!(socket.as_os_str().len() <= 103, "{}", socket.display());
    }
}
