//! `keybridge-remote inspect`: prints what is in the target for a bridge.

use keybridge_remote::{Environment, inspect};

use super::arguments::InspectArguments;
use super::remove_program;

/// The text of what was found.
pub(crate) fn run(arguments: &InspectArguments) -> Result<Vec<u8>, String> {
    if arguments.remove {
        // At once: the host may be killed, and nobody else would do it.
        remove_program::run().map_err(|error| format!("can't remove this program: {error}"))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    let environment = Environment::of_process();
    Ok(runtime.block_on(inspect(&environment, &arguments.request)).to_bytes())
}
