//! Public keys and ownertrust over the command interface.

use crate::agent_home::{Home, agent, gnupg, local};
use keybridge::interface::{CommandInterface, Settings};
use keybridge::keys::KeyFilter;

/// An interface whose callers may have these keys.
async fn allowing(home: &Home, keys: KeyFilter) -> CommandInterface {
    let settings = Settings { keys, ..Settings::default() };
    CommandInterface::new(gnupg(home), agent(home).await, settings)
}

#[test]
fn public_keys_are_exported_by_each_filter() {
    let home = Home::with_key("one@test");
    home.add_key("two@test");
    // A key without its secret half.
    let other = Home::with_key("other@test");
    let file = home.file("other.asc");
    let file = file.to_str().unwrap();
    other.ok("gpg", &["--armor", "--output", file, "--export", "other@test"]);
    home.ok("gpg", &["--batch", "--import", file]);
    let (one, two, third) = (
        home.fingerprint_of("one@test"),
        home.fingerprint_of("two@test"),
        home.fingerprint_of("other@test"),
    );
    local(async {
        let interface = allowing(&home, KeyFilter::All).await;
        let cases: [(KeyFilter, Vec<&str>, usize); 7] = [
            (KeyFilter::Pairs, vec![&one, &two], 0),
            (KeyFilter::All, vec![&one, &two, &third], 0),
            (KeyFilter::of_words(["other@test"]), vec![&third], 0),
            (KeyFilter::of_words([two.as_str(), "one@test", "two@test"]), vec![&two, &one], 0),
            (KeyFilter::of_words(["nobody@test", "one@test"]), vec![&one], 1),
            (KeyFilter::of_words(["--help", "-a", "--version"]), vec![], 3),
            (KeyFilter::of_words([]), vec![], 0),
        ];
        for (filter, expected, warnings) in cases {
            let found = interface.export_public_keys(&filter).await.unwrap();
            let mut keys: Vec<&str> =
                found.keys.iter().map(|key| key.fingerprint.as_str()).collect();
            let mut expected = expected;
            keys.sort_unstable();
            expected.sort_unstable();
            assert_eq!(keys, expected, "{filter:?}");
            assert_eq!(found.warnings.len(), warnings, "{filter:?}: {:?}", found.warnings);
            assert_eq!(found.armored.is_empty(), expected.is_empty(), "{filter:?}");
            if expected.is_empty() {
                continue;
            }
            // What was exported is what another home gets.
            let target = Home::new();
            let path = target.file("keys.asc");
            std::fs::write(&path, &found.armored).unwrap();
            target.ok("gpg", &["--batch", "--import", path.to_str().unwrap()]);
            let output = target.ok("gpg", &["--with-colons", "--list-keys"]).stdout;
            let listing = String::from_utf8(output).unwrap();
            assert_eq!(listing.lines().filter(|line| line.starts_with("pub:")).count(), keys.len());
            for key in keys {
                assert!(listing.contains(key), "{filter:?}");
            }
        }
        assert_eq!(
            interface.export_public_keys(&KeyFilter::of_words(["one@test"])).await.unwrap().keys[0]
                .user_id,
            "one@test"
        );
    });
}

#[test]
fn no_more_keys_are_exported_than_the_setting_allows() {
    let home = Home::with_key("one@test");
    home.add_key("two@test");
    let other = Home::with_key("other@test");
    let file = home.file("other.asc");
    let file = file.to_str().unwrap();
    other.ok("gpg", &["--armor", "--output", file, "--export", "other@test"]);
    home.ok("gpg", &["--batch", "--import", file]);
    let (one, two) = (home.fingerprint_of("one@test"), home.fingerprint_of("two@test"));
    let third = home.fingerprint_of("other@test");
    let list = |words: &[&str]| KeyFilter::of_words(words.iter().copied());
    local(async {
        for (allowed, asked, expected) in [
            (KeyFilter::Pairs, KeyFilter::All, vec![&one, &two]),
            (KeyFilter::Pairs, list(&["other@test", "two@test"]), vec![&two]),
            (KeyFilter::Pairs, list(&["test"]), vec![&one, &two]),
            (list(&["one@test"]), KeyFilter::All, vec![&one]),
            (list(&["one@test"]), KeyFilter::Pairs, vec![&one]),
            (list(&["one@test"]), list(&[third.as_str()]), vec![]),
            (list(&[]), KeyFilter::All, vec![]),
        ] {
            let interface = allowing(&home, allowed.clone()).await;
            let found = interface.export_public_keys(&asked).await.unwrap();
            let mut keys: Vec<&str> = found.keys.iter().map(|key| &*key.fingerprint).collect();
            let mut expected: Vec<&str> = expected.into_iter().map(String::as_str).collect();
            keys.sort_unstable();
            expected.sort_unstable();
            assert_eq!(keys, expected, "{allowed:?} {asked:?}");
            assert_eq!(found.armored.is_empty(), expected.is_empty());
            assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
        }
    });
}

#[test]
fn ownertrust_is_that_of_the_exported_keys_alone() {
    use keybridge::keys::{Form, export};
    let home = Home::with_key("one@test");
    home.add_key("two@test");
    local(async {
        let one = home.fingerprint_of("one@test");
        let filter = KeyFilter::of_words(["one@test"]);
        let keys = export(&gnupg(&home), &filter, Form::Binary).await.unwrap();
        // A key that was made here is trusted ultimately.
        assert_eq!(String::from_utf8(keys.ownertrust).unwrap(), format!("{one}:6:\n"));
        let none = export(&gnupg(&home), &KeyFilter::of_words([]), Form::Binary).await.unwrap();
        assert!(none.export.is_empty() && none.ownertrust.is_empty());
        // An empty home has no pairs, which is no error.
        let empty = Home::new();
        let none = export(&gnupg(&empty), &KeyFilter::Pairs, Form::Binary).await.unwrap();
        assert!(none.export.is_empty() && none.keys.is_empty());
    });
}
