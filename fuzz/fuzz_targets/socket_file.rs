//! The decoder of socket files, and the exchange that opens a TCP socket.
#![no_main]

use std::ffi::OsStr;
use std::path::Path;

use keybridge_proto::Secret;
use keybridge_proto::socket_file::{Contents, Opening, SocketFile, Step, resolve};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], [u8; 16], &[u8])| {
    let (file, nonce, peer) = input;
    if let Err(error) = SocketFile::parse(file) {
        // An error is text of ours: it repeats nothing of the file.
        assert!(error.to_string().is_ascii() || error.to_string().len() < 1024);
    }
    let _ = resolve(
        Path::new("/run/S.gpg-agent"),
        |_| Ok(Contents::File(Secret::new(file.to_vec()))),
        |name: &OsStr| Some(name.to_owned()),
    );

    let mut opening = Opening::cygwin(&Secret::new(nonce), 1, 2, 3);
    let mut peer = peer;
    for _ in 0..8 {
        match opening.step() {
            Step::Send(_) => {}
            Step::Receive(count) => {
                let Some((part, rest)) = peer.split_at_checked(count) else { break };
                if opening.received(part).is_err() {
                    break;
                }
                peer = rest;
            }
            Step::Done => break,
        }
    }
});
