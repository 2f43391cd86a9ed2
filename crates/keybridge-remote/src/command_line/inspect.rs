//! `keybridge-remote inspect`: prints what is in the target for a bridge.

use keybridge_remote::{Environment, InspectionRequest, inspect};

/// The text of what was found.
pub(crate) fn run(request: &InspectionRequest) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    let environment = Environment::of_process();
    Ok(runtime.block_on(inspect(&environment, request)).to_bytes())
}
