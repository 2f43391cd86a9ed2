//! Checks what gpg and ssh-keygen have made, before it leaves the host.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The tag of a signature packet.
const SIGNATURE: u8 = 2;

/// Whether this is one OpenPGP signature in armour, and nothing else: a setting of the user's can have gpg
/// add one by another key.
pub fn is_one_openpgp_signature(armored: &[u8]) -> bool {
    dearmored(armored, "PGP SIGNATURE").is_some_and(|packets| is_one_packet(&packets, SIGNATURE))
}

/// Whether this is one signature of ssh-keygen in armour, and nothing else.
pub fn is_one_ssh_signature(armored: &[u8]) -> bool {
    dearmored(armored, "SSH SIGNATURE").is_some_and(|blob| blob.starts_with(b"SSHSIG"))
}

/// The bytes in armour of this kind. OpenPGP has header lines before them, and a checksum after them.
fn dearmored(armored: &[u8], kind: &str) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(armored).ok()?.replace('\r', "");
    let text = text.trim_end().strip_prefix(&format!("-----BEGIN {kind}-----\n"))?;
    let text = text.strip_suffix(&format!("\n-----END {kind}-----"))?;
    let body = text.lines().skip_while(|line| line.is_empty() || line.contains(": "));
    // What isn't of base64, as another armour, makes all of it unreadable.
    STANDARD.decode(body.filter(|line| !line.starts_with('=')).collect::<String>()).ok()
}

/// Whether the bytes are one packet of this tag, and nothing else.
fn is_one_packet(bytes: &[u8], wanted: u8) -> bool {
    let Some((&head, rest)) = bytes.split_first() else { return false };
    let is_new = head & 0b1100_0000 == 0b1100_0000;
    let is_old = head & 0b1100_0000 == 0b1000_0000;
    let (tag, size) = if is_new {
        (head & 0b0011_1111, new_length(rest))
    } else if is_old {
        ((head & 0b0011_1100) >> 2, old_length(head & 0b11, rest))
    } else {
        return false;
    };
    tag == wanted && size.is_some_and(|(digits, size)| rest.len() == digits.saturating_add(size))
}

/// How many bytes the length takes, and the length.
fn new_length(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes {
        [first @ ..192, ..] => Some((1, usize::from(first))),
        [first @ 192..224, second, ..] => {
            Some((2, ((usize::from(first) - 192) << 8) + usize::from(second) + 192))
        }
        [255, a, b, c, d, ..] => Some((5, number(&[a, b, c, d]))),
        // A length of a part.
        _ => None,
    }
}

fn old_length(kind: u8, bytes: &[u8]) -> Option<(usize, usize)> {
    let digits = match kind {
        0 => 1,
        1 => 2,
        2 => 4,
        // Up to the end, whatever that is.
        _ => return None,
    };
    Some((digits, number(bytes.get(..digits)?)))
}

fn number(digits: &[u8]) -> usize {
    digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPG: &str = "-----BEGIN PGP SIGNATURE-----\n\n\
        iHUEABYIAB0WIQT2WrwIG6kjAi7Je1TK0KneOfxLrgUCav54IAAKCRDK0KneOfxL\n\
        rg2uAP9/u+z7h8FrXDl5kNT/eVHgeB1ffdditNLJOAcJLJjW0QD/cFqH1ayP+SKI\n\
        EQkpBIngIYQWiHSnw3LEuMNwqmowUA4=\n=QUDL\n-----END PGP SIGNATURE-----\n";

    fn armored(packets: &[u8]) -> String {
        let body = STANDARD.encode(packets);
        format!(
            "-----BEGIN PGP SIGNATURE-----\nVersion: x\n\n{body}\n-----END PGP SIGNATURE-----\n"
        )
    }

    #[test]
    fn one_signature_is_one_packet() {
        assert!(is_one_openpgp_signature(GPG.as_bytes()));
        let long = [&[0x89, 1, 0][..], &[7; 256]].concat();
        let new = [&[0xc2, 192, 8][..], &[7; 200]].concat();
        let newest = [&[0xc2, 255, 0, 0, 0, 2][..], &[7; 2]].concat();
        for packet in
            [&[0x88, 1, 7][..], &[0x8a, 0, 0, 0, 1, 7], &[0xc2, 1, 7], &long, &new, &newest]
        {
            assert!(is_one_openpgp_signature(armored(packet).as_bytes()), "{packet:?}");
            let two = packet.repeat(2);
            assert!(!is_one_openpgp_signature(armored(&two).as_bytes()), "{packet:?}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for packets in [
            &[][..],
            &[0x88],
            &[0x88, 2, 7],
            &[0x88, 0, 7],
            // Another tag, no packet, no length.
            &[0x90, 1, 7],
            &[0x08, 1, 7],
            &[0x8b, 7],
            &[0xc2, 224, 7],
            &[0xc2, 192],
            &[0x89, 0],
        ] {
            assert!(!is_one_openpgp_signature(armored(packets).as_bytes()), "{packets:?}");
        }
        for text in [GPG.repeat(2), format!("x{GPG}"), format!("{GPG}x"), String::new()] {
            assert!(!is_one_openpgp_signature(text.as_bytes()), "{text}");
        }
        assert!(!is_one_openpgp_signature(&GPG.as_bytes()[..GPG.len() - 40]));
    }

    #[test]
    fn a_signature_of_ssh_says_so() {
        let armored = |bytes: &[u8]| {
            let body = STANDARD.encode(bytes);
            format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
        };
        assert!(is_one_ssh_signature(armored(b"SSHSIG\0\0\0\x01").as_bytes()));
        for other in [armored(b"x"), armored(b"SSHSIG").repeat(2), GPG.to_owned()] {
            assert!(!is_one_ssh_signature(other.as_bytes()), "{other}");
        }
    }
}
