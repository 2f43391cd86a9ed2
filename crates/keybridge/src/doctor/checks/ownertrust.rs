//! The ownertrust in the target is that of this machine.

use keybridge_proto::Lane;
use keybridge_proto::inspection::KeyStatus;

use super::{Check, Outcome, Part, Problem, public_keys};
use crate::doctor::{Facts, Fix};

pub(crate) static CHECK: Check = Check {
    name: "ownertrust",
    title: "the ownertrust in the target",
    part: Part::Bridge,
    lane: Some(Lane::Gpg),
    needs: &[&public_keys::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.home.keys.as_ref().ok()?);
    inspection.gnupg.as_ref()?;
    let there = |fingerprint: &str| {
        let found = inspection.keys.iter().find(|found| found.fingerprint == fingerprint)?;
        match &found.status {
            KeyStatus::Present(key) => Some(key.ownertrust),
            KeyStatus::Missing | KeyStatus::Unknown(_) => None,
        }
    };
    let differs =
        |fingerprint: &str, here: u8| there(fingerprint).is_some_and(|there| there != Some(here));
    let untrusted = keys
        .sent
        .iter()
        .find(|sent| sent.ownertrust.is_some_and(|here| differs(&sent.fingerprint, here)));
    Some(match untrusted {
        Some(sent) => Outcome::Warning(
            Problem::new(format!("gpg in the target doesn't trust {} as here", sent.fingerprint))
                .fix(Fix::safe(facts.sync())),
        ),
        None => Outcome::Fine("as on this machine".to_owned()),
    })
}
