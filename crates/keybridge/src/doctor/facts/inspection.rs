//! Runs the helper in the target, to look at what is there.

use std::cell::RefCell;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::inspection::Inspection;
use tokio::io::AsyncReadExt;

use super::{HomeFacts, within};
use crate::setup::helper_arguments::host_folders;
use crate::setup::remove;
use crate::target::{Contact, Installed, Target};
use crate::{Error, Result};

/// How long the removal of a helper that was copied for this may take.
const REMOVAL_TIME: Duration = Duration::from_secs(10);

/// The helper's command line: the keys that it looks for, and one to sign with if the bridge works.
pub(super) fn arguments(home: &HomeFacts, lanes: &[Lane], is_answering: bool) -> Vec<String> {
    let mut words = vec!["inspect".to_owned()];
    let add = |words: &mut Vec<String>, name: &str, value: String| {
        words.extend([name.to_owned(), value]);
    };
    let sent = home.keys.iter().flat_map(|keys| &keys.sent);
    for key in sent.take(Inspection::MOST_KEYS) {
        add(&mut words, "--key", key.fingerprint.clone());
    }
    if let Some(key) = home.quiet_key.as_ref().ok().filter(|_| is_answering) {
        add(&mut words, "--sign", key.clone());
    }
    // A question would start an agent that isn't running, and so change what is checked; over a link that is
    // silent it would only take time.
    if home.agent.is_err() || !is_answering {
        words.push("--no-questions".to_owned());
    }
    let gnupg_home = home.dirs.as_ref().ok().map(|dirs| dirs.home.as_path());
    let gnupg_home = gnupg_home.filter(|_| lanes.contains(&Lane::Gpg));
    for (name, id) in host_folders(gnupg_home, lanes.contains(&Lane::Ssh)) {
        add(&mut words, name, id);
    }
    words
}

/// Has the helper look at the target. One that was copied there for this removes itself.
pub(super) async fn run(
    contact: Contact<'_>,
    target: &Target,
    arguments: &[String],
    limit: Duration,
) -> Result<Inspection> {
    let copied: RefCell<Option<Installed>> = RefCell::default();
    let inspect = async {
        let (installed, process) = contact.keeping_others().start(arguments, &["--remove"]).await?;
        if installed.is_new {
            copied.replace(Some(installed));
        }
        let (stdout, stdin, mut rest) = process.split();
        drop(stdin);
        let mut text = Vec::new();
        let limit = u64::try_from(Inspection::MAX_SIZE).unwrap_or(u64::MAX);
        let read = stdout.take(limit).read_to_end(&mut text).await;
        read.map_err(|error| Error::failed("reading from the helper").caused_by(error))?;
        match Inspection::parse(&text) {
            Some(inspection) => Ok(inspection),
            None => Err(unreadable(&mut rest.take_stderr()).await),
        }
    };
    let inspection = within("the helper in the target", limit, inspect).await;
    // One that didn't run is still there. A target that hangs keeps it.
    if let Some(installed) = copied.take().filter(|_| inspection.is_err()) {
        let removed = within(target.address(), REMOVAL_TIME, remove(target, &installed)).await;
        if let Err(error) = removed {
            tracing::debug!(%error, "removing the helper again");
        }
    }
    inspection
}

/// The error for output that isn't an inspection, with what the helper has complained about.
async fn unreadable(stderr: &mut (impl tokio::io::AsyncRead + Unpin)) -> Error {
    const LIMIT: u64 = 4096;
    const TIME: Duration = Duration::from_millis(300);
    let mut text = Vec::new();
    let _ = tokio::time::timeout(TIME, stderr.take(LIMIT).read_to_end(&mut text)).await;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let last = keybridge_proto::printable(last);
    Error::failed(format!("the helper in the target printed no facts, and said: {last}"))
}
