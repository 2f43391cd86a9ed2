//! keybridge's own folder belongs to the user alone.

use super::{Check, Outcome, Part, Problem};
use crate::doctor::{Facts, Fix, fix};
use crate::platform::Privacy;

pub(crate) static CHECK: Check = Check {
    name: "state-folder",
    title: "keybridge's own folder",
    part: Part::Home,
    lane: None,
    needs: &[],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let state = &facts.home.state;
    let path = state.path.display();
    Some(match state.privacy {
        None => Outcome::Fine(format!("{path} doesn't exist yet")),
        Some(Privacy::Private) => Outcome::Fine(path.to_string()),
        Some(Privacy::TooOpen) => Outcome::Broken(
            Problem::new(format!("other users can enter {path}"))
                .fix(Fix::safe(format!("chmod 700 {}", fix::path(&state.path)))),
        ),
        Some(Privacy::NotOurs) => Outcome::Broken(
            Problem::new(format!("{path} isn't a folder of your own"))
                .hint("remove it, or set KEYBRIDGE_STATE to another folder"),
        ),
    })
}
