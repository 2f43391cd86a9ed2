//! The helper that goes into targets: carried inside this program, or found beside it.

use std::borrow::Cow;
use std::path::PathBuf;

use keybridge_proto::printable;

use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Where helpers come from.
#[derive(Debug, Clone, Default)]
pub struct Helper {
    /// A program to use whatever the processor, for those who build their own.
    pub program: Option<PathBuf>,
}

impl Helper {
    /// The program for a processor, as `uname -m` names it.
    pub fn for_processor(&self, processor: &str) -> Result<Cow<'static, [u8]>> {
        // The name comes from the target, and becomes a part of a path.
        if !is_name(processor) {
            let shown = printable(processor);
            return Err(Error::failed(format!("{shown}: not the name of a processor")));
        }
        if let Some(path) = &self.program {
            return std::fs::read(path)
                .map(Cow::Owned)
                .map_err(|error| Error::failed(format!("the helper {}: {error}", path.display())));
        }
        if let Some((_, program)) = CARRIED.iter().find(|(name, _)| *name == processor) {
            return Ok(Cow::Borrowed(program));
        }
        let beside = candidates(processor);
        for path in &beside {
            if let Ok(program) = std::fs::read(path) {
                return Ok(Cow::Owned(program));
            }
        }
        let looked: Vec<String> = beside.iter().map(|path| path.display().to_string()).collect();
        let message = format!(
            "there is no helper for the target's processor, {}; looked inside this program and at {}",
            printable(processor),
            looked.join(", "),
        );
        Err(Error::failed(message)
            .hint("build one with scripts/build on such a machine, and put it there"))
    }
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
