//! While the link is down clients get their error at once, `status` says why, and the bridge comes back
//! with the link.

use std::time::{Duration, SystemTime};

use crate::faults::{BUSY, Fault, Flow, Over, Plan, Scene, Turn, processes};

/// A question goes out after 2 s of silence with the next client, who comes within a second; no answer
/// for 5 s is a loss.
const UNTIL_NOTICED: Duration = Duration::from_secs(8);

/// The bridge asks by itself after 15 s.
const UNTIL_THE_BRIDGE_NOTICES: Duration = Duration::from_secs(20);

/// What a client may wait once the loss is noticed.
const PROMPT: Duration = Duration::from_secs(1);

/// For how long the link is down.
const DOWN: Duration = Duration::from_secs(25);

/// What the link's loss looks like to clients in the time from `down` to `back`.
#[track_caller]
fn assert_clients_are_told(scene: &Scene, down: SystemTime, back: SystemTime, noticed: Duration) {
    let turns = scene.container.signers.turns();
    let failed = |turn: &&Turn| !turn.is_ok() && turn.end >= down && turn.start <= back;
    // When the first client is told, the helper knows.
    let known = turns.iter().filter(failed).map(|turn| turn.end).min();
    let Some(known) = known else { panic!("no client is told\n{}", scene.describe()) };
    let time = known.duration_since(down).unwrap();
    println!("the first client is told after {time:?}");
    assert!(time <= noticed * BUSY, "the loss is noticed after {time:?}");
    let late = |turn: &&Turn| {
        let waited = turn.end.duration_since(turn.start.max(known)).unwrap_or_default();
        turn.end > known && turn.start < back && waited > PROMPT * BUSY
    };
    let late: Vec<_> = turns.iter().filter(late).collect();
    assert!(late.is_empty(), "clients that waited over {:?}: {late:?}", PROMPT * BUSY);
    // While it is known, nobody signs and everybody is told, again and again.
    let during = turns.iter().filter(|turn| turn.start > known + PROMPT && turn.end < back);
    let (signed, told): (Vec<_>, Vec<_>) = during.partition(|turn| turn.is_ok());
    assert!(signed.is_empty(), "signed over a link that is down: {signed:?}");
    let clients = scene.container.signers.clients();
    for client in 0..clients {
        assert!(told.iter().any(|turn| turn.client == client), "client {client} hangs");
    }
}

#[test]
fn clients_are_told_while_the_link_is_silent() {
    // All that goes to the engine, as on a machine whose network is gone, or the link alone.
    crate::side_by_side([Over::Everything, Over::Links], |over| {
        let fault = Fault::Link(over, Flow::Silent);
        let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
        let down = SystemTime::now();
        let struck = fault.strike(&scene);
        let reason = match over {
            Over::Everything => scene.await_state("waiting", UNTIL_THE_BRIDGE_NOTICES),
            // The link is made again beside the silent one; nobody has to wait for its return.
            Over::Links => {
                let told = scene.container.signers.turns().len();
                scene.assert_recovers(down + UNTIL_THE_BRIDGE_NOTICES, "a silent link");
                assert!(scene.container.signers.turns().len() > told);
                assert!(scene.reconnects() >= 1, "{}", scene.bridge());
                String::new()
            }
        };
        println!("{over:?}: {reason}");
        if over == Over::Everything {
            let rest = (down + DOWN).duration_since(SystemTime::now()).unwrap_or_default();
            std::thread::sleep(rest);
            let before = SystemTime::now();
            let back = struck.lift();
            assert_clients_are_told(&scene, down, before, UNTIL_NOTICED);
            scene.assert_recovers(back, "silence");
            assert!(scene.reconnects() >= 1, "{}", scene.bridge());
        } else {
            struck.lift();
        }
        assert_eq!(processes::helpers(&scene.container.id()).len(), 1);
        scene.assert_signatures_are_right(UNTIL_NOTICED * BUSY);
        scene.assert_goes_down_clean();
    });
}

#[test]
fn clients_are_told_while_the_link_is_cut() {
    let fault = Fault::Link(Over::Everything, Flow::Cut);
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    let down = SystemTime::now();
    let struck = fault.strike(&scene);
    let reason = scene.await_state("waiting", PROMPT);
    println!("waiting: {reason}");
    std::thread::sleep(Duration::from_secs(10));
    let before = SystemTime::now();
    let back = struck.lift();
    assert_clients_are_told(&scene, down, before, PROMPT);
    scene.assert_recovers(back, "a cut");
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    scene.assert_signatures_are_right(PROMPT * BUSY);
    scene.assert_goes_down_clean();
}

#[test]
fn a_link_that_is_cut_again_and_again_comes_back_each_time() {
    let fault = Fault::Link(Over::Links, Flow::Cut);
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    for time in 1..=5 {
        let back = fault.strike(&scene).lift();
        scene.assert_recovers(back, &format!("cut number {time}"));
        assert_eq!(processes::helpers(&scene.container.id()).len(), 1);
    }
    assert!(scene.reconnects() >= 5, "{}", scene.bridge());
    scene.assert_signatures_are_right(PROMPT * BUSY);
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
