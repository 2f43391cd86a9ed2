//! GnuPG's home in the target belongs to the user alone.

use keybridge_proto::inspection::HomeProblemKind;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::target::RunAs;

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
    let inspection = facts.inspection()?;
    let gnupg = inspection.gnupg.as_ref()?;
    let home = gnupg.home.as_deref().unwrap_or_default();
    let Some(found) = &gnupg.home_problem else {
        let state = if gnupg.has_home { "" } else { "doesn't exist yet: " };
        return Some(Outcome::Fine(format!("{state}{}", facts.marked(home))));
    };
    let problem = Problem::new(&found.message).kind(ErrorKind::NotPermitted);
    let fix = match found.kind {
        HomeProblemKind::TooOpen => Some(facts.typed(&["chmod", "700", home], RunAs::User)),
        // The target names the path: the superuser there would give away whatever it leads to.
        HomeProblemKind::WrongOwner => {
            let hint = "look at the folder in the target before you change its owner";
            return Some(Outcome::Broken(problem.hint(hint)));
        }
        HomeProblemKind::Other => None,
    };
    Some(Outcome::Broken(match (fix, &found.fix) {
        (Some(fix), _) => problem.fix(Fix::new(facts.then_up(&fix))),
        (None, Some(hint)) => problem.hint(hint),
        (None, None) => problem,
    }))
}
