//! The helper is in the target or can be put there, and is of this version.

use keybridge_proto::printable;

use super::{Check, Outcome, Part, Problem, shell};
use crate::doctor::{Facts, Fix};

pub(crate) static CHECK: Check = Check {
    name: "helper",
    title: "keybridge's helper in the target",
    part: Part::Way,
    needs: &[&shell::CHECK],
    examine,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let word = target.address.as_word();
    if let Some(status) = target.bridge.status()
        && !status.version.is_empty()
        && status.version != VERSION
    {
        let cause = format!(
            "the bridge runs version {}, and this is {VERSION}",
            printable(&status.version)
        );
        let again = format!("keybridge down {word} && {}", facts.up(&[]));
        return Some(Outcome::Broken(Problem::new(cause).fix(Fix::safe(again))));
    }
    Some(Outcome::Fine(match &target.reached {
        Ok(reached) if reached.has_helper => format!("version {VERSION}"),
        Ok(_) | Err(_) => format!("version {VERSION} isn't there yet; `up` puts it there"),
    }))
}
