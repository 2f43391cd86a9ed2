//! Every line that a hostile target might try.

use std::path::Path;

use super::Client;
use crate::text;

/// The options that the manual of gpg-agent has, and some that it doesn't.
const OPTIONS: [&str; 29] = [
    "display=:0",
    "ttyname=/dev/tty1",
    "ttytype=xterm",
    "lc-ctype=C",
    "lc-messages=C",
    "xauthority=/tmp/x",
    "pinentry-user-data=x",
    "putenv=LD_PRELOAD=/tmp/x",
    "putenv=PATH",
    "use-cache-for-signing",
    "allow-pinentry-notify",
    "pinentry-mode=loopback",
    "pinentry-mode=ask",
    "cache-ttl-opt-preset=1",
    "s2k-count=1",
    "pretend-request-origin=remote",
    "pretend-request-origin=none",
    "ephemeral=1",
    "no-grab",
    "use-standard-socket",
    "agent-awareness",
    "agent-awareness=",
    "agent-awareness = 2.1.0",
    "--agent-awareness=2.1.0",
    "agent-awareness=2.1.0 x",
    "agent-awareness=2.1.0",
    "",
    "=",
    "foo=bar",
];

/// The verbs that an agent lists in its `HELP`, and those that libassuan and this project know.
pub fn verbs(socket: &Path) -> Vec<String> {
    let help = Client::greeted(socket).ask("HELP");
    let listed = help.lines().filter_map(|line| line.strip_prefix("# ")?.split(' ').next());
    let mut verbs: Vec<String> = listed.map(str::to_owned).collect();
    assert!(verbs.len() > 30 && verbs.contains(&"PKSIGN".to_owned()), "{help}");
    verbs.extend(["INPUT", "OUTPUT", "AUTH", "CANCEL", "END", "HELP", "FOO"].map(str::to_owned));
    verbs
}

/// Each verb and each option in several spellings, with arguments of several kinds.
pub fn lines(verbs: &[String], keygrips: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for verb in verbs.iter().filter(|verb| *verb != "BYE") {
        for spelt in [verb.clone(), verb.to_lowercase()] {
            lines.push(spelt.clone());
            lines.push(format!("{spelt}\t"));
            for argument in [
                "x",
                "FD=0",
                "FD=3",
                "--list",
                "--list=5",
                "--data",
                "--hash=sha256 00",
                "--inquire",
                "--kem",
                "--kem=CMS",
                "--card",
                "--another",
                "--force",
                "-- x",
                "8",
                "%00",
                "*",
            ] {
                lines.push(format!("{spelt} {argument}"));
            }
            for keygrip in keygrips {
                lines.push(format!("{spelt} {keygrip}"));
                lines.push(format!("{spelt}\t{keygrip}"));
                lines.push(format!("{spelt} --data {keygrip}"));
                lines.push(format!("{spelt} --another {keygrip}"));
                lines.push(format!("{spelt} {keygrip} {keygrip}"));
            }
        }
        lines.push(format!(" {verb}"));
        lines.push(format!("{verb}\u{b}x"));
        lines.push(format!("{verb}\rNOP"));
    }
    for option in OPTIONS {
        lines.extend([format!("OPTION {option}"), format!("option\t{option}")]);
    }
    lines
}

/// Sends each line as a command, and each inside an inquiry, and reads every answer.
pub fn send_all(socket: &Path, lines: &[String], lent: &str) {
    let mut client = Client::greeted(socket);
    for line in lines {
        // CAN ends an inquiry that the line opened.
        client.send(format!("{line}\nCAN\nRESET\n"));
        for _ in 0..3 {
            client.response();
        }
    }
    for line in lines {
        client.send(format!("SETKEY {lent}\nPKDECRYPT\n"));
        assert_eq!(text(&client.response()), "OK\n");
        assert!(text(&client.response()).ends_with("INQUIRE CIPHERTEXT\n"), "{line}");
        client.send(format!("D x\n{line}\n"));
        if line.eq_ignore_ascii_case("END") || line.trim_end().eq_ignore_ascii_case("END") {
            assert!(client.ask("RESET").starts_with("ERR"), "{line}");
            assert_eq!(text(&client.response()), "OK\n");
            continue;
        }
        assert_eq!(text(&client.response()), FORBIDDEN, "{line:?}");
    }
}

/// What a bridge answers to a line that the gate refuses.
pub const FORBIDDEN: &str = "ERR 67109115 Forbidden <GPG Agent>\n";
