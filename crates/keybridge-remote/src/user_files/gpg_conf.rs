//! gpg's settings: lines that keep gpg from starting an agent of its own.

use std::iter::successors;
use std::path::Path;

use rustix::fs::{Access, access};

use super::marked_block::MarkedBlock;
use crate::error::quoted;

/// What gpg is to start in the place of an agent: nothing. gpg prints the path when it fails.
pub(crate) const NO_AGENT: &str = "/nonexistent/keybridge-is-down-run-keybridge-up";

const AGENT_PROGRAM: &str = "agent-program";

/// The block that keeps gpg from starting an agent of its own, in the file that a gpg of this
/// version reads: `gpg.conf-2.2.40`, `gpg.conf-2.2` or `gpg.conf-2` in the place of `gpg.conf`,
/// if there is one that can be read.
pub(crate) fn block(home: &Path, version: &str) -> MarkedBlock {
    let shorter = |version: &String| Some(version.rsplit_once(['.', '-'])?.0.to_owned());
    let path = successors(Some(version.to_owned()), shorter)
        .map(|version| home.join(format!("gpg.conf-{version}")))
        .find(|path| access(path, Access::READ_OK).is_ok());
    let lines = format!("{AGENT_PROGRAM} {NO_AGENT}\n");
    MarkedBlock::new(path.unwrap_or_else(|| home.join("gpg.conf")), lines)
}

/// The lines after ours that have gpg start an agent all the same: the last one counts.
pub(crate) fn overriding_lines(block: &MarkedBlock) -> Vec<String> {
    let content = block.file_content().unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let Some((_, after)) = text.rsplit_once(block.lines()) else { return Vec::new() };
    let names_agent = |line: &&str| line.split_whitespace().next() == Some(AGENT_PROGRAM);
    after.lines().map(str::trim).filter(names_agent).map(str::to_owned).collect()
}

/// The command that removes such lines from the file.
pub(crate) fn how_to_remove_overriding(file: &Path) -> String {
    let ours = NO_AGENT.rsplit('/').next().unwrap_or(NO_AGENT);
    format!("sed -i '/^[[:space:]]*{AGENT_PROGRAM}[[:space:]]/{{/{ours}/!d;}}' {}", quoted(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_most_special_one_of_this_version() {
        let folder = tempfile::tempdir().unwrap();
        let chosen = |version| {
            let path = block(folder.path(), version).path().to_owned();
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(chosen("2.2.40"), "gpg.conf");
        for name in ["gpg.conf", "gpg.conf-1", "gpg.conf-2.4", "gpg.conf-2.2.4", "gpg.conf-"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(chosen("2.2.40"), "gpg.conf");
        assert_eq!(chosen("2.4.7"), "gpg.conf-2.4");
        assert_eq!(chosen("2.4.0-beta12"), "gpg.conf-2.4");
        for name in ["gpg.conf-2", "gpg.conf-2.2", "gpg.conf-2.2.40"] {
            std::fs::write(folder.path().join(name), "").unwrap();
            assert_eq!(chosen("2.2.40"), name);
        }
    }
}
