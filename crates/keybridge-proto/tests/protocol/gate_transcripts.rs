//! What real clients made reach a real agent, through the gate, is in its table. The transcripts were
//! recorded before the agent by the tests with containers (`KEYBRIDGE_TRANSCRIPTS=FOLDER`).

use std::sync::Arc;

use keybridge_proto::assuan::{Reply, RequestLine};
use keybridge_proto::gate::{GpgGate, GpgVerdict, KeyGrip, Policy, Rights, Use};

const TRANSCRIPTS: [&str; 4] = [
    include_str!("../golden/lines/gpg-2.2.40-agent-2.2.40.txt"),
    include_str!("../golden/lines/gpg-2.2.40-agent-2.4.7.txt"),
    include_str!("../golden/lines/gpg-2.4.7-agent-2.2.40.txt"),
    include_str!("../golden/lines/gpg-2.4.7-agent-2.4.7.txt"),
];

#[test]
fn every_line_of_the_transcripts_is_in_the_table() {
    for transcript in TRANSCRIPTS {
        let words = transcript.split_whitespace();
        let rights = Rights { sign: Use::X509, decrypt: Use::X509 };
        let keygrips = words.filter_map(|word| KeyGrip::parse(word.as_bytes()));
        let lent = Arc::new(keygrips.map(|keygrip| (keygrip, rights)).collect());
        let mut gate = GpgGate::new(Policy::default(), lent);
        let (mut in_inquiry, mut signatures, mut decryptions) = (false, 0, 0);
        for text in transcript.lines().filter(|line| !line.starts_with("# ")) {
            let line = RequestLine::parse(text.as_bytes()).unwrap();
            let verdict =
                if in_inquiry { GpgGate::judge_in_inquiry(&line) } else { gate.judge(&line) };
            gate.answered(true);
            // The proof is asked by the bridge, and HAVEKEY where it heals; clients get theirs from it.
            let expected = [
                GpgVerdict::Forward,
                GpgVerdict::Describe,
                GpgVerdict::Operate,
                GpgVerdict::Answer(Reply::Ok),
            ];
            assert!(expected.contains(&verdict), "{text}: {verdict:?}");
            in_inquiry = text == "PKDECRYPT" || (in_inquiry && text != "END");
            signatures += usize::from(text == "PKSIGN");
            decryptions += usize::from(text == "PKDECRYPT");
        }
        assert!(signatures >= 7 && decryptions >= 2, "{signatures} {decryptions}");
    }
}
