//! Looking at a container.

use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use serde_json::Value;
use tokio::time::timeout;
use tracing::debug;

use super::error::{explain_container, is_unknown, words};
use super::{ANSWER_TIME, Engine};
use crate::Result;

impl Engine {
    /// Looks at a container by its name, its id or a prefix of that; `None` if there is none.
    pub(in crate::target) async fn inspect(
        &self,
        wanted: &str,
    ) -> Result<Option<ContainerInspectResponse>> {
        let api = self.api().await?;
        let look = async || match inspect(api, wanted).await {
            Err(error) if !matches!(error, EngineError::DockerResponseServerError { .. }) => {
                // A connection that broke says little about an engine that takes the next one.
                debug!("asking the engine again: {}", words(&error));
                inspect(api, wanted).await
            }
            answer => answer,
        };
        match timeout(ANSWER_TIME, look()).await {
            Ok(Ok(container)) => Ok(Some(container)),
            Ok(Err(error)) if is_unknown(&error) => Ok(None),
            Ok(Err(error @ EngineError::DockerResponseServerError { .. })) => {
                Err(explain_container(wanted, &error))
            }
            Ok(Err(error)) => Err(self.away(&error)),
            Err(_) => Err(self.silent()),
        }
    }
}

async fn inspect(api: &Docker, wanted: &str) -> Result<ContainerInspectResponse, EngineError> {
    match api.inspect_container(wanted, None).await {
        Err(EngineError::JsonDataError { message, contents, column }) => {
            mended(&contents).ok_or(EngineError::JsonDataError { message, contents, column })
        }
        answer => answer,
    }
}

/// What was seen of a container that is in a state which Docker doesn't know. In each of Podman's own
/// it has ended: `stopped`, say, until somebody has cleaned up after it.
fn mended(contents: &str) -> Option<ContainerInspectResponse> {
    let mut container: Value = serde_json::from_str(contents).ok()?;
    let status = container.pointer_mut("/State/Status")?;
    if status.as_str()?.parse::<ContainerStateStatusEnum>().is_ok() {
        return None;
    }
    *status = ContainerStateStatusEnum::EXITED.to_string().into();
    serde_json::from_value(container).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_docker_does_not_know_is_an_end() {
        let container = mended(r#"{"Id":"1","State":{"Status":"stopped"}}"#).unwrap();
        assert_eq!(container.id.as_deref(), Some("1"));
        assert_eq!(container.state.unwrap().status, Some(ContainerStateStatusEnum::EXITED));
        // What is wrong otherwise is not taken for a container.
        assert_eq!(mended(r#"{"Id":1,"State":{"Status":"running"}}"#), None);
        assert_eq!(mended(r#"{"Id":1,"State":{"Status":"stopped"}}"#), None);
        assert_eq!(mended("{}"), None);
    }
}
