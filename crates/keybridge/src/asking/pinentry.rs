//! Asks a question by gpg-agent's pinentry. It has a yes and a no: yes means 15 minutes, and its text says so.

use keybridge_proto::assuan::{ErrorCode, MAX_LINE};
use keybridge_proto::gate::AgentSocket;
use keybridge_proto::permission::PersonsWord;

use crate::agent::{AgentDialer, QuestionError};
use crate::gnupg::Gnupg;
use crate::{Error, Result};

const COMMAND: &str = "GET_CONFIRMATION ";

/// What stands below the question.
const MEANING: &str = "Yes allows this, and the same with this key for 15 minutes.";

/// Shows a text, and waits for a yes or a no. Dropping this closes the dialog.
pub(super) async fn ask(gnupg: Gnupg, text: &str) -> Result<PersonsWord> {
    let agent = AgentDialer::find(gnupg, AgentSocket::Main).await?;
    let failed = |error: QuestionError| Error::failed("asking by pinentry").caused_by(error);
    let answers = agent.ask(&[command(text)]).await.map_err(failed)?;
    match answers.into_iter().next() {
        Some(Ok(_)) => Ok(PersonsWord::ForAWhile),
        Some(Err(line)) if is_no(&line) => Ok(PersonsWord::No),
        Some(Err(line)) => Err(Error::failed(format!("gpg-agent can't show its pinentry: {line}"))),
        None => Err(Error::failed("gpg-agent has not answered")),
    }
}

/// The command, with the text as gpg-agent decodes it. A text that is too long is cut, but not what yes means.
fn command(text: &str) -> String {
    let meaning: String = MEANING.chars().map(escaped).collect();
    let room = MAX_LINE - COMMAND.len() - meaning.len() - "…%0A\n".len();
    let mut shown = String::new();
    for part in text.chars().map(escaped) {
        if shown.len() + part.len() > room {
            shown.push('…');
            break;
        }
        shown.push_str(&part);
    }
    format!("{COMMAND}{shown}%0A{meaning}")
}

fn escaped(character: char) -> String {
    match character {
        ' ' => "+".to_owned(),
        '+' | '%' | '\n' => format!("%{:02X}", u32::from(character)),
        other => other.to_string(),
    }
}

/// Whether a person has said no, or closed the dialog.
fn is_no(line: &str) -> bool {
    let code = line.strip_prefix("ERR ").and_then(|rest| ErrorCode::parse(rest.as_bytes()));
    code.is_some_and(ErrorCode::is_cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yes_means_is_said_also_below_the_longest_text() {
        assert!(command("a b%+\nc").starts_with("GET_CONFIRMATION a+b%25%2B%0Ac%0AYes+allows"));
        for text in ["%".repeat(5000), "ä".repeat(5000), "x".repeat(5000)] {
            let command = command(&text);
            assert!(command.len() < MAX_LINE && command.len() > MAX_LINE - 8, "{}", command.len());
            assert!(
                command
                    .ends_with("…%0AYes+allows+this,+and+the+same+with+this+key+for+15+minutes.")
            );
        }
    }

    #[test]
    fn only_a_persons_no_is_a_no() {
        for (line, expected) in [
            ("ERR 83886179 Operation cancelled <Pinentry>", true),
            ("ERR 67108978 Not confirmed <GPG Agent>", true),
            ("ERR 67108949 No pinentry <GPG Agent>", false),
            ("ERR 83886142 Timeout <Pinentry>", false),
        ] {
            assert_eq!(is_no(line), expected, "{line}");
        }
    }
}
