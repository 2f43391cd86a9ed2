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
    let problem = Problem::new(&found.message).kind(ErrorKind::NotPermitted);
    let fix = match found.kind {
        HomeProblemKind::WrongOwner if is_usual(home) => {
            Some(facts.typed(&["chown", "-hR", &uid, home], RunAs::Root))
        }
        HomeProblemKind::TooOpen => Some(facts.typed(&["chmod", "700", home], RunAs::User)),
        HomeProblemKind::WrongOwner => {
            let hint = "it isn't at the usual place: look at it before you change its owner";
            return Some(Outcome::Broken(problem.hint(hint)));
        }
        HomeProblemKind::NotAFolder | HomeProblemKind::Other => None,
    };
    Some(Outcome::Broken(match (fix, &found.fix) {
        (Some(fix), _) => problem.fix(Fix::new(facts.then_up(&fix))),
        (None, Some(hint)) => problem.hint(hint),
        (None, None) => problem,
    }))
}

/// Whether a path is that of a `.gnupg`. The user in the target names it, and the superuser there would give
/// it to them: it must not be just any folder.
fn is_usual(home: &str) -> bool {
    home.starts_with('/') && home.ends_with("/.gnupg") && !home.contains("/../")
}
