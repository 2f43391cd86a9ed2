//! `keybridge env TARGET`.

use clap::{Args, ValueEnum};
use keybridge_proto::{Lane, printable};

use super::targets;
use crate::config::Options;
use crate::output::print_line;
use crate::supervisor::BridgeManager;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Print what to set in the target's shell, for ssh-add and ssh-keygen by hand
#[derive(Debug, Args)]
pub(crate) struct Env {
    /// The target
    target: Option<String>,
    /// The shell in the target
    #[arg(long, value_enum, default_value = "sh")]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    /// sh, bash, zsh and the like
    Sh,
    Fish,
    #[value(name = "powershell", alias = "pwsh")]
    Power,
}

impl Env {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let address = targets::one_named(self.target.as_deref(), &manager).await?;
        address.check_not_here("env")?;
        let socket = ssh_socket(&manager, &address).await?;
        print_line(&self.shell.set("SSH_AUTH_SOCK", &socket));
        Ok(())
    }
}

/// Where the ssh lane is in a target that is bridged.
pub(super) async fn ssh_socket(manager: &BridgeManager, address: &TargetAddress) -> Result<String> {
    let status = manager.status(address).await?;
    let with_ssh = Lane::ALL.iter().filter(|lane| {
        // Whoever names lanes loses the others.
        **lane == Lane::Ssh || status.lanes[**lane].is_some()
    });
    let with_ssh = with_ssh.map(Lane::to_string).collect::<Vec<_>>().join(",");
    let lane = status.lanes.ssh.ok_or_else(|| {
        Error::new(ErrorKind::NoAgent, format!("{address} is bridged without the ssh lane")).hint(
            format!("keybridge up --lanes {with_ssh} {address} adds it, or says why it can't"),
        )
    })?;
    // The target chose the path, and a shell will evaluate it.
    if printable(&lane.socket).to_string() != lane.socket {
        return Err(Error::failed(format!(
            "{address}: the socket's path has characters that can't be quoted for a shell"
        )));
    }
    Ok(lane.socket)
}

impl Shell {
    fn set(self, name: &str, value: &str) -> String {
        match self {
            Self::Sh => {
                format!("{name}='{}'; export {name}", value.replace('\'', r"'\''"))
            }
            Self::Fish => {
                let value = value.replace('\\', r"\\").replace('\'', r"\'");
                format!("set -gx {name} '{value}'")
            }
            Self::Power => format!("$env:{name} = '{}'", value.replace('\'', "''")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_reads_the_value_as_it_is() {
        let value = r"/a b/it's\$HOME";
        assert_eq!(Shell::Sh.set("X", value), r"X='/a b/it'\''s\$HOME'; export X");
        assert_eq!(Shell::Fish.set("X", value), r"set -gx X '/a b/it\'s\\$HOME'");
        assert_eq!(Shell::Power.set("X", value), r"$env:X = '/a b/it''s\$HOME'");
    }
}
