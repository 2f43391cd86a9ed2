//! The link of the bridge answers.

use super::{Check, Outcome, Part, Problem, bridge};
use crate::bridge::LinkPath;
use crate::doctor::Facts;
use crate::doctor::facts::BridgeFacts;

pub(crate) static CHECK: Check = Check {
    name: "link",
    title: "the link between both ends",
    part: Part::Bridge,
    lane: None,
    needs: &[&bridge::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let BridgeFacts::Up { status, round_trip } = &target.bridge else {
        return Some(Outcome::NotTried("there is no link".to_owned()));
    };
    let path = match status.path {
        Some(LinkPath::Passed) => "clients are passed to the host, ",
        Some(LinkPath::Direct) => "direct, ",
        Some(LinkPath::Exec) => "over standard input and output, ",
        None => "",
    };
    Some(match round_trip {
        Ok(Some(time)) => {
            Outcome::Fine(format!("{path}answers in {:.1} ms", time.as_secs_f64() * 1000.0))
        }
        Ok(None) => {
            let up = facts.up(&[]);
            // The first one may be told that the link is lost, and the second one has the next link.
            let again = facts.fix_by_up(format!("{up} || {up}"));
            Outcome::Broken(Problem::new("the helper doesn't answer over the link").fix(again))
        }
        Err(error) => Outcome::Warning(Problem::from(error)),
    })
}
