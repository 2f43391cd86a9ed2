//! Importing public keys and ownertrust with the target's gpg.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::read_beginning;
use keybridge_proto::report::KeyChanges;
use keybridge_proto::{last_line, printable};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::import_record::{Fingerprint, Ownertrust, parse_ownertrust};
use crate::subprocess::{end, run_with_limit};
use crate::{Error, Gnupg, StopSignal};

/// How much is kept of gpg's errors.
const STDERR_LIMIT: usize = 64 * 1024;

/// How long gpg may take no byte, or not end after the last one: it waits for another gpg that has
/// the keyring.
const STALL_TIME: Duration = Duration::from_mins(1);

/// Ownertrust has 43 bytes for each key that has a value.
pub(super) const OWNERTRUST_LIMIT: usize = 1024 * 1024;

/// More keys than are kept on record.
const MAX_NEW_KEYS: usize = 20_000;

/// Keys that gpg has imported and that were not there before, as it tells of them.
type NewKeys = Rc<RefCell<BTreeSet<Fingerprint>>>;

/// A gpg that imports an export in pieces.
pub(crate) struct Import {
    child: Child,
    stdin: Option<ChildStdin>,
    status: JoinHandle<KeyChanges>,
    new_keys: NewKeys,
    stderr: JoinHandle<io::Result<Vec<u8>>>,
}

impl Import {
    /// Starts gpg.
    pub(crate) fn start(gnupg: &Gnupg) -> io::Result<Self> {
        let arguments = ["--batch", "--no-tty", "--status-fd", "1", "--import"];
        let mut child = gnupg.gpg().args(arguments).stdin(Stdio::piped()).spawn()?;
        let new_keys = NewKeys::default();
        let status = count_keys(child.stdout.take(), Rc::clone(&new_keys));
        Ok(Self {
            stdin: child.stdin.take(),
            status: tokio::task::spawn_local(status),
            new_keys,
            stderr: tokio::task::spawn_local(read_beginning(child.stderr.take(), STDERR_LIMIT)),
            child,
        })
    }

    /// Sends gpg the next piece. After an error the rest is dropped.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let Some(stdin) = &mut self.stdin else { return };
        let written = timeout(STALL_TIME, stdin.write_all(bytes)).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::debug!("gpg reads no more of the export");
            self.stdin = None;
        }
    }

    /// Ends the export, and returns what it changed and gpg's error, if there is one.
    pub(crate) async fn finish(&mut self) -> (KeyChanges, Option<String>) {
        let read_all = self.stdin.take().is_some();
        let ended = timeout(STALL_TIME, self.child.wait()).await;
        if ended.is_err() {
            self.end().await;
            return (KeyChanges::default(), Some("can't import keys: gpg doesn't end".into()));
        }
        let changes = (&mut self.status).await.unwrap_or_default();
        let stderr = (&mut self.stderr).await.ok().and_then(Result::ok).unwrap_or_default();
        let complaint = match ended {
            Ok(Ok(status)) if status.success() && read_all => None,
            Ok(Ok(status)) => {
                Some(format!("can't import keys: gpg: {status}: {}", printable(last_line(&stderr))))
            }
            Ok(Err(error)) => Some(format!("can't import keys: {error}")),
            Err(_) => Some("can't import keys: gpg doesn't end".into()),
        };
        (changes, complaint)
    }

    /// The keys that were not there before, as far as gpg has told.
    pub(crate) fn take_new_keys(&self) -> BTreeSet<Fingerprint> {
        self.new_keys.take()
    }

    /// Ends gpg before it is done.
    pub(crate) async fn end(&mut self) {
        end(&mut self.child).await;
        // Its output doesn't end if it has handed it on.
        self.status.abort();
        self.stderr.abort();
    }
}

/// The target's ownertrust.
pub(crate) async fn export_ownertrust(gnupg: &Gnupg) -> Result<Ownertrust, Error> {
    let mut gpg = gnupg.gpg();
    gpg.args(["--batch", "--no-tty", "--export-ownertrust"]);
    let failed = || Error::other("can't read the target's ownertrust");
    let output = run_with_limit(&mut gpg, OWNERTRUST_LIMIT).await;
    let output = output.map_err(|error| failed().because(error))?;
    if !output.status.success() && !gnupg.home().join("trustdb.gpg").exists() {
        return Ok(Ownertrust::new());
    }
    if !output.status.success() {
        let said = printable(last_line(&output.stderr)).to_string();
        return Err(failed().because(format!("{}: {said}", output.status)));
    }
    Ok(parse_ownertrust(&output.stdout))
}

/// Sets ownertrust, and tells how many values were new and what gpg complained about; nothing if the
/// bridge stops before.
pub(crate) async fn import_ownertrust(
    gnupg: &Gnupg,
    text: &[u8],
    stop: &StopSignal,
) -> Option<(u32, Option<String>)> {
    let arguments = ["--batch", "--no-tty", "--import-ownertrust"];
    let mut command = gnupg.gpg();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Some((0, Some(format!("can't import ownertrust: {error}")))),
    };
    let done = stop.unless_set(timeout(STALL_TIME, feed(&mut child, text))).await;
    if !matches!(done, Some(Ok(_))) {
        end(&mut child).await;
    }
    Some(match done? {
        Ok(Ok((status, stderr))) => {
            let complaint = (!status.success()).then(|| {
                format!("can't import ownertrust: gpg: {status}: {}", printable(last_line(&stderr)))
            });
            (count_ownertrust(&stderr), complaint)
        }
        Ok(Err(error)) => (0, Some(format!("can't import ownertrust: {error}"))),
        Err(_) => (0, Some("can't import ownertrust: gpg doesn't end".into())),
    })
}

/// Sends a program its input, and reads its errors.
async fn feed(child: &mut Child, input: &[u8]) -> io::Result<(ExitStatus, Vec<u8>)> {
    let stdin = child.stdin.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // gpg's status tells if it didn't take all.
            let _ = stdin.write_all(input).await;
        }
    };
    let ((), stderr) = tokio::join!(write, read_beginning(child.stderr.take(), STDERR_LIMIT));
    Ok((child.wait().await?, stderr?))
}

/// gpg has no status line for it: it prints what it sets, in the C locale's language.
fn count_ownertrust(stderr: &[u8]) -> u32 {
    let set = |line: &&[u8]| {
        [&b"gpg: inserting ownertrust"[..], b"gpg: setting ownertrust", b"gpg: changing ownertrust"]
            .iter()
            .any(|words| line.starts_with(words))
    };
    let count = stderr.split(|&byte| byte == b'\n').filter(set).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Counts the keys in gpg's status lines, and notes the new ones; holds one line at most.
async fn count_keys(stdout: Option<impl AsyncRead + Unpin>, new_keys: NewKeys) -> KeyChanges {
    /// Far longer than a status line that counts.
    const LINE_LIMIT: usize = 256;
    let mut changes = KeyChanges::default();
    let Some(mut stdout) = stdout else { return changes };
    let mut line = Vec::new();
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = stdout.read(&mut buffer).await {
        for &byte in buffer.get(..count).unwrap_or_default() {
            if byte == b'\n' {
                if let Some(key) = count_key(&mut changes, &line)
                    && new_keys.borrow().len() < MAX_NEW_KEYS
                {
                    new_keys.borrow_mut().insert(key);
                }
                line.clear();
            } else if line.len() < LINE_LIMIT {
                line.push(byte);
            }
        }
    }
    changes
}

/// `[GNUPG:] IMPORT_OK FLAGS FINGERPRINT`: 0 is unchanged, bit 0 a new key, the others updates. Gives
/// back the fingerprint of a new key.
fn count_key(changes: &mut KeyChanges, line: &[u8]) -> Option<Fingerprint> {
    let rest = std::str::from_utf8(line.strip_prefix(b"[GNUPG:] IMPORT_OK ")?).ok()?;
    let mut words = rest.split(' ');
    match words.next()?.parse::<u32>().ok()? {
        0 => changes.unchanged = changes.unchanged.saturating_add(1),
        flags if flags & 1 != 0 => {
            changes.new = changes.new.saturating_add(1);
            return words.next()?.trim_end().parse().ok();
        }
        _ => changes.updated = changes.updated.saturating_add(1),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_counted_by_their_flags() {
        let mut changes = KeyChanges::default();
        for line in [
            "[GNUPG:] IMPORT_OK 0 AB",
            "[GNUPG:] IMPORT_OK 1 AB",
            "[GNUPG:] IMPORT_OK 17 AB",
            "[GNUPG:] IMPORT_OK 2 AB",
            "[GNUPG:] IMPORT_OK x AB",
            "[GNUPG:] IMPORT_RES 1 0",
            "IMPORT_OK 1 AB",
        ] {
            count_key(&mut changes, line.as_bytes());
        }
        assert_eq!(changes, KeyChanges { new: 2, updated: 1, unchanged: 1, ownertrust: 0 });
        let key = "0123456789ABCDEF0123456789ABCDEF01234567";
        let mut of =
            |flags| count_key(&mut changes, format!("[GNUPG:] IMPORT_OK {flags} {key}").as_bytes());
        assert_eq!(of(1), key.parse().ok());
        assert_eq!((of(0), of(2)), (None, None), "they were there before");
    }
}
