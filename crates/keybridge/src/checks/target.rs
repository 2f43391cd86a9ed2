//! GnuPG is in the target, and new enough.

use keybridge_proto::inspection::GnupgFacts;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::target::RunAs;

/// With the package managers of most images.
const INSTALL: &str = "{ apt-get update && apt-get install -y gnupg; } || apk add gnupg || \
                       dnf install -y gnupg2";

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
    let problem = match &facts.inspection()?.gnupg {
        Some(GnupgFacts { version: Ok(version), program, .. }) => {
            return Some(Outcome::Fine(format!("gpg {version} ({program})")));
        }
        Some(GnupgFacts { version: Err(why), program, .. }) => {
            Problem::new(format!("{program}: {why}"))
        }
        None => {
            let problem = Problem::new("there is no gpg in the target").kind(ErrorKind::NoGnupg);
            let install = facts.typed(&["sh", "-c", INSTALL], RunAs::Root);
            problem.fix(Fix::new(facts.then_up(&install)))
        }
    };
    // The ssh lane does without it.
    let lanes = facts.status().map(|status| &status.lanes);
    let does_without = lanes.is_some_and(|lanes| lanes.ssh.is_some() && lanes.gpg.is_none());
    Some(if does_without && !facts.settings.lanes_are_named() {
        Outcome::Warning(problem)
    } else {
        Outcome::Broken(problem)
    })
}
