//! Copies the helper into a container without a shell, through the engine's archive call.

use std::fmt::Write as _;
use std::pin::pin;

use bollard::Docker;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{DownloadFromContainerOptions, UploadToContainerOptions};
use bytes::Bytes;
use futures_core::Stream;
use keybridge_proto::printable;

use crate::engine::error::engine_message;
use crate::target::random_bytes;
use crate::{Error, ErrorKind, Result};

/// A user by number, as an archive names the owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    uid: u32,
    gid: u32,
}

/// Folders for the helper, best first.
pub(crate) const FOLDERS: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/"];

/// Whether the archive call can reach a folder: it sees the container's own root file system, without its
/// mounts.
pub(crate) fn is_reachable(container: &ContainerInspectResponse, folder: &str) -> bool {
    let host = container.host_config.as_ref();
    let tmpfs = host.and_then(|host| host.tmpfs.as_ref());
    let over_tmpfs = tmpfs.is_some_and(|mounts| mounts.contains_key(folder));
    let mounts = container.mounts.iter().flatten();
    let over_mount = mounts.filter_map(|mount| mount.destination.as_deref()).any(|at| at == folder);
    !over_tmpfs && !over_mount
}

/// A program that was copied into a new folder.
pub(crate) struct Copy {
    /// Its path in the container.
    pub(crate) path: String,
    /// The folder that the new one is in.
    base: &'static str,
    /// The program's path from there.
    entry: String,
}

/// Copies a program into a new folder, both with mode 0700 and owned by its user.
pub(crate) async fn put(
    engine: &Docker,
    container: &str,
    base: &'static str,
    owner: Owner,
    name: &str,
    program: &[u8],
) -> Result<Copy> {
    // A random name, so that no other process can have created the folder.
    let random: [u8; 8] = random_bytes()?;
    let own = random.iter().fold("keybridge-".to_owned(), |mut own, byte| {
        let _ = write!(own, "{byte:02x}");
        own
    });
    let entry = format!("{own}/{name}");
    let mut archive = Vec::with_capacity(program.len() + 4 * BLOCK);
    put_entry(&mut archive, &format!("{own}/"), b'5', owner, &[]);
    put_entry(&mut archive, &entry, b'0', owner, program);
    upload(engine, container, base, archive).await?;
    Ok(Copy { path: format!("{}/{entry}", base.trim_end_matches('/')), base, entry })
}

impl Copy {
    /// Leaves an empty file of a program that can't be run: an engine can't remove files.
    pub(crate) async fn empty(&self, engine: &Docker, container: &str, owner: Owner) {
        let mut archive = Vec::new();
        put_entry(&mut archive, &self.entry, b'0', owner, &[]);
        // What can't be emptied is harmless.
        let _ = upload(engine, container, self.base, archive).await;
    }
}

/// Extracts an archive in a folder of a container.
async fn upload(engine: &Docker, container: &str, base: &str, mut archive: Vec<u8>) -> Result<()> {
    archive.resize(archive.len() + 2 * BLOCK, 0);
    let options = UploadToContainerOptions { path: base.to_owned(), ..Default::default() };
    engine
        .upload_to_container(container, Some(options), bollard::body_full(Bytes::from(archive)))
        .await
        .map_err(|error| {
            let message = engine_message(&error);
            Error::failed(format!("copying the helper into the container: {message}"))
        })
}

/// The ids of the user that commands run as: `NAME`, `UID`, either with `:GROUP`, or root.
pub(crate) async fn owner(engine: &Docker, container: &str, user: Option<&str>) -> Result<Owner> {
    let Some(user) = user else { return Ok(Owner { uid: 0, gid: 0 }) };
    let (name, group) =
        user.split_once(':').map_or((user, None), |(name, group)| (name, Some(group)));
    let passwd = read_file(engine, container, "/etc/passwd").await.unwrap_or_default();
    let mut owner = owner_of(&passwd, name).ok_or_else(|| {
        let message = format!("there is no user {} in the container", printable(name));
        Error::new(ErrorKind::NoUser, message).hint("choose one with --user")
    })?;
    if let Some(gid) = group.and_then(|group| group.parse().ok()) {
        owner.gid = gid;
    }
    Ok(owner)
}

/// A user of `/etc/passwd`, by name or by number; a number needs no line there.
fn owner_of(passwd: &str, user: &str) -> Option<Owner> {
    let lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known = lines.filter_map(|line| match line.as_slice() {
        [name, _, uid, gid, ..] => {
            Some((*name, Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? }))
        }
        _ => None,
    });
    let mut known = known.filter(|(name, owner)| *name == user || owner.uid.to_string() == user);
    let by_number = || user.parse().ok().map(|uid| Owner { uid, gid: 0 });
    known.next().map(|(_, owner)| owner).or_else(by_number)
}

/// The size limit for files that are read.
const FILE_LIMIT: usize = 1024 * 1024;

async fn read_file(engine: &Docker, container: &str, path: &str) -> Result<String> {
    let options = DownloadFromContainerOptions { path: path.to_owned() };
    let mut stream = pin!(engine.download_from_container(container, Some(options)));
    let mut archive = Vec::new();
    while let Some(part) = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
    {
        archive.extend_from_slice(&part.map_err(|error| Error::failed(engine_message(&error)))?);
        if archive.len() > FILE_LIMIT {
            return Err(Error::failed(format!("{path} in the container is too long")));
        }
    }
    let content = archive.get(BLOCK..).unwrap_or_default();
    let size = archive.get(SIZE_AT).and_then(octal).unwrap_or(0);
    let content = content.get(..size).unwrap_or(content);
    Ok(String::from_utf8_lossy(content).into_owned())
}

/// An archive consists of blocks of this size.
const BLOCK: usize = 512;
const SIZE_AT: std::ops::Range<usize> = 124..136;

fn octal(field: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(|end: char| end == '\0' || end == ' ');
    usize::from_str_radix(text, 8).ok()
}

/// Appends a folder or a file with mode 0700, in POSIX's ustar format.
fn put_entry(archive: &mut Vec<u8>, name: &str, kind: u8, owner: Owner, content: &[u8]) {
    let mut header = Vec::with_capacity(BLOCK);
    let mut field = |text: &str, width: usize| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(width, 0);
        header.extend(bytes);
    };
    field(name, 100);
    field("0000700", 8);
    field(&format!("{:07o}", owner.uid), 8);
    field(&format!("{:07o}", owner.gid), 8);
    field(&format!("{:011o}", content.len()), 12);
    field("00000000000", 12);
    field("        ", 8);
    field(&char::from(kind).to_string(), 1);
    field("", 100);
    field("ustar\u{0}00", 8);
    field("", 247);
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    for (place, byte) in header.iter_mut().skip(148).zip(sum.bytes()) {
        *place = byte;
    }
    archive.extend(header);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::platform::tests_on_unix! {
    #[test]
    fn tar_reads_what_we_write() {
        use std::io::Write as _;
        let mut archive = Vec::new();
        let owner = Owner { uid: 1000, gid: 100 };
        put_entry(&mut archive, "own/", b'5', owner, &[]);
        put_entry(&mut archive, "own/program", b'0', owner, b"0123456789");
        archive.resize(archive.len() + 2 * BLOCK, 0);
        let mut tar = std::process::Command::new("tar")
            .args(["-tv", "--numeric-owner"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&archive).unwrap();
        let listing = String::from_utf8(tar.wait_with_output().unwrap().stdout).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        assert!(
            lines[0].starts_with("drwx------ 1000/100") && lines[0].ends_with(" own/"),
            "{listing}"
        );
        assert!(
            lines[1].starts_with("-rwx------ 1000/100") && lines[1].contains(" 10 "),
            "{listing}"
        );
    }
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\ndev:x:1000:1001::/home/dev:/bin/sh\n";
        assert_eq!(owner_of(passwd, "dev"), Some(Owner { uid: 1000, gid: 1001 }));
        assert_eq!(owner_of(passwd, "1000"), Some(Owner { uid: 1000, gid: 1001 }));
        assert_eq!(owner_of(passwd, "7"), Some(Owner { uid: 7, gid: 0 }));
        assert_eq!(owner_of(passwd, "nobody"), None);
    }
}
