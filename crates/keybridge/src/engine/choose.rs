//! Chooses the engine of a container whose address names none.

use keybridge_proto::printable;

use crate::checks::Check;
use crate::engine::error::no_container;
use crate::engine::podman::PodmanAccess;
use crate::engine::{Engine, EngineKind, EngineSearch, docker, podman};
use crate::{Error, ErrorKind, Result};

/// Whether an engine has a container.
enum Lookup {
    /// It has the container, with this whole id.
    Has(Engine, String),
    /// It doesn't have it.
    Lacks(Error),
    /// It doesn't answer.
    Silent(Error),
    /// There is no such engine.
    Missing(Error),
}

impl Engine {
    /// The engine that has a container of this name or id: Docker or Podman.
    pub(crate) async fn that_has(name: &str) -> Result<Self> {
        let (docker, podman) = tokio::join!(look_up_in_docker(name), look_up_in_podman(name));
        decide(name, docker, podman)
    }

    /// Every engine of the host, of which at least one answers.
    pub(crate) async fn all() -> Result<Vec<Self>> {
        let (docker, podman) = tokio::join!(docker::seek(), podman::seek_used());
        let (mut engines, mut errors, mut one_answers) = (Vec::new(), Vec::new(), false);
        for found in [docker, podman] {
            match found {
                EngineSearch::Found(engine) => {
                    one_answers = true;
                    engines.push(engine);
                }
                EngineSearch::Unreachable(error, engine) => {
                    engines.extend(engine);
                    errors.push(error);
                }
                EngineSearch::Missing(error) => errors.push(error),
            }
        }
        match errors.into_iter().reduce(both) {
            Some(error) if !one_answers => Err(error),
            Some(_) | None => Ok(engines),
        }
    }
}

fn decide(name: &str, docker: Lookup, podman: Lookup) -> Result<Engine> {
    use Lookup::{Has, Lacks, Missing, Silent};
    match (docker, podman) {
        // The same container twice: `docker` may be configured to use Podman's socket.
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
            let Error { kind, hints, .. } = both(docker, podman);
            Err(Error::new(kind, message).with_hints(hints).at_check(Check::Target))
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
    Error::new(first.kind, message).with_hints(first.hints).with_hints(second.hints)
}

async fn look_up_in_docker(name: &str) -> Lookup {
    look_up(docker::seek().await, name).await
}

async fn look_up_in_podman(name: &str) -> Lookup {
    let access = PodmanAccess::find_used().await;
    if matches!(access, PodmanAccess::Program) && podman::lacks(name).await {
        return Lookup::Lacks(no_container(EngineKind::Podman, name));
    }
    look_up(podman::seek_by(access).await, name).await
}

async fn look_up(found: EngineSearch, name: &str) -> Lookup {
    let engine = match found {
        EngineSearch::Found(engine) => engine,
        EngineSearch::Unreachable(error, _) => return Lookup::Silent(error),
        EngineSearch::Missing(error) => return Lookup::Missing(error),
    };
    match engine.inspect(name).await {
        Ok(Some(container)) => Lookup::Has(engine, container.id.unwrap_or_default()),
        Ok(None) => Lookup::Lacks(no_container(engine.kind, name)),
        Err(error) => Lookup::Silent(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EngineKind::{Docker, Podman};

    fn has(kind: EngineKind, id: &str) -> Lookup {
        Lookup::Has(Engine::at(kind, "tcp://127.0.0.1:1").unwrap(), id.to_owned())
    }

    const OTHERWISE: [fn(Error) -> Lookup; 3] = [Lookup::Lacks, Lookup::Silent, Lookup::Missing];

    fn error(kind: EngineKind) -> Error {
        Error::new(ErrorKind::NoTarget, format!("{kind}'s error")).hint(format!("{kind}'s hint"))
    }

    #[test]
    fn the_engine_that_has_the_container_is_chosen_whatever_the_other_answers() {
        for answer in OTHERWISE {
            let found = decide("web", has(Docker, "1"), answer(error(Podman)));
            assert_eq!(found.unwrap().kind(), Docker);
            let found = decide("web", answer(error(Docker)), has(Podman, "1"));
            assert_eq!(found.unwrap().kind(), Podman);
        }
    }

    #[test]
    fn two_containers_of_one_name_have_to_be_told_apart_and_one_seen_twice_does_not() {
        let error = decide("web", has(Docker, "1"), has(Podman, "2")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.hints[0].to_string().contains("docker://web or podman://web"), "{error:?}");
        assert_eq!(decide("web", has(Docker, "1"), has(Podman, "1")).unwrap().kind(), Docker);
    }

    #[test]
    fn errors_of_engines_that_could_have_the_container_are_shown() {
        let (docker, podman, both) =
            ("Docker's error", "Podman's error", "Docker's error; Podman's error");
        let table = [
            ["there is no container web in Docker or Podman", podman, docker],
            [docker, both, docker],
            [podman, podman, both],
        ];
        for (of_docker, row) in OTHERWISE.into_iter().zip(table) {
            for (of_podman, message) in OTHERWISE.into_iter().zip(row) {
                let answers = (of_docker(error(Docker)), of_podman(error(Podman)));
                let said = decide("web", answers.0, answers.1).unwrap_err();
                assert_eq!((said.message.as_str(), said.kind), (message, ErrorKind::NoTarget));
                let hints = if [docker, podman].contains(&message) { 1 } else { 2 };
                assert_eq!(said.hints.len(), hints, "{said:?}");
            }
        }
    }
}
