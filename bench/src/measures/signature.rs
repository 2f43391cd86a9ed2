//! One real signature: gpg beside the client, from its start to its end.

use super::{Probe, interleave, measurement, millis};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::lab::{AgentKind, Endpoint};
use crate::lane::Lane;
use crate::question::Question;
use crate::subjects::{Field, Takes};

const ROUNDS: usize = 15;

pub(crate) fn signatures(field: &Field) -> Result<Measurement> {
    let endpoint = Endpoint { lane: Lane::Gpg, agent: AgentKind::Real };
    let subjects = field.to(endpoint);
    let words = ["gpg", "--batch", "--no-tty", "-q", "--no-autostart", "--detach-sign", "--armor"];
    let mut probes: Vec<Probe<'_>> = subjects
        .iter()
        .map(|(subject, socket)| {
            let question = Question::Run {
                socket: match subject.takes {
                    Takes::Many => None,
                    Takes::OneAtATime => Some(socket.to_path_buf()),
                },
                words: words.map(str::to_owned).into(),
                env: subject.gpg_env.clone(),
                input: "words\n".to_owned(),
            };
            Probe::of(subject, move || subject.ask(&question).map(millis))
        })
        .collect();
    let rows = interleave(ROUNDS, &mut probes)?;
    let what = (field.place, endpoint, "signature");
    Ok(measurement(what, "one gpg signature", Unit::Millis, rows))
}
