//! While the link is down clients get their error at once, `status` says why, and the bridge comes back
//! with the link.

use std::time::{Duration, SystemTime};

use crate::faults::{Fault, Flow, Over, Plan, Scene, Turn, in_time};
use crate::lab::PATIENCE;

/// A question goes out with a client that comes after 2 s of silence, and no answer for 5 s is a loss.
const UNTIL_NOTICED: Duration = Duration::from_secs(8);

/// The bridge asks by itself after 15 s.
const UNTIL_THE_BRIDGE_NOTICES: Duration = Duration::from_secs(20);

/// What a client may wait once the loss is noticed.
const PROMPT: Duration = Duration::from_secs(1);

/// For how long clients of a link that is cut are watched.
const WATCHED: Duration = Duration::from_secs(5);

/// For how long the link is down.
const DOWN: Duration = Duration::from_secs(25);

/// Waits until every client of `gpg` has been told that the link is down, which it is since `down`. None that
/// came since then has signed.
#[track_caller]
fn assert_all_are_told(scene: &Scene, down: SystemTime) {
    let signers = &scene.container.signers;
    let untold = || {
        let turns = signers.turns();
        let is_told = |client| turns.iter().any(|turn| turn.client == client && turn.start > down);
        (0..signers.clients()).filter(|client| !is_told(*client)).collect::<Vec<_>>()
    };
    // Several gpg that are told so at once wait for each other, longer each time.
    let all = in_time(PATIENCE, || untold().is_empty());
    assert!(all, "the clients {:?} were told nothing\n{}", untold(), scene.describe());
    let turns = signers.turns();
    let signed: Vec<_> = turns.iter().filter(|turn| turn.start > down && turn.is_ok()).collect();
    assert!(signed.is_empty(), "signed over a link that is down: {signed:?}");
}

/// Clients are told at once, again and again.
#[track_caller]
fn tell_clients_until(scene: &Scene, end: SystemTime) {
    while SystemTime::now() < end {
        scene.assert_a_client_is_told(PROMPT);
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn clients_are_told_while_the_engine_is_silent() {
    // As on a machine whose network is gone.
    let fault = Fault::Link(Over::Everything, Flow::Silent);
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    let struck = fault.strike(&scene);
    let down = SystemTime::now();
    std::thread::sleep(Duration::from_millis(2500));
    scene.assert_a_client_is_told(UNTIL_NOTICED.saturating_sub(Duration::from_secs(2)));
    let known = SystemTime::now();
    tell_clients_until(&scene, known + Duration::from_secs(5));
    let reason = scene.await_state("waiting", UNTIL_THE_BRIDGE_NOTICES);
    println!("waiting: {reason}");
    tell_clients_until(&scene, down + DOWN);
    assert_all_are_told(&scene, down);
    let back = struck.lift();
    scene.assert_recovers(back, "silence");
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    scene.await_one_helper();
    scene.assert_signatures_are_right(UNTIL_NOTICED);
    scene.assert_goes_down_clean();
}

#[test]
fn a_silent_link_is_replaced_while_the_engine_answers() {
    let fault = Fault::Link(Over::Links, Flow::Silent);
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    let struck = fault.strike(&scene);
    let down = SystemTime::now();
    // The bridge asks by itself, even if no client comes that could find it.
    scene.assert_recovers(down + UNTIL_THE_BRIDGE_NOTICES, "a silent link");
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    // What comes late over the link of before is in nobody's way.
    let late = struck.lift();
    scene.assert_recovers(late, "bytes of before");
    assert_eq!(scene.reconnects(), 1, "{}", scene.describe());
    scene.await_one_helper();
    scene.assert_signatures_are_right(UNTIL_THE_BRIDGE_NOTICES);
    scene.assert_goes_down_clean();
}

#[test]
fn clients_are_told_while_the_link_is_cut() {
    let fault = Fault::Link(Over::Everything, Flow::Cut);
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    let struck = fault.strike(&scene);
    let down = SystemTime::now();
    let reason = scene.await_state("waiting", PROMPT);
    println!("waiting: {reason}");
    tell_clients_until(&scene, down + WATCHED);
    assert_all_are_told(&scene, down);
    let back = struck.lift();
    scene.assert_recovers(back, "a cut");
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    scene.assert_signatures_are_right(PROMPT);
    scene.assert_goes_down_clean();
}

#[test]
fn a_link_that_is_cut_again_and_again_comes_back_each_time() {
    let fault = Fault::Link(Over::Links, Flow::Cut);
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    for time in 1..=5 {
        let back = fault.strike(&scene).lift();
        scene.assert_recovers(back, &format!("cut number {time}"));
        scene.await_one_helper();
    }
    assert!(scene.reconnects() >= 5, "{}", scene.bridge());
    scene.assert_signatures_are_right(PROMPT);
    scene.assert_goes_down_clean();
}

#[test]
fn a_slow_link_is_no_lost_one() {
    let fault = Fault::Link(Over::Everything, Flow::Slow(Duration::from_millis(50)));
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    let slow = SystemTime::now();
    let struck = fault.strike(&scene);
    scene.assert_recovers(slow, "the link got slow");
    let slowest = scene.container.signers.turns().iter().map(Turn::time).max().unwrap();
    assert!(slowest > Duration::from_secs(1), "13 round trips of 100 ms took {slowest:?}");
    struck.lift();
    assert_eq!((&scene.bridge()["state"], scene.reconnects()), (&"ready".into(), 0));
    let judgement = scene.assert_signatures_are_right(UNTIL_NOTICED);
    assert_eq!(judgement.failed, 0, "{}", scene.describe());
    scene.assert_goes_down_clean();
}
