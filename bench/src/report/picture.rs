//! The picture for the README: SVG, written by hand, fit for light and dark pages.

use std::fmt::Write;

use crate::figures::{Measurement, Row, Unit};
use crate::subjects::{MOUNTED, Role};

/// The panels: which measurement, and what stands above it.
const PANELS: [(&str, &str); 4] = [
    ("docker.gpg.real.round-trip", "Docker: round trip of a small command"),
    ("docker.gpg.stand-in.bulk-from-agent", "Docker: bulk from the agent"),
    ("local.gpg.real.round-trip", "One machine: round trip of a small command"),
    ("local.gpg.real.crowd", "One machine: commands over 200 connections at once"),
];

const WIDTH: f64 = 760.0;
const NAMES: f64 = 230.0;
const VALUES: f64 = 110.0;
const LINE: f64 = 24.0;
const HEAD: f64 = 42.0;

/// Draws the panels whose measurements there are.
pub(crate) fn picture(measurements: &[Measurement]) -> String {
    let mut body = String::new();
    let mut y = 8.0;
    for (id, title) in PANELS {
        if let Some(found) = measurements.iter().find(|measurement| measurement.id == id) {
            y = panel(&mut body, y, title, found);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y:.0}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\" \
         aria-label=\"keybridge beside what people use instead\">\n{STYLE}{body}</svg>\n"
    )
}

const STYLE: &str = "<style>
text { fill: #24292f } .quiet { fill: #6e7781 } .ours { fill: #2da44e } .other { fill: #afb8c1 }
.floor { fill: #d8dee4 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #8b949e } .ours { fill: #3fb950 } .other { fill: #6e7681 }
.floor { fill: #30363d } }
</style>
";

/// Draws one panel, and says where it ends.
fn panel(out: &mut String, top: f64, title: &str, measurement: &Measurement) -> f64 {
    let better =
        if measurement.unit.less_is_better() { "less is better" } else { "more is better" };
    // A socket that is mounted moves no bulk to another place: beside it nothing else could be seen.
    let is_bulk = measurement.unit == Unit::MibPerSecond;
    let rows = measurement.rows.iter().filter(|row| !is_bulk || row.name != MOUNTED);
    let most = rows.clone().map(Row::p50).fold(f64::MIN_POSITIVE, f64::max);
    let room = WIDTH - NAMES - VALUES;
    let mut y = top + 20.0;
    // Writing to a string can't fail.
    let _ = writeln!(
        out,
        "<text x=\"8\" y=\"{y:.0}\" font-weight=\"600\">{} <tspan class=\"quiet\" \
         font-weight=\"400\">({}, {better})</tspan></text>",
        escaped(title),
        measurement.unit.name()
    );
    y = top + HEAD;
    for row in rows {
        let (class, weight) = match row.role {
            Role::Floor => ("floor", 400),
            Role::Ours => ("ours", 600),
            Role::Other => ("other", 400),
        };
        let length = (row.p50() / most * room).max(1.0);
        let (at, base) = (y - 12.0, y + 1.0);
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{base:.0}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>\
             <rect class=\"{class}\" x=\"{NAMES}\" y=\"{at:.0}\" width=\"{length:.0}\" height=\"17\" \
             rx=\"2\"/><text x=\"{:.0}\" y=\"{base:.0}\" font-weight=\"{weight}\">{}</text>",
            NAMES - 8.0,
            escaped(&row.name),
            NAMES + length + 6.0,
            number(row.p50())
        );
        y += LINE;
    }
    y
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
