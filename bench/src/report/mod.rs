//! What a run leaves: a table for people, JSON for programs, a picture for the README.

mod json;
mod picture;
mod table;

pub(crate) use json::json;
pub(crate) use picture::picture;
pub(crate) use table::{show_bars, show_measurement};
