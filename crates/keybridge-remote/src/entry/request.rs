//! What goes to the host for a signature: the object, and the key as git named it.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keybridge_proto::git::{self, Format, MAX_FRAME};

use super::command_line::{GpgSignature, SshSignature};

/// No file with a public key is longer.
const MAX_KEY: u64 = 64 * 1024;

/// A request, and what the real program would have to be given for it.
pub(super) struct Request {
    pub(super) to_send: git::Request,
    /// Whether the object was read from standard input, so that nobody else can read it there.
    pub(super) from_stdin: bool,
}

impl Request {
    pub(super) fn openpgp(wanted: &GpgSignature) -> io::Result<Self> {
        let object = bounded(io::stdin().lock(), MAX_FRAME as u64 + 1)?;
        let to_send = git::Request { format: Format::Openpgp, key: wanted.key.clone(), object };
        Ok(Self { to_send, from_stdin: true })
    }

    /// Nothing if there is no public key, or no file: ssh-keygen says so itself.
    pub(super) fn ssh(wanted: &SshSignature) -> io::Result<Option<Self>> {
        let Some(key) = public_key(&wanted.key_file) else { return Ok(None) };
        let object = match &wanted.file {
            Some(file) => match File::open(file) {
                Ok(file) => bounded(file, MAX_FRAME as u64 + 1)?,
                Err(_) => return Ok(None),
            },
            None => bounded(io::stdin().lock(), MAX_FRAME as u64 + 1)?,
        };
        let to_send = git::Request { format: Format::Ssh, key, object };
        Ok(Some(Self { to_send, from_stdin: wanted.file.is_none() }))
    }
}

/// The public key in a file, or beside the secret one that the file has.
fn public_key(file: &std::ffi::OsStr) -> Option<Vec<u8>> {
    let mut beside = file.to_owned();
    beside.push(".pub");
    // First the file itself, as ssh-keygen does: git's own is in a temporary folder, where others could put one
    // beside it.
    [PathBuf::from(file), beside.into()].into_iter().find_map(|path| {
        let text = bounded(File::open(path).ok()?, MAX_KEY).ok()?;
        text.split(|&byte| byte == b'\n').find_map(public_key_in)
    })
}

/// The type and the key in a line of a file. Nothing else of the file leaves the target: it may be a secret key,
/// of whatever format.
fn public_key_in(line: &[u8]) -> Option<Vec<u8>> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (kind, key) = words.next().zip(words.next())?;
    let blob = STANDARD.decode(key).ok()?;
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let named = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    (named == kind).then(|| [kind, b" ", key].concat())
}

fn bounded(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: &str = "ssh-ed25519 \
        AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    /// As puttygen writes it: the public half is in it too.
    const PPK: &str = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: mine\n\
        Public-Lines: 2\nAAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhsc\nHR4f\n\
        Private-Lines: 1\nAAAAIGsecretsecretsecretsecretsecretsecretsecret\nPrivate-MAC: 00\n";

    #[test]
    fn a_secret_key_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let key = |name: &str| public_key(at(name).as_os_str());
        let public = Some(PUBLIC.as_bytes().to_owned());
        assert_eq!(key("id"), None);
        for secret in ["-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n", PPK, "my password"] {
            let _ = std::fs::remove_file(at("id.pub"));
            write("id", secret);
            assert_eq!(key("id"), None, "{secret}");
            write("id.pub", &format!("# mine\n{PUBLIC} a comment\n"));
            assert_eq!((key("id"), key("id.pub")), (public.clone(), public.clone()));
            write("id.pub", secret);
            assert_eq!(key("id"), None, "{secret}");
        }
    }

    #[test]
    fn of_a_file_only_the_public_key_is_sent() {
        let read = |line: &str| public_key_in(line.as_bytes());
        for line in [PUBLIC.to_owned(), format!("\t{PUBLIC}  a comment\r")] {
            assert_eq!(read(&line).unwrap(), PUBLIC.as_bytes());
        }
        let (kind, key) = PUBLIC.split_once(' ').unwrap();
        for line in [
            format!("ssh-rsa {key}"),
            kind.to_owned(),
            format!("{kind} {kind}"),
            format!("restrict {PUBLIC}"),
            String::new(),
        ] {
            assert_eq!(read(&line), None, "{line}");
        }
    }
}
