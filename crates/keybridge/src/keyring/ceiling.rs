//! What a bridge may lend at most: the keys and their uses that `up` has shown. Anything else that
//! appears in the keyring later, by whatever way, waits for a person.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_proto::gate::{KeyGrip, Rights, Use};
use keybridge_proto::{Operation, OperationSet};
use serde::{Deserialize, Serialize};

use super::Lending;
use super::choice::{Choice, secret_keys};
use super::rights::Lent;
use crate::gnupg::Gnupg;
use crate::{Error, Result};

/// Keys, and what they may be used for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ceiling {
    keys: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    keygrip: KeyGrip,
    fingerprint: String,
    sign: Use,
    decrypt: Use,
    git: bool,
}

impl Ceiling {
    /// These keys, and no others.
    pub(super) fn of<'a>(lent: impl IntoIterator<Item = &'a Lent>) -> Self {
        let entry = |lent: &Lent| Entry {
            keygrip: lent.keygrip,
            fingerprint: lent.fingerprint.clone(),
            sign: lent.rights.sign,
            decrypt: lent.rights.decrypt,
            git: lent.for_git,
        };
        Self { keys: lent.into_iter().map(entry).collect() }
    }

    /// All that choices of these words could lend now.
    pub(crate) async fn of_all<'a>(
        gnupg: &Gnupg,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let listing = secret_keys(gnupg, &gnupg.dirs().await?.home).await?;
        let uses: Option<OperationSet> = Some(Operation::ALL.into_iter().collect());
        let all = Choice::of(&listing, gnupg, &Lending { uses, ..Lending::default() }).await?;
        let mut found = all.lent;
        // Only who is named exactly can be lent without being among all.
        for word in words.filter(|word| word.ends_with('!') || word.starts_with('&')) {
            let lending = Lending { lend: Some(word.to_owned()), uses, keys: None };
            let named = Choice::of(&listing, gnupg, &lending).await;
            found.extend(named.into_iter().flat_map(|named| named.lent));
        }
        Ok(Self::of(&found))
    }

    /// What is left of a key's rights, and of its use for git.
    pub(super) fn cut(&self, lent: &Lent) -> (Rights, bool) {
        let (Rights { sign, decrypt }, git) = self.rights_of(lent.keygrip, &lent.fingerprint);
        let cut =
            Rights { sign: sign.min(lent.rights.sign), decrypt: decrypt.min(lent.rights.decrypt) };
        let signs_unshown = lent.signs_by_decrypting && cut.sign == Use::Denied;
        let rights = if signs_unshown { Rights::default() } else { cut };
        (rights, git && lent.for_git)
    }

    fn rights_of(&self, keygrip: KeyGrip, fingerprint: &str) -> (Rights, bool) {
        let is_it = |entry: &&Entry| entry.keygrip == keygrip && entry.fingerprint == fingerprint;
        let entries = self.keys.iter().filter(is_it);
        entries.fold((Rights::default(), false), |(rights, git), entry| {
            let (sign, decrypt) = (rights.sign.max(entry.sign), rights.decrypt.max(entry.decrypt));
            (Rights { sign, decrypt }, git || entry.git)
        })
    }

    /// What may be lent that could not be before, for people.
    pub(crate) fn beyond(&self, before: &Self) -> Vec<String> {
        let (mut new, mut wider) = (0, 0);
        for entry in &self.keys {
            let (rights, git) = before.rights_of(entry.keygrip, &entry.fingerprint);
            let has_more = rights.sign < entry.sign || rights.decrypt < entry.decrypt;
            if !rights.is_any() && !git {
                new += 1;
            } else if has_more || (entry.git && !git) {
                wider += 1;
            }
        }
        let new = match new {
            0 => None,
            1 => Some("1 new key is lent".to_owned()),
            count => Some(format!("{count} new keys are lent")),
        };
        let wider = match wider {
            0 => None,
            1 => Some("1 key is lent for more".to_owned()),
            count => Some(format!("{count} keys are lent for more")),
        };
        new.into_iter().chain(wider).collect()
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let failed = |error: io::Error| Error::failed(path.display().to_string()).caused_by(error);
        match std::fs::read(path) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes a file, at once or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
            serde_json::to_writer(&mut file, self)?;
            Ok(file.persist(path)?)
        });
        written
            .map(drop)
            .map_err(|error| Error::failed(path.display().to_string()).caused_by(error))
    }
}

/// The ceiling of a bridge, over all of its links. Cheap to clone; the clones are one.
#[derive(Debug, Clone, Default)]
pub struct SharedCeiling(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Nothing until the first `up` has resolved what is lent.
    now: RefCell<Rc<Ceiling>>,
    is_set: Cell<bool>,
    /// Where it is kept.
    files: RefCell<Vec<PathBuf>>,
    /// A file that says what it is, and what was read there last.
    followed: Option<(PathBuf, RefCell<Vec<u8>>)>,
}

impl SharedCeiling {
    /// One that is known already.
    pub(crate) fn new(ceiling: Ceiling) -> Self {
        let shared = Self::default();
        shared.0.now.replace(Rc::new(ceiling));
        shared.0.is_set.set(true);
        shared
    }

    /// What a file says at each moment, which others write. It is nothing without the file.
    pub(crate) fn following(file: PathBuf) -> Self {
        let followed = Some((file, RefCell::default()));
        Self(Rc::new(Shared { is_set: Cell::new(true), followed, ..Shared::default() }))
    }

    /// Whether it was set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_set.get()
    }

    /// The ceiling; the same pointer until it is set again.
    pub(crate) fn get(&self) -> Rc<Ceiling> {
        self.follow();
        Rc::clone(&self.0.now.borrow())
    }

    /// Takes what the file that is followed says, if that has changed.
    fn follow(&self) {
        let Some((path, known)) = &self.0.followed else { return };
        let text = std::fs::read(path).unwrap_or_default();
        if *known.borrow() == text {
            return;
        }
        let ceiling = if text.is_empty() {
            Ceiling::default()
        } else {
            serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!("no key is lent: {}: {error}", path.display());
                Ceiling::default()
            })
        };
        // Whoever shows what is lent reads the other files.
        for copy in &*self.0.files.borrow() {
            let _ = ceiling.write(copy);
        }
        known.replace(text);
        self.0.now.replace(Rc::new(ceiling));
    }

    /// Sets it, for a person who is shown it. It is kept before anything can be lent by it.
    pub(crate) fn set(&self, ceiling: Ceiling) -> Result<()> {
        for path in &*self.0.files.borrow() {
            ceiling.write(path)?;
        }
        self.0.now.replace(Rc::new(ceiling));
        self.0.is_set.set(true);
        Ok(())
    }

    /// Keeps it in a file, now and whenever it is set. A file of an earlier bridge goes.
    pub(crate) fn keep_in(&self, path: PathBuf) -> Result<()> {
        if self.is_set() {
            self.get().write(&path)?;
        } else {
            let _ = std::fs::remove_file(&path);
        }
        self.0.files.borrow_mut().push(path);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(grip: char, fingerprint: &str, sign: Use, decrypt: Use) -> Lent {
        Lent {
            keygrip: KeyGrip::parse(grip.to_string().repeat(40).as_bytes()).unwrap(),
            fingerprint: fingerprint.to_owned(),
            primary: None,
            rights: Rights { sign, decrypt },
            for_git: sign != Use::Denied,
            signs_by_decrypting: false,
        }
    }

    #[test]
    fn nothing_is_lent_beyond_the_keys_and_uses_that_were_shown() {
        use Use::{Denied, OpenPgp, X509};
        let ceiling = Ceiling::of(&[
            lent('1', "A", OpenPgp, Denied),
            lent('2', "B", Denied, X509),
            lent('3', "C", Denied, OpenPgp),
        ]);
        let cut = |key: &Lent| {
            let (Rights { sign, decrypt }, _) = ceiling.cut(key);
            (sign, decrypt)
        };
        assert_eq!(cut(&lent('1', "A", X509, X509)), (OpenPgp, Denied));
        assert_eq!(cut(&lent('1', "A", Denied, X509)), (Denied, Denied), "taken away on the host");
        assert_eq!(cut(&lent('2', "B", OpenPgp, OpenPgp)), (Denied, OpenPgp));
        // Another record of the same key pair, and another key pair.
        assert_eq!(cut(&lent('1', "B", OpenPgp, OpenPgp)), (Denied, Denied));
        assert_eq!(cut(&lent('4', "A", OpenPgp, OpenPgp)), (Denied, Denied));
        assert!(ceiling.cut(&lent('1', "A", OpenPgp, Denied)).1);
        assert!(!ceiling.cut(&lent('2', "B", OpenPgp, Denied)).1, "not shown for git");
        // It could be only for decryption then, and makes signatures now.
        let signs_by_decrypting = true;
        let rsa = Lent { signs_by_decrypting, ..lent('3', "C", OpenPgp, OpenPgp) };
        assert_eq!(cut(&rsa), (Denied, Denied));
    }

    #[test]
    fn no_key_is_lent_anew_or_for_more_without_a_word() {
        use Use::{Denied, OpenPgp, X509};
        let before = Ceiling::of(&[
            lent('1', "A", OpenPgp, Denied),
            lent('2', "B", Denied, OpenPgp),
            lent('3', "C", OpenPgp, OpenPgp),
        ]);
        let beyond = |keys: &[Lent]| Ceiling::of(keys).beyond(&before).join(", ");
        let less = [lent('1', "A", OpenPgp, Denied), lent('3', "C", Denied, OpenPgp)];
        assert_eq!(beyond(&less), "");
        assert_eq!(beyond(&[lent('4', "D", OpenPgp, Denied)]), "1 new key is lent");
        let others = [lent('1', "D", OpenPgp, Denied), lent('4', "A", Denied, OpenPgp)];
        assert_eq!(beyond(&others), "2 new keys are lent");
        let wider = [lent('1', "A", X509, Denied), lent('2', "B", OpenPgp, OpenPgp)];
        assert_eq!(beyond(&wider[..1]), "1 key is lent for more");
        let all = [&others[..], &wider].concat();
        assert_eq!(beyond(&all), "2 new keys are lent, 2 keys are lent for more");
    }

    #[test]
    fn a_file_that_is_followed_counts_at_each_moment_and_nothing_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let [path, copy] = ["editor", "bridge"].map(|name| folder.path().join(name));
        let shared = SharedCeiling::following(path.clone());
        assert!(shared.is_set() && *shared.get() == Ceiling::default());
        shared.keep_in(copy.clone()).unwrap();
        let [less, more] = [1, 2].map(|count| {
            let keys = ['1', '2'].map(|grip| lent(grip, "A", Use::OpenPgp, Use::Denied));
            Ceiling::of(keys.iter().take(count))
        });
        for now in [more, less] {
            now.write(&path).unwrap();
            assert_eq!(*shared.get(), now);
            assert!(Rc::ptr_eq(&shared.get(), &shared.get()), "the same until it changes");
            assert_eq!(Ceiling::read(&copy).unwrap(), Some(now));
        }
        std::fs::write(&path, "{").unwrap();
        assert_eq!(*shared.get(), Ceiling::default());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(*shared.get(), Ceiling::default());
    }

    #[test]
    fn a_ceiling_is_kept_as_it_is_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ceiling.json");
        assert_eq!(Ceiling::read(&path).unwrap(), None);
        let shared = SharedCeiling::default();
        std::fs::write(&path, "of an earlier bridge").unwrap();
        shared.keep_in(path.clone()).unwrap();
        assert!(!path.exists() && !shared.is_set());
        let ceiling = Ceiling::of(&[lent('1', "A", Use::OpenPgp, Use::X509)]);
        shared.set(ceiling.clone()).unwrap();
        assert_eq!(Ceiling::read(&path).unwrap(), Some(ceiling));
        for damaged in ["", "{}", "{\"keys\": [{\"keygrip\": \"1\"}]}"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(Ceiling::read(&path).is_err(), "{damaged}");
        }
    }
}
