//! The id that git gives to an object once it has its signature.

use base16ct::HexDisplay;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::Object;

/// The id of a commit or a tag with this signature, as git stores both. `None` if the object isn't one.
///
/// A commit gets the signature as the last field of its header, and a tag after its message.
pub fn signed_id(object: &[u8], signature: &[u8]) -> Option<String> {
    // As git takes them out of what gpg has written.
    let signature: Vec<u8> = signature.iter().copied().filter(|&byte| byte != b'\r').collect();
    let (kind, id_size, signed) = match Object::read(object).ok()? {
        Object::Commit(commit) => {
            let size = commit.tree.as_str().len();
            ("commit", size, with_field(object, &signature, field(size))?)
        }
        Object::Tag(tag) => ("tag", tag.object.as_str().len(), [object, &signature].concat()),
    };
    let header = format!("{kind} {}\0", signed.len());
    Some(if id_size == SHA1_DIGITS {
        hash::<Sha1>(&header, &signed)
    } else {
        hash::<Sha256>(&header, &signed)
    })
}

/// How long an id is in a repository of the usual format.
const SHA1_DIGITS: usize = 40;

const fn field(id_size: usize) -> &'static str {
    if id_size == SHA1_DIGITS { "gpgsig" } else { "gpgsig-sha256" }
}

/// A commit with one more field, whose further lines begin with a blank.
fn with_field(commit: &[u8], value: &[u8], name: &str) -> Option<Vec<u8>> {
    let end = memchr::memmem::find(commit, b"\n\n")? + 1;
    let (header, rest) = commit.split_at_checked(end)?;
    let mut signed = header.to_vec();
    signed.extend_from_slice(name.as_bytes());
    for line in value.split_inclusive(|&byte| byte == b'\n') {
        signed.push(b' ');
        signed.extend_from_slice(line);
    }
    signed.extend_from_slice(rest);
    Some(signed)
}

fn hash<D: Digest>(header: &str, body: &[u8]) -> String {
    let hash = D::new().chain_update(header).chain_update(body).finalize();
    format!("{:x}", HexDisplay(&hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &[u8] =
        b"-----BEGIN PGP SIGNATURE-----\r\n\r\naGk=\r\n-----END PGP SIGNATURE-----\r\n";

    #[test]
    fn a_signed_object_is_stored_as_git_does_it() {
        let tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let long = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
        let people = "author A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx\n";
        let tag = "type tree\ntag v1\ntagger A <a@x> 1 +0000\n\nx\n";
        for (object, id) in [
            (format!("tree {tree}\n{people}"), "795dad89141cd3072b8039a9d58a21eb51198347"),
            (
                format!("tree {long}\n{people}"),
                "e347580885f119d7b2843a5c0d84f23bfd8cbec21f77d95f42b3dabd532e5724",
            ),
            (format!("object {tree}\n{tag}"), "acf26918169bc3e231f635d446096f30a38c87ea"),
            (
                format!("object {long}\n{tag}"),
                "32a24a2e8fcfc9cf4cc2284eb44469dc6466036d72b7faf9616e3ed72ee52be3",
            ),
        ] {
            assert_eq!(signed_id(object.as_bytes(), SIGNATURE).as_deref(), Some(id), "{object}");
        }
        assert_eq!(signed_id(b"nothing\n\n", SIGNATURE), None);
    }
}
