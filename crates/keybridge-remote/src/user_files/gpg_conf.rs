//! gpg's settings: lines that keep gpg from starting an agent of its own.

use std::iter::successors;
use std::path::Path;

use rustix::fs::{Access, access};

use super::marked_block::MarkedBlock;

/// What gpg is to start in the place of an agent: nothing. gpg prints the path when it fails.
pub(crate) const NO_AGENT: &str = "/nonexistent/keybridge-is-down-run-keybridge-up";

/// The block that keeps gpg from starting an agent of its own, in the file that a gpg of this
/// version reads: `gpg.conf-2.2.40`, `gpg.conf-2.2` or `gpg.conf-2` in the place of `gpg.conf`,
/// if there is one that can be read.
pub(crate) fn block(home: &Path, version: &str) -> MarkedBlock {
    let shorter = |version: &String| Some(version.rsplit_once(['.', '-'])?.0.to_owned());
    let path = successors(Some(version.to_owned()), shorter)
        .map(|version| home.join(format!("gpg.conf-{version}")))
        .find(|path| access(path, Access::READ_OK).is_ok());
    let lines = format!("agent-program {NO_AGENT}\n");
    MarkedBlock::new(path.unwrap_or_else(|| home.join("gpg.conf")), lines)
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
