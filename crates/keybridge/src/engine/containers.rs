//! Inspects and lists containers.

use std::collections::HashMap;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary};
use bollard::query_parameters::ListContainersOptions;
use serde_json::Value;
use tokio::time::timeout;
use tracing::debug;

use crate::Result;
use crate::engine::error::{engine_message, explain_container, is_unknown};
use crate::engine::{ANSWER_TIME, Engine};

impl Engine {
    /// Inspects a container by its name, its id or a prefix of that; `None` if there is none.
    pub(crate) async fn inspect(&self, wanted: &str) -> Result<Option<ContainerInspectResponse>> {
        let api = self.api().await?;
        let ask = async || match inspect(api, wanted).await {
            Err(error) if !matches!(error, EngineError::DockerResponseServerError { .. }) => {
                // A broken connection doesn't mean that the engine is down.
                debug!("asking the engine again: {}", engine_message(&error));
                inspect(api, wanted).await
            }
            answer => answer,
        };
        match timeout(ANSWER_TIME, ask()).await {
            Ok(Ok(container)) => Ok(Some(container)),
            Ok(Err(error)) if is_unknown(&error) => Ok(None),
            Ok(Err(error @ EngineError::DockerResponseServerError { .. })) => {
                Err(explain_container(wanted, &error))
            }
            Ok(Err(error)) => Err(self.away(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    /// The containers that run.
    pub(crate) async fn running(&self) -> Result<Vec<ContainerSummary>> {
        self.list(&[("status", "running")]).await
    }

    /// The containers that pass these filters.
    pub(crate) async fn list(&self, passing: &[(&str, &str)]) -> Result<Vec<ContainerSummary>> {
        let options = ListContainersOptions {
            filters: Some(filters(passing)),
            ..ListContainersOptions::default()
        };
        let list = self.api().await?.list_containers(Some(options));
        let listed = timeout(ANSWER_TIME, list).await.map_err(|_| self.silent())?;
        listed.map_err(|error| self.away(&error))
    }
}

async fn inspect(api: &Docker, wanted: &str) -> Result<ContainerInspectResponse, EngineError> {
    match api.inspect_container(wanted, None).await {
        Err(EngineError::JsonDataError { message, contents, column }) => {
            parse_podman_state(&contents).ok_or(EngineError::JsonDataError {
                message,
                contents,
                column,
            })
        }
        answer => answer,
    }
}

/// Parses a container in a state that only Podman has. In each of them the container has ended: `stopped`
/// for example, until Podman has cleaned up after it.
fn parse_podman_state(contents: &str) -> Option<ContainerInspectResponse> {
    let mut container: Value = serde_json::from_str(contents).ok()?;
    let status = container.pointer_mut("/State/Status")?;
    if status.as_str()?.parse::<ContainerStateStatusEnum>().is_ok() {
        return None;
    }
    *status = ContainerStateStatusEnum::EXITED.to_string().into();
    serde_json::from_value(container).ok()
}

/// Filters as the engine takes them.
pub(crate) fn filters(pairs: &[(&str, &str)]) -> HashMap<String, Vec<String>> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_only_podman_has_means_that_the_container_ended() {
        let container = parse_podman_state(r#"{"Id":"1","State":{"Status":"stopped"}}"#).unwrap();
        assert_eq!(container.id.as_deref(), Some("1"));
        assert_eq!(container.state.unwrap().status, Some(ContainerStateStatusEnum::EXITED));
        // Any other fault stays an error.
        assert_eq!(parse_podman_state(r#"{"Id":1,"State":{"Status":"running"}}"#), None);
        assert_eq!(parse_podman_state(r#"{"Id":1,"State":{"Status":"stopped"}}"#), None);
        assert_eq!(parse_podman_state("{}"), None);
    }
}
