//! What a folder holds, to see that nothing was changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everything below a path: inode, mode and owner, and a file's content or a link's target.
pub fn snapshot(path: &Path) -> BTreeMap<PathBuf, (u64, u32, u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path, (metadata.ino(), metadata.mode(), metadata.uid(), content));
    }
    found
}
