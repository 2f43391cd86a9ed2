//! One real signature: gpg beside the client, from its start to its end.

use super::{Probe, interleave, measurement, millis};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::question::Question;
use crate::subjects::{Field, Subject, Takes};

const ROUNDS: usize = 30;

pub(crate) fn signatures<'a>(field: &'a Field<'_>) -> Result<Measurement> {
    let words = ["gpg", "--batch", "--no-tty", "-q", "--no-autostart", "--detach-sign", "--armor"];
    let probe = |subject: &'a Subject| {
        let Subject { takes, socket, gpg_home, .. } = subject;
        let question = Question::Run {
            socket: (*takes == Takes::OneAtATime).then(|| socket.clone()),
            words: words.map(str::to_owned).into(),
            env: vec![("GNUPGHOME".to_owned(), gpg_home.display().to_string())],
            input: "words\n".to_owned(),
        };
        Probe::of(subject, move || subject.ask(&question).map(millis))
    };
    let rows = interleave(ROUNDS, &mut field.subjects.iter().map(probe).collect::<Vec<_>>())?;
    Ok(measurement(field.target.place, "signature", "one gpg signature", Unit::Millis, rows))
}
