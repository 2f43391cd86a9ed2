//! Whether signatures are right: each good, over its own text, and none made twice.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::lab::{Home, output, text};

use super::signers::{Signers, Turn};

/// What a host's agent is to note, for [`judge`]. Stands in `gpg-agent.conf`.
pub fn agent_configuration(log: &Path) -> String {
    format!("log-file {}\ndebug ipc\n", log.display())
}

/// What was found.
#[derive(Debug, Default)]
pub struct Judgement {
    /// How many signatures are good.
    pub good: usize,
    /// How many attempts failed, and were told so.
    pub failed: usize,
    /// What must not be.
    pub problems: Vec<String>,
}

/// Looks at every turn of clients whose host has this home and this log of its agent.
pub fn judge(host: &Home, agent_log: &Path, signers: &[&Signers]) -> Judgement {
    let mut judgement = Judgement::default();
    for signers in signers {
        let turns = signers.turns();
        let (ok, failed): (Vec<&Turn>, Vec<&Turn>) = turns.iter().partition(|turn| turn.is_ok());
        judgement.failed += failed.len();
        for turn in failed.iter().filter(|turn| turn.complaint.as_deref() == Some("")) {
            judgement.problems.push(format!("{} failed without a word", turn.name));
        }
        let files: Vec<PathBuf> = ok.iter().map(|turn| signers.signature(turn)).collect();
        let good = good_signatures(host, &files);
        for (turn, file) in ok.iter().zip(&files) {
            match wrong_with(turn, file, good.contains(file)) {
                Some(problem) => judgement.problems.push(format!("{}: {problem}", turn.name)),
                None => judgement.good += 1,
            }
        }
    }
    let log = std::fs::read(agent_log).unwrap_or_default();
    judgement.problems.extend(doubled(&text(&log), judgement.good));
    judgement
}

/// What is wrong with a signature that a client was told is made.
fn wrong_with(turn: &Turn, file: &Path, is_good: bool) -> Option<String> {
    let signed = std::fs::read_to_string(file).unwrap_or_default();
    let signed_text = signed.split("\n\n").nth(1).and_then(|rest| rest.lines().next());
    if signed_text != Some(&turn.name) {
        return Some(format!("the signature is over another text: {signed:?}"));
    }
    (!is_good).then(|| format!("the signature is no good: {signed:?}"))
}

/// Those files that hold exactly one good signature of the host's key.
fn good_signatures(host: &Home, files: &[PathBuf]) -> HashSet<PathBuf> {
    let fingerprint = host.fingerprint();
    let mut good = HashMap::<PathBuf, usize>::new();
    // As many as a command line takes with ease.
    for some in files.chunks(500) {
        let mut gpg = host.gpg(["--status-fd", "1", "--verify-files"]);
        let told = text(&output(gpg.args(some)).stdout);
        let mut at = None;
        for line in told.lines().filter_map(|line| line.strip_prefix("[GNUPG:] ")) {
            if let Some(file) = line.strip_prefix("FILE_START 1 ") {
                at = Some(PathBuf::from(file));
            } else if line.starts_with("VALIDSIG ") && line.ends_with(&fingerprint) {
                *good.entry(at.clone().unwrap()).or_default() += 1;
            }
        }
    }
    good.into_iter().filter(|(_, count)| *count == 1).map(|(file, _)| file).collect()
}

/// Hashes that the agent was asked to sign twice. Each has the time and the text of its turn in it.
fn doubled(agent_log: &str, least: usize) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut problems = Vec::new();
    for line in agent_log.lines() {
        let Some((_, arguments)) = line.split_once("<- SETHASH ") else { continue };
        let hash = arguments.split(' ').next_back().unwrap_or_default();
        if !seen.insert(hash.to_owned()) {
            problems.push(format!("the agent was asked to sign {hash} twice"));
        }
    }
    if seen.len() < least {
        let count = seen.len();
        problems.push(format!("the agent noted {count} hashes for {least} signatures"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::{Lab, run, run_with};
    use std::time::Duration;

    /// Signatures made by hand in the way of the clients, and what is said about them.
    #[test]
    fn a_wrong_a_strange_and_a_doubled_signature_are_found() {
        let lab = Lab::empty();
        let log = lab.at("agent.log");
        std::fs::write(lab.host.file("gpg-agent.conf"), agent_configuration(&log)).unwrap();
        lab.host.make_key();
        let signers = Signers::new(lab.at("signers"), 1);
        let sign = |name: &str, of: &str, more: &[&str]| {
            let words = ["--clear-sign"].iter().chain(more);
            let signed = run_with(&mut lab.host.gpg(words), format!("{of}\n").as_bytes());
            std::fs::write(lab.at(&format!("signers/{name}.asc")), signed).unwrap();
        };
        let note = |lines: &str| std::fs::write(lab.at("signers/0.log"), lines).unwrap();
        sign("0-1-1", "0-1-1", &[]);
        note("rest\n0-1-1 10.000000 10.250000 ok\n0-1-2 11.000000 12.000000 gpg: No agent\n0-1-");
        let turns = signers.turns();
        assert_eq!(turns.len(), 2, "{turns:?}");
        assert_eq!(turns[0].time(), Duration::from_millis(250));
        let found = judge(&lab.host, &log, &[&signers]);
        assert_eq!((found.good, found.failed, found.problems), (1, 1, Vec::new()));

        // Over another client's text, without a word of complaint, and the same one twice.
        sign("0-1-3", "0-1-1", &[]);
        note("0-1-3 13.000000 14.000000 ok\n0-1-4 15.000000 16.000000 \n");
        let problems = judge(&lab.host, &log, &[&signers]).problems.join("\n");
        assert!(problems.contains("0-1-3: the signature is over another text"), "{problems}");
        assert!(problems.contains("0-1-4 failed without a word"), "{problems}");

        let at = ["--faked-system-time", "20300101T000000!"];
        sign("0-1-5", "0-1-5", &at);
        sign("0-1-5", "0-1-5", &at);
        let file = lab.at("signers/0-1-5.asc");
        let broken = std::fs::read_to_string(&file).unwrap().replace("0-1-5", "0-1-6");
        std::fs::write(lab.at("signers/0-1-6.asc"), broken).unwrap();
        note("0-1-6 17.000000 18.000000 ok\n");
        let problems = judge(&lab.host, &log, &[&signers]).problems.join("\n");
        assert!(problems.contains("0-1-6: the signature is no good"), "{problems}");
        assert!(problems.contains("twice"), "{problems}");
        run(lab.host.command("gpgconf").args(["--kill", "gpg-agent"]));
    }
}
