//! Which engine is meant when none is named.

use keybridge_proto::printable;

use super::error::no_container;
use super::podman::Way;
use super::{Engine, EngineKind, Sought, docker, podman};
use crate::{Error, ErrorKind, Result};

/// What an engine says about a container.
enum Lookup {
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
        let (docker, podman) = tokio::join!(docker::seek(), podman::seek_used());
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
        match errors.into_iter().reduce(both) {
            Some(error) if !one_answers => Err(error),
            Some(_) | None => Ok(engines),
        }
    }
}

fn decide(name: &str, docker: Lookup, podman: Lookup) -> Result<Engine> {
    use Lookup::{Has, Lacks, Missing, Silent};
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
            let Error { kind, hints, .. } = both(docker, podman);
            Err(Error::new(kind, message).with_hints(hints))
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

async fn docker_says(name: &str) -> Lookup {
    ask(docker::seek().await, name).await
}

async fn podman_says(name: &str) -> Lookup {
    let way = Way::find_used().await;
    if matches!(way, Way::Program) && podman::lacks(name).await {
        return Lookup::Lacks(no_container(EngineKind::Podman, name));
    }
    ask(podman::seek_by(way).await, name).await
}

async fn ask(sought: Sought, name: &str) -> Lookup {
    let engine = match sought {
        Sought::There(engine) => engine,
        Sought::Away(error, _) => return Lookup::Silent(error),
        Sought::Missing(error) => return Lookup::Missing(error),
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
        Error::new(ErrorKind::NoTarget, format!("{kind}'s word")).hint(format!("{kind}'s hint"))
    }

    #[test]
    fn the_engine_that_has_the_container_is_meant_whatever_the_other_says() {
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
        assert!(error.hints[0].contains("docker://web or podman://web"), "{error:?}");
        assert_eq!(decide("web", has(Docker, "1"), has(Podman, "1")).unwrap().kind(), Docker);
    }

    #[test]
    fn where_none_has_it_those_are_heard_that_could_have_it() {
        let (docker, podman, both) =
            ("Docker's word", "Podman's word", "Docker's word; Podman's word");
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
