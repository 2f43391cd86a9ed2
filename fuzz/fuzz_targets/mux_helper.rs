//! The helper's end of the mux with a hostile host.
#![no_main]

mod hostile_peer;

use hostile_peer::{Act, play};
use keybridge_proto::mux::{End, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, Vec<Act<'_>>)| {
    let (old, acts) = input;
    play(End::Helper, if old { Version::One } else { Version::Two }, acts);
});
