//! The framework: what is passed over, what is named first, and what JSON and the exit status say.
#![allow(clippy::unnecessary_wraps, reason = "the functions stand for checks")]

use super::*;
use crate::checks;
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

const fn rule(check: Check, examine: fn(&Facts) -> Option<Outcome>) -> Rule {
    Rule::host(check, "a check", examine)
}

// The names of real checks: these ones examine nothing.
const FINE: Rule = rule(Check::HostGpg, fine);
const OLD: Rule = rule(Check::StateFolder, warns);
const OFF: Rule = rule(Check::GpgAgent, broken).after(&[Check::HostGpg, Check::StateFolder]);
const BEHIND: Rule = rule(Check::SecretKeys, fine).after(&[Check::GpgAgent]);
const FAR_BEHIND: Rule = rule(Check::PublicKeys, broken).after(&[Check::SecretKeys]);
const ELSEWHERE: Rule = Rule::way(Check::Target, "a check", fine).after(&[Check::GpgAgent]);
const ABSENT: Rule = rule(Check::Engine, absent);
const BESIDE: Rule =
    rule(Check::Signature, fine).after(&[Check::Target, Check::Engine, Check::StateFolder]);

fn outcomes(chain: &[Rule]) -> (Diagnosis, Vec<(Check, String)>) {
    let diagnosis = Diagnosis::by(chain, &Facts::none());
    let rows = diagnosis.findings.iter().map(|finding| {
        let row = Row::of(finding);
        let because = row.because.map(|because| format!(" because of {because}"));
        (row.name, format!("{}{}", row.outcome, because.unwrap_or_default()))
    });
    let rows = rows.collect();
    (diagnosis, rows)
}

#[test]
fn what_needs_a_broken_check_is_passed_over_and_names_the_root() {
    let chain = [OLD, FINE, OFF, BEHIND, FAR_BEHIND, ELSEWHERE, ABSENT, BESIDE];
    let (diagnosis, rows) = outcomes(&chain);
    let rows: Vec<(Check, &str)> = rows.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(
        rows,
        [
            (Check::StateFolder, "warning"),
            (Check::HostGpg, "ok"),
            (Check::GpgAgent, "broken"),
            (Check::SecretKeys, "passed-over because of gpg-agent"),
            (Check::PublicKeys, "passed-over because of gpg-agent"),
            (Check::Signature, "ok"),
        ]
    );
    // The warning comes earlier, and the broken link counts.
    assert_eq!(diagnosis.first().unwrap().0.rule.check, Check::GpgAgent);
    assert!(!diagnosis.is_ok());
    assert_eq!(diagnosis.exit_status(), 3);
}

#[test]
fn a_warning_breaks_nothing() {
    let (diagnosis, _) = outcomes(&[FINE, OLD]);
    assert_eq!(diagnosis.first().unwrap().0.rule.check, Check::StateFolder);
    assert!(diagnosis.is_ok());
    assert_eq!(diagnosis.exit_status(), 0);
    let (diagnosis, _) = outcomes(&[FINE]);
    assert!(diagnosis.first().is_none());
}

#[test]
fn json_has_the_cause_and_the_fixes() {
    let (diagnosis, _) = outcomes(&[FINE, OFF, BEHIND]);
    let json = diagnosis.to_json();
    assert_eq!((&json["ok"], &json["first"]), (&json!(false), &json!("gpg-agent")));
    assert_eq!(json["checks"][0]["fact"], "works");
    assert_eq!(json["checks"][1]["cause"], "it is off");
    assert_eq!(
        json["checks"][1]["fixes"],
        json!([{ "command": "switch on", "safe": true, "lends": false }])
    );
    assert_eq!(json["checks"][1]["hints"], json!(["look"]));
    assert_eq!(json["checks"][2]["because"], "gpg-agent");
}

#[test]
fn every_check_is_there_once_and_needs_only_earlier_ones() {
    let mut seen = HashSet::new();
    for rule in checks::CHAIN {
        for needed in rule.needs {
            assert!(seen.contains(needed), "{} needs {needed}", rule.check);
        }
        assert!(seen.insert(rule.check), "{} is there twice", rule.check);
    }
}

#[test]
fn a_command_among_the_hints_is_a_fix_and_text_in_backticks_is_not() {
    let error = Error::failed("off").hint(Hint::run("sudo x y", "starts it")).hint("`z` does too");
    let problem = Problem::from(&error);
    assert_eq!(problem.fixes, [Fix::new("sudo x y")]);
    assert_eq!(problem.hints, ["starts it", "`z` does too"]);
}
