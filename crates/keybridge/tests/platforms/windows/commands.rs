//! What the other commands show of a bridge on Windows, and how they end.

use serde_json::Value;

use super::{Target, Wine};

#[test]
fn the_version_names_the_helpers() {
    let said = Wine::new().keybridge_ok(["--version"]);
    let expected = format!("keybridge {} (helpers: aarch64, x86_64)\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(said, expected);
}

#[test]
fn status_logs_doctor_and_down() {
    let (wine, target) = (Wine::with_key(), Target::new());
    let port = target.port();
    let address = format!("exec:relay.exe {}", port.number());
    wine.keybridge_ok(["up", &address]);

    let shown = wine.keybridge_ok(["status", &address]);
    assert!(shown.contains("ready"), "{shown}");
    let status: Value = serde_json::from_str(&wine.keybridge_ok(["status", "--json"])).unwrap();
    assert_eq!(status["bridges"][0]["state"], "ready", "{status}");
    let again = wine.keybridge_ok(["up", &address]);
    assert!(again.contains("is bridged already"), "{again}");
    let log = wine.keybridge_ok(["logs", &address]);
    assert!(log.contains("ready"), "{log}");

    let found = wine.run(wine.keybridge(["doctor", &address, "--json"]));
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["ok"], true, "{found}");
    let checks = found["checks"].as_array().unwrap();
    let signature = checks.iter().find(|check| check["name"] == "signature").unwrap();
    assert_eq!(signature["outcome"], "ok", "{signature}");

    wine.keybridge_ok(["down", &address]);
    let status: Value = serde_json::from_str(&wine.keybridge_ok(["status", "--json"])).unwrap();
    assert_eq!(status["bridges"], Value::Array(Vec::new()), "{status}");
    let again = wine.run(wine.keybridge(["down", &address]));
    assert!(again.status.code().is_some_and(|code| code < 4), "{}", again.stderr);
}

/// What is missing at home is named, with what to install.
#[test]
fn without_gnupg() {
    let (wine, target) = (Wine::new(), Target::new());
    let port = target.port();
    let address = format!("exec:relay.exe {}", port.number());
    let relay = super::wine::setting("KEYBRIDGE_RELAY");
    let only_relay = |words: &[&str]| {
        let mut command = wine.keybridge(words.iter().copied());
        command.env("WINEPATH", super::wine::path(relay.parent().unwrap()));
        wine.run(command)
    };
    let found = only_relay(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["ok"], false, "{found}");
    assert!(found.to_string().contains("Gpg4win"), "{found}");
    let ended = only_relay(&["up", &address, "--lanes", "gpg"]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(!target.has(".gnupg"));
}
