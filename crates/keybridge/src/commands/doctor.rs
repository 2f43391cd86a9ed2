//! `keybridge doctor [TARGET]`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use clap::Args;
use keybridge_proto::printable_json;

use crate::config::{ConfigFile, Options};
use crate::doctor::{BridgeLine, Diagnosis, Finding, Fix, Outcome, Part, Problem};
use crate::facts::{Facts, Subject};
use crate::output::{Paint, print_line};
use crate::shell_quote::quoted;
use crate::supervisor::BridgeState;
use crate::{Error, ErrorKind, Result};

/// Check every link of the chain, with the fix for each that is broken
///
/// Without a target, the host is checked, and how its bridges are. Exit status: 0 no link is broken,
/// 1 one is, 3 the target or an agent isn't there.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The target; its bridge needn't be up
    target: Option<String>,
    /// Run the fixes that are safe, each after asking, and check again
    #[arg(long)]
    fix: bool,
    /// Don't ask before a fix; one that would lend keys is left to you then
    #[arg(long, requires = "fix")]
    yes: bool,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: Options,
}

/// How many fixes are run at most: each may show the next problem.
const MOST_FIXES: usize = 10;

impl Doctor {
    pub(crate) async fn run(self, config: ConfigFile) -> Result<ExitCode> {
        let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if self.fix && !self.yes && (self.json || !has_terminal) {
            let message = "--fix asks before each fix, and there is no terminal to ask at";
            return Err(Error::new(ErrorKind::Usage, message).hint("add --yes to run them unasked"));
        }
        let address = self.target.as_deref().map(str::parse).transpose()?;
        let subject = Subject { address, options: self.options.clone(), config };
        let mut diagnosis = Diagnosis::of(&Facts::gather(&subject).await?);
        if self.fix {
            diagnosis = self.fix_all(&subject, diagnosis).await?;
        }
        if self.json {
            print_line(&printable_json(&diagnosis.to_json().to_string()));
        } else {
            let _ = std::io::stdout().write_all(shown(&diagnosis, Paint::stdout()).as_bytes());
        }
        Ok(ExitCode::from(diagnosis.exit_status()))
    }

    /// Runs the safe fix of the first problem that has one, and checks again, until there is none left.
    async fn fix_all(&self, subject: &Subject, first: Diagnosis) -> Result<Diagnosis> {
        let (mut diagnosis, mut done): (_, Vec<String>) = (first, Vec::new());
        while let Some((finding, fix)) =
            self.next_fix(&diagnosis, &done).filter(|_| done.len() < MOST_FIXES)
        {
            if !self.json {
                print_line(&format!("{}: {}", finding.rule.check, cause(finding)));
            }
            done.push(fix.command.clone());
            if !self.yes && !is_agreed(&fix.command)? {
                continue;
            }
            if !self.json {
                print_line(&format!("$ {}", fix.command));
            }
            fix.run(self.json).await?;
            diagnosis = Diagnosis::of(&Facts::gather(subject).await?);
        }
        Ok(diagnosis)
    }

    /// The first safe fix that was not tried yet. One that lends keys needs a person who says yes to it.
    fn next_fix<'a>(
        &self,
        diagnosis: &'a Diagnosis,
        done: &[String],
    ) -> Option<(&'a Finding, &'a Fix)> {
        let fixes = |finding: &'a Finding| {
            let fixes = finding.problem().into_iter().flat_map(|problem| &problem.fixes);
            fixes.map(move |fix| (finding, fix))
        };
        let may_run = |fix: &Fix| fix.safe && !(self.yes && fix.lends);
        let mut all = diagnosis.findings.iter().flat_map(fixes);
        all.find(|(_, fix)| may_run(fix) && !done.contains(&fix.command))
    }
}

fn is_agreed(command: &str) -> Result<bool> {
    let mut stdout = std::io::stdout();
    let _ = write!(stdout, "run `{command}`? [y/N] ");
    let _ = stdout.flush();
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Error::failed("can't read the answer").caused_by(error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn cause(finding: &Finding) -> &str {
    finding.problem().map_or("", |problem| problem.cause.as_str())
}

/// All findings for people: the first problem, and then the chain.
fn shown(diagnosis: &Diagnosis, paint: Paint) -> String {
    let mut text = headline(diagnosis, paint);
    let width =
        diagnosis.findings.iter().map(|one| one.rule.check.to_string().len()).max().unwrap_or(0);
    let mut part = None;
    for finding in &diagnosis.findings {
        if part != Some(finding.rule.part) {
            part = Some(finding.rule.part);
            let _ = writeln!(text, "\n{}", title(finding.rule.part, diagnosis));
        }
        let name = format!("{:<width$}", finding.rule.check);
        let (mark, said) = match &finding.outcome {
            Outcome::Fine(fact) => (paint.tick(), fact.clone()),
            Outcome::Warning(problem) => (paint.mark(), problem.cause.clone()),
            Outcome::Broken(problem) => (paint.cross(), problem.cause.clone()),
            Outcome::NotTried(why) => ("–".to_owned(), format!("not tried: {why}")),
            Outcome::PassedOver(because) => {
                ("–".to_owned(), paint.quiet(&format!("because of {because}")))
            }
        };
        let is_first = diagnosis.first().is_some_and(|(first, _)| std::ptr::eq(first, finding));
        if is_first {
            let _ = writeln!(text, "{mark} {name}  {}", paint.quiet("see above"));
            continue;
        }
        let _ = writeln!(text, "{mark} {name}  {said}");
        if let Some(problem) = finding.problem() {
            text.push_str(&advice(problem, "    "));
        }
    }
    text.push_str(&bridges(diagnosis, paint));
    text
}

/// A line for each bridge, with the command that checks it.
fn bridges(diagnosis: &Diagnosis, paint: Paint) -> String {
    let mut text = String::new();
    for BridgeLine { target, state, reason } in &diagnosis.bridges {
        if text.is_empty() {
            text.push_str("\nbridges\n");
        }
        let mark = if *state == BridgeState::Ready { paint.tick() } else { paint.mark() };
        let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let (state, word) = (state.word(), quoted(target));
        let _ = writeln!(text, "{mark} {target} is {state}{reason}\n    → keybridge doctor {word}");
    }
    text
}

/// The first problem with its fix, or that there is none.
fn headline(diagnosis: &Diagnosis, paint: Paint) -> String {
    let name = diagnosis.target.as_deref().unwrap_or("the host");
    let Some((finding, problem)) = diagnosis.first() else {
        return format!("{} {name}: every link of the chain works\n", paint.tick());
    };
    let (mark, word) = if diagnosis.is_ok() {
        (paint.mark(), "nothing is broken; the first warning is")
    } else {
        (paint.cross(), "the first problem is")
    };
    let (check, cause) = (finding.rule.check, &problem.cause);
    format!("{mark} {name}: {word} {check}\n  {cause}\n{}", advice(problem, "  "))
}

fn advice(problem: &Problem, indent: &str) -> String {
    let mut text = String::new();
    for fix in &problem.fixes {
        let _ = writeln!(text, "{indent}→ {}", fix.command);
    }
    for hint in &problem.hints {
        let _ = writeln!(text, "{indent}  {hint}");
    }
    text
}

fn title(part: Part, diagnosis: &Diagnosis) -> String {
    let name = diagnosis.target.as_deref().unwrap_or_default();
    match part {
        Part::Host => "on the host".to_owned(),
        Part::Way => format!("the way to {name}"),
        Part::Target => format!("in {name}"),
        Part::Bridge => "the bridge, and what it brings".to_owned(),
    }
}
