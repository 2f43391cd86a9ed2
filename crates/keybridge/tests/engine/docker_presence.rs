//! Following containers of real engines: what happens to one is seen, in order.

use std::path::Path;

use crate::any_engine::presence::{self, does, local, seen};
use crate::lab::{Container, Engine, Image, PATIENCE, Program, Relay, docker, run};
use keybridge::engine::{Engine as EngineOf, EngineKind};
use keybridge::target::{Presence, Target, TargetAddress};
use tokio::time::timeout;

#[test]
fn what_happens_to_a_container_is_seen() {
    local(async {
        let engine = EngineOf::of_kind(EngineKind::Docker).await.unwrap();
        presence::what_happens_is_seen(&engine, Program::Docker).await;
    });
}

#[test]
fn a_container_that_is_made_again_under_its_name_is_another_one() {
    let container = Container::start(Image::Bare, &[]);
    local(async {
        let address: TargetAddress = container.name.parse().unwrap();
        let (target, _) = Target::find_any(&address, None).await.unwrap();
        let mut following = target.follow().await;
        docker_does(["rm", "-f", &container.name]).await;
        let other = Container::start(Image::Bare, &[]);
        docker_does(["rename", &other.name, &container.name]).await;
        seen(&mut following, Presence::Removed).await;
        // Also for one who follows the old one only now.
        assert_eq!(target.follow().await.now(), Presence::Removed);
        let (again, presence) = Target::find_any(&address, None).await.unwrap();
        assert_eq!((again.key(), presence), (other.id.clone(), Presence::Running));
        assert_ne!(again.key(), target.key());
    });
}

#[test]
fn a_restart_that_nobody_saw_happen_is_a_change() {
    let container = Container::start(Image::Bare, &["--rm=false"]);
    local(async {
        let target = Target::find(&container.name.parse().unwrap(), None).await.unwrap();
        let mut following = target.follow().await;
        // Nobody runs on this thread but docker, so the follower sees the end alone.
        run(&mut docker(["restart", "-t", "0", &container.name]));
        let changed = timeout(PATIENCE, following.changed()).await.unwrap();
        assert_eq!(changed, Presence::Running);
    });
}

#[test]
fn events_that_are_cut_off_are_taken_up_again_without_a_word() {
    let container = Container::start(Image::Bare, &[]);
    let relay = Relay::before(Path::new("/var/run/docker.sock"));
    local(async {
        let engine = EngineOf::connect_to(EngineKind::Docker, &relay.host()).await.unwrap();
        let (target, _) = engine.find(&container.name, None).await.unwrap();
        let mut following = target.follow().await;
        for (word, presence) in [("pause", Presence::Paused), ("unpause", Presence::Running)] {
            relay.cut();
            docker_does([word, &container.name]).await;
            // The next change, with none in between that says that the engine is away.
            assert_eq!(timeout(PATIENCE, following.changed()).await.unwrap(), presence);
        }
    });
}

#[test]
fn an_engine_that_is_stopped_and_started_again_is_followed() {
    let mut engine = Engine::start();
    let id = engine.container(Image::Bare, "web", &[]);
    let again = engine.container(Image::Bare, "web-2", &["--restart", "always"]);
    local(async {
        let connected = EngineOf::connect_to(EngineKind::Docker, &engine.host()).await.unwrap();
        let (target, _) = connected.find("web", None).await.unwrap();
        assert_eq!(target.key(), id);
        let mut following = target.follow().await;
        let (returning, _) = connected.find("web-2", None).await.unwrap();
        assert_eq!(returning.key(), again);
        let mut of_returning = returning.follow().await;

        // Stopped: the socket is gone, and the containers with it.
        engine = off_thread(engine, Engine::stop).await;
        assert!(!engine.socket().exists());
        for following in [&mut following, &mut of_returning] {
            let away = following.wait_for(is_unreachable);
            let Ok(Presence::Unreachable(error)) = timeout(PATIENCE, away).await else {
                panic!("not seen: {:?}", following.now())
            };
            assert!(error.message.contains(&engine.host()), "{error}");
            assert!(!error.hints.is_empty(), "{error}");
        }

        engine = off_thread(engine, Engine::start_again).await;
        // Pauses between attempts are a second at most.
        seen(&mut following, Presence::Stopped).await;
        seen(&mut of_returning, Presence::Running).await;

        // Killed: the socket stays, and nothing answers there.
        engine = off_thread(engine, Engine::kill).await;
        assert!(engine.socket().exists());
        assert!(is_unreachable(
            &timeout(PATIENCE, following.wait_for(is_unreachable)).await.unwrap()
        ));
        engine = off_thread(engine, Engine::start_again).await;
        seen(&mut following, Presence::Stopped).await;

        run(&mut engine.docker(["start", "web"]));
        seen(&mut following, Presence::Running).await;
        run(&mut engine.docker(["rm", "-f", "web"]));
        seen(&mut following, Presence::Removed).await;
    });
}

fn is_unreachable(presence: &Presence) -> bool {
    matches!(presence, Presence::Unreachable(_))
}

/// Runs docker, and lets the follower run beside it.
async fn docker_does<const N: usize>(words: [&str; N]) {
    does(Program::Docker, words).await;
}

/// Does something with the engine that takes its time, and lets the follower run beside it.
async fn off_thread(mut engine: Engine, act: fn(&mut Engine)) -> Engine {
    let acted = tokio::task::spawn_blocking(move || {
        act(&mut engine);
        engine
    });
    acted.await.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}
