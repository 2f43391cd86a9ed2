//! Socket files of every kind, with any port and any nonce, whole and damaged.

use std::fmt::Write as _;
use std::num::NonZeroU16;

use keybridge_proto::Secret;
use keybridge_proto::socket_file::{Opening, SocketFile, SocketFileError, Step};
use proptest::prelude::*;

type Nonce = [u8; 16];

fn native_file(port: NonZeroU16, nonce: &Nonce) -> Vec<u8> {
    [format!("{port}\n").as_bytes(), nonce].concat()
}

fn cygwin_file(port: NonZeroU16, nonce: &Nonce, upper: bool) -> Vec<u8> {
    let words: Vec<String> = nonce
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .map(|word| if upper { format!("{word:08X}") } else { format!("{word:08x}") })
        .collect();
    format!("!<socket >{port} s {}\0", words.join("-")).into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// Uniform bytes, or bytes that mean something in one of the files.
fn any_nonce() -> impl Strategy<Value = Nonce> {
    let telling = prop::sample::select(b"\n\r\0 -%!0123456789\xff".to_vec());
    prop_oneof![any::<Nonce>(), prop::array::uniform16(telling)]
}

/// Bytes that stand in no message, so that a single one of them in a message is a leak.
fn telltale_nonce() -> impl Strategy<Value = Nonce> {
    prop::array::uniform16(prop::sample::select(b"QZX~^|".to_vec()))
}

/// Fails if any byte of a telltale nonce is shown, or two neighbouring bytes as numbers.
fn assert_silent(error: &SocketFileError, nonce: &Nonce) -> Result<(), TestCaseError> {
    let shown = format!("{error} {error:?}");
    for byte in nonce {
        prop_assert!(!shown.contains(char::from(*byte)), "{shown}");
    }
    let mut reversed = *nonce;
    reversed.reverse();
    let shown = shown.to_lowercase();
    for pair in nonce.windows(2).chain(reversed.windows(2)) {
        prop_assert!(!shown.contains(&hex(pair)), "{shown}");
        prop_assert!(!shown.contains(&format!("{}, {}", pair[0], pair[1])), "{shown}");
    }
    Ok(())
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn a_native_file_is_read_right(port: NonZeroU16, nonce in any_nonce()) {
        let read = SocketFile::parse(&native_file(port, &nonce));
        prop_assert_eq!(read, Ok(SocketFile::Native { port, nonce: Secret::new(nonce) }));
    }

    #[test]
    fn a_cygwin_file_is_read_right(port: NonZeroU16, nonce in any_nonce(), upper: bool) {
        let read = SocketFile::parse(&cygwin_file(port, &nonce, upper));
        prop_assert_eq!(read, Ok(SocketFile::Cygwin { port, nonce: Secret::new(nonce) }));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = SocketFile::parse(&bytes);
        let redirect = [b"%Assuan%\nsocket=".as_slice(), &bytes, b"\n"].concat();
        if let Ok(SocketFile::Redirect(redirect)) = SocketFile::parse(&redirect) {
            let _ = redirect.expand(|name| Some(name.to_owned()));
        }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_file_cut_at_any_length_is_an_error(port: NonZeroU16, nonce in any_nonce()) {
        let redirect = format!("%Assuan%\nsocket=/run/{port}/${{HOME}}/S.gpg-agent\n").into_bytes();
        for file in [native_file(port, &nonce), cygwin_file(port, &nonce, false), redirect] {
            prop_assert!(SocketFile::parse(&file).is_ok());
            for length in 0..file.len() {
                prop_assert!(SocketFile::parse(&file[..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn a_file_that_goes_on_is_an_error(
        port: NonZeroU16,
        nonce in any_nonce(),
        more in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        for file in [native_file(port, &nonce), cygwin_file(port, &nonce, true)] {
            prop_assert!(SocketFile::parse(&[file, more.clone()].concat()).is_err());
        }
    }

    #[test]
    fn an_error_shows_no_byte_of_the_nonce(
        port: NonZeroU16,
        nonce in telltale_nonce(),
        upper: bool,
        wrong: u8,
    ) {
        for file in [native_file(port, &nonce), cygwin_file(port, &nonce, upper)] {
            for length in 0..file.len() {
                // Cut short, without its beginning, with one byte changed, and with one too many.
                let (head, tail) = file.split_at(length);
                let changed = [head, &[wrong], &tail[1..]].concat();
                let longer = [head, &[wrong], tail].concat();
                for damaged in [head, tail, &changed, &longer] {
                    if let Err(error) = SocketFile::parse(damaged) {
                        assert_silent(&error, &nonce)?;
                    }
                }
            }
        }
    }

    #[test]
    fn a_cygwin_peer_has_to_send_the_nonce_back(
        nonce in telltale_nonce(),
        echo in telltale_nonce(),
        peer: [u8; 8],
    ) {
        let mut opening = Opening::cygwin(&Secret::new(nonce), 1, 2, 3);
        prop_assert_eq!(opening.step(), Step::Send(Secret::new(nonce.as_slice())));
        prop_assert_eq!(opening.step(), Step::Receive(16));
        if echo != nonce {
            let error = opening.received(&echo).unwrap_err();
            prop_assert_eq!(&error, &SocketFileError::PeerNonce);
            assert_silent(&error, &nonce)?;
            assert_silent(&error, &echo)?;
        }
        prop_assert_eq!(opening.received(&nonce), Ok(()));
        prop_assert!(matches!(opening.step(), Step::Send(bytes) if bytes.expose().len() == 8));
        prop_assert_eq!(opening.step(), Step::Receive(8));
        prop_assert_eq!(opening.received(&peer), Ok(()));
        prop_assert_eq!(opening.step(), Step::Done);
    }
}
