//! What happens to a container is seen, in order.

use std::time::Duration;

use keybridge::engine::Engine;
use keybridge::target::{Following, Presence};
use tokio::time::timeout;

pub use crate::lab::on_this_thread as local;
use crate::lab::{Container, Image, PATIENCE, Program, run};

/// Whatever a person does to a container is seen, in order.
pub async fn what_happens_is_seen(engine: &Engine, program: Program) {
    // Without --rm, so that it can be started again.
    let container = Container::start_in(program, Image::Bare, &["--rm=false"]);
    let name = container.name.as_str();
    let (target, presence) = engine.find(name, None).await.unwrap();
    assert_eq!(presence, Presence::Running);
    let mut following = target.follow().await;
    assert_eq!(following.now(), Presence::Running);

    does(program, ["pause", name]).await;
    seen(&mut following, Presence::Paused).await;
    let found = engine.find(name, None).await.unwrap();
    assert_eq!((found.0.key(), found.1), (container.id.clone(), Presence::Paused));

    does(program, ["unpause", name]).await;
    seen(&mut following, Presence::Running).await;

    does(program, ["stop", "-t", "0", name]).await;
    seen(&mut following, Presence::Stopped).await;
    let found = engine.find(name, None).await.unwrap();
    assert_eq!((found.0.key(), found.1), (container.id.clone(), Presence::Stopped));

    does(program, ["start", name]).await;
    seen(&mut following, Presence::Running).await;

    does(program, ["kill", name]).await;
    seen(&mut following, Presence::Stopped).await;
    does(program, ["start", name]).await;
    seen(&mut following, Presence::Running).await;

    does(program, ["restart", "-t", "0", name]).await;
    let first = timeout(PATIENCE, following.changed()).await.unwrap();
    assert!([Presence::Stopped, Presence::Running].contains(&first), "{first:?}");
    seen(&mut following, Presence::Running).await;

    does(program, ["rm", "-f", name]).await;
    seen(&mut following, Presence::Removed).await;
    // Nothing comes after that, not even for one who waits for more.
    let gone = following.wait_for(|presence| *presence == Presence::Running);
    assert_eq!(timeout(PATIENCE, gone).await.unwrap(), Presence::Removed);
    assert!(timeout(Duration::from_millis(50), following.changed()).await.is_err());
}

/// The container stands so, or does soon.
pub async fn seen(following: &mut Following, wanted: Presence) {
    let found = timeout(PATIENCE, following.wait_for(|presence| *presence == wanted)).await;
    assert_eq!(found.unwrap_or_else(|_| following.now()), wanted);
}

/// Runs an engine's program, and lets the follower run beside it.
pub async fn does<const N: usize>(program: Program, words: [&str; N]) {
    let mut command = program.command(words);
    tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap();
}
