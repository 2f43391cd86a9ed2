//! The distributions of the Windows Subsystem for Linux.

use std::io;
use std::time::Duration;

use tokio::process::Command;

use crate::candidates::Candidate;
use crate::program::{self, RunError};
use crate::target::TargetAddress;
use crate::{Error, Result};

/// A name has some ten characters, of two bytes each.
const OUTPUT: usize = 64 * 1024;

/// Shorter than the time of a source, so that the error names the program.
const TIME: Duration = Duration::from_secs(2);

pub(crate) async fn list() -> Result<Vec<Candidate>> {
    let mut command = Command::new("wsl.exe");
    command.args(["-l", "-q"]);
    let listed = match program::run(command, OUTPUT, TIME).await {
        Ok(listed) if listed.status.success() => listed,
        Ok(failed) => return Err(Error::failed(format!("wsl.exe -l failed ({})", failed.status))),
        Err(RunError::NotStarted(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        Err(RunError::NotStarted(error)) => return Err(Error::failed("wsl.exe").caused_by(error)),
        Err(RunError::Failed(error)) => return Err(error),
    };
    // Where keybridge itself runs, if that is in a distribution.
    let own = std::env::var("WSL_DISTRO_NAME").unwrap_or_default();
    let distros = distros(&listed.stdout).into_iter().filter(|distro| *distro != own);
    Ok(distros.filter_map(|distro| candidate(&distro)).collect())
}

fn candidate(distro: &str) -> Option<Candidate> {
    let address: TargetAddress = format!("wsl://{distro}").parse().ok()?;
    Some(Candidate { key: address.to_string(), address, detail: String::new(), age: None })
}

/// The names that `wsl.exe -l -q` prints, but for those that belong to Docker Desktop.
fn distros(output: &[u8]) -> Vec<String> {
    let text = decoded(output);
    let names = text.lines().map(|line| line.trim().to_owned());
    names.filter(|name| !name.is_empty() && !name.starts_with("docker-desktop")).collect()
}

/// wsl.exe prints UTF-16, or UTF-8 where `WSL_UTF8` is set.
fn decoded(output: &[u8]) -> String {
    // A name in UTF-8 has no zero byte, and one in UTF-16 has some.
    let text = if output.contains(&0) {
        let (pairs, _) = output.as_chunks();
        let units = pairs.iter().map(|pair| u16::from_le_bytes(*pair));
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        String::from_utf8_lossy(output).into_owned()
    };
    text.trim_start_matches('\u{feff}').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn names_are_read_in_utf_16_and_in_utf_8() {
        let printed = "Debian\r\nUbuntu-24.04\r\ndocker-desktop\r\ndocker-desktop-data\r\n\r\n";
        let names = ["Debian", "Ubuntu-24.04"];
        assert_eq!(distros(&utf16(printed)), names);
        assert_eq!(distros(&utf16(&format!("\u{feff}{printed}"))), names);
        assert_eq!(distros(printed.as_bytes()), names);
    }

    #[test]
    fn what_is_no_name_makes_no_candidate() {
        assert_eq!(distros(b""), Vec::<String>::new());
        // Cut in the middle of a character, and a lone half of a pair.
        for output in [&b"D\0e\0b"[..], b"D\0\x00\xd8", b"\0", b"\xff\xfe"] {
            for name in distros(output) {
                assert!(candidate(&name).is_none() || name.is_ascii(), "{name}");
            }
        }
        assert_eq!(candidate("-x"), None);
        assert_eq!(candidate("a\u{1b}[31m"), None);
        assert_eq!(candidate("Debian").unwrap().key, "wsl://Debian");
    }
}
