//! Runs the helper in the target, to look at what is there. One that is copied for this is removed again.
//! What it finds is untrusted, bounded and printable.

use std::cell::RefCell;
use std::time::Duration;

use keybridge_proto::inspection::{Inspection, KeyStatus, Listener};
use keybridge_proto::report::Unreadable;
use keybridge_proto::{Lane, last_line};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::facts::{HostFacts, within};
use crate::setup::helper_arguments::host_folders;
use crate::setup::remove;
use crate::target::{Contact, Installed, Target, mark_if_words, says};
use crate::{Error, Result};

/// How long the removal of a helper that was copied for this may take.
const REMOVAL_TIME: Duration = Duration::from_secs(10);

/// The helper's command line: the keys that it looks for, and one to sign with if the bridge works.
pub(crate) fn arguments(host: &HostFacts, lanes: &[Lane], is_answering: bool) -> Vec<String> {
    let mut words = vec!["inspect".to_owned()];
    let add = |words: &mut Vec<String>, name: &str, value: String| {
        words.extend([name.to_owned(), value]);
    };
    let sent = host.keys.iter().flat_map(|keys| &keys.sent);
    for key in sent.take(Inspection::MOST_KEYS) {
        add(&mut words, "--key", key.fingerprint.clone());
    }
    if let Some(key) = host.quiet_key.as_ref().ok().filter(|_| is_answering) {
        add(&mut words, "--sign", key.clone());
    }
    // A question would start an agent that isn't running, and so change what is checked; over a link that is
    // silent it would only take time.
    if host.agent.is_err() || !is_answering {
        words.push("--no-questions".to_owned());
    }
    let gnupg_home = host.dirs.as_ref().ok().map(|dirs| dirs.home.as_path());
    let gnupg_home = gnupg_home.filter(|_| lanes.contains(&Lane::Gpg));
    for (name, id) in host_folders(gnupg_home, lanes.contains(&Lane::Ssh)) {
        add(&mut words, name, id);
    }
    words
}

/// Has the helper look at the target. One that was copied there for this removes itself.
pub(crate) async fn run(
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
            Ok(inspection) => Ok(marked(inspection, &target.address().name())),
            Err(error) => {
                Err(unreadable(error, &mut rest.take_stderr(), &target.address().name()).await)
            }
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

/// Marks what the target says in sentences of its own, also in the place of a version, a name or a path. Those
/// that the checks compare, or have a command use, are marked where they are shown: `Facts::marked`.
fn marked(mut inspection: Inspection, name: &str) -> Inspection {
    let mut values = Vec::from_iter(&mut inspection.user.name);
    if let Some(gnupg) = &mut inspection.gnupg {
        values.push(&mut gnupg.program);
        values.extend(gnupg.version.as_mut().ok());
    }
    let lanes = &mut inspection.lanes;
    for lane in [&mut lanes.gpg, &mut lanes.ssh, &mut lanes.git] {
        values.extend(&mut lane.socket);
        values.extend(lane.starters.iter_mut().map(|starter| &mut starter.name));
        match &mut lane.listener {
            Listener::Helper { version: value, .. } | Listener::Agent { program: value, .. } => {
                values.extend(value);
            }
            Listener::Nobody | Listener::Unknown(_) => {}
        }
    }
    if let Some(git) = &mut inspection.git {
        values.extend(git.version.as_mut().ok());
        // The last ones only to be compared with the others.
        for program in git.gpg_program.iter_mut().chain(&mut git.ssh_program) {
            values.push(&mut program.value);
            values.extend(&mut program.file);
        }
        values.extend(&mut git.entries);
    }
    values.extend(inspection.signature.as_mut().map(|made| &mut made.fingerprint));
    for value in values {
        mark_if_words(name, value);
    }
    let mut sentences: Vec<&mut String> = Vec::new();
    if let Some(gnupg) = &mut inspection.gnupg {
        sentences.extend(gnupg.version.as_mut().err());
        if let Some(problem) = &mut gnupg.home_problem {
            sentences.push(&mut problem.message);
            sentences.extend(&mut problem.fix);
        }
    }
    let lanes = &mut inspection.lanes;
    for lane in [&mut lanes.gpg, &mut lanes.ssh, &mut lanes.git] {
        sentences.extend(&mut lane.problem);
        if let Listener::Unknown(what) = &mut lane.listener {
            sentences.push(what);
        }
    }
    for key in &mut inspection.keys {
        if let KeyStatus::Unknown(why) = &mut key.status {
            sentences.push(why);
        }
    }
    if let Some(git) = &mut inspection.git {
        sentences.extend(git.version.as_mut().err());
        sentences.extend(&mut git.problem);
    }
    sentences.extend(inspection.signature.iter_mut().filter_map(|made| made.result.as_mut().err()));
    for sentence in sentences {
        *sentence = says(name, sentence);
    }
    inspection
}

/// The error for output that isn't an inspection, with what the helper has complained about.
async fn unreadable(error: Unreadable, stderr: &mut (impl AsyncRead + Unpin), name: &str) -> Error {
    const LIMIT: u64 = 4096;
    const TIME: Duration = Duration::from_millis(300);
    let mut text = Vec::new();
    let _ = tokio::time::timeout(TIME, stderr.take(LIMIT).read_to_end(&mut text)).await;
    let last = match last_line(&text) {
        b"" => b"nothing",
        last => last,
    };
    Error::failed(format!("the helper printed no facts ({error}); {}", says(name, last)))
}
