//! The git lane: commits and tags that git in a target wants signed.
//!
//! The host signs what it has read, never a hash. [`Object::read`] reads the bytes as strictly as it can,
//! since signatures have been made to look good by objects that two programs read in two ways. A
//! [`Request`] brings them, and an [`Answer`] brings the signature, each in a frame of its own. Where there is only a named
//! pipe, a frame travels in pieces.

mod frame;
mod identity;
mod object;
#[cfg(test)]
mod object_tests;
mod pieces;
mod signature;
mod signed_id;
mod tag_name;

pub use frame::{Answer, BadFrame, Format, MAX_FRAME, MAX_KEY, Request, frame_size};
pub use identity::Identity;
pub use object::{Commit, Object, ObjectId, Tag, Unreadable};
pub use pieces::{Pieces, in_pieces};
pub use signature::{is_one_openpgp_signature, is_one_ssh_signature};
pub use signed_id::signed_id;
