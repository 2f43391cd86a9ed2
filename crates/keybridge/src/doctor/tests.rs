//! The framework: what is passed over, what is named first, and what JSON and the exit status say.
#![allow(clippy::unnecessary_wraps, reason = "the functions stand for checks")]

use super::*;
use std::collections::HashSet;

fn fine(_: &Facts) -> Option<Outcome> {
    Some(Outcome::Fine("works".to_owned()))
}

fn broken(_: &Facts) -> Option<Outcome> {
    let problem = Problem::new("it is off").kind(ErrorKind::NoAgent).hint("look");
    Some(Outcome::Broken(problem.fix(Fix::safe("switch on"))))
}

fn warns(_: &Facts) -> Option<Outcome> {
    Some(Outcome::Warning(Problem::new("it is old")))
}

fn absent(_: &Facts) -> Option<Outcome> {
    None
}

const fn check(
    name: &'static str,
    needs: &'static [&'static Check],
    examine: fn(&Facts) -> Option<Outcome>,
) -> Check {
    Check { name, title: "a check", part: Part::Home, lane: None, needs, examine }
}

static FINE: Check = check("fine", &[], fine);
static OLD: Check = check("old", &[], warns);
static OFF: Check = check("off", &[&FINE, &OLD], broken);
static BEHIND: Check = check("behind", &[&OFF], fine);
static FAR_BEHIND: Check = check("far-behind", &[&BEHIND], broken);
static ELSEWHERE: Check = Check { part: Part::Way, ..check("elsewhere", &[&OFF], fine) };
static ABSENT: Check = check("absent", &[], absent);
static BESIDE: Check = check("beside", &[&ELSEWHERE, &ABSENT, &OLD], fine);

fn outcomes(chain: &[&'static Check]) -> (Diagnosis, Vec<(&'static str, String)>) {
    let diagnosis = Diagnosis::by(chain, &Facts::none());
    let rows = diagnosis.findings.iter().map(|finding| {
        let row = Row::of(finding);
        let because = row.because.map(|because| format!(" because of {because}"));
        (finding.check.name, format!("{}{}", row.outcome, because.unwrap_or_default()))
    });
    let rows = rows.collect();
    (diagnosis, rows)
}

#[test]
fn what_needs_a_broken_check_is_passed_over_and_names_the_root() {
    let chain = [&OLD, &FINE, &OFF, &BEHIND, &FAR_BEHIND, &ELSEWHERE, &ABSENT, &BESIDE];
    let (diagnosis, rows) = outcomes(&chain);
    let rows: Vec<(&str, &str)> = rows.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(
        rows,
        [
            ("old", "warning"),
            ("fine", "ok"),
            ("off", "broken"),
            ("behind", "passed-over because of off"),
            ("far-behind", "passed-over because of off"),
            ("beside", "ok"),
        ]
    );
    // The warning comes earlier, and the broken link counts.
    assert_eq!(diagnosis.first().unwrap().0.check.name, "off");
    assert!(!diagnosis.is_ok());
    assert_eq!(diagnosis.exit_status(), 3);
}

#[test]
fn a_warning_breaks_nothing() {
    let (diagnosis, _) = outcomes(&[&FINE, &OLD]);
    assert_eq!(diagnosis.first().unwrap().0.check.name, "old");
    assert!(diagnosis.is_ok());
    assert_eq!(diagnosis.exit_status(), 0);
    let (diagnosis, _) = outcomes(&[&FINE]);
    assert!(diagnosis.first().is_none());
}

#[test]
fn json_has_the_cause_and_the_fixes() {
    let (diagnosis, _) = outcomes(&[&FINE, &OFF, &BEHIND]);
    let json = diagnosis.to_json();
    assert_eq!((&json["ok"], &json["first"]), (&json!(false), &json!("off")));
    assert_eq!(json["checks"][0]["fact"], "works");
    assert_eq!(json["checks"][1]["cause"], "it is off");
    assert_eq!(
        json["checks"][1]["fixes"],
        json!([{ "command": "switch on", "safe": true, "lends": false }])
    );
    assert_eq!(json["checks"][1]["hints"], json!(["look"]));
    assert_eq!(json["checks"][2]["because"], "off");
}

#[test]
fn every_check_has_a_name_of_its_own_and_needs_only_earlier_ones() {
    let mut seen = HashSet::new();
    for check in checks::CHAIN {
        for needed in check.needs {
            assert!(seen.contains(needed.name), "{} needs {}", check.name, needed.name);
        }
        let is_plain = |letter: char| letter.is_ascii_lowercase() || letter == '-';
        assert!(check.name.chars().all(is_plain), "{}", check.name);
        assert!(seen.insert(check.name), "{} is there twice", check.name);
    }
}

#[test]
fn a_hint_that_begins_with_a_command_is_a_fix() {
    let error = Error::failed("off").hint("`sudo x y` starts it").hint("or run `z`");
    let problem = Problem::from(&error);
    assert_eq!(problem.fixes, [Fix::new("sudo x y")]);
    assert_eq!(problem.hints, ["starts it", "or run `z`"]);
}
