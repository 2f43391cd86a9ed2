//! The half of keybridge that runs in a target.
#![forbid(unsafe_code)]
