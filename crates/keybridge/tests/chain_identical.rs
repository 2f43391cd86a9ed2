//! What comes back through the bridge is what the agent's restricted socket says itself, byte for
//! byte.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

mod lab;

use std::path::Path;

use lab::{Bridge, Client, Lab, text, version_answer};

/// A host with a key, and a bridge to it.
struct Pair {
    bridge: Bridge,
    lab: Lab,
    signing: String,
    decrypting: String,
}

/// How an answer begins that the restricted socket, or the bridge, doesn't give.
const FORBIDDEN: &str = "ERR 67109115 Forbidden";

impl Pair {
    fn new() -> Self {
        let lab = Lab::with_key();
        let bridge = lab.up();
        let [signing, decrypting] = lab.host.keygrips().try_into().unwrap();
        Self { bridge, lab, signing, decrypting }
    }

    /// Sends the same lines to both sockets, in one write and step by step; then BYE, after which both
    /// close. Gives back what came.
    fn same(&self, lines: &[u8]) -> String {
        let (direct, through) = (self.lab.host.extra_socket(), self.bridge.socket());
        let answer = text(&in_one_write(&direct, lines));
        assert_eq!(text(&in_one_write(&through, lines)), answer, "{}", text(lines));
        let steps = text(&step_by_step(&direct, lines));
        assert_eq!(text(&step_by_step(&through, lines)), steps, "step by step: {}", text(lines));
        assert!(answer.ends_with("OK closing connection\n"), "{answer}");
        answer
    }
}

fn in_one_write(socket: &Path, lines: &[u8]) -> Vec<u8> {
    let mut client = Client::connect(socket);
    client.send([lines, b"BYE\n"].concat());
    masked(&client.rest())
}

/// Waits for the answer after each line that has one.
fn step_by_step(socket: &Path, lines: &[u8]) -> Vec<u8> {
    let mut client = Client::connect(socket);
    let mut all = client.response();
    for line in [lines, b"BYE\n"].concat().split_inclusive(|&byte| byte == b'\n') {
        client.send(line);
        let is_answered = !matches!(line, [b'#' | b'\n' | b'\r', ..] | [b'D', b' ', ..]);
        if is_answered {
            all.extend(client.response());
        }
    }
    all.extend(client.rest());
    masked(&all)
}

/// The agent names the process of its client in the greeting.
fn masked(answer: &[u8]) -> Vec<u8> {
    let greeting = b"OK Pleased to meet you, process ";
    let number = answer.strip_prefix(greeting).unwrap_or_else(|| panic!("{}", text(answer)));
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    assert!(digits > 0);
    [greeting, &b"PID"[..], &number[digits..]].concat()
}

#[test]
fn questions_about_the_agent_and_its_keys() {
    let pair = Pair::new();
    assert!(pair.same(b"GETINFO version\n").contains(&format!("\n{}", version_answer())));
    assert!(pair.same(b"GETINFO restricted\n").contains("\nOK\nOK closing"));
    assert!(pair.same(b"GETINFO pid\n").contains("ERR 67109115"));
    pair.same(b"GETINFO s2k_count\nGETINFO cmd_has_option PKSIGN foo\nGETINFO\nGETINFO nothing\n");
    let grip = &pair.signing;
    assert!(pair.same(format!("HAVEKEY {grip}\n").as_bytes()).contains("\nOK\nOK closing"));
    let bad = "0".repeat(40);
    assert!(pair.same(format!("HAVEKEY {bad}\n").as_bytes()).contains("\nERR 67108881"));
    pair.same(format!("HAVEKEY {bad} {grip}\nHAVEKEY\nHAVEKEY --list\nHAVEKEY zz\n").as_bytes());
    pair.same(format!("KEYINFO {bad}\nKEYINFO --list\nKEYINFO\n").as_bytes());
    // The one answer that is not the agent's, where that forbids the question, as it did before 2.4:
    // newer versions of gpg need it to sign with a subkey.
    let ask = |socket: &Path| Client::greeted(socket).ask(format!("KEYINFO {grip}"));
    let mut expected = ask(&pair.lab.host.extra_socket());
    if expected.starts_with(FORBIDDEN) {
        expected = format!("S KEYINFO {grip} D - - - P - - -\nOK\n");
    }
    assert_eq!(ask(&pair.bridge.socket()), expected);
}

#[test]
fn a_signature_in_full() {
    let pair = Pair::new();
    let lines = format!(
        "RESET\nOPTION agent-awareness=2.1.0\nSIGKEY {}\nSETKEYDESC Please+sign%0Athis\n\
         SETHASH 8 {}\nPKSIGN\n",
        pair.signing,
        "5A".repeat(32),
    );
    let answer = pair.same(lines.as_bytes());
    assert!(answer.contains("D (7:sig-val(5:eddsa"), "{answer}");
    // Refused steps leave the ones before in force, here as there.
    pair.same(format!("{lines}SIGKEY zz\nSETHASH 8 zz\nPKSIGN\nRESET\nPKSIGN\n").as_bytes());
}

#[test]
fn a_decryption_with_its_inquiry() {
    let pair = Pair::new();
    let set = format!("SETKEY {}\nPKDECRYPT\n", pair.decrypting);
    // The base point of the curve stands in for a sender's: the answer is the key's own point.
    let point = [&[0x40, 9][..], &[0; 31]].concat();
    let cipher = [&b"(7:enc-val(4:ecdh(1:s3:abc)(1:e33:"[..], point.as_slice(), b")))"].concat();
    let (one, two) = cipher.split_at(20);
    let whole = [set.as_bytes(), b"D ", &cipher, b"\nEND\n"].concat();
    let cut = [set.as_bytes(), b"D ", one, b"\n# a comment\n\nD ", two, b"\nend of it\n"].concat();
    let answer = pair.same(&whole);
    assert!(
        answer.contains("INQUIRE CIPHERTEXT\n") && answer.contains("D (5:value33:"),
        "{answer}"
    );
    assert_eq!(pair.same(&cut), answer);
    for ending in
        ["CAN\n", "CANCEL\n", "END\n", "D not%20a%20list\nEND\n", "FOO\nNOP\n", "D\nNOP\n"]
    {
        pair.same(&[set.as_bytes(), ending.as_bytes()].concat());
    }
}

#[test]
fn help_and_what_the_agent_does_not_know() {
    let pair = Pair::new();
    assert!(pair.same(b"HELP\n").contains("\n# PKSIGN"));
    assert!(pair.same(b"HELP PKSIGN\nhelp nothing\n").contains("\n# "));
    let unknown = pair.same(b"FROBNICATE\nfrob nicate\n\xff\xfe\n");
    assert_eq!(unknown.matches("ERR 67109139").count(), 3, "{unknown}");
    pair.same(b" NOP\n\tNOP\nNOP\tx\nnop\nNoP x y\nEND\nCAN\nCANCEL\nD data\nAUTH\n");
}

#[test]
fn comments_blank_lines_and_line_ends() {
    let pair = Pair::new();
    pair.same(b"");
    pair.same(b"# a comment\n#\n\n\nNOP\n\n# and another\n");
    pair.same(b"NOP\r\nGETINFO version\r\n\r\n# c\r\nHAVEKEY\r\n");
}

#[test]
fn pipelined_commands() {
    let pair = Pair::new();
    let answer = pair.same("NOP\nGETINFO version\nFROB\n".repeat(100).as_bytes());
    assert_eq!(answer.matches(&(version_answer() + "ERR")).count(), 100);
}

#[test]
fn what_the_restricted_socket_forbids() {
    let pair = Pair::new();
    pair.same(
        b"OPTION ttytype=xterm\nOPTION allow-pinentry-notify\nOPTION agent-awareness=2.1.0\n\
          OPTION pinentry-mode=loopback\nOPTION\nOPTION nothing=1\nOPTION putenv=A=b\n\
          SCD SERIALNO\nSCD GETINFO version\nSCD\nGET_CONFIRMATION x\nKILLAGENT\nRELOADAGENT\n\
          GETEVENTCOUNTER\nLISTTRUSTED\nGETVAL x\n\
          PUTVAL x y\nUPDATESTARTUPTTY\nLEARN\nGENKEY\nPASSWD x\nKEYWRAP_KEY --export\n\
          CLEAR_PASSPHRASE x\nPRESET_PASSPHRASE x -1\nISTRUSTED x\n",
    );
    // Agents from 2.4 on would show a dialog of the target's making.
    for line in ["GET_PASSPHRASE X X X X", "get_passphrase"] {
        let answer = Client::greeted(&pair.bridge.socket()).ask(line);
        assert!(answer.starts_with(FORBIDDEN), "{line}: {answer}");
    }
    for verb in ["READKEY", "EXPORT_KEY", "IMPORT_KEY", "DELETE_KEY"] {
        let answer = pair.same(format!("{verb} {}\n", pair.signing).as_bytes());
        assert!(answer.contains(&format!("\n{FORBIDDEN}")), "{verb}: {answer}");
    }
}

#[test]
fn long_lines() {
    let pair = Pair::new();
    for length in [999, 1000, 1001] {
        for beginning in ["FROB ", "# ", "NOP ", "HAVEKEY "] {
            let line = format!("{beginning:x<length$}\n");
            assert_eq!(line.len(), length + 1);
            pair.same(line.as_bytes());
        }
    }
}

#[test]
fn the_end_of_the_input_is_the_end_after_the_answer() {
    let pair = Pair::new();
    let ended = |socket: &Path, lines: &str| {
        let mut client = Client::connect(socket);
        client.send(lines);
        client.finish();
        text(&masked(&client.rest()))
    };
    for lines in ["", "GETINFO version\n", "NOP\nFROB\n"] {
        let direct = ended(&pair.lab.host.extra_socket(), lines);
        assert_eq!(ended(&pair.bridge.socket(), lines), direct, "{lines}");
    }
}
