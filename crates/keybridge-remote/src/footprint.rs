//! What the holder of a lock has done in the target, for whoever has to undo it: written into the
//! lock's file before it is done.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use keybridge_proto::assuan::{escape_into, unescape};

use crate::MarkedBlock;

/// A lane's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// There was no folder before.
    pub(crate) made_folder: bool,
    /// Where clients connect.
    pub(crate) socket: Option<PathBuf>,
    /// The files that have lines of ours.
    pub(crate) edits: Vec<MarkedBlock>,
}

impl Footprint {
    /// A line for each fact: its name, and its value as Assuan data.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if self.made_folder {
            put(&mut text, "folder", b"made");
        }
        if let Some(socket) = &self.socket {
            put(&mut text, "socket", socket.as_os_str().as_bytes());
        }
        for edit in &self.edits {
            put(&mut text, "edit", edit.path().as_os_str().as_bytes());
            put(&mut text, "lines", edit.lines().as_bytes());
        }
        text
    }

    /// Reads what was written. What can't be read is left out.
    pub(crate) fn decode(text: &[u8]) -> Self {
        let mut record = Self::default();
        let mut edited: Option<PathBuf> = None;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            // A line without its end was cut.
            let Some((name, value)) = line.strip_suffix(b"\n").and_then(fact) else { continue };
            let path = || Some(Path::new(OsStr::from_bytes(&value)).to_owned());
            match name {
                b"folder" => record.made_folder = value == b"made",
                b"socket" => record.socket = path().filter(|path| path.is_absolute()),
                b"edit" => edited = path().filter(|path| path.is_absolute()),
                b"lines" => {
                    let lines = String::from_utf8(value).ok();
                    let block = edited.take().zip(lines);
                    record.edits.extend(block.map(|(path, lines)| MarkedBlock::new(path, lines)));
                }
                _ => {}
            }
        }
        record
    }
}

fn put(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.push(b' ');
    escape_into(text, value);
    text.push(b'\n');
}

fn fact(line: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (name, value) = line.split_at_checked(space)?;
    Some((name, unescape(value.get(1..)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let record = Footprint {
            made_folder: true,
            socket: Some(Path::new(OsStr::from_bytes(b"/odd\n path%\xff/S")).to_owned()),
            edits: vec![
                MarkedBlock::new("/home/a b/.gitconfig", "[a]\n\tb = %c\r\n"),
                MarkedBlock::new("/x", ""),
            ],
        };
        assert_eq!(Footprint::decode(&record.encode()), record);
        assert_eq!(Footprint::decode(&Footprint::default().encode()), Footprint::default());
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let text = b"12 abcd\nfolder no\nsocket relative\nlines x\nedit y\nlines z\nnew 1\nedit /c";
        assert_eq!(Footprint::decode(text), Footprint::default());
    }
}
