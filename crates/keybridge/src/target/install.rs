//! Putting the helper into a target.
//!
//! A script for any POSIX shell finds or makes a folder of the user's own, mode 0700, that is not a
//! link and lets programs run; writes the helper there under another name, compares its hash, and
//! renames it. The hash is compared again before each start.

use keybridge_proto::printable;
use tracing::debug;

use super::{EditorTarget, Target, TargetCommand};
use crate::helper::Helper;
use crate::{Error, Result};

/// Both steps: `find` says which processor the target has and where the helper is, `put` reads it
/// from standard input.
const SCRIPT: &str = include_str!("install.sh");

/// A helper that is in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its path there.
    pub path: String,
    /// Whether it was put there just now.
    pub is_new: bool,
}

/// Makes sure that the right helper is in the target.
pub async fn install(target: &Target, helper: &Helper) -> Result<Installed> {
    if let Target::Editor(_) = target {
        // The extension in the remote brings the helper along.
        return Ok(Installed { path: EditorTarget::HELPER.to_owned(), is_new: false });
    }
    // The target most likely has our own processor, and then one question is enough.
    let guess =
        helper.for_processor(std::env::consts::ARCH).map(|program| program.hash().to_owned());
    let guess = guess.unwrap_or_default();
    let found = match run(target, "find", &guess, b"").await {
        Err(error) if target.says_no_shell(&error) => return put_directly(target, helper).await,
        found => found?,
    };
    let fact = |name: &str| {
        found.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned)
    };
    let Some(processor) = fact("processor") else {
        return Err(Error::failed("the target's shell did not say which processor it has")
            .hint("see what `sh -c 'uname -m'` prints there"));
    };
    let program = helper.for_processor(&processor)?;
    let hash = program.hash().to_owned();
    let found = if hash == guess { found } else { run(target, "find", &hash, b"").await? };
    if let Some(path) = found.lines().find_map(|line| line.strip_prefix("path ")) {
        debug!(path = %printable(path), "the helper is there");
        return Ok(Installed { path: path.to_owned(), is_new: false });
    }
    let put = run(target, "put", &hash, &program.bytes()).await?;
    let path = put.lines().find_map(|line| line.strip_prefix("path ")).ok_or_else(|| {
        Error::failed("the target has no folder that the helper can be put in and run from")
            .hint("make the user's ~/.cache writable, or mount a temporary folder without noexec")
    })?;
    debug!(path = %printable(path), "the helper was put");
    Ok(Installed { path: path.to_owned(), is_new: true })
}

/// Puts the helper into a target without a shell, where it can't be found again.
async fn put_directly(target: &Target, helper: &Helper) -> Result<Installed> {
    let program = helper.for_processor(&target.processor().await?)?;
    let put = target.put("keybridge-remote", &program.bytes()).await;
    let path = put.map_err(|error| error.context("putting the helper in place"))?;
    Ok(Installed { path, is_new: true })
}

async fn run(target: &Target, step: &str, hash: &str, input: &[u8]) -> Result<String> {
    let command = TargetCommand::new(["sh", "-c", SCRIPT, "keybridge", step, hash]);
    let output = target.output(&command, input).await;
    output.map_err(|error| match error.hints.is_empty() {
        true if error.message.contains("did not arrive whole") => error
            .context("putting the helper in place")
            .hint("it needs some MiB: free space there, or mount a larger temporary folder"),
        true => error.context("putting the helper in place"),
        false => error,
    })
}
