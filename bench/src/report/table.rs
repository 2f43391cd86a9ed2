//! Tables on the terminal.

use std::fmt::Write;

use crate::bars::{Bar, Limit};
use crate::figures::{Compared, Measurement, Ratio, Row, Unit};
use crate::measures::CAT;
use crate::subjects::Role;

/// Shows a measurement: each row with what it is compared with.
pub(crate) fn show_measurement(measurement: &Measurement) {
    println!("\n{}", measurement.title);
    match measurement.compared {
        Compared::Subjects => show_subjects(measurement),
        Compared::InPairs => show_pairs(measurement),
        Compared::Parts => {
            for row in &measurement.rows {
                line(&row.name, &[shown(row.p50(), measurement.unit)]);
            }
        }
    }
}

/// Each subject with its ratios to the floor and to the best of the others.
fn show_subjects(measurement: &Measurement) {
    let unit = measurement.unit;
    let tail = measurement.rows.iter().any(Row::has_tail);
    let (floor, best) = (floor(measurement), measurement.best_other().map(Row::medians));
    let heading =
        |is_there: bool, text: &str| if is_there { text.to_owned() } else { String::new() };
    let headings = ["median", "p99", "× floor", "× best other"];
    let there = [true, tail, floor.is_some(), best.is_some()];
    line("", &there.into_iter().zip(headings).map(|(a, b)| heading(a, b)).collect::<Vec<_>>());
    for row in &measurement.rows {
        let p99 = if row.has_tail() { shown(row.p99(), unit) } else { String::new() };
        let (to_floor, to_best) = match row.role {
            Role::Floor => (None, None),
            Role::Ours | Role::Other => (floor.as_deref(), best.as_deref()),
        };
        line(&row.name, &[shown(row.p50(), unit), p99, ratio(row, to_floor), ratio(row, to_best)]);
    }
}

/// Each subject without and with its burden.
fn show_pairs(measurement: &Measurement) {
    let unit = measurement.unit;
    line("", &["median", "p99", "p99 × without"].map(str::to_owned));
    for pair in measurement.rows.chunks(2) {
        let without = pair.first().map_or(f64::NAN, Row::p99);
        for (number, row) in pair.iter().enumerate() {
            let grown = format!("{:.2}", row.p99() / without);
            let grown = if number == 0 { String::new() } else { grown };
            line(&row.name, &[shown(row.p50(), unit), shown(row.p99(), unit), grown]);
        }
    }
}

fn line(name: &str, columns: &[String]) {
    let mut line = format!("  {name:<48}");
    for column in columns {
        // Writing to a string can't fail.
        let _ = write!(line, "{column:>14}");
    }
    println!("{}", line.trim_end());
}

/// The floor in each round: the agent's own socket, or the hops that can't be avoided.
fn floor(measurement: &Measurement) -> Option<Vec<f64>> {
    let mut floors = measurement.rows.iter().filter(|row| row.role == Role::Floor);
    let own = floors.next()?.medians();
    match floors.next_back() {
        Some(cat) if cat.name == CAT => {
            Some(cat.medians().iter().zip(own).map(|(cat, one)| cat + 2.0 * one).collect())
        }
        Some(other) => Some(other.medians()),
        None => Some(own),
    }
}

fn ratio(row: &Row, to: Option<&[f64]>) -> String {
    let ratio = to.and_then(|to| Ratio::of(&row.medians(), to));
    ratio.map(|ratio| format!("{:.2}", ratio.median)).unwrap_or_default()
}

/// Shows the bars, and which of them are kept.
pub(crate) fn show_bars(bars: &[Bar]) {
    println!("\nBars: the median of the rounds, and between what half of them are");
    for Bar { text, limit, ratio, passes } in bars {
        let (sign, limit) = match limit {
            Limit::AtMost(limit) => ("≤", limit),
            Limit::AtLeast(limit) => ("≥", limit),
        };
        let mark = if *passes { "pass" } else { "FAIL" };
        let Ratio { median, low, high } = ratio;
        let spread = format!("{low:.2} to {high:.2}");
        println!("  {mark}  {median:>6.2} {sign} {limit:<5} ({spread:<14}) {text}");
    }
}

fn shown(value: f64, unit: Unit) -> String {
    let digits = match value {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", unit.name())
}
