//! `keybridge status [TARGET]`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use clap::Args;
use keybridge_proto::printable;
use keybridge_proto::report::User;

use super::targets::state_cell;
use crate::Result;
use crate::config::Options;
use crate::keyring::held_back;
use crate::output::{Paint, Table, age, print_line};
use crate::supervisor::{BridgeManager, BridgeState, BridgeStatus, LaneStatus, to_json};
use crate::target::TargetAddress;

/// Show what is bridged, since when, and how busy it is
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Only this target
    target: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Show it again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

impl Status {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let address = self.target.as_deref().map(str::parse::<TargetAddress>).transpose()?;
        let at_terminal = std::io::stdout().is_terminal();
        loop {
            let text = match self.bridges(&manager, address.as_ref()).await {
                Ok(bridges) if self.json => format!("{}\n", to_json(&bridges, None)),
                Ok(bridges) if address.is_some() => table(&bridges, at_terminal),
                Ok(bridges) => {
                    let not_undone = not_undone(&manager);
                    if bridges.is_empty() && !not_undone.is_empty() {
                        not_undone
                    } else {
                        table(&bridges, at_terminal) + &not_undone
                    }
                }
                Err(error) => {
                    if self.json {
                        print_line(&to_json::<BridgeStatus>(&[], Some(&error)));
                    }
                    return Err(error);
                }
            };
            let erase = if self.watch && at_terminal { "\u{1b}[H\u{1b}[2J" } else { "" };
            let written = write!(std::io::stdout(), "{erase}{text}");
            if !self.watch || written.is_err() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn bridges(
        &self,
        manager: &BridgeManager,
        address: Option<&TargetAddress>,
    ) -> Result<Vec<BridgeStatus>> {
        if let Some(address) = address {
            return Ok(vec![manager.status(address).await?]);
        }
        Ok(manager.all().await.into_iter().map(|(_, status)| status).collect())
    }
}

/// What a person has to know of targets that aren't undone.
fn not_undone(manager: &BridgeManager) -> String {
    let mut text = String::new();
    for (address, folder) in manager.not_undone() {
        let word = address.as_word();
        let _ = if folder.has_died() {
            writeln!(
                text,
                "{address} is not bridged: its process was killed\n  → keybridge up {word} starts it \
                 again; keybridge down {word} undoes what is left there"
            )
        } else {
            writeln!(
                text,
                "{address} is not bridged, and what its bridge did there isn't undone\n  → keybridge \
                 down {word} undoes it"
            )
        };
    }
    text
}

/// The user's name, for short.
fn name_of(user: &User) -> String {
    user.name.clone().unwrap_or_else(|| user.to_string())
}

fn lanes(bridge: &BridgeStatus) -> impl Iterator<Item = &LaneStatus> {
    bridge.lanes.iter().filter_map(|(_, lane)| lane.as_ref())
}

/// What is shown. At a terminal it says where to look further.
fn table(bridges: &[BridgeStatus], at_terminal: bool) -> String {
    if bridges.is_empty() {
        return "nothing is bridged; keybridge up TARGET starts\n".to_owned();
    }
    let mut table = Table::new(["TARGET", "STATE", "USER", "UP", "OPEN", "TOTAL"]);
    for bridge in bridges {
        let sum = |count: fn(&LaneStatus) -> u64| -> u64 { lanes(bridge).map(count).sum() };
        table.row([
            printable(&bridge.target).to_string().into(),
            state_cell(bridge.state),
            printable(&bridge.user.as_ref().map(name_of).unwrap_or_default()).to_string().into(),
            // The line has to be short. JSON has the exact time.
            age(bridge.age).into(),
            sum(|lane| lane.open).to_string().into(),
            sum(|lane| lane.total).to_string().into(),
        ]);
    }
    let paint = if at_terminal { Paint::stdout() } else { Paint::none() };
    let mut text = table.text(None, paint);
    for bridge in bridges {
        let target = printable(&bridge.target);
        if let Some(reason) = &bridge.reason {
            let _ = writeln!(text, "{target}: {}", printable(reason));
        }
        for hint in &bridge.hints {
            let _ = writeln!(text, "  → {}", printable(&hint.to_string()));
        }
        if bridge.state == BridgeState::Ready {
            let _ = writeln!(text, "{target}:\n  {}", bridge.lent());
        }
        for warning in bridge.warnings() {
            let _ = writeln!(text, "{target}: {warning}");
        }
        for waiting in &bridge.waiting {
            let _ = writeln!(text, "{target}: {waiting}");
        }
        for warning in lanes(bridge).filter_map(|lane| held_back(lane.held_back)) {
            let _ = writeln!(text, "{target}: {warning}");
        }
        for problem in lanes(bridge).filter_map(|lane| lane.problem.as_ref()) {
            let _ = writeln!(text, "{target}: {}", printable(problem));
        }
        if let Some(problem) = &bridge.record_problem {
            let _ = writeln!(text, "{target}: nothing is recorded: {}", printable(problem));
        }
        if at_terminal && let Some(word) = to_examine(bridge) {
            let _ = writeln!(text, "  → keybridge doctor {word} checks every part of it");
        }
    }
    text
}

/// The word for a bridge that needs a closer look.
fn to_examine(bridge: &BridgeStatus) -> Option<String> {
    match bridge.state {
        // One that is starting will say soon what is wrong.
        BridgeState::Ready | BridgeState::Starting => None,
        BridgeState::Waiting | BridgeState::Failed => {
            bridge.target.parse().ok().map(|address: TargetAddress| address.as_word())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keybridge_proto::PerLane;

    #[test]
    fn a_container_with_a_usual_name_fits_a_terminal_of_80_columns() {
        let lane = LaneStatus { open: 12, total: 34_567, ..LaneStatus::default() };
        let bridge = BridgeStatus {
            target: "docker://my-project_devcontainer-app-1".to_owned(),
            state: BridgeState::Ready,
            reason: None,
            pid: 1,
            since: "2026-11-15T10:14:42Z".to_owned(),
            age: 3 * 86_400,
            user: Some(User { name: Some("vscode".to_owned()), uid: 1000 }),
            lanes: PerLane { gpg: Some(lane.clone()), ssh: Some(lane), git: None },
            ..BridgeStatus::default()
        };
        let text = table(&[bridge], false);
        assert!(text.contains("ready  vscode  3d  24    69134\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 80), "{text}");
    }

    #[test]
    fn a_bridge_that_failed_is_shown_with_its_reason_and_hints() {
        let bridge = BridgeStatus {
            target: "docker://web".to_owned(),
            state: BridgeState::Failed,
            reason: Some("/s is in use".to_owned()),
            hints: vec!["take it over with --replace".into()],
            ..BridgeStatus::default()
        };
        let text = table(std::slice::from_ref(&bridge), false);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines, ["docker://web: /s is in use", "  → take it over with --replace"]);
        let text = table(&[bridge], true);
        assert!(text.ends_with("\n  → keybridge doctor docker://web checks every part of it\n"));
    }
}
