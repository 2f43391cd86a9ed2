//! Verifies what an SSH server has signed with its host key.
//!
//! | key | signature |
//! |---|---|
//! | `ssh-ed25519` | RFC 8709 |
//! | `ecdsa-sha2-nistp256`, `…384`, `…521` | RFC 5656 |
//! | `ssh-rsa` | `rsa-sha2-256`, `rsa-sha2-512` (RFC 8332), `ssh-rsa` |
//! | `sk-ssh-ed25519@…`, `sk-ecdsa-sha2-nistp256@…` | OpenSSH's PROTOCOL.u2f |
//!
//! A certificate counts as the key in it.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use ed25519_dalek as ed25519;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use super::fingerprint::KeyInside;
use super::wire::{Fields, Lack};

/// Why a signature doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// The key or the signature can't be parsed.
    #[error("invalid host key or signature")]
    Malformed,
    /// The key, or how it signs, isn't known here.
    #[error("an unknown kind of host key or signature")]
    Unknown,
    /// The host hasn't signed that.
    #[error("the host's signature is wrong")]
    Wrong,
}

impl From<Lack> for Unverified {
    fn from(_: Lack) -> Self {
        Self::Malformed
    }
}

/// The sizes of an RSA modulus in bytes that OpenSSH accepts.
const RSA_SIZES: std::ops::RangeInclusive<usize> = 128..=2048;

/// The encodings of a hash's algorithm in an RSA signature (RFC 8017).
const SHA1_INFO: &[u8] = b"\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\0\x04\x14";
const SHA256_INFO: &[u8] =
    b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\0\x04\x20";
const SHA512_INFO: &[u8] =
    b"\x30\x51\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03\x05\0\x04\x40";

/// Verifies a signature; key and signature are as on the wire.
pub(super) fn verify(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Unverified> {
    let mut signature = Fields::new(signature, signature.len());
    let algorithm = signature.string()?;
    let blob = signature.string()?;
    let (kind, mut key) = if let Some(inside) = KeyInside::of(key)? {
        (inside.kind, Fields::new(inside.parameters, inside.parameters.len()))
    } else {
        let mut fields = Fields::new(key, key.len());
        (fields.string()?, fields)
    };
    match (kind, algorithm) {
        (b"ssh-ed25519", b"ssh-ed25519") => verify_ed25519(key.string()?, message, blob)?,
        (b"ecdsa-sha2-nistp256", b"ecdsa-sha2-nistp256") => {
            verify_p256(point(&mut key, b"nistp256")?, message, blob)?;
        }
        (b"ecdsa-sha2-nistp384", b"ecdsa-sha2-nistp384") => {
            verify_p384(point(&mut key, b"nistp384")?, message, blob)?;
        }
        (b"ecdsa-sha2-nistp521", b"ecdsa-sha2-nistp521") => {
            verify_p521(point(&mut key, b"nistp521")?, message, blob)?;
        }
        (b"ssh-rsa", _) => {
            let encoded = match algorithm {
                b"rsa-sha2-256" => [SHA256_INFO, &Sha256::digest(message)].concat(),
                b"rsa-sha2-512" => [SHA512_INFO, &Sha512::digest(message)].concat(),
                // What is signed is a hash itself, so a collision of SHA-1 is of no use.
                b"ssh-rsa" => [SHA1_INFO, &Sha1::digest(message)].concat(),
                _ => return Err(Unverified::Unknown),
            };
            let (exponent, modulus) = (key.mpint()?, key.mpint()?);
            verify_rsa(exponent, modulus, &encoded, blob)?;
        }
        (b"sk-ssh-ed25519@openssh.com", b"sk-ssh-ed25519@openssh.com") => {
            let public = key.string()?;
            verify_ed25519(public, &on_token(key.string()?, message, &mut signature)?, blob)?;
        }
        (b"sk-ecdsa-sha2-nistp256@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com") => {
            let public = point(&mut key, b"nistp256")?;
            verify_p256(public, &on_token(key.string()?, message, &mut signature)?, blob)?;
        }
        _ => return Err(Unverified::Unknown),
    }
    key.end()?;
    Ok(signature.end()?)
}

/// What a token signs in place of a message: what the signature says of it too.
fn on_token(
    application: &[u8],
    message: &[u8],
    signature: &mut Fields<'_>,
) -> Result<Vec<u8>, Unverified> {
    let flags_and_counter = signature.bytes(1 + 4)?;
    let (application, message) = (Sha256::digest(application), Sha256::digest(message));
    Ok([&application[..], flags_and_counter, &message].concat())
}

fn verify_ed25519(key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Unverified> {
    let key = key.try_into().map_err(|_| Unverified::Malformed)?;
    let key = ed25519::VerifyingKey::from_bytes(key).map_err(|_| Unverified::Malformed)?;
    let signature = ed25519::Signature::from_slice(signature).map_err(|_| Unverified::Malformed)?;
    key.verify_strict(message, &signature).map_err(|_| Unverified::Wrong)
}

/// The point of a key on this curve, uncompressed as OpenSSH wants it.
fn point<'a>(key: &mut Fields<'a>, curve: &[u8]) -> Result<&'a [u8], Unverified> {
    let (name, point) = (key.string()?, key.string()?);
    if name == curve && point.first() == Some(&4) { Ok(point) } else { Err(Unverified::Malformed) }
}

/// ECDSA on each curve, whose signatures differ in type alone.
macro_rules! ecdsa {
    ($($name:ident, $curve:ident;)*) => { $(
        fn $name(point: &[u8], message: &[u8], signature: &[u8]) -> Result<(), Unverified> {
            use $curve::ecdsa::signature::Verifier as _;
            use $curve::ecdsa::{Signature, VerifyingKey};

            let mut fields = Fields::new(signature, signature.len());
            let (mut r, mut s) = ($curve::FieldBytes::default(), $curve::FieldBytes::default());
            put_right(&mut r, fields.mpint()?)?;
            put_right(&mut s, fields.mpint()?)?;
            fields.end()?;
            let key = VerifyingKey::from_sec1_bytes(point).map_err(|_| Unverified::Malformed)?;
            let signature = Signature::from_scalars(r, s).map_err(|_| Unverified::Malformed)?;
            key.verify(message, &signature).map_err(|_| Unverified::Wrong)
        }
    )* };
}

ecdsa! {
    verify_p256, p256;
    verify_p384, p384;
    verify_p521, p521;
}

/// Puts a number at the end of a field of zeros.
fn put_right(field: &mut [u8], number: &[u8]) -> Result<(), Unverified> {
    let start = field.len().checked_sub(number.len()).ok_or(Unverified::Malformed)?;
    field.get_mut(start..).unwrap_or_default().copy_from_slice(number);
    Ok(())
}

/// RSASSA-PKCS1-v1_5 with a hash that is encoded already. All of it is public, so its time may vary.
fn verify_rsa(
    exponent: &[u8],
    modulus: &[u8],
    encoded: &[u8],
    signature: &[u8],
) -> Result<(), Unverified> {
    let size = modulus.len();
    let mut wide = [0; 4];
    put_right(&mut wide, exponent)?;
    let exponent = u32::from_be_bytes(wide);
    // OpenSSH's signatures may lack leading zeros.
    let is_usable = RSA_SIZES.contains(&size) && exponent >= 3 && exponent % 2 == 1;
    if !is_usable || signature.len() > size {
        return Err(Unverified::Malformed);
    }
    let modulus = BoxedUint::from_be_slice_vartime(modulus);
    let bits = modulus.bits_precision();
    let modulus = Odd::new(modulus).into_option().ok_or(Unverified::Malformed)?;
    let signature = BoxedUint::from_be_slice(signature, bits).map_err(|_| Unverified::Malformed)?;
    if signature >= *modulus.as_ref() {
        return Err(Unverified::Wrong);
    }
    let exponent_bits = u32::BITS - exponent.leading_zeros();
    let result = BoxedMontyForm::new(signature, &BoxedMontyParams::new_vartime(modulus))
        .pow_bounded_exp(&BoxedUint::from(exponent), exponent_bits)
        .retrieve();
    let padding = size.checked_sub(encoded.len() + 3).ok_or(Unverified::Malformed)?;
    let expected = [b"\0\x01", &*vec![0xff; padding], b"\0", encoded].concat();
    let expected = BoxedUint::from_be_slice(&expected, bits).map_err(|_| Unverified::Malformed)?;
    if result == expected { Ok(()) } else { Err(Unverified::Wrong) }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    const MESSAGE: &[u8] = b"the id of a session";

    fn fields(fields: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in fields {
            put_string(&mut bytes, field);
        }
        bytes
    }

    fn mpint(number: &[u8]) -> Vec<u8> {
        let sign: &[u8] = if number[0] >= 0x80 { b"\0" } else { b"" };
        [sign, number].concat()
    }

    /// What a token has signed, with its flags and counter.
    fn on_token(application: &[u8], state: &[u8]) -> Vec<u8> {
        let (application, message) = (Sha256::digest(application), Sha256::digest(MESSAGE));
        [&application[..], state, &message].concat()
    }

    #[test]
    fn a_security_key_signs_its_state_too() {
        use ed25519::Signer as _;
        use p256::ecdsa::{Signature, SigningKey};
        let state = [1, 0, 0, 0, 9];
        let (application, data) = (b"ssh:", on_token(b"ssh:", &state));

        let kind: &[u8] = b"sk-ssh-ed25519@openssh.com";
        let secret = ed25519::SigningKey::from_bytes(&[7; 32]);
        let ed25519 = (
            fields(&[kind, secret.verifying_key().as_bytes(), application]),
            fields(&[kind, &secret.sign(&data).to_bytes()]),
        );
        let kind: &[u8] = b"sk-ecdsa-sha2-nistp256@openssh.com";
        let secret = SigningKey::from_slice(&[7; 32]).unwrap();
        let signed: Signature = secret.sign(&data);
        let (r, s) = signed.split_bytes();
        let point = secret.verifying_key().to_sec1_point(false);
        let ecdsa = (
            fields(&[kind, b"nistp256", point.as_bytes(), application]),
            fields(&[kind, &fields(&[&mpint(&r), &mpint(&s)])]),
        );
        for (key, signature) in [ed25519, ecdsa] {
            let whole = |state: &[u8]| [&signature[..], state].concat();
            assert_eq!(verify(&key, MESSAGE, &whole(&state)), Ok(()));
            assert_eq!(verify(&key, b"another", &whole(&state)), Err(Unverified::Wrong));
            assert_eq!(verify(&key, MESSAGE, &whole(&[1, 0, 0, 0, 8])), Err(Unverified::Wrong));
            assert_eq!(verify(&key, MESSAGE, &whole(&[1])), Err(Unverified::Malformed));
            assert_eq!(
                verify(&key, MESSAGE, &whole(&[1, 0, 0, 0, 9, 0])),
                Err(Unverified::Malformed)
            );
        }
    }

    #[test]
    fn no_rsa_key_is_taken_that_makes_every_signature_good_or_verifying_slow() {
        let signature = fields(&[b"rsa-sha2-256", &[1; 256]]);
        let odd = [&[0x7f; 255][..], &[1]].concat();
        let key = |exponent: &[u8], modulus: &[u8]| fields(&[b"ssh-rsa", exponent, modulus]);
        assert_eq!(verify(&key(&[1, 0, 1], &odd), MESSAGE, &signature), Err(Unverified::Wrong));
        for (exponent, modulus) in [
            (&[1][..], &odd[..]),
            (&[0], &odd),
            (&[1, 0, 0], &odd),
            (&[1, 0, 0, 0, 1], &odd),
            (&[1, 0, 1], &odd[..127]),
            (&[1, 0, 1], &odd.repeat(9)),
            (&[1, 0, 1], &[0x7f; 254]),
            (&[1, 0, 1], &odd[..255]),
            (&[1, 0, 1], b""),
        ] {
            let verified = verify(&key(exponent, modulus), MESSAGE, &signature);
            assert_eq!(verified, Err(Unverified::Malformed), "{exponent:?} {}", modulus.len());
        }
    }

    #[test]
    fn a_signature_of_another_kind_than_its_key_is_unknown() {
        let key = fields(&[b"ssh-ed25519", &[1; 32]]);
        for kind in [&b"sk-ssh-ed25519@openssh.com"[..], b"rsa-sha2-512", b"none", b""] {
            let signature = fields(&[kind, &[1; 64]]);
            assert_eq!(verify(&key, MESSAGE, &signature), Err(Unverified::Unknown));
        }
    }
}
