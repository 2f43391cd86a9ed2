//! Helpers that are not ours, in Perl, which every machine of the tests has.

use std::path::PathBuf;

use super::{Lab, write_program};

const FRAMES: &str = include_str!("fake_helpers/frames.pl");

/// Says what files say: `READY`, `ANSWER` and `COMPLAINTS`.
pub const CHATTY: &str = include_str!("fake_helpers/chatty.pl");

/// Does the misdeed `FAULT` once there is a file `TRIGGER`.
pub const HARMFUL: &str = include_str!("fake_helpers/harmful.pl");

/// Writes the program of a helper. Quoted words in it stand for something of this test.
pub fn fake_helper(lab: &Lab, program: &str, words: &[(&str, &str)]) -> PathBuf {
    let quoted = |word: &str| format!("'{word}'");
    let put = |program: String, (word, meant): &(&str, &str)| {
        program.replace(&quoted(word), &quoted(meant))
    };
    let program = words.iter().fold(format!("{FRAMES}{program}"), put);
    let path = lab.at("helper");
    write_program(&path, program);
    path
}
