//! git in the target finds a lent key to sign with.

use keybridge_proto::Lane;

use super::{Check, Outcome, Part, Problem, bridge, secret_keys};
use crate::doctor::{Facts, Fix};
use crate::keyring::{Lending, Overview, OwnKey};

pub(crate) static CHECK: Check = Check {
    name: "git-signing",
    title: "the key that git in the target signs with",
    part: Part::Bridge,
    lane: None,
    needs: &[&secret_keys::CHECK, &bridge::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.home.keys.as_ref().ok()?);
    let git = inspection.git.as_ref()?;
    let problem = git.problem.as_ref().or(git.version.as_ref().err());
    if let Some(why) = problem {
        return Some(Outcome::Warning(Problem::new(format!("git in the target: {why}"))));
    }
    let value = |setting: &Option<keybridge_proto::inspection::GitSetting>| {
        setting.as_ref().map(|setting| setting.value.clone())
    };
    let (key, email) = (value(&git.signing_key), value(&git.email));
    let set_up = facts.fix_by_up(facts.up(&["--git"]));
    if value(&git.format).as_deref() == Some("ssh") {
        return Some(match key {
            Some(_) if facts.lanes().contains(&Lane::Ssh) => {
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
pub(super) fn names_key(keys: &Overview, email: &str) -> bool {
    let address = format!("<{}>", email.to_lowercase());
    keys.signing_user_ids().any(|user_id| {
        let user_id = user_id.to_lowercase();
        user_id.contains(&address) || user_id == email.to_lowercase()
    })
}

/// The keys that a value of `user.signingkey` names.
fn named<'a>(keys: &'a Overview, key: &str) -> impl Iterator<Item = &'a OwnKey> {
    let id = key.strip_prefix("0x").unwrap_or(key).trim_end_matches('!').to_uppercase();
    let is_id = id.len() >= 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let text = key.to_owned();
    keys.own.iter().filter(move |own| {
        let is_named = own.fingerprint.ends_with(&id) || own.primary.ends_with(&id);
        if is_id { is_named } else { own.user_id.contains(&text) }
    })
}

fn judge(facts: &Facts, keys: &Overview, key: &str, set_up: Fix) -> Outcome {
    if named(keys, key).any(|own| own.signs) {
        return Outcome::Fine(format!("with {key}"));
    }
    let mine = named(keys, key).find(|own| own.is_for_signing && own.is_valid);
    Outcome::Broken(match mine {
        Some(own) => {
            let cause =
                format!("git in the target signs with {key}, which isn't lent for signatures");
            let lending = facts.status().map(|status| &status.lending);
            let lend = lend_too(lending, &own.primary);
            let mut options = vec!["--lend", &lend];
            // It may be lent, and not for signatures.
            if let Some(uses) = lending.and_then(|lending| lending.uses).filter(|uses| !uses.sign) {
                let more = if uses.decrypt { "sign,decrypt" } else { "sign" };
                options.extend(["--uses", more]);
            }
            Problem::new(cause).fix(Fix::new(facts.up(&options)))
        }
        None => {
            Problem::new(format!("git in the target signs with {key}, which isn't a key of yours"))
                .fix(set_up)
        }
    })
}

/// The keys that are lent, and one more.
fn lend_too(lending: Option<&Lending>, primary: &str) -> String {
    match lending.and_then(|lending| lending.lend.as_deref().or(lending.keys.as_deref())) {
        Some(words) if words != "pairs" && words != "all" => format!("{words},{primary}"),
        Some(_) | None => primary.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::SentKey;

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
