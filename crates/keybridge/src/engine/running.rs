//! Lists the containers that run.

use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptions;
use tokio::time::timeout;

use crate::Result;
use crate::engine::labels::filters;
use crate::engine::{ANSWER_TIME, Engine};

impl Engine {
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
