//! Tests of what only some systems have.

#[cfg(unix)]
mod direct;
#[cfg(unix)]
mod passing;
