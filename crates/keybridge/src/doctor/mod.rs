//! Checks every part of the chain, from the agents of the host to a signature in the target, and says
//! what to type where one is broken.
//!
//! The facts are gathered first (`facts`). Each check (`checks`) then judges them, without I/O. What
//! can't be known because of an earlier check is passed over.

pub(crate) mod fix;
mod of_error;

use keybridge_proto::printable;
use serde::Serialize;
use serde_json::{Value, json};

use crate::checks;
use crate::checks::{Check, Rule};
use crate::facts::Facts;
use crate::supervisor::{BridgeState, BridgeStatus};
use crate::{Error, ErrorKind, Hint, Result};
pub(crate) use fix::{Fix, IN_A_FIX};
pub(crate) use of_error::name_check;

/// Where a link of the chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// On the host.
    Host,
    /// Between the host and the target.
    Way,
    /// In the target, before there is a bridge.
    Target,
    /// The bridge, and what it brings.
    Bridge,
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is as it should be; a fact about it.
    Fine(String),
    /// It works, but something should be known.
    Warning(Problem),
    /// It doesn't work.
    Broken(Problem),
    /// It wasn't tried, for this reason.
    NotTried(String),
    /// It can't be known because of another check.
    PassedOver(Check),
}

/// The version of something that is needed, or why it can't be used.
impl From<&Result<String>> for Outcome {
    fn from(version: &Result<String>) -> Self {
        match version {
            Ok(version) => Self::Fine(version.clone()),
            Err(error) => Self::Broken(Problem::from(error)),
        }
    }
}

/// What is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The cause, in one line.
    pub(crate) cause: String,
    pub(crate) kind: ErrorKind,
    /// The commands that fix it, the best one first.
    pub(crate) fixes: Vec<Fix>,
    /// What else helps, where no command does.
    pub(crate) hints: Vec<String>,
}

impl Problem {
    pub(crate) fn new(cause: impl Into<String>) -> Self {
        let (fixes, hints) = (Vec::new(), Vec::new());
        Self { cause: cause.into(), kind: ErrorKind::Failed, fixes, hints }
    }

    pub(crate) const fn kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Adds a command that fixes it.
    pub(crate) fn fix(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }

    /// Adds a hint that is no command.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// An error with its hints. A command among them is a fix.
impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let Error { kind, message, hints, .. } = error;
        let problem = Self::new(message).kind(*kind);
        hints.iter().fold(problem, |problem, hint| match hint {
            Hint::Run(command, effect) => problem.fix(Fix::new(&**command)).hint(&**effect),
            Hint::Say(text) => problem.hint(&**text),
        })
    }
}

/// A check and its outcome.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) rule: Rule,
    pub(crate) outcome: Outcome,
}

impl Finding {
    /// What is wrong, if anything is.
    pub(crate) const fn problem(&self) -> Option<&Problem> {
        match &self.outcome {
            Outcome::Warning(problem) | Outcome::Broken(problem) => Some(problem),
            Outcome::Fine(_) | Outcome::NotTried(_) | Outcome::PassedOver(_) => None,
        }
    }

    const fn is_broken(&self) -> bool {
        matches!(self.outcome, Outcome::Broken(_))
    }
}

/// All findings, in the order of the chain.
#[derive(Debug)]
pub(crate) struct Diagnosis {
    pub(crate) target: Option<String>,
    pub(crate) findings: Vec<Finding>,
    /// Every bridge that is up, if no target was named.
    pub(crate) bridges: Vec<BridgeLine>,
}

/// A bridge, in short.
#[derive(Debug, Serialize)]
pub(crate) struct BridgeLine {
    pub(crate) target: String,
    pub(crate) state: BridgeState,
    pub(crate) reason: Option<String>,
}

impl From<&BridgeStatus> for BridgeLine {
    fn from(status: &BridgeStatus) -> Self {
        Self {
            target: printable(&status.target).to_string(),
            state: status.state,
            reason: status.reason.as_deref().map(|reason| printable(reason).to_string()),
        }
    }
}

impl Diagnosis {
    /// Runs the checks on facts that were gathered.
    pub(crate) fn of(facts: &Facts) -> Self {
        Self::by(checks::CHAIN, facts)
    }

    fn by(chain: &[Rule], facts: &Facts) -> Self {
        let mut findings: Vec<Finding> = Vec::new();
        for rule in chain.iter().filter(|rule| rule.applies(facts)) {
            let blocked = rule.needs.iter().find_map(|needed| blocks(&findings, *needed));
            let outcome = match blocked {
                Some(because) => Some(Outcome::PassedOver(because)),
                None => (rule.examine)(facts),
            };
            findings.extend(outcome.map(|outcome| Finding { rule: *rule, outcome }));
        }
        let bridges = facts.bridges.iter().map(BridgeLine::from).collect();
        Self { target: facts.target_name(), findings, bridges }
    }

    /// The first broken link, or else the first that needs attention.
    pub(crate) fn first(&self) -> Option<(&Finding, &Problem)> {
        let broken = self.findings.iter().find(|finding| finding.is_broken());
        let one = broken.or_else(|| self.findings.iter().find(|one| one.problem().is_some()))?;
        Some((one, one.problem()?))
    }

    /// Whether no link is broken.
    pub(crate) fn is_ok(&self) -> bool {
        !self.findings.iter().any(Finding::is_broken)
    }

    /// The exit status of `doctor`.
    pub(crate) fn exit_status(&self) -> u8 {
        match self.first() {
            Some((_, problem)) if !self.is_ok() => Error::new(problem.kind, "").exit_status(),
            Some(_) | None => 0,
        }
    }

    /// What `--json` prints.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = json!({
            "target": self.target,
            "ok": self.is_ok(),
            "first": self.first().map(|(finding, _)| finding.rule.check),
            "checks": self.findings.iter().map(Row::of).collect::<Vec<_>>(),
        });
        if let (None, Some(object)) = (&self.target, object.as_object_mut()) {
            object.insert("bridges".to_owned(), json!(self.bridges));
        }
        object
    }
}

/// The check that makes another one unknowable: a broken one, or the one that it was passed over for.
fn blocks(findings: &[Finding], needed: Check) -> Option<Check> {
    let finding = findings.iter().find(|finding| finding.rule.check == needed)?;
    match finding.outcome {
        Outcome::Broken(_) => Some(needed),
        Outcome::PassedOver(because) => Some(because),
        Outcome::Fine(_) | Outcome::Warning(_) | Outcome::NotTried(_) => None,
    }
}

/// A finding as JSON has it.
#[derive(Serialize)]
struct Row<'a> {
    name: Check,
    title: &'a str,
    outcome: &'a str,
    fact: Option<&'a str>,
    cause: Option<&'a str>,
    fixes: &'a [Fix],
    hints: &'a [String],
    because: Option<Check>,
}

impl<'a> Row<'a> {
    fn of(finding: &'a Finding) -> Self {
        let (fact, because) = match &finding.outcome {
            Outcome::Fine(fact) | Outcome::NotTried(fact) => (Some(fact.as_str()), None),
            Outcome::PassedOver(because) => (None, Some(*because)),
            Outcome::Warning(_) | Outcome::Broken(_) => (None, None),
        };
        let problem = finding.problem();
        Self {
            name: finding.rule.check,
            title: finding.rule.title,
            outcome: match finding.outcome {
                Outcome::Fine(_) => "ok",
                Outcome::Warning(_) => "warning",
                Outcome::Broken(_) => "broken",
                Outcome::NotTried(_) | Outcome::PassedOver(_) => "passed-over",
            },
            fact,
            cause: problem.map(|problem| problem.cause.as_str()),
            fixes: problem.map_or(&[], |problem| &problem.fixes),
            hints: problem.map_or(&[], |problem| &problem.hints),
            because,
        }
    }
}

#[cfg(test)]
mod tests;
