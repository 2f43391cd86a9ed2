//! gpg in the target signs with a lent key.

use keybridge_proto::Lane;

use super::{
    Check, Outcome, Part, Problem, extra_socket, link, public_keys, secret_keys, target_socket,
};
use crate::doctor::{Facts, Fix};

pub(crate) static CHECK: Check = Check {
    name: "signature",
    title: "a signature in the target",
    part: Part::Bridge,
    lane: Some(Lane::Gpg),
    needs: &[
        &extra_socket::CHECK,
        &secret_keys::CHECK,
        &target_socket::CHECK,
        &link::CHECK,
        &public_keys::CHECK,
    ],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let asked = facts.inspection().and_then(|inspection| inspection.signature.as_ref());
    Some(match (asked, &facts.home.quiet_key) {
        (Some(signature), _) => match &signature.result {
            Ok(time) => Outcome::Fine(format!(
                "made with {} in {} ms, and verified",
                signature.fingerprint,
                time.as_millis()
            )),
            Err(why) => {
                let logs = format!("keybridge logs {}", target.address.as_word());
                let cause = format!("signing with {} failed: {why}", signature.fingerprint);
                Outcome::Broken(Problem::new(cause).fix(Fix::new(logs)))
            }
        },
        (None, Err(why)) => Outcome::NotTried(why.clone()),
        (None, Ok(_)) => Outcome::NotTried("the target wasn't looked at".to_owned()),
    })
}
