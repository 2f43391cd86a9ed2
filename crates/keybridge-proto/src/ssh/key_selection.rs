//! Which keys of an agent a target may see and use.
//!
//! A key is chosen by its fingerprint or by its comment. Only the agent knows the comments, so they
//! are compared with the agent's list when a session begins. A client that can add keys to the agent
//! can choose their comments, and an agent doesn't check that a certificate and a private key belong
//! together. So a key is chosen by comment only if every entry of that key has a matching one, and
//! the gate lets no target add keys while keys are chosen by comment.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{Fingerprint, Identities, Malformed, NoFingerprint};
use crate::wildcard;

/// The keys of an agent that are lent; by default all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeySelection(Option<Chosen>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Chosen {
    words: Vec<Word>,
    /// The keys that the words name, as far as they are known.
    keys: BTreeSet<Fingerprint>,
}

/// One word of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Fingerprint(Fingerprint),
    /// A pattern.
    Comment(String),
}

impl Word {
    fn matches(&self, fingerprint: Option<Fingerprint>, comment: &str) -> bool {
        match self {
            Self::Fingerprint(wanted) => fingerprint == Some(*wanted),
            Self::Comment(pattern) => wildcard::matches(pattern, comment),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Fingerprint(fingerprint) => fingerprint.to_string(),
            Self::Comment(pattern) => pattern.clone(),
        }
    }
}

/// The keys that are lent now, for sessions that outlive a change. Cheap to clone; the clones are one.
#[derive(Debug, Clone, Default)]
pub struct SelectionInForce(Rc<RefCell<Rc<KeySelection>>>);

impl SelectionInForce {
    /// These keys, until others are set.
    pub fn new(keys: KeySelection) -> Self {
        Self(Rc::new(RefCell::new(Rc::new(keys))))
    }

    /// Sets the keys, for all sessions and at once. Comments lend nothing to connected clients that weren't
    /// compared with an agent's list.
    pub fn set(&self, keys: KeySelection) {
        self.0.replace(Rc::new(keys));
    }

    /// The keys; another pointer after each change.
    pub fn get(&self) -> Rc<KeySelection> {
        Rc::clone(&self.0.borrow())
    }
}

impl KeySelection {
    /// The keys that these words name: fingerprints, or comments with `*` and `?`.
    pub fn of_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, NoFingerprint> {
        let mut chosen = Chosen::default();
        for word in words {
            chosen.words.push(if Fingerprint::is_meant_by(word) {
                let fingerprint = word.parse()?;
                chosen.keys.insert(fingerprint);
                Word::Fingerprint(fingerprint)
            } else {
                Word::Comment(word.to_owned())
            });
        }
        Ok(Self(Some(chosen)))
    }

    /// Whether every key is lent.
    pub const fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether keys are chosen by their comments, which only the agent knows.
    pub fn has_comments(&self) -> bool {
        let is_comment = |word: &Word| matches!(word, Word::Comment(_));
        self.0.as_ref().is_some_and(|chosen| chosen.words.iter().any(is_comment))
    }

    /// The same selection with its comments compared with what an agent lists.
    #[must_use]
    pub fn resolved(&self, listed: &Identities<'_>) -> Self {
        let Some(Chosen { words, .. }) = &self.0 else { return Self(None) };
        // Whether every entry of a key matches.
        let mut named = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for word in words {
            if let Word::Fingerprint(fingerprint) = word {
                keys.insert(*fingerprint);
            }
        }
        for identity in listed.iter() {
            let Some(fingerprint) = Fingerprint::of(identity.key) else { continue };
            let comment = String::from_utf8_lossy(identity.comment);
            let matches = words.iter().any(|word| word.matches(None, &comment));
            *named.entry(fingerprint).or_insert(true) &= matches;
        }
        keys.extend(named.iter().filter(|(_, matches)| **matches).map(|(key, _)| *key));
        Self(Some(Chosen { words: words.clone(), keys }))
    }

    /// The words that match none of the keys that an agent lists.
    pub fn unmatched(&self, listed: &Identities<'_>) -> Vec<String> {
        let words = self.0.iter().flat_map(|chosen| &chosen.words);
        let matches_none = |word: &&Word| {
            !listed.iter().any(|identity| {
                let comment = String::from_utf8_lossy(identity.comment);
                word.matches(Fingerprint::of(identity.key), &comment)
            })
        };
        words.filter(matches_none).map(Word::text).collect()
    }

    /// Whether a key in wire format is lent. A certificate counts as its key.
    pub fn lends(&self, key: &[u8]) -> bool {
        match &self.0 {
            None => true,
            Some(chosen) => Fingerprint::of(key).is_some_and(|key| chosen.keys.contains(&key)),
        }
    }

    /// The body of a list of keys, without those that aren't lent.
    pub(super) fn filter(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut kept = vec![0; 4];
        let mut count: u32 = 0;
        for identity in Identities::read(body)?.iter().filter(|one| self.lends(one.key)) {
            count += 1;
            for field in [identity.key, identity.comment] {
                let length = u32::try_from(field.len()).map_err(|_| Malformed)?;
                kept.extend_from_slice(&length.to_be_bytes());
                kept.extend_from_slice(field);
            }
        }
        if let Some(head) = kept.first_chunk_mut() {
            *head = count.to_be_bytes();
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    fn key(number: u8) -> Vec<u8> {
        let mut key = Vec::new();
        put_string(&mut key, b"ssh-ed25519");
        put_string(&mut key, &[number; 32]);
        key
    }

    fn certificate(number: u8) -> Vec<u8> {
        let mut key = Vec::new();
        put_string(&mut key, b"ssh-ed25519-cert-v01@openssh.com");
        put_string(&mut key, b"nonce");
        put_string(&mut key, &[number; 32]);
        key.extend_from_slice(&[0; 60]);
        key
    }

    fn list(entries: &[(&[u8], &str)]) -> Vec<u8> {
        let mut body = u32::try_from(entries.len()).unwrap().to_be_bytes().to_vec();
        for (key, comment) in entries {
            put_string(&mut body, key);
            put_string(&mut body, comment.as_bytes());
        }
        body
    }

    fn selection(words: &[&str]) -> KeySelection {
        KeySelection::of_words(words.iter().copied()).unwrap()
    }

    /// Which of the keys 1 to 3 are lent.
    fn lent(words: &[&str], entries: &[(&[u8], &str)]) -> Vec<u8> {
        let body = list(entries);
        let resolved = selection(words).resolved(&Identities::read(&body).unwrap());
        for number in 1..=3 {
            assert_eq!(resolved.lends(&key(number)), resolved.lends(&certificate(number)));
        }
        (1..=3).filter(|number| resolved.lends(&key(*number))).collect()
    }

    #[test]
    fn by_default_every_key_is_lent() {
        let all = KeySelection::default();
        assert!(all.is_all() && !all.has_comments() && all.lends(b"") && all.lends(&key(1)));
    }

    #[test]
    fn a_fingerprint_lends_without_a_list_and_a_comment_does_not() {
        let fingerprint = Fingerprint::of(&key(1)).unwrap().to_string();
        let chosen = selection(&[&fingerprint, "me@*"]);
        assert!(chosen.has_comments() && !chosen.is_all());
        assert!(chosen.lends(&key(1)) && chosen.lends(&certificate(1)));
        assert!(!chosen.lends(&key(2)) && !chosen.lends(b""));
        assert!(!selection(&[&fingerprint]).has_comments());
        assert!(KeySelection::of_words(["SHA256:no"]).is_err());
    }

    #[test]
    fn comments_are_those_of_the_agents_list() {
        let (one, two, three) = (key(1), key(2), key(3));
        let entries: [(&[u8], &str); 3] = [(&one, "me@work"), (&two, "me@home"), (&three, "other")];
        assert_eq!(lent(&["me@*"], &entries), [1, 2]);
        assert_eq!(lent(&["other", "*@work"], &entries), [1, 3]);
        assert!(lent(&["me@"], &entries).is_empty());
        let fingerprint = Fingerprint::of(&three).unwrap().to_string();
        assert_eq!(lent(&[&fingerprint, "me@work"], &entries), [1, 3]);
        let body = list(&entries);
        let listed = Identities::read(&body).unwrap();
        let missing = selection(&["me@*", "nobody", &fingerprint]).unmatched(&listed);
        assert_eq!(missing, ["nobody"]);
    }

    #[test]
    fn an_entry_with_another_comment_keeps_a_key_from_being_lent_by_comment() {
        let (one, certificate) = (key(1), certificate(1));
        // Somebody has put a certificate there with a comment of their choice, or a key.
        assert!(lent(&["mine"], &[(&one, "work"), (&certificate, "mine")]).is_empty());
        assert!(lent(&["mine"], &[(&certificate, "work"), (&one, "mine")]).is_empty());
        assert_eq!(lent(&["mine"], &[(&certificate, "mine"), (&one, "mine")]), [1]);
        let fingerprint = Fingerprint::of(&one).unwrap().to_string();
        assert_eq!(lent(&[&fingerprint], &[(&one, "work"), (&certificate, "x")]), [1]);
    }

    #[test]
    fn a_list_is_narrowed_to_the_keys_that_are_lent() {
        let (one, two, certificate) = (key(1), key(2), certificate(1));
        let body = list(&[(&two, "b"), (&one, "a"), (&certificate, "c"), (b"broken", "d")]);
        let fingerprint = Fingerprint::of(&one).unwrap().to_string();
        let chosen = selection(&[&fingerprint]);
        assert_eq!(chosen.filter(&body), Ok(list(&[(&one, "a"), (&certificate, "c")])));
        assert_eq!(KeySelection::default().filter(&body).unwrap(), body);
        assert_eq!(chosen.filter(&list(&[])).unwrap(), [0; 4]);
        assert_eq!(chosen.filter(&body[..body.len() - 1]), Err(Malformed));
    }
}
