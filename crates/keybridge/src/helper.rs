//! The helper that goes into targets: carried inside this program, or found beside it.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use base16ct::HexDisplay;
use keybridge_proto::printable;
use sha2::{Digest, Sha256};

use crate::platform::read_own_file;
use crate::{Error, ErrorKind, Result};

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Where helpers come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Helper {
    /// A program to use for any processor, for those who build their own.
    pub(crate) program: Option<PathBuf>,
}

impl Helper {
    /// Checks that a program which was named can be read.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(path) = &self.program else { return Ok(()) };
        std::fs::File::open(path).map(drop).map_err(|error| unreadable(path, error))
    }

    /// The program for a processor, as `uname -m` names it.
    pub(crate) fn for_processor(&self, processor: &str) -> Result<HelperProgram> {
        // The name comes from the target, and becomes a part of a path.
        if !is_name(processor) {
            let shown = printable(processor);
            return Err(Error::failed(format!("expected the name of a processor, got {shown}")));
        }
        if let Some(path) = &self.program {
            let program = std::fs::read(path).map_err(|error| unreadable(path, error))?;
            check_processor(path, &program, processor)?;
            return Ok(HelperProgram::of_file(program));
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
                check_processor(path, &program, processor)?;
                return Ok(HelperProgram::of_file(program));
            }
        }
        let carried: Vec<&str> = CARRIED.iter().map(|(name, _, _)| *name).collect();
        Err(no_helper(processor, &carried, &beside))
    }
}

/// The processors that `scripts/build` makes helpers for, and the number of each in the header of a program
/// (`e_machine` in ELF).
const PROCESSORS: [(u16, &str); 2] = [(62, "x86_64"), (183, "aarch64")];

/// The processor that a program is for, if it is one of those.
fn processor_of(program: &[u8]) -> Option<&'static str> {
    let number = program.strip_prefix(b"\x7fELF").and_then(|rest| rest.get(14..16))?;
    let number = u16::from_le_bytes(number.try_into().ok()?);
    PROCESSORS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// A shell would read a program for another processor as a script.
fn check_processor(path: &Path, program: &[u8], wanted: &str) -> Result<()> {
    match processor_of(program) {
        Some(other) if other != wanted => {
            let path = path.display();
            let message = format!("the helper {path} is for {other}, and the target has {wanted}");
            Err(Error::new(ErrorKind::WrongProcessor, message)
                .hint(format!("put one for {wanted} there")))
        }
        _ => Ok(()),
    }
}

fn no_helper(processor: &str, carried: &[&str], looked_at: &[PathBuf]) -> Error {
    let carried = match carried {
        [] => "none".to_owned(),
        some => format!("only {}", some.join(" and ")),
    };
    let looked_at: Vec<String> = looked_at.iter().map(|path| path.display().to_string()).collect();
    let message = format!(
        "no helper for the target's processor {processor}: this program contains {carried}, and there is no {}",
        looked_at.join(" or "),
    );
    let hint = if PROCESSORS.iter().any(|(_, name)| *name == processor) {
        "use a keybridge that was built with scripts/build --all: it has this helper"
    } else {
        "build one with scripts/build on a machine with that processor, and put it there"
    };
    Error::new(ErrorKind::WrongProcessor, message).hint(hint)
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::failed(format!("reading the helper {}", path.display())).caused_by(error)
}

/// A helper for one processor.
#[derive(Debug)]
pub(crate) struct HelperProgram {
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
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Its bytes. A carried helper is read from this program's file, since mapped pages would stay in
    /// memory as long as the bridge runs.
    pub(crate) fn bytes(&self) -> Cow<'_, [u8]> {
        match &self.source {
            Source::File(program) => Cow::Borrowed(program),
            Source::Carried(program) => read_own_file(program)
                .filter(|read| hash_of(read) == self.hash)
                .map_or(Cow::Borrowed(*program), Cow::Owned),
        }
    }
}

fn hash_of(program: &[u8]) -> String {
    format!("{:x}", HexDisplay(&Sha256::digest(program)))
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
    fn a_program_without_the_helper_names_both_processors() {
        let beside = [PathBuf::from("/x/keybridge-remote-aarch64")];
        let error = no_helper("aarch64", &["x86_64"], &beside);
        assert_eq!(error.kind, ErrorKind::WrongProcessor);
        assert_eq!(
            error.message,
            "no helper for the target's processor aarch64: this program contains only x86_64, \
             and there is no /x/keybridge-remote-aarch64"
        );
        assert!(error.hints.iter().any(|hint| hint.to_string().contains("scripts/build --all")));
    }

    #[test]
    fn a_helper_for_another_processor_is_refused() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(processor_of(&own), Some(std::env::consts::ARCH));
        let mut other = own.get(..20).unwrap().to_vec();
        let (number, name) =
            *PROCESSORS.iter().find(|(_, name)| *name != std::env::consts::ARCH).unwrap();
        other.splice(18..20, number.to_le_bytes());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("helper");
        let helper = Helper { program: Some(path.clone()) };
        std::fs::write(&path, &other).unwrap();
        assert!(helper.for_processor(name).is_ok());
        let error = helper.for_processor(std::env::consts::ARCH).unwrap_err();
        assert_eq!(error.kind, ErrorKind::WrongProcessor);
        assert!(error.message.contains(&format!("is for {name}, and the target has")), "{error}");
        // A script is for any processor, and so is what isn't known.
        for program in [b"#!/bin/sh\n".as_slice(), b"\x7fELF", b""] {
            std::fs::write(&path, program).unwrap();
            assert!(helper.for_processor("aarch64").is_ok());
        }
    }

    #[test]
    fn a_missing_helper_is_named_with_the_places_that_were_looked_at() {
        let error = Helper::default().for_processor("riscv128").unwrap_err();
        assert!(error.message.contains("keybridge-remote-riscv128"), "{error}");
        assert!(error.hints.iter().any(|hint| hint.to_string().contains("scripts/build")));
        for name in ["x/../../secret", "", "\u{1b}[31m", &"x".repeat(33)] {
            let error = Helper::default().for_processor(name).unwrap_err();
            assert!(error.message.starts_with("expected the name of a processor"), "{error}");
        }
    }
}
