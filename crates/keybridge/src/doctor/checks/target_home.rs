//! GnuPG's home in the target belongs to the user alone.

use keybridge_proto::Lane;
use keybridge_proto::inspection::HomeProblemKind;

use super::{Check, Outcome, Part, Problem, target_gpg};
use crate::ErrorKind;
use crate::doctor::{Facts, Fix};
use crate::target::RunAs;

pub(crate) static CHECK: Check = Check {
    name: "target-home",
    title: "GnuPG's home in the target",
    part: Part::Target,
    lane: Some(Lane::Gpg),
    needs: &[&target_gpg::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let inspection = facts.inspection()?;
    let gnupg = inspection.gnupg.as_ref()?;
    let home = gnupg.home.as_deref().unwrap_or_default();
    let Some(found) = &gnupg.home_problem else {
        let state = if gnupg.has_home { "" } else { " doesn't exist yet" };
        return Some(Outcome::Fine(format!("{home}{state}")));
    };
    let uid = inspection.uid.map(|uid| uid.to_string()).unwrap_or_default();
    // From facts, not from text of the target's.
    let fix = match found.kind {
        HomeProblemKind::WrongOwner => {
            Some(facts.typed(&["chown", "-hR", &uid, home], RunAs::Root))
        }
        HomeProblemKind::TooOpen => Some(facts.typed(&["chmod", "700", home], RunAs::User)),
        HomeProblemKind::NotAFolder | HomeProblemKind::Other => None,
    };
    let problem = Problem::new(&found.message).kind(ErrorKind::NotPermitted);
    Some(Outcome::Broken(match (fix, &found.fix) {
        (Some(fix), _) => problem.fix(Fix::new(facts.then_up(&fix))),
        (None, Some(hint)) => problem.hint(hint),
        (None, None) => problem,
    }))
}
