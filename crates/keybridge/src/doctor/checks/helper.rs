//! The helper is in the target or can be put there, and is of this version.

use keybridge_proto::inspection::Listener;
use keybridge_proto::printable;

use super::{Check, Outcome, Part, Problem, shell};
use crate::config::Options;
use crate::doctor::{Facts, Fix};
use crate::keyring::{Lending, Uses};

pub(crate) static CHECK: Check = Check {
    name: "helper",
    title: "keybridge's helper in the target",
    part: Part::Way,
    lane: None,
    needs: &[&shell::CHECK],
    examine,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of the helper that runs in the target, or of the bridge's own process.
fn running(facts: &Facts) -> Option<String> {
    let lanes = facts.inspection().map(|inspection| &inspection.lanes);
    let of_helper = lanes.into_iter().flat_map(|lanes| lanes.iter()).find_map(|(_, lane)| {
        match &lane.listener {
            Listener::Helper { version, .. } => version.clone(),
            Listener::Nobody | Listener::Stale | Listener::Agent { .. } | Listener::Unknown(_) => {
                None
            }
        }
    });
    let of_bridge = || facts.status().map(|status| printable(&status.version).to_string());
    of_helper.or_else(of_bridge).filter(|version| !version.is_empty())
}

/// The flags that lend what the bridge lends, if the caller has not named others.
fn lending(facts: &Facts) -> Vec<String> {
    let Some(status) = facts.status() else { return Vec::new() };
    let Lending { lend, keys, uses } = status.lending.clone();
    let uses = uses.map(Uses::words);
    let flags = Options { lend, keys, uses, ..Options::default() }.flags().unwrap_or_default();
    let name = |flag: &str| flag.split('=').next().unwrap_or_default().to_owned();
    let is_named = |flag: &String| facts.flags.iter().any(|other| name(other) == name(flag));
    flags.into_iter().filter(|flag| !is_named(flag)).collect()
}

fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let word = target.address.as_word();
    if let Some(version) = running(facts).filter(|version| *version != VERSION) {
        let cause = format!("a helper of version {version} is running, and this is {VERSION}");
        let lending = lending(facts);
        let lending: Vec<&str> = lending.iter().map(String::as_str).collect();
        let again = format!("keybridge down {word} && {}", facts.up(&lending));
        // Not safe: a target can say what it likes about its helper, and a new bridge lends what the flags
        // say, where this one may have others.
        let problem = Problem::new(cause).fix(Fix::new(again));
        return Some(Outcome::Broken(problem.hint("give up the other flags that it had before")));
    }
    Some(match (&target.inspection, &target.reached) {
        (Err(error), _) => Outcome::Broken(Problem::from(error)),
        (Ok(_), Ok(reached)) if reached.has_helper => Outcome::Fine(format!("version {VERSION}")),
        (Ok(_), _) => Outcome::Fine(format!("version {VERSION}; `up` puts it there")),
    })
}
