//! While the link is down clients get their error, `status` says why, and the bridge comes back with the
//! link.

use std::time::SystemTime;

use crate::faults::{Fault, Flow, Over, Plan, Scene};

/// Waits until every client of `gpg` has been told that the link is down, which it is since `down`. None that
/// came since then has signed.
#[track_caller]
fn await_all_are_told(scene: &Scene, down: SystemTime) {
    let signers = &scene.container.signers;
    scene.eventually("every client is told", || {
        let turns = signers.turns();
        let is_told = |client| turns.iter().any(|turn| turn.client == client && turn.start > down);
        (0..signers.clients()).all(is_told)
    });
    let turns = signers.turns();
    let signed: Vec<_> = turns.iter().filter(|turn| turn.start > down && turn.is_ok()).collect();
    assert!(signed.is_empty(), "signed over a link that is down: {signed:?}");
}

/// The link is harmed for everything that goes to the engine, as on a machine whose network is gone.
#[track_caller]
fn clients_are_told_and_the_bridge_comes_back(flow: Flow) {
    let scene = Scene::start(Plan { relay: true, ..Plan::default() });
    let struck = Fault::Link(Over::Everything, flow).strike(&scene);
    let down = SystemTime::now();
    scene.assert_a_client_is_told();
    scene.await_waiting();
    scene.assert_a_client_is_told();
    await_all_are_told(&scene, down);
    let back = struck.lift();
    scene.await_signatures(back);
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    scene.await_one_helper();
    scene.assert_signatures_are_right();
    scene.assert_goes_down_clean();
}

#[test]
fn clients_are_told_while_the_engine_is_silent() {
    clients_are_told_and_the_bridge_comes_back(Flow::Silent);
}

#[test]
fn clients_are_told_while_the_link_is_cut() {
    clients_are_told_and_the_bridge_comes_back(Flow::Cut);
}

#[test]
fn a_silent_link_is_replaced_while_the_engine_answers() {
    let scene = Scene::start(Plan { relay: true, ..Plan::default() });
    let struck = Fault::Link(Over::Links, Flow::Silent).strike(&scene);
    // The bridge asks by itself, even if no client comes that could find it.
    scene.await_signatures(SystemTime::now());
    // What comes late over the link of before is in nobody's way.
    let late = struck.lift();
    scene.await_signatures(late);
    assert_eq!(scene.reconnects(), 1, "{}", scene.describe());
    scene.await_one_helper();
    scene.assert_signatures_are_right();
    scene.assert_goes_down_clean();
}
