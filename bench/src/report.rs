//! Tables on the terminal.

use crate::bars::Bar;
use crate::figures::{Measurement, Ratio, Unit};

/// Shows a measurement: each row, and how ours compares with it.
pub(crate) fn show_measurement(measurement: &Measurement) {
    println!("\n{}", measurement.title);
    let verb = match measurement.unit {
        Unit::MibPerSecond => "moves",
        Unit::Micros | Unit::Millis | Unit::Mib => "takes",
    };
    for row in &measurement.rows {
        let ratio = measurement.ours_to(row).map(|Ratio { median, low, high }| {
            format!("    keybridge {verb} × {median:.2} ({low:.2} to {high:.2})")
        });
        let value = shown(row.p50(), measurement.unit);
        println!("  {:<36}{value:>14}{}", row.name, ratio.unwrap_or_default());
    }
}

/// Shows the bars, and which of them are kept.
pub(crate) fn show_bars(bars: &[Bar]) {
    if !bars.is_empty() {
        println!("\nBars");
    }
    for bar in bars {
        let Bar { text, value, limit } = bar;
        let mark = if bar.is_kept() { "pass" } else { "FAIL" };
        println!("  {mark}  {value:>8.2} ≤ {limit:<6} {text}");
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
