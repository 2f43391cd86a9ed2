//! A signed commit, from git's start to its end: in a container beside the same on the host, and on a slow link
//! beside gpg with a forwarded agent.

use std::path::Path;

use super::{Probe, interleave, millis};
use crate::error::Result;
use crate::figures::{Compared, Measurement, Row, Unit};
use crate::lab::{Agents, ClientProcess, Container, Lab, Running, SLOW, SlowHost};
use crate::subjects::{Bridge, Committer, OURS, REVERSE, Role};

/// The row of git on the host, with the host's own gpg.
pub(crate) const ON_THE_HOST: &str = "git on the host";

/// Few milliseconds are to be seen.
const ROUNDS: usize = 30;

/// A signature takes seconds there.
const SLOW_ROUNDS: usize = 5;

/// Where sshd puts the socket of the agent.
const FORWARDED: &str = "/srv/S.gpg-agent";

/// In a container, as on the host.
pub(crate) fn commits(lab: &Lab, agents: &Agents) -> Result<Measurement> {
    let container = Container::start(lab, "commits", &[])?;
    let bridge = Bridge::docker_git(lab, agents, &container)?;
    let inside = ClientProcess::inside(lab, &container)?;
    let repository = |name: &str| lab.at(name).display().to_string();
    let ours = (OURS, Role::Ours);
    let ours = Committer::new(ours, &inside, Vec::new(), repository("commits-inside"), &[])?;
    let (key, env) = own_key(agents, agents.home.path());
    let host = (ON_THE_HOST, Role::Floor);
    let settings = [("user.signingKey", key.as_str())];
    let here = ClientProcess::here(lab)?;
    let host = Committer::new(host, &here, env, repository("commits-here"), &settings)?;
    let rows = interleave(ROUNDS, &mut [&host, &ours].map(commit))?;
    drop(bridge);
    Ok(measurement("docker.git.commit", "Docker, git lane: one signed commit", rows))
}

/// On a slow link: one commit, and a rebase.
pub(crate) fn commits_on_a_slow_link(lab: &Lab, agents: &Agents) -> Result<[Measurement; 2]> {
    let host = SlowHost::start(lab)?;
    let bridge = Bridge::slow_git(lab, agents, &host)?;
    let forward = format!("{FORWARDED}:{}", agents.gpg.display());
    let forwarding = Running::start(host.ssh().args(["-N", "-R", &forward, SLOW]))?;
    host.container.sh(&format!("until test -S {FORWARDED}; do sleep 0.1; done"))?;
    let home = agents.home_at("slow-home", Path::new(FORWARDED), true)?;
    let client = ClientProcess::inside(lab, &host.container)?;
    let ours = (OURS, Role::Ours);
    let ours = Committer::new(ours, &client, Vec::new(), "/srv/ours".to_owned(), &[])?;
    let (key, env) = own_key(agents, &home);
    let settings =
        [("user.signingKey", key.as_str()), ("gpg.program", "gpg"), ("gpg.openpgp.program", "gpg")];
    let theirs = (REVERSE, Role::Other);
    let theirs = Committer::new(theirs, &client, env, "/srv/theirs".to_owned(), &settings)?;
    let both = [&ours, &theirs];
    let commits = interleave(SLOW_ROUNDS, &mut both.map(commit))?;
    // One round: everything is warm, and it takes long.
    let rebases = both.map(|way| {
        let rounds = vec![way.rebase().map(millis)?];
        Ok(Row { name: way.name.to_owned(), role: way.role, rounds })
    });
    let rebases = rebases.into_iter().collect::<Result<_>>()?;
    drop((bridge, forwarding));
    let title = "SSH host, 50 ms each way, git lane: ";
    Ok([
        measurement("slow.git.commit", &format!("{title}one signed commit"), commits),
        measurement("slow.git.rebase", &format!("{title}thirty commits signed anew"), rebases),
    ])
}

fn commit(way: &Committer) -> Probe<'_> {
    let measure = Box::new(|| way.commit().map(millis));
    Probe { name: way.name.to_owned(), role: way.role, measure }
}

/// The key that gpg itself is to sign with, and the environment that has it work on a home.
fn own_key(agents: &Agents, home: &Path) -> (String, Vec<(String, String)>) {
    let env = vec![("GNUPGHOME".to_owned(), home.display().to_string())];
    (agents.home.fingerprint(), env)
}

fn measurement(id: &str, title: &str, rows: Vec<Row>) -> Measurement {
    let (id, title) = (id.to_owned(), title.to_owned());
    Measurement { id, title, unit: Unit::Millis, compared: Compared::Subjects, rows }
}
