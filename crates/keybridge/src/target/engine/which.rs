//! Which engine is meant when none is named.

use keybridge_proto::printable;

use super::explain::no_container;
use super::podman::Way;
use super::{Engine, EngineKind, Sought, docker, podman};
use crate::{Error, ErrorKind, Result};

/// What an engine says about a container.
enum Answer {
    /// It has it, with this whole id.
    Has(Engine, String),
    /// It doesn't have it.
    Lacks(Error),
    /// It can't say.
    Silent(Error),
    /// There is no such engine.
    Missing(Error),
}

impl Engine {
    /// The engine that has a container of this name or id: Docker or Podman.
    pub async fn that_has(name: &str) -> Result<Self> {
        let (docker, podman) = tokio::join!(docker_says(name), podman_says(name));
        decide(name, docker, podman)
    }

    /// Every engine of this machine, of which at least one answers.
    pub async fn all() -> Result<Vec<Self>> {
        let (docker, podman) = tokio::join!(docker::seek(), podman::seek());
        let (mut engines, mut errors, mut one_answers) = (Vec::new(), Vec::new(), false);
        for sought in [docker, podman] {
            match sought {
                Sought::There(engine) => {
                    one_answers = true;
                    engines.push(engine);
                }
                Sought::Away(error, engine) => {
                    engines.extend(engine);
                    errors.push(error);
                }
                Sought::Missing(error) => errors.push(error),
            }
        }
        if one_answers {
            Ok(engines)
        } else {
            Err(errors.into_iter().reduce(both).unwrap_or_else(none))
        }
    }
}

fn decide(name: &str, docker: Answer, podman: Answer) -> Result<Engine> {
    use Answer::{Has, Lacks, Missing, Silent};
    match (docker, podman) {
        // One container that is seen twice: `docker` may well be led to Podman.
        (Has(docker, id), Has(_, same)) if id == same => Ok(docker),
        (Has(..), Has(..)) => {
            let shown = printable(name);
            let message = format!("both Docker and Podman have a container {shown}");
            let hint = format!("write docker://{shown} or podman://{shown}");
            Err(Error::new(ErrorKind::Usage, message).hint(hint))
        }
        (Has(engine, _), Lacks(_) | Silent(_) | Missing(_))
        | (Lacks(_) | Silent(_) | Missing(_), Has(engine, _)) => Ok(engine),
        (Lacks(docker), Lacks(podman)) => {
            let message = format!("there is no container {} in Docker or Podman", printable(name));
            Err(Error { message, ..both(docker, podman) })
        }
        (Silent(docker), Silent(podman)) | (Missing(docker), Missing(podman)) => {
            Err(both(docker, podman))
        }
        (Silent(error), Lacks(_) | Missing(_)) | (Lacks(_) | Missing(_), Silent(error)) => {
            Err(error)
        }
        (Lacks(error), Missing(_)) | (Missing(_), Lacks(error)) => Err(error),
    }
}

/// Two errors in one.
fn both(first: Error, second: Error) -> Error {
    let message = format!("{}; {}", first.message, second.message);
    let hints = first.hints.into_iter().chain(second.hints).collect();
    Error { kind: first.kind, message, hints }
}

fn none() -> Error {
    Error::new(ErrorKind::NoTarget, "there is no engine")
}

async fn docker_says(name: &str) -> Answer {
    ask(docker::seek().await, name).await
}

async fn podman_says(name: &str) -> Answer {
    let way = Way::find().await;
    if matches!(way, Way::Program) && podman::lacks(name).await {
        return Answer::Lacks(no_container(EngineKind::Podman, name));
    }
    ask(podman::seek_by(way).await, name).await
}

async fn ask(sought: Sought, name: &str) -> Answer {
    let engine = match sought {
        Sought::There(engine) => engine,
        Sought::Away(error, _) => return Answer::Silent(error),
        Sought::Missing(error) => return Answer::Missing(error),
    };
    match engine.inspect(name).await {
        Ok(Some(container)) => Answer::Has(engine, container.id.unwrap_or_default()),
        Ok(None) => Answer::Lacks(no_container(engine.kind, name)),
        Err(error) => Answer::Silent(error),
    }
}
