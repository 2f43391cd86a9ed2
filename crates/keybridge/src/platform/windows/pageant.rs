//! `PuTTY`'s agent, whose pipe has another name in each session.

use std::path::PathBuf;

use super::files::{pipe_names, pipe_path};

/// Its pipe, if it runs: `pageant.USER.HASH`.
pub(crate) fn pageant_pipe() -> Option<PathBuf> {
    let user = std::env::var("USERNAME").ok()?;
    pipe_names().iter().find(|name| is_of(&user, name)).map(|name| pipe_path(name))
}

/// Whether a pipe is that of a user's Pageant. A user's name may have dots.
fn is_of(user: &str, name: &str) -> bool {
    let hash = name.strip_prefix("pageant.").and_then(|rest| {
        let (start, hash) = rest.split_at_checked(user.len())?;
        start.eq_ignore_ascii_case(user).then(|| hash.strip_prefix('.'))?
    });
    hash.is_some_and(|hash| !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipe_of_this_user_is_told_from_others() {
        let hash = "24b2b1d5b2b5b6d3f9ab0a9a1f7d3f0f";
        assert!(is_of("ann", &format!("pageant.ann.{hash}")));
        assert!(is_of("Ann Lee", &format!("pageant.ann lee.{hash}")));
        assert!(is_of("a.b", &format!("pageant.a.b.{hash}")));
        for other in [
            "pageant.ann",
            "pageant.ann.",
            "pageant.ann.x",
            "pageant.anna.0",
            "pageant.bob.0",
            "ann.0",
            "",
        ] {
            assert!(!is_of("ann", other), "{other}");
        }
    }
}
