//! Nothing secret in any output: both programs tell all they can, and planted marks are searched for.

use std::fs;

use crate::lab::{Client, Ended, Lab, StandIn, native_socket_file, program, text};

/// How much of a mark is searched for: any part of this length counts as found.
const PART: usize = 6;

// No words, so that nothing is found that only looks like a mark.

/// A nonce with bytes that other parsers stumble over.
const NONCE: [u8; 16] = *b"No\nnceM\rArk\0\xffQ7z";
const FROM_AGENT: &[u8] = b"qZ7vKx2Lw9fRt4Bn%25\x01\xfe";
const TO_AGENT: &[u8] = b"hJ5sYc8Mg3dPu6Wk%25\x02\xfd";
const ARGUMENT: &[u8] = b"zX1rTb9Qv7nLf2Ge";
const VERB: &[u8] = b"Ko4iUw6Ay8eHs3Dj";
/// No six digits in a row: the time of a line has as many.
const GRIP: &[u8] = b"A1B2C3D4E5F6A7B8C9D0E1F2A3B4C5D6E7F8A9B0";
const COMMENT: &[u8] = b"pV2mCz5Xt7bNq9Rl";
const STATUS: &[u8] = b"gF8jWk1Ys4hDo6Ua";
const ERROR: &[u8] = b"tB3xZe7Lm9cVi5Qn";
const UNFINISHED: &[u8] = b"rG6uJy2Pf8wKa4Th";

const MARKS: [&[u8]; 10] =
    [&NONCE, FROM_AGENT, TO_AGENT, ARGUMENT, VERB, GRIP, COMMENT, STATUS, ERROR, UNFINISHED];

/// Every way in which bytes get into a log: as they are, escaped, in hexadecimal, as a list of
/// numbers, in base64.
fn forms(part: &[u8]) -> Vec<Vec<u8>> {
    let list = |each: fn(&u8) -> String, between: &str| {
        part.iter().map(each).collect::<Vec<_>>().join(between).into_bytes()
    };
    vec![
        part.to_vec(),
        part.escape_ascii().to_string().into_bytes(),
        text(part).escape_debug().to_string().into_bytes(),
        list(|byte| format!("{byte:02x}"), ""),
        list(|byte| format!("{byte:02X}"), ""),
        list(|byte| format!("{byte:02x}"), " "),
        list(|byte| format!("{byte:02X}"), " "),
        list(|byte| format!("{byte}"), ", "),
        list(|byte| format!("{byte}"), ",\n"),
        list(|byte| format!("0x{byte:02x}"), ", "),
        base64(part),
    ]
}

/// Base64 of whole groups of three bytes.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| DIGITS[bits >> shift & 63])
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

fn contains(output: &[u8], wanted: &[u8]) -> bool {
    output.windows(wanted.len()).any(|window| window == wanted)
}

#[track_caller]
fn assert_unmarked(ended: &Ended) {
    for (name, output) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
        for mark in MARKS {
            // Base64 has the whole groups of some alignment, so each start is tried.
            for part in mark.windows(PART) {
                for form in forms(part) {
                    let shown = text(&form);
                    assert!(!contains(output, &form), "{name} shows {shown}:\n{}", text(output));
                }
            }
        }
    }
}

/// The agent of this test, which marks all that it says.
fn listen() -> (StandIn, u16) {
    StandIn::listen_tcp(NONCE, |line, peer| {
        let status = [b"# ", COMMENT, b"\nS PROGRESS ", STATUS, b"\n"].concat();
        if line == b"PKSIGN" {
            peer.write(status)?;
            return peer.write([b"D ", FROM_AGENT, b"\nOK ", STATUS, b"\n"].concat());
        }
        if line == b"PKDECRYPT" {
            peer.write([b"INQUIRE CIPHERTEXT ", STATUS, b"\n"].concat())?;
            let is_part = |line: &Vec<u8>| line.starts_with(b"D ") || line.starts_with(b"#");
            while peer.line()?.as_ref().is_some_and(is_part) {}
            return peer.write([b"D ", FROM_AGENT, b"\nOK\n"].concat());
        }
        if line.starts_with(b"SETHASH 1 ") {
            // Breaks the rules: speaks on when it was asked nothing.
            return peer.write([b"OK\nD ", FROM_AGENT, b"\n"].concat());
        }
        if line.starts_with(b"SETHASH 2 ") {
            return peer.write([FROM_AGENT, b"\n"].concat());
        }
        // The text of the host, which the client gave none for.
        if line.starts_with(b"SETKEYDESC A+program+there+") {
            return peer.write("OK\n");
        }
        peer.write([b"ERR 67109139 ", ERROR, b"\n"].concat())
    })
}

#[test]
#[should_panic(expected = "shows")]
fn a_mark_is_found_in_the_midst_of_a_list_of_numbers() {
    let list = format!("{:?}", &FROM_AGENT[4..12]);
    let status = std::process::ExitStatus::default();
    assert_unmarked(&Ended { status, stdout: Vec::new(), stderr: list.into_bytes() });
}

#[test]
fn no_output_of_either_program_shows_what_was_said() {
    let mut lab = Lab::with_key();
    let [signing, decrypting] = lab.host.keygrips().try_into().unwrap();
    // No real agent takes the stand-in's place when it is away.
    let gpgconf = program("gpgconf");
    let script = format!("[ \"$1\" != --launch ] && exec {} \"$@\"\nexit 1\n", gpgconf.display());
    lab.put_before("gpgconf", &script);
    let (agent, port) = listen();
    fs::remove_file(lab.host.extra_socket()).unwrap();
    fs::write(lab.host.extra_socket(), native_socket_file(port, &NONCE)).unwrap();
    let bridge = lab.up_with(&["--log", "trace"]);
    let socket = bridge.socket();

    let mut client = Client::greeted(&socket);
    // What the gate refuses, and what the agent does.
    assert!(client.ask([VERB, b" ", ARGUMENT].concat()).starts_with("ERR 67109115 "));
    client.ask(VERB);
    for verb in ["SIGKEY", "HAVEKEY", "KEYINFO", "READKEY"] {
        client.ask([verb.as_bytes(), b" ", GRIP].concat());
        client.ask(format!("{verb} {signing}"));
    }
    let answer = client.ask([b"SETKEYDESC ", ARGUMENT].concat());
    assert_eq!(answer.as_bytes(), [b"ERR 67109139 ", ERROR, b"\n"].concat());
    client.ask([b"PRESET_PASSPHRASE ", GRIP, b" -1 ", ARGUMENT].concat());
    client.ask([b"GET_PASSPHRASE ", ARGUMENT, b" X X X"].concat());
    client.send([b"# ", COMMENT, b"\n"].concat());
    let signed = client.ask("PKSIGN");
    assert!(signed.contains("qZ7vKx2L"), "{signed}");
    client.ask(format!("SETKEY {decrypting}"));
    assert!(client.ask("PKDECRYPT").contains("INQUIRE"));
    client.send([b"D ", TO_AGENT, b"\n# ", COMMENT, b"\nD ", TO_AGENT, b"\n"].concat());
    assert!(client.ask("END").contains("qZ7vKx2L"));
    // Data in the wrong place, a broken inquiry, too long a line, a NUL, an end in mid-line.
    client.ask([b"D ", TO_AGENT].concat());
    client.ask(TO_AGENT);
    client.ask("PKDECRYPT");
    client.ask([b"D", TO_AGENT].concat());
    drop(client);
    for ending in [
        TO_AGENT.repeat(100),
        [VERB, b"\0", ARGUMENT, b"\n"].concat(),
        [b"NOP ", UNFINISHED].concat(),
    ] {
        let mut client = Client::greeted(&socket);
        client.send(ending);
        client.finish();
        client.rest();
    }
    for number in [1, 2] {
        let mut client = Client::greeted(&socket);
        client.send(format!("SETHASH {number} {}\n", "0".repeat(40)));
        client.rest();
    }
    // A nonce file that can't be read as one, and a port where nobody is.
    for file in [&b"12x\n"[..], b"1\n", b"!<socket >1 s "] {
        fs::write(lab.host.extra_socket(), [file, NONCE.as_slice()].concat()).unwrap();
        assert!(Client::connect(&socket).line().starts_with("ERR"));
    }
    drop(agent);
    let ended = bridge.stop();
    let said = text(&ended.stderr);
    assert!(said.contains("TRACE") && said.contains("from the client: PKSIGN"), "{said}");
    assert_unmarked(&ended);
    for grip in [signing, decrypting] {
        for (name, output) in [("stdout", &ended.stdout), ("stderr", &ended.stderr)] {
            // Half of one: digits alone are everywhere in a log.
            let is_shown = grip.as_bytes().chunks(20).any(|half| contains(output, half));
            assert!(!is_shown, "{name} shows {grip}:\n{}", text(output));
        }
    }
}
