//! The checks: their names, what each of them needs, and their order. The files judge the facts.
#![allow(clippy::unnecessary_wraps, reason = "some checks don't concern every target")]

mod bridge;
mod git;
mod host;
mod keys;
mod target;
mod way;

use std::fmt;

use keybridge_proto::Lane;
use serde::{Deserialize, Serialize};

use crate::doctor::{Outcome, Part, Problem};
use crate::facts::Facts;

/// The name of a check, which errors and JSON use too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Check {
    HostGpg,
    GpgAgent,
    ExtraSocket,
    SecretKeys,
    SshAgent,
    GitSigners,
    StateFolder,
    Bridges,
    Engine,
    Transport,
    Target,
    User,
    Shell,
    Helper,
    TargetGpg,
    TargetHome,
    AgentStarters,
    TargetSocket,
    Bridge,
    Link,
    TargetSsh,
    TargetGit,
    PublicKeys,
    Ownertrust,
    GitProgram,
    GitSigning,
    GitEmail,
    Signature,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Judges the facts, if no check that it needs is broken. `None` if it doesn't concern this target.
type Examine = fn(&Facts) -> Option<Outcome>;

/// What is known about a check before there are facts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub(crate) check: Check,
    pub(crate) part: Part,
    /// What it is about, in some words.
    pub(crate) title: &'static str,
    /// The lane that it is for, if it is for one.
    lane: Option<Lane>,
    /// If one of these is broken, this one can't be known.
    pub(crate) needs: &'static [Check],
    pub(crate) examine: Examine,
}

impl Rule {
    const fn new(part: Part, check: Check, title: &'static str, examine: Examine) -> Self {
        Self { check, part, title, lane: None, needs: &[], examine }
    }

    pub(crate) const fn host(check: Check, title: &'static str, examine: Examine) -> Self {
        Self::new(Part::Host, check, title, examine)
    }

    pub(crate) const fn way(check: Check, title: &'static str, examine: Examine) -> Self {
        Self::new(Part::Way, check, title, examine)
    }

    const fn target(check: Check, title: &'static str, examine: Examine) -> Self {
        Self::new(Part::Target, check, title, examine)
    }

    const fn bridge(check: Check, title: &'static str, examine: Examine) -> Self {
        Self::new(Part::Bridge, check, title, examine)
    }

    const fn of(self, lane: Lane) -> Self {
        Self { lane: Some(lane), ..self }
    }

    pub(crate) const fn after(self, needs: &'static [Check]) -> Self {
        Self { needs, ..self }
    }

    /// Whether there is something to check: a target, and the lane.
    pub(crate) fn applies(&self, facts: &Facts) -> bool {
        let has_place = match self.part {
            Part::Host => true,
            Part::Way | Part::Target | Part::Bridge => facts.target.is_some(),
        };
        has_place && self.lane.is_none_or(|lane| facts.lanes().contains(&lane))
    }
}

/// Every check, in the order of the chain. What makes `up` fail comes before the bridge itself.
pub(crate) const CHAIN: &[Rule] = &[
    Rule::host(Check::HostGpg, "GnuPG on the host", host::gnupg).of(Lane::Gpg),
    Rule::host(Check::GpgAgent, "gpg-agent on the host", host::gpg_agent)
        .of(Lane::Gpg)
        .after(&[Check::HostGpg]),
    Rule::host(Check::ExtraSocket, "gpg-agent's restricted socket", host::extra_socket)
        .of(Lane::Gpg)
        .after(&[Check::GpgAgent]),
    Rule::host(Check::SecretKeys, "the secret keys that are lent", keys::secret_keys)
        .of(Lane::Gpg)
        .after(&[Check::GpgAgent]),
    Rule::host(Check::SshAgent, "the ssh-agent on the host", host::ssh_agent).of(Lane::Ssh),
    Rule::host(Check::GitSigners, "what signs for git on the host", git::signers).of(Lane::Git),
    Rule::host(Check::StateFolder, "keybridge's own folder", host::state_folder),
    Rule::host(Check::Bridges, "the bridges of this user", host::bridges)
        .after(&[Check::StateFolder]),
    Rule::way(Check::Engine, "the container's engine", way::engine),
    Rule::way(Check::Transport, "the program that leads to the target", way::transport),
    Rule::way(Check::Target, "the target exists and runs", way::target)
        .after(&[Check::Engine, Check::Transport]),
    Rule::way(Check::User, "the user in the target", way::user).after(&[Check::Target]),
    Rule::way(Check::Shell, "a shell in the target", way::shell).after(&[Check::User]),
    Rule::way(Check::Helper, "keybridge's helper in the target", way::helper)
        .after(&[Check::Shell]),
    Rule::target(Check::TargetGpg, "GnuPG in the target", target::gnupg)
        .of(Lane::Gpg)
        .after(&[Check::Helper]),
    Rule::target(Check::TargetHome, "GnuPG's home in the target", target::gnupg_home)
        .of(Lane::Gpg)
        .after(&[Check::TargetGpg]),
    Rule::target(
        Check::AgentStarters,
        "what would start another agent in the target",
        target::agent_starters,
    )
    .after(&[Check::TargetHome]),
    Rule::target(Check::TargetSocket, "the socket that gpg in the target uses", target::gpg_socket)
        .of(Lane::Gpg)
        .after(&[Check::AgentStarters]),
    Rule::bridge(Check::Bridge, "the bridge to the target", bridge::bridge).after(&[
        Check::StateFolder,
        Check::TargetSocket,
        Check::TargetGpg,
        Check::Helper,
    ]),
    Rule::bridge(Check::Link, "the link between both ends", bridge::link).after(&[Check::Bridge]),
    Rule::bridge(Check::TargetSsh, "the socket that ssh in the target uses", target::ssh_socket)
        .of(Lane::Ssh)
        .after(&[Check::SshAgent, Check::Bridge]),
    Rule::bridge(
        Check::TargetGit,
        "the socket that git's programs in the target use",
        target::git_socket,
    )
    .of(Lane::Git)
    .after(&[Check::GitSigners, Check::Bridge]),
    Rule::bridge(Check::PublicKeys, "the public keys in the target", keys::public_keys)
        .of(Lane::Gpg)
        .after(&[Check::SecretKeys, Check::TargetGpg, Check::Bridge]),
    Rule::bridge(Check::Ownertrust, "the ownertrust in the target", keys::ownertrust)
        .of(Lane::Gpg)
        .after(&[Check::PublicKeys]),
    Rule::bridge(Check::GitProgram, "the program that git in the target signs with", git::program)
        .of(Lane::Git)
        .after(&[Check::TargetGit]),
    Rule::bridge(Check::GitSigning, "the key that git in the target signs with", git::signing_key)
        .after(&[Check::SecretKeys, Check::Bridge]),
    Rule::bridge(Check::GitEmail, "git's user.email in the target", git::email)
        .after(&[Check::GitSigning]),
    Rule::bridge(Check::Signature, "a signature in the target", bridge::signature)
        .of(Lane::Gpg)
        .after(&[
            Check::ExtraSocket,
            Check::SecretKeys,
            Check::TargetSocket,
            Check::Link,
            Check::PublicKeys,
        ]),
];
