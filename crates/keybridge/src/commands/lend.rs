//! `keybridge lend TARGET --uses USES --for TIME`.

use std::time::Duration;

use clap::Args;
use keybridge_proto::{Operation, OperationSet};

use super::targets;
use crate::Result;
use crate::config::Options;
use crate::output::Report;
use crate::supervisor::BridgeManager;

/// The longest time. What is lent for longer belongs into the settings.
const LONGEST: Duration = Duration::from_hours(7 * 24);

/// Lend more for a time: when it is over, the bridge lends what it did before
#[derive(Debug, Args)]
pub(crate) struct Lend {
    /// The target, which has to be bridged
    target: Option<String>,
    /// What it may have done, too: commit, tag, sign, decrypt, certify, login, sshsig
    #[arg(long, value_name = "USES", value_delimiter = ',', required = true)]
    uses: Vec<Operation>,
    /// For how long: 30s, 15m, 1h, 2d
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Duration,
}

impl Lend {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let address = targets::one_named(self.target.as_deref(), &manager).await?;
        let uses: OperationSet = self.uses.into_iter().collect();
        let status = manager.lend(&address, uses, self.time).await?;
        let report = Report::new();
        report.say(&status.lent());
        status.lent_for_a_time().iter().for_each(|line| report.say(line));
        Ok(())
    }
}

/// For how long something is lent.
fn parse_time(text: &str) -> std::result::Result<Duration, &'static str> {
    time_in(text)
        .filter(|time| !time.is_zero() && *time <= LONGEST)
        .ok_or("expected a number and s, m, h or d, as in 1h, and 7d at most")
}

/// A time in a number and a unit: `30s`, `15m`, `1h`, `2d`.
pub(super) fn time_in(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    // `parse` takes a sign.
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|_| is_number)?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for (text, seconds) in [("1s", 1), ("15m", 900), ("1h", 3600), ("7d", 604_800)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "h", "1", "0h", "-1h", "+1h", "1.5h", "1 h", "8d", "1w", "1ä"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert!(parse_time("99999999999999999999d").is_err());
    }
}
