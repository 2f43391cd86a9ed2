//! A key block as a hostile target makes it with a signing subkey that it is lent.

use std::path::Path;
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::lab::{Client, Lab, run, run_with, text};

const PUBLIC_KEY: u8 = 6;
const SUBKEY: u8 = 14;
const USER_ID: u8 = 13;
const SIGNATURE: u8 = 2;
const EDDSA: u8 = 22;

/// The curve Ed25519, as OpenPGP names it.
const CURVE: &[u8] = b"\x09\x2B\x06\x01\x04\x01\xDA\x47\x0F\x01";

/// The packet of a public key, without its header.
struct PublicKey(Vec<u8>);

/// What signs: the socket of a bridge, and the key that it lends.
struct Signer<'a> {
    socket: &'a Path,
    keygrip: &'a str,
    primary: PublicKey,
}

/// A block with the first signing subkey of the lab's host as its primary key, with another creation time,
/// and with these Ed25519 keys as subkeys that sign. Every signature is made through the socket.
pub(crate) fn forge(
    lab: &Lab,
    socket: &Path,
    keygrip: &str,
    user_id: &str,
    points: &[[u8; 32]],
) -> Vec<u8> {
    let export = run(&mut lab.host.gpg(["--export"]));
    let subkey =
        packets(&export).into_iter().find(|(tag, body)| *tag == SUBKEY && body[5] == EDDSA);
    let mut body = subkey.unwrap().1;
    body[1] -= 1;
    let signer = Signer { socket, keygrip, primary: PublicKey(body) };
    let mut block = packet(PUBLIC_KEY, &signer.primary.0);
    block.extend(packet(USER_ID, user_id.as_bytes()));
    let length = u32::try_from(user_id.len()).unwrap().to_be_bytes();
    let certified = [&[0xB4], &length[..], user_id.as_bytes()].concat();
    block.extend(signer.signature(0x13, 0x03, &certified));
    for point in points {
        let key = PublicKey(
            [&[4][..], &signer.primary.0[1..5], &[EDDSA], CURVE, b"\x01\x07\x40", point].concat(),
        );
        block.extend(packet(SUBKEY, &key.0));
        block.extend(signer.signature(0x18, 0x02, &key.hashed()));
    }
    block
}

impl PublicKey {
    /// As it goes into hashes.
    fn hashed(&self) -> Vec<u8> {
        let length = u16::try_from(self.0.len()).unwrap().to_be_bytes();
        [&[0x99], &length[..], &self.0].concat()
    }

    fn fingerprint(&self) -> Vec<u8> {
        let sum = text(&run_with(&mut Command::new("sha1sum"), &self.hashed()));
        (0..40).step_by(2).map(|at| u8::from_str_radix(&sum[at..at + 2], 16).unwrap()).collect()
    }
}

impl Signer<'_> {
    /// A signature of the primary key over itself and something that belongs to it.
    fn signature(&self, kind: u8, flags: u8, over: &[u8]) -> Vec<u8> {
        let fingerprint = self.primary.fingerprint();
        let hashed =
            [b"\x05\x02", &self.primary.0[1..5], &[2, 27, flags], b"\x16\x21\x04", &fingerprint]
                .concat();
        let length = u16::try_from(hashed.len()).unwrap().to_be_bytes();
        let head = [&[4, kind, EDDSA, 8], &length[..], &hashed].concat();
        let trailer = [b"\x04\xFF", &u32::try_from(head.len()).unwrap().to_be_bytes()[..]].concat();
        let signed = [&self.primary.hashed(), over, &head, &trailer].concat();
        let digest = Sha256::digest(signed);
        let issuer = [b"\x09\x10", &fingerprint[12..]].concat();
        let mut body = [&head, &[0, 10][..], &issuer, &digest[..2]].concat();
        for number in self.sign(&digest) {
            body.extend(mpi(&number));
        }
        packet(SIGNATURE, &body)
    }

    /// The two numbers of a signature.
    fn sign(&self, digest: &[u8]) -> [[u8; 32]; 2] {
        let mut client = Client::greeted(self.socket);
        assert_eq!(client.ask(format!("SIGKEY {}", self.keygrip)), "OK\n");
        let hex = digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"));
        assert_eq!(client.ask(format!("SETHASH 8 {hex}")), "OK\n");
        client.send("PKSIGN\n");
        let answer = unescaped(&client.response());
        ["(1:r32:", "(1:s32:"].map(|name| {
            let at = answer.windows(name.len()).position(|part| part == name.as_bytes());
            let at = at.unwrap_or_else(|| panic!("{}", text(&answer))) + name.len();
            answer[at..at + 32].try_into().unwrap()
        })
    }
}

fn unescaped(line: &[u8]) -> Vec<u8> {
    let mut bytes = line.iter().copied();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next().unwrap()).to_digit(16).unwrap();
        out.push(if byte == b'%' { u8::try_from(digit() * 16 + digit()).unwrap() } else { byte });
    }
    out
}

fn mpi(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    let rest = &number[zeros..];
    let bits = rest.len() * 8 - rest.first().map_or(0, |byte| byte.leading_zeros() as usize);
    [&u16::try_from(bits).unwrap().to_be_bytes()[..], rest].concat()
}

fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0xC0 | tag, 0xFF], &length[..], body].concat()
}

/// The packets of an export, which has the older form of headers.
fn packets(mut export: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut packets = Vec::new();
    while let [head, rest @ ..] = export {
        assert_eq!(head & 0xC0, 0x80, "a header of the older form");
        let (length, rest) = rest.split_at(1 << (head & 3));
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let (body, rest) = rest.split_at(length);
        packets.push((head >> 2 & 15, body.to_vec()));
        export = rest;
    }
    packets
}
