//! The helper is in the target or can be put there, and is of this version.

use keybridge_proto::inspection::Listener;
use keybridge_proto::printable;

use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::keyring::Lending;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of the helper that runs in the target, or of the bridge's own process.
fn running(facts: &Facts) -> Option<String> {
    let lanes = facts.inspection().map(|inspection| &inspection.lanes);
    let of_helper = lanes.into_iter().flat_map(|lanes| lanes.iter()).find_map(|(_, lane)| {
        match &lane.listener {
            Listener::Helper { version, .. } => version.clone(),
            Listener::Nobody | Listener::Agent { .. } | Listener::Unknown(_) => None,
        }
    });
    let of_bridge = || facts.status().map(|status| printable(&status.version).to_string());
    of_helper.or_else(of_bridge).filter(|version| !version.is_empty())
}

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let word = target.address.as_word();
    if let Some(version) = running(facts).filter(|version| *version != VERSION) {
        let cause = format!("a helper of version {version} is running, and this is {VERSION}");
        let lending = facts.status().map(|status| lent_as_before(&status.lending));
        let lending = lending.unwrap_or_default();
        let options: Vec<&str> = lending.iter().map(String::as_str).collect();
        let again = format!("keybridge down {word} && {}", facts.up(&options));
        // Not safe: a target can say what it likes about its helper, and the bridge may have other flags.
        let problem = Problem::new(cause).fix(Fix::new(again));
        return Some(Outcome::Broken(
            problem.hint("add the other flags that the bridge was started with"),
        ));
    }
    Some(match (&target.inspection, &target.reached) {
        (Err(error), _) => Outcome::Broken(Problem::from(error)),
        (Ok(_), Ok(reached)) if reached.has_helper => Outcome::Fine(format!("version {VERSION}")),
        (Ok(_), _) => Outcome::Fine(format!("version {VERSION}; `up` puts it there")),
    })
}

/// The options for what the bridge lends: the next one must not lend more.
fn lent_as_before(lending: &Lending) -> Vec<String> {
    let uses = lending.uses.map(|uses| uses.to_string());
    let named = [("--lend", &lending.lend), ("--keys", &lending.keys), ("--uses", &uses)];
    let named = named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    named.flat_map(|(name, value)| [name.to_owned(), value.clone()]).collect()
}
