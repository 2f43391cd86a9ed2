//! The helper that goes into targets: carried inside this program, or found beside it.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use keybridge_proto::printable;
use sha2::{Digest, Sha256};

use crate::platform::read_own_file;
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Where helpers come from.
#[derive(Debug, Clone, Default)]
pub struct Helper {
    /// A program to use for any processor, for those who build their own.
    pub program: Option<PathBuf>,
}

impl Helper {
    /// Checks that a program which was named can be read.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(path) = &self.program else { return Ok(()) };
        std::fs::File::open(path).map(drop).map_err(|error| unreadable(path, error))
    }

    /// The program for a processor, as `uname -m` names it.
    pub fn for_processor(&self, processor: &str) -> Result<HelperProgram> {
        // The name comes from the target, and becomes a part of a path.
        if !is_name(processor) {
            let shown = printable(processor);
            return Err(Error::failed(format!("{shown} is not the name of a processor")));
        }
        if let Some(path) = &self.program {
            return std::fs::read(path)
                .map(HelperProgram::of_file)
                .map_err(|error| unreadable(path, error));
        }
        if let Some((_, hash, program)) = CARRIED.iter().find(|(name, _, _)| *name == processor) {
            return Ok(HelperProgram {
                hash: (*hash).to_owned(),
                source: Source::Carried(program),
            });
        }
        let beside = candidates(processor);
        for path in &beside {
            if let Ok(program) = std::fs::read(path) {
                return Ok(HelperProgram::of_file(program));
            }
        }
        let looked: Vec<String> = beside.iter().map(|path| path.display().to_string()).collect();
        let message = format!(
            "no helper for the target's processor {}: looked inside this program and at {}",
            printable(processor),
            looked.join(", "),
        );
        Err(Error::failed(message).hint(
            "build one with scripts/build on a machine with that processor, and put it there",
        ))
    }
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::failed(format!("reading the helper {}", path.display())).caused_by(error)
}

/// A helper for one processor.
#[derive(Debug)]
pub struct HelperProgram {
    hash: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Carried(&'static [u8]),
    File(Vec<u8>),
}

impl HelperProgram {
    fn of_file(program: Vec<u8>) -> Self {
        Self { hash: hash_of(&program), source: Source::File(program) }
    }

    /// Its SHA-256, in hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Its bytes. A carried helper is read from this program's file, since mapped pages would stay in
    /// memory as long as the bridge runs.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.source {
            Source::File(program) => Cow::Borrowed(program),
            Source::Carried(program) => read_own_file(program)
                .filter(|read| hash_of(read) == self.hash)
                .map_or(Cow::Borrowed(*program), Cow::Owned),
        }
    }
}

fn hash_of(program: &[u8]) -> String {
    format!("{:x}", Sha256::digest(program))
}

fn is_name(processor: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=32).contains(&processor.len()) && processor.bytes().all(plain)
}

/// Files beside this program, best first.
fn candidates(processor: &str) -> Vec<PathBuf> {
    let Ok(program) = std::env::current_exe() else { return Vec::new() };
    let named = program.with_file_name(format!("keybridge-remote-{processor}"));
    if processor == std::env::consts::ARCH {
        return vec![named, program.with_file_name("keybridge-remote")];
    }
    vec![named]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_helper_is_named_with_the_places_that_were_looked_at() {
        let error = Helper::default().for_processor("riscv128").unwrap_err();
        assert!(error.message.contains("keybridge-remote-riscv128"), "{error}");
        assert!(error.hints.iter().any(|hint| hint.contains("scripts/build")));
        for name in ["x/../../secret", "", "\u{1b}[31m", &"x".repeat(33)] {
            let error = Helper::default().for_processor(name).unwrap_err();
            assert!(error.message.ends_with("not the name of a processor"), "{error}");
        }
    }
}
