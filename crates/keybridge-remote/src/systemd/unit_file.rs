//! Where a socket unit listens, by its file and the files that add to it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::UnitName;

/// A unit has some lines; this is far more.
const MAX_SIZE: u64 = 64 * 1024;

/// More units than a folder has.
const MAX_ENTRIES: usize = 4096;

/// What a unit's file can name without writing it out.
pub(super) struct Specifiers<'a> {
    pub(super) runtime_folder: &'a Path,
    pub(super) home: &'a Path,
}

impl Specifiers<'_> {
    /// A path with its specifiers expanded; nothing if there is one that isn't known.
    fn expand(&self, text: &str) -> Option<PathBuf> {
        let mut path = String::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                path.push(letter);
                continue;
            }
            match letters.next()? {
                't' => path.push_str(self.runtime_folder.to_str()?),
                'h' => path.push_str(self.home.to_str()?),
                '%' => path.push('%'),
                _ => return None,
            }
        }
        Some(path.into())
    }
}

/// The socket units of a folder.
pub(super) fn sockets_in(folder: &Path) -> Vec<UnitName> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten();
    entries.filter_map(|entry| UnitName::of_file(&entry.file_name())).collect()
}

/// Whether a unit listens at a path.
pub(super) fn listens(
    file: &Path,
    drop_ins: &[PathBuf],
    socket: &Path,
    specifiers: &Specifiers<'_>,
) -> bool {
    let mut added: Vec<PathBuf> = drop_ins
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.take(MAX_ENTRIES).flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .collect();
    added.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    let mut paths = Vec::new();
    for text in [file.to_owned()].into_iter().chain(added).filter_map(|path| read(&path)) {
        add_streams(&text, &mut paths);
    }
    paths.iter().any(|path| specifiers.expand(path).as_deref() == Some(socket))
}

/// Adds the values of `ListenStream=`; an empty one takes those before it back.
fn add_streams(text: &str, paths: &mut Vec<String>) {
    let mut is_in_section = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_in_section = line == "[Socket]";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_in_section)
            && name.trim_end() == "ListenStream"
        {
            match value.trim_start() {
                "" => paths.clear(),
                value => paths.push(value.to_owned()),
            }
        }
    }
}

fn read(path: &Path) -> Option<String> {
    // A pipe in the place of a unit must not hold us up.
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut text = String::new();
    let file = is_file.then(|| File::open(path).ok()).flatten()?;
    file.take(MAX_SIZE).read_to_string(&mut text).ok()?;
    Some(text)
}
