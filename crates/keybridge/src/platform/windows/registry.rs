//! What other programs have noted in the registry about themselves.

use std::path::PathBuf;

use super::system_calls::{registry_number, registry_text};
use crate::platform::ServiceState;

/// Where the programs of GnuPG were installed, by 64-bit and by 32-bit installers, alone or with Gpg4win.
pub(crate) fn installed_folders() -> Vec<PathBuf> {
    let keys = [
        r"Software\GnuPG",
        r"Software\WOW6432Node\GnuPG",
        r"Software\Gpg4win",
        r"Software\WOW6432Node\Gpg4win",
    ];
    let folders = keys.iter().filter_map(|key| registry_text(key, "Install Directory"));
    folders.map(|folder| PathBuf::from(folder).join("bin")).collect()
}

/// How the service of OpenSSH's agent is set, which is disabled on a new machine. None if it isn't
/// installed.
pub(crate) fn ssh_agent_service() -> Option<ServiceState> {
    const DISABLED: u32 = 4;
    let start = registry_number(r"SYSTEM\CurrentControlSet\Services\ssh-agent", "Start")?;
    Some(if start == DISABLED { ServiceState::Disabled } else { ServiceState::Enabled })
}
