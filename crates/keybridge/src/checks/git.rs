//! git in the target: the program and the key that it signs with, and its `user.email`. What signs for it on
//! the host.

use keybridge_proto::inspection::GitSetting;
use keybridge_proto::{Lane, Operation};

use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::keyring::{KeyId, Lending, Overview, OwnKey, address};
use crate::platform::find_program;
use crate::target::RunAs;

/// gpg or ssh-keygen of the host can sign what comes over the git lane.
pub(crate) fn signers(facts: &Facts) -> Option<Outcome> {
    let (host, lends) = (&facts.host, facts.settings.agents_for_git());
    let gpg = host.gpg.as_ref().ok().filter(|_| lends.contains(&Lane::Gpg));
    let has_agent = lends.contains(&Lane::Ssh) && host.ssh.is_ok();
    let has_keygen = find_program("ssh-keygen").is_some();
    let gpg = gpg.map(|version| format!("gpg {version}"));
    Some(match (gpg, &host.gpg) {
        (gpg, _) if has_agent && !has_keygen => {
            let problem =
                Problem::new("there is no ssh-keygen on the host: no ssh key signs for git");
            if gpg.is_some() { Outcome::Warning(problem) } else { Outcome::Broken(problem) }
        }
        (Some(gpg), _) => Outcome::Fine(if has_agent { format!("{gpg}, ssh-keygen") } else { gpg }),
        (None, _) if has_agent => Outcome::Fine("ssh-keygen".to_owned()),
        (None, Err(error)) if lends.contains(&Lane::Gpg) => Outcome::Broken(Problem::from(error)),
        (None, _) => {
            Outcome::Broken(Problem::new("there is no ssh-agent whose keys could sign for git"))
        }
    })
}

/// git runs the bridge's program to sign. An editor or a shell may have set another one.
pub(crate) fn program(facts: &Facts) -> Option<Outcome> {
    let git = facts.inspection()?.git.as_ref().filter(|git| git.problem.is_none())?;
    let (program, usual) = match git.format.as_ref().map_or("openpgp", |format| &format.value) {
        "openpgp" => (&git.gpg_program, "gpg"),
        "ssh" => (&git.ssh_program, "ssh-keygen"),
        // No lane signs with another one.
        _ => return None,
    };
    Some(match program {
        Some(program) if git.entries.contains(&program.value) => {
            Outcome::Fine(program.value.clone())
        }
        Some(GitSetting { value, file }) => {
            let who = file.as_deref().unwrap_or("a GIT_CONFIG variable of its environment");
            let cause = format!(
                "git in the target signs with {value} and not over the bridge: {who} sets that"
            );
            Outcome::Warning(Problem::new(cause).hint(
                "remove that setting, or have it come before keybridge's: git takes the last one",
            ))
        }
        None => {
            let cause =
                format!("git in the target signs with its own {usual} and not over the bridge");
            Outcome::Warning(Problem::new(cause).fix(facts.fix_by_up(facts.up(&["--git"]))))
        }
    })
}

/// It finds a lent key to sign with.
pub(crate) fn signing_key(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.host.keys.as_ref().ok()?);
    let git = inspection.git.as_ref()?;
    let problem = git.problem.as_ref().or(git.version.as_ref().err());
    if let Some(why) = problem {
        return Some(Outcome::Warning(Problem::new(format!("git in the target: {why}"))));
    }
    let value =
        |setting: &Option<GitSetting>| setting.as_ref().map(|setting| setting.value.clone());
    let (key, email) = (value(&git.signing_key), value(&git.email));
    let set_up = facts.fix_by_up(facts.up(&["--git"]));
    if value(&git.format).as_deref() == Some("ssh") {
        return Some(match key {
            Some(_) if [Lane::Ssh, Lane::Git].iter().any(|lane| facts.lanes().contains(lane)) => {
                Outcome::Fine("with an SSH key".to_owned())
            }
            Some(_) | None => Outcome::Broken(
                Problem::new("git in the target signs with SSH, and has no key for that")
                    .fix(set_up),
            ),
        });
    }
    let signs_always = value(&git.sign_commits).as_deref() == Some("true");
    Some(match (key, email) {
        (Some(key), _) => judge(facts, keys, &key, set_up),
        (None, Some(email)) if names_key(keys, &email) => {
            Outcome::Fine(format!("gpg finds it by user.email {email}"))
        }
        (None, _) => {
            let problem = Problem::new(
                "git in the target has no user.signingkey: `git commit -S` finds no key",
            )
            .fix(set_up);
            if signs_always { Outcome::Broken(problem) } else { Outcome::Warning(problem) }
        }
    })
}

/// Whether a lent key has this address.
fn names_key(keys: &Overview, email: &str) -> bool {
    let address = format!("<{}>", email.to_lowercase());
    keys.signing_user_ids().any(|user_id| {
        let user_id = user_id.to_lowercase();
        user_id.contains(&address) || user_id == email.to_lowercase()
    })
}

/// The keys that a value of `user.signingkey` names.
fn named<'a>(keys: &'a Overview, key: &str) -> impl Iterator<Item = &'a OwnKey> {
    let (id, text) = (KeyId::parse(key), key.to_owned());
    keys.own.iter().filter(move |own| match &id {
        Some(id) => id.is_of(&own.fingerprint) || id.is_of(&own.primary),
        None => own.user_id.contains(&text),
    })
}

fn judge(facts: &Facts, keys: &Overview, key: &str, set_up: Fix) -> Outcome {
    if named(keys, key).any(|own| own.signs) {
        return Outcome::Fine(format!("with {key}"));
    }
    let mine = named(keys, key).find(|own| own.is_for_signing && own.is_valid);
    let Some(own) = mine else {
        let key = facts.marked(key);
        let cause = format!("git in the target signs with a key that isn't yours: {key}");
        return Outcome::Broken(Problem::new(cause).fix(set_up));
    };
    let cause = format!("git in the target signs with {key}, which isn't lent for signatures");
    let lending = facts.status().map(|status| &status.lending);
    let lend = lend_too(lending, &own.primary);
    let mut options = vec!["--lend", &lend];
    // It may be lent, and not for signatures.
    let uses = lending.and_then(|lending| lending.uses);
    let more = uses
        .filter(|uses| !uses.has(Operation::Sign))
        .map(|uses| uses.and([Operation::Sign].into_iter().collect()).to_string());
    if let Some(more) = &more {
        options.extend(["--uses", more]);
    }
    // Who names keys of one agent alone doesn't lend the other any more.
    let is_by_git = facts.lanes().contains(&Lane::Git);
    let lanes = facts.lanes_and(if is_by_git { Lane::Git } else { Lane::Gpg });
    if facts.lanes().contains(&Lane::Ssh) {
        options.extend(["--lanes", &lanes]);
    }
    Outcome::Broken(Problem::new(cause).fix(Fix::new(facts.up(&options))))
}

/// The keys that are lent, and one more.
fn lend_too(lending: Option<&Lending>, primary: &str) -> String {
    match lending.and_then(|lending| lending.lend.as_deref().or(lending.keys.as_deref())) {
        Some(words) if words != "pairs" && words != "all" => format!("{words},{primary}"),
        Some(_) | None => primary.to_owned(),
    }
}

/// `user.email` is on the key that signs.
pub(crate) fn email(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.host.keys.as_ref().ok()?);
    let git = inspection.git.as_ref()?;
    // An SSH key has no addresses.
    if git.format.as_ref().is_some_and(|format| format.value == "ssh") {
        return None;
    }
    let cause = match git.email.as_ref().map(|email| email.value.as_str()) {
        Some(email) if names_key(keys, email) => {
            return Some(Outcome::Fine(email.to_owned()));
        }
        Some(email) => format!(
            "user.email in the target is not on a key that is lent: {}",
            facts.marked(email)
        ),
        None => "git in the target has no user.email".to_owned(),
    };
    let address = keys.signing_user_ids().find_map(address);
    let problem = Problem::new(cause);
    Some(Outcome::Warning(match address {
        Some(address) => {
            let words = ["git", "config", "--global", "user.email", &address];
            problem.fix(Fix::new(facts.typed(&words, RunAs::User)))
        }
        None => problem.hint("no key that is lent for signatures has an address"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;
    use crate::keyring::SentKey;

    fn facts(options: &str) -> Facts {
        let options = toml::from_str(options).unwrap();
        let settings = ConfigFile::default().settings("x", &options).unwrap();
        Facts { settings, ..Facts::none() }
    }

    #[test]
    fn a_key_that_is_not_lent_is_lent_without_the_loss_of_a_lane() {
        let fingerprint = "A".repeat(40);
        let own = OwnKey {
            primary: fingerprint.clone(),
            fingerprint: fingerprint.clone(),
            is_for_signing: true,
            is_valid: true,
            ..OwnKey::default()
        };
        let keys = Overview { own: vec![own], ..Overview::default() };
        for (options, lanes) in [
            ("", Some("--lanes gpg,ssh ")),
            ("git = true", Some("--lanes gpg,ssh,git ")),
            ("lanes = ['ssh', 'git']", Some("--lanes ssh,git ")),
            ("lanes = ['ssh']", Some("--lanes ssh,gpg ")),
            ("lanes = ['git']", None),
        ] {
            let judged = judge(&facts(options), &keys, &fingerprint, Fix::new(""));
            let Outcome::Broken(problem) = judged else { panic!("{judged:?}") };
            // PowerShell's words are quoted where they have a comma.
            let command = problem.fixes[0].command.replace('\'', "");
            assert_eq!(command.contains("--lanes"), lanes.is_some(), "{command}");
            assert!(command.contains(lanes.unwrap_or_default()), "{command}");
        }
    }

    #[test]
    fn gpg_signs_for_git_only_where_its_keys_are_lent() {
        for (options, expected) in [("", true), ("ssh-keys = ['work@*']", false)] {
            let mut facts = facts(options);
            assert!(matches!(signers(&facts), Some(Outcome::Broken(_))));
            facts.host.gpg = Ok("2.4.7".to_owned());
            let is_fine = signers(&facts) == Some(Outcome::Fine("gpg 2.4.7".to_owned()));
            assert_eq!(is_fine, expected, "{options}");
        }
    }

    #[test]
    fn a_key_is_named_by_an_id_a_fingerprint_or_a_user_id() {
        let fingerprint = "B0190C2E104496E6B0458B6F81411CFB911715FE".to_owned();
        let own = OwnKey {
            primary: fingerprint.clone(),
            fingerprint,
            user_id: "Lab <lab@x>".to_owned(),
            signs: true,
            ..OwnKey::default()
        };
        let keys = Overview { own: vec![own], ..Overview::default() };
        for (key, count) in [
            ("0x81411cfb911715fe", 1),
            ("81411CFB911715FE!", 1),
            ("lab@x", 1),
            ("81411CFB911715FF", 0),
            ("other@x", 0),
        ] {
            assert_eq!(named(&keys, key).count(), count, "{key}");
        }
    }

    #[test]
    fn an_address_counts_only_if_the_key_signs() {
        let sent = SentKey {
            fingerprint: "A".to_owned(),
            user_ids: vec![("h".to_owned(), "Lab <Lab@x>".to_owned())],
            ..SentKey::default()
        };
        let own = |signs| OwnKey { primary: "A".to_owned(), signs, ..OwnKey::default() };
        let keys = |signs| Overview {
            own: vec![own(signs)],
            sent: vec![sent.clone()],
            ..Overview::default()
        };
        assert!(names_key(&keys(true), "lab@X"));
        assert!(!names_key(&keys(true), "ab@x"));
        assert!(!names_key(&keys(false), "lab@x"));
    }

    #[test]
    fn a_key_is_lent_beside_those_that_are() {
        let lending = |lend: &str| Lending { lend: Some(lend.to_owned()), ..Lending::default() };
        assert_eq!(lend_too(Some(&lending("X")), "Y"), "X,Y");
        assert_eq!(lend_too(Some(&Lending::default()), "Y"), "Y");
        assert_eq!(lend_too(None, "Y"), "Y");
    }
}
