//! A signed commit, from git's start to its end: in a container beside the same on the host, and on a slow
//! link beside gpg with a forwarded agent.

use std::path::Path;

use super::{Probe, interleave, measurement, millis};
use crate::error::{Error, Result};
use crate::figures::{Measurement, Row, Unit};
use crate::lab::{Agents, At, ClientProcess, Lab, Place, Target};
use crate::subjects::{Bridge, Committer, ONLY_GIT, OURS, REVERSE, forward};

/// The row of git on the host, with the host's own gpg.
pub(crate) const ON_THE_HOST: &str = "on the host";

/// Few milliseconds are to be seen.
const ROUNDS: usize = 30;

/// A signature takes seconds there.
const SLOW_ROUNDS: usize = 5;

/// In a container, as on the host.
pub(crate) fn commits(lab: &Lab, agents: &Agents) -> Result<Measurement> {
    let target = Target::new(lab, Place::Docker, agents)?;
    let _bridge = Bridge::start(lab, agents, &target, &ONLY_GIT)?;
    let repository = |name: &str| lab.at(name).display().to_string();
    let inside = target.client(lab)?;
    let ours = Committer::new(OURS, &inside, Vec::new(), repository("commits-inside"), &[])?;
    let (key, env) = own_key(agents, agents.home.path());
    let settings = [("user.signingKey", key.as_str())];
    let here = ClientProcess::here(lab)?;
    let host = Committer::new(ON_THE_HOST, &here, env, repository("commits-here"), &settings)?;
    let rows = interleave(ROUNDS, &mut [&host, &ours].map(commit))?;
    Ok(measurement(target.place, "commit", "one signed commit", Unit::Millis, rows))
}

/// On a slow link: one commit, and a rebase.
pub(crate) fn commits_on_a_slow_link(lab: &Lab, agents: &Agents) -> Result<[Measurement; 2]> {
    const FORWARDED: &str = "/srv/S.gpg-agent";
    let target = Target::new(lab, Place::SlowSsh, agents)?;
    let At::Host(host) = &target.at else { return Err(Error::new("no ssh host")) };
    let _bridge = Bridge::start(lab, agents, &target, &ONLY_GIT)?;
    let _forwarding = forward(lab, host, FORWARDED, &agents.socket)?;
    let home = agents.home_at(lab, "slow-home", Path::new(FORWARDED), true)?;
    let client = target.client(lab)?;
    let ours = Committer::new(OURS, &client, Vec::new(), "/srv/ours".to_owned(), &[])?;
    let (key, env) = own_key(agents, &home);
    let settings =
        [("user.signingKey", key.as_str()), ("gpg.program", "gpg"), ("gpg.openpgp.program", "gpg")];
    let theirs = Committer::new(REVERSE, &client, env, "/srv/theirs".to_owned(), &settings)?;
    let both = [&ours, &theirs];
    let commits = interleave(SLOW_ROUNDS, &mut both.map(commit))?;
    // One round: everything is warm, and it takes long.
    let rebases = both
        .map(|way| Ok(Row { name: way.name.to_owned(), rounds: vec![way.rebase().map(millis)?] }));
    let rebases = rebases.into_iter().collect::<Result<_>>()?;
    let title = "thirty commits signed anew";
    Ok([
        measurement(target.place, "commit", "one signed commit", Unit::Millis, commits),
        measurement(target.place, "rebase", title, Unit::Millis, rebases),
    ])
}

fn commit(way: &Committer) -> Probe<'_> {
    let measure = Box::new(|| way.commit().map(millis));
    Probe { name: way.name.to_owned(), measure }
}

/// The key that gpg itself is to sign with, and the environment that has it work on a home.
fn own_key(agents: &Agents, home: &Path) -> (String, Vec<(String, String)>) {
    let env = vec![("GNUPGHOME".to_owned(), home.display().to_string())];
    (agents.home.fingerprint(), env)
}
