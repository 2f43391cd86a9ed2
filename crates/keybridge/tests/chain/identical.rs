//! What the gate lets pass is answered as the agent's restricted socket does, byte for byte. What it
//! refuses gets one answer, and the lines around it are answered as without it.

use std::path::Path;

use crate::lab::{Bridge, Client, Lab, text, version_answer};
use keybridge_proto::assuan::unescape;
use keybridge_proto::gate::KeyGrip;

const FORBIDDEN: &str = "ERR 67109115 Forbidden <GPG Agent>\n";
const NO_SECRET_KEY: &str = "ERR 67108881 No secret key <GPG Agent>\n";

/// A line of the table that the agent itself refuses: no hash has this number.
const ODD_HASH: &str = "SETHASH 999 00112233445566778899AABBCCDDEEFF\n";

/// A host with a key, and a bridge to it.
struct Pair {
    bridge: Bridge,
    lab: Lab,
    signing: String,
    decrypting: String,
}

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

    /// Sends lines to the bridge alone, in one write and step by step, and gives back the answers that
    /// came between the greeting and the farewell.
    fn through(&self, lines: &[u8]) -> String {
        let socket = self.bridge.socket();
        let answer = text(&in_one_write(&socket, lines));
        assert_eq!(text(&step_by_step(&socket, lines)), answer, "{}", text(lines));
        let (_, answer) = answer.split_once('\n').unwrap();
        answer.strip_suffix("OK closing connection\n").unwrap().to_owned()
    }

    /// Lines that are refused, each alone and between lines that pass.
    fn refused<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) {
        for line in lines {
            let around = [b"NOP\n", line, b"\nGETINFO version\n"].concat();
            let expected = format!("OK\n{FORBIDDEN}{}", version_answer());
            assert_eq!(self.through(&around), expected, "{}", text(line));
        }
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
    pair.same(
        b"GETINFO s2k_count\nGETINFO cmd_has_option GET_PASSPHRASE repeat\n\
          GETINFO cmd_has_option GET_PASSPHRASE newsymkey\n",
    );
    let grip = &pair.signing;
    assert!(pair.same(format!("HAVEKEY {grip}\n").as_bytes()).contains("\nOK\nOK closing"));
    let bad = "0".repeat(40);
    assert!(pair.same(format!("HAVEKEY {bad}\n").as_bytes()).contains("\nERR 67108881"));
    pair.same(format!("HAVEKEY {bad} {grip}\nHAVEKEY {bad} {bad}\n").as_bytes());
    // This agent has no word for its public keys on the restricted socket.
    assert!(pair.same(format!("READKEY {grip}\n").as_bytes()).contains(FORBIDDEN));
    assert!(pair.same(format!("ISTRUSTED {bad}\n").as_bytes()).contains("\nERR "));
    let lines = [
        "GETINFO pid",
        "GETINFO cmd_has_option PKSIGN foo",
        "GETINFO",
        "GETINFO nothing",
        "HAVEKEY",
        "HAVEKEY zz",
        "KEYINFO --list",
        "KEYINFO",
        "READKEY",
        "ISTRUSTED x",
    ];
    pair.refused(lines.map(str::as_bytes));
    // The one answer that is not the agent's, where that forbids the question, as it did before 2.4:
    // newer versions of gpg need it to sign with a subkey.
    let ask = |socket: &Path| Client::greeted(socket).ask(format!("KEYINFO {grip}"));
    let mut expected = ask(&pair.lab.host.extra_socket());
    if expected == FORBIDDEN {
        expected = format!("S KEYINFO {grip} D - - - P - - -\nOK\n");
    }
    assert_eq!(ask(&pair.bridge.socket()), expected);
    let unknown = pair.through(format!("KEYINFO {bad}\nREADKEY {bad}\n").as_bytes());
    assert_eq!(unknown, "ERR 67108891 Not found <GPG Agent>\n".repeat(2));
    let mut client = Client::greeted(&pair.bridge.socket());
    client.send("HAVEKEY --list\n");
    let list = client.response();
    assert!(list.starts_with(b"D ") && list.ends_with(b"\nOK\n"), "{}", text(&list));
    let mut lent = [grip, &pair.decrypting].map(|grip| KeyGrip::parse(grip.as_bytes()).unwrap());
    lent.sort_unstable();
    let listed = unescape(&list[2..list.len() - 4]).unwrap();
    assert_eq!(listed, lent.map(|grip| *grip.as_bytes()).concat());
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
    // Refused steps leave the ones before in force, whoever refuses them.
    let again = pair.same(format!("{lines}{ODD_HASH}PKSIGN\nRESET\nPKSIGN\n").as_bytes());
    assert_eq!(again.matches("D (7:sig-val(5:eddsa").count(), 2, "{again}");
    assert!(again.ends_with(&format!("{NO_SECRET_KEY}OK closing connection\n")), "{again}");
    let signed = pair.through(lines.as_bytes());
    let signature = signed.strip_prefix(&"OK\n".repeat(5)).unwrap();
    let refused = pair.through(format!("{lines}SIGKEY zz\nSETHASH 8 zz\nPKSIGN\n").as_bytes());
    assert_eq!(refused, format!("{signed}{FORBIDDEN}{FORBIDDEN}{signature}"));
    // A key that isn't there takes the place of one that is.
    let bad = "0".repeat(40);
    pair.same(format!("{lines}SIGKEY {bad}\nPKSIGN\nSIGKEY {}\nPKSIGN\n", pair.signing).as_bytes());
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
    let cut = [set.as_bytes(), b"D ", one, b"\n# a comment\n\nD ", two, b"\nend\n"].concat();
    let answer = pair.same(&whole);
    assert!(
        answer.contains("INQUIRE CIPHERTEXT\n") && answer.contains("D (5:value33:"),
        "{answer}"
    );
    assert_eq!(pair.same(&cut), answer);
    for ending in ["CAN\n", "can\n", "END\n", "D not%20a%20list\nEND\n"] {
        pair.same(&[set.as_bytes(), ending.as_bytes()].concat());
    }
    // Anything else calls the inquiry off, is refused, and leaves the connection as good as before.
    let inquiry = pair.through(&[set.as_bytes(), b"CAN\n"].concat());
    let (inquiry, _) = inquiry.split_once("ERR").unwrap();
    let decrypted = pair.through(&whole);
    for line in ["FOO", "D", "CANCEL", "end of it", "NOP", "RESET", "BYE", "PKDECRYPT", "HELP"] {
        let lines = [set.as_bytes(), line.as_bytes(), b"\nNOP\n", &whole].concat();
        let expected = format!("{inquiry}{FORBIDDEN}OK\n{decrypted}");
        assert_eq!(pair.through(&lines), expected, "{line}");
    }
}

#[test]
fn help_and_what_the_agent_does_not_know() {
    let pair = Pair::new();
    pair.same(b"nop\nNoP\nreset\n");
    pair.refused([&b"HELP"[..], b"HELP PKSIGN", b"help nothing"]);
    pair.refused([&b"FROBNICATE"[..], b"frob nicate", b"\xff\xfe"]);
    pair.refused([
        &b" NOP"[..],
        b"\tNOP",
        b"NOP\tx",
        b"NoP x y",
        b"END",
        b"CAN",
        b"CANCEL",
        b"AUTH",
    ]);
    // Data that nobody asked for; it is not waited for an answer to it.
    let data = text(&in_one_write(&pair.bridge.socket(), b"D data\nNOP\n"));
    assert!(data.ends_with(&format!("{FORBIDDEN}OK\nOK closing connection\n")), "{data}");
}

#[test]
fn comments_blank_lines_and_line_ends() {
    let pair = Pair::new();
    pair.same(b"");
    pair.same(b"# a comment\n#\n\n\nNOP\n\n# and another\n");
    pair.same(b"NOP\r\nGETINFO version\r\n\r\n# c\r\n");
    pair.refused([&b"HAVEKEY\r"[..]]);
}

#[test]
fn pipelined_commands() {
    let pair = Pair::new();
    let lines = format!("NOP\nGETINFO version\n{ODD_HASH}");
    let answer = pair.same(lines.repeat(100).as_bytes());
    assert_eq!(answer.matches(&(version_answer() + "ERR")).count(), 100);
    // In order, whoever answers.
    let lines = format!("NOP\nFROB\nHAVEKEY {}\nGETINFO version\n", pair.signing);
    let expected = format!("OK\n{FORBIDDEN}OK\n{}", version_answer()).repeat(100);
    assert_eq!(pair.through(lines.repeat(100).as_bytes()), expected);
}

#[test]
fn what_the_restricted_socket_forbids_and_what_it_would_allow() {
    let pair = Pair::new();
    pair.same(b"OPTION agent-awareness=2.1.0\n");
    let lines = "OPTION ttytype=xterm\nOPTION allow-pinentry-notify\n\
          OPTION pinentry-mode=cancel\nOPTION\nOPTION nothing=1\nOPTION putenv=A=b\n\
          SCD SERIALNO\nSCD GETINFO version\nSCD\nGET_CONFIRMATION x\nKILLAGENT\nRELOADAGENT\n\
          GETEVENTCOUNTER\nLISTTRUSTED\nGETVAL x\n\
          PUTVAL x y\nUPDATESTARTUPTTY\nLEARN\nGENKEY\nPASSWD x\nKEYWRAP_KEY --export\n\
          CLEAR_PASSPHRASE x\nPRESET_PASSPHRASE x -1\nISTRUSTED x\n\
          GET_PASSPHRASE X X X X\nget_passphrase";
    pair.refused(lines.lines().map(str::as_bytes));
    for verb in ["EXPORT_KEY", "IMPORT_KEY", "DELETE_KEY", "PASSWD", "KEYTOCARD", "KEYATTR"] {
        pair.refused([format!("{verb} {}", pair.signing).as_bytes()]);
    }
}

#[test]
fn long_lines() {
    let pair = Pair::new();
    for length in [999, 1000, 1001] {
        for beginning in ["# ", "SETKEYDESC "] {
            let line = format!("{beginning:x<length$}\n");
            assert_eq!(line.len(), length + 1);
            pair.same(line.as_bytes());
        }
        for beginning in ["FROB ", "NOP ", "HAVEKEY "] {
            pair.refused([format!("{beginning:x<length$}").as_bytes()]);
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
    for lines in ["", "GETINFO version\n", &format!("NOP\n{ODD_HASH}")] {
        let direct = ended(&pair.lab.host.extra_socket(), lines);
        assert_eq!(ended(&pair.bridge.socket(), lines), direct, "{lines}");
    }
    let refused = ended(&pair.bridge.socket(), "NOP\nFROB\n");
    assert!(refused.ends_with(&format!("\nOK\n{FORBIDDEN}")), "{refused}");
}
