//! Asks a question by a notification of the desktop, with a button for each answer: `notify-send` shows it.

use std::process::Stdio;

use keybridge_proto::permission::PersonsWord;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::platform::{find_program, interrupt, variable};
use crate::{Error, Result};

const PROGRAM: &str = "notify-send";

/// The buttons, by the names that the program prints.
const BUTTONS: [(&str, &str, PersonsWord); 3] = [
    ("once", "Once", PersonsWord::Once),
    ("while", "For 15 min", PersonsWord::ForAWhile),
    ("no", "No", PersonsWord::No),
];

/// The name of a button is shorter.
const MOST_PRINTED: u64 = 64;

/// Whether there may be a desktop that shows it.
pub(super) fn is_there() -> bool {
    let has_bus = || {
        variable("DBUS_SESSION_BUS_ADDRESS").is_some()
            || variable("XDG_RUNTIME_DIR")
                .is_some_and(|folder| std::path::Path::new(&folder).join("bus").exists())
    };
    has_bus() && find_program(PROGRAM).is_some()
}

/// Shows a text, and waits for an answer; none if the notification was closed. Dropping this closes it.
pub(super) async fn ask(title: &str, text: &str) -> Result<Option<PersonsWord>> {
    let mut command = Command::new(find_program(PROGRAM).unwrap_or_else(|| PROGRAM.into()));
    command.args(["--app-name=keybridge", "--urgency=critical", "--expire-time=60000"]);
    command.args(BUTTONS.map(|(name, label, _)| format!("--action={name}={label}")));
    command.arg("--").args([title, &escaped(text)]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error| Error::failed("showing a notification").caused_by(error);
    let mut shown = Shown(command.spawn().map_err(failed)?);
    let mut pressed = String::new();
    if let Some(output) = shown.0.stdout.take() {
        output.take(MOST_PRINTED).read_to_string(&mut pressed).await.map_err(failed)?;
    }
    let status = shown.0.wait().await.map_err(failed)?;
    if !status.success() {
        return Err(Error::failed(format!("{PROGRAM} can't show a notification: {status}")));
    }
    let button = BUTTONS.into_iter().find(|(name, ..)| *name == pressed.trim());
    Ok(button.map(|(_, _, word)| word))
}

/// A notification, which the program closes when it is interrupted.
struct Shown(Child);

impl Drop for Shown {
    fn drop(&mut self) {
        interrupt(&mut self.0);
    }
}

/// A text that stays what it is: the program decodes backslashes, and desktops decode markup.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', r"\\").replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_backslashes_nor_markup_of_a_target_get_through() {
        assert_eq!(escaped("a\\033[2J <b>&amp;"), "a\\\\033[2J &lt;b&gt;&amp;amp;");
    }
}
