//! Each part is harmed while ten clients sign: signatures work again soon after its return, or the bridge
//! is gone and says so. No signature is wrong or made twice, and nothing is left in the end.

use std::time::{Duration, Instant, SystemTime};

use crate::faults::{
    BUSY, Blow, ContainerFault, EngineFault, Fault, Part, Plan, Scene, SocketFault, in_time,
    processes,
};
use crate::lab::{Engine, run, text};
use crate::side_by_side;

/// How long a part is paused or stopped.
const LONG: Duration = Duration::from_secs(20);

/// What an attempt may take: a question goes out after 2 s of silence with the next client, who comes
/// within a second, and no answer for 5 s is a loss.
const UNTIL_NOTICED: Duration = Duration::from_secs(8);

/// What a client may wait once the loss is noticed.
const PROMPT: Duration = Duration::from_secs(1);

/// A state has to show soon.
const SOON: Duration = Duration::from_secs(3);

/// The bridge is ready and stays so, nothing is wrong with what the clients got, and it goes down as ever.
#[track_caller]
fn ends_well(scene: &Scene, longest: Duration) {
    scene.await_ready();
    let reconnects = scene.reconnects();
    scene.assert_recovers(SystemTime::now(), "that, once more");
    assert_eq!(scene.reconnects(), reconnects, "{}", scene.describe());
    let judgement = scene.assert_signatures_are_right(longest);
    println!("{} good signatures, {} told errors", judgement.good, judgement.failed);
    scene.assert_goes_down_clean();
}

/// A client that comes after 2 s of silence finds the loss, and the next one knows at once.
#[track_caller]
fn the_loss_is_noticed(scene: &Scene) {
    std::thread::sleep(Duration::from_millis(2500));
    scene.assert_a_client_is_told(UNTIL_NOTICED.saturating_sub(Duration::from_secs(2)));
    scene.assert_a_client_is_told(PROMPT);
}

/// Whoever carries the engine's streams is not needed: clients sign all the time, over the same link.
#[track_caller]
fn nobody_notices(scene: &Scene) {
    let (reconnects, start) = (scene.reconnects(), Instant::now());
    while start.elapsed() < UNTIL_NOTICED {
        scene.assert_recovers(SystemTime::now(), "no harm");
    }
    assert_eq!(scene.reconnects(), reconnects, "{}", scene.describe());
}

#[test]
fn a_direct_path_that_is_cut_is_not_missed() {
    let scene = Scene::start(Plan::default());
    if !scene.goes_direct() {
        // There is none to cut.
        return ends_well(&scene, UNTIL_NOTICED);
    }
    let path = || scene.bridge()["path"].clone();
    assert!(in_time(SOON * BUSY, || path() == "passed"), "{}", scene.describe());
    let returned = Fault::DirectPath.strike(&scene).lift();
    scene.assert_recovers(returned, "a cut of the direct path");
    // What passes the clients is another connection.
    assert_eq!((path(), scene.reconnects()), ("passed".into(), 0), "{}", scene.describe());
    let judgement = scene.assert_signatures_are_right(UNTIL_NOTICED);
    assert_eq!(judgement.failed, 0, "{}", scene.describe());
    scene.assert_goes_down_clean();
}

#[test]
fn a_container_that_comes_back_is_bridged_again() {
    use ContainerFault::{Killed, Restarted, Stopped};
    side_by_side([Killed, Stopped, Restarted], |fault| {
        let scene = Scene::start(Plan::default());
        let struck = Fault::Container(fault).strike(&scene);
        if fault != Restarted {
            let reason = scene.await_state("waiting", SOON);
            println!("{fault:?}: waiting: {reason}");
        }
        let returned = struck.lift();
        scene.assert_recovers(returned, &format!("{fault:?}"));
        assert!(scene.reconnects() >= 1, "{}", scene.bridge());
        ends_well(&scene, UNTIL_NOTICED);
    });
}

#[test]
fn a_paused_container_keeps_its_link() {
    let scene = Scene::start(Plan::default());
    let struck = Fault::Container(ContainerFault::Paused).strike(&scene);
    let says_paused = || {
        let bridge = scene.bridge();
        bridge["reason"].as_str().is_some_and(|reason| reason.contains("paused"))
    };
    assert!(in_time(SOON * BUSY, says_paused), "no word of the pause\n{}", scene.describe());
    std::thread::sleep(LONG);
    let state = scene.bridge()["state"].clone();
    assert!(state == "ready" || state == "waiting", "{}", scene.bridge());
    let returned = struck.lift();
    scene.assert_recovers(returned, "a pause");
    assert_eq!(scene.reconnects(), 0, "the link was kept");
    ends_well(&scene, LONG);
}

#[test]
fn a_bridge_ends_with_its_container() {
    use ContainerFault::{Recreated, Removed};
    side_by_side([Removed, Recreated], |fault| {
        let scene = Scene::start(Plan::default());
        let old = scene.container.id();
        let struck = Fault::Container(fault).strike(&scene);
        // At once, so that a bridge that goes by the name takes the new one for the old one.
        struck.lift();
        scene.await_gone(SOON);
        let status = text(&run(&mut scene.keybridge(&["status"])));
        assert!(status.contains("nothing is bridged"), "{status}");
        scene.assert_signatures_are_right(UNTIL_NOTICED);
        if fault == Recreated {
            assert_ne!(scene.container.id(), old);
            scene.assert_nothing_in_container();
            scene.up();
            assert!(scene.signs(), "{}", scene.describe());
            scene.assert_goes_down_clean();
        }
    });
}

#[test]
fn a_helper_that_was_killed_is_started_again() {
    side_by_side([Part::Helper, Part::Exec], |part| {
        let scene = Scene::start(Plan::default());
        let before = part.pids(&scene);
        let returned = Fault::Process(part, Blow::Killed).strike(&scene).lift();
        scene.assert_recovers(returned, &format!("{part:?} killed"));
        scene.await_one_helper();
        assert_ne!(part.pids(&scene), before);
        assert!(scene.reconnects() >= 1, "{}", scene.bridge());
        ends_well(&scene, UNTIL_NOTICED);
    });
}

#[test]
fn a_helper_whose_bridge_was_killed_tells_clients_and_ends_in_time() {
    // Longer than the looks at a helper that lives on take on a busy machine.
    const OUTLIVE: u32 = 20;
    let scene = Scene::start(Plan { outlive: Some(OUTLIVE), ..Plan::default() });
    Fault::Process(Part::Serve, Blow::Killed).strike(&scene);
    scene.await_gone(SOON);
    // Nobody hangs.
    scene.assert_a_client_is_told(PROMPT);
    let id = scene.container.id();
    assert_eq!(processes::helpers(&id).len(), 1, "the helper outlives its bridge");
    let ended = || processes::helpers(&id).is_empty();
    let time = Duration::from_secs(OUTLIVE.into()) + SOON * BUSY;
    assert!(in_time(time, ended), "the helper goes on");
    scene.assert_nothing_in_container();
    scene.assert_signatures_are_right(UNTIL_NOTICED);
    assert_eq!(scene.bridges().len(), 0);
    scene.up();
    assert!(scene.signs(), "{}", scene.describe());
    scene.assert_goes_down_clean();
}

#[test]
fn a_new_bridge_takes_the_helper_of_a_killed_one_over() {
    let scene = Scene::start(Plan::default());
    Fault::Process(Part::Serve, Blow::Killed).strike(&scene);
    scene.await_gone(SOON);
    let returned = SystemTime::now();
    scene.up();
    scene.assert_recovers(returned, "a new bridge");
    scene.await_one_helper();
    ends_well(&scene, UNTIL_NOTICED);
}

#[test]
fn an_agent_that_was_killed_or_reloaded_signs_again() {
    let faults = [Fault::Process(Part::Agent, Blow::Killed), Fault::AgentReloaded];
    side_by_side(faults, |fault| {
        let scene = Scene::start(Plan::default());
        let returned = fault.strike(&scene).lift();
        scene.assert_recovers(returned, &format!("{fault:?}"));
        // The way to the target was never lost.
        assert_eq!((&scene.bridge()["state"], scene.reconnects()), (&"ready".into(), 0));
        ends_well(&scene, UNTIL_NOTICED);
    });
}

#[test]
fn a_socket_that_was_removed_or_taken_is_back() {
    side_by_side([SocketFault::Removed, SocketFault::Stray], |fault| {
        let scene = Scene::start(Plan::default());
        let returned = Fault::Socket(fault).strike(&scene).lift();
        scene.assert_recovers(returned, &format!("socket {fault:?}"));
        assert_eq!(scene.reconnects(), 0, "the link has no part in it");
        ends_well(&scene, UNTIL_NOTICED);
    });
}

#[test]
fn a_part_that_was_stopped_for_20_s_goes_on() {
    use Part::{Agent, Exec, Helper, Serve, Shim};
    side_by_side([Helper, Exec, Shim, Serve, Agent], |part| {
        let scene = Scene::start(Plan::default());
        let struck = Fault::Process(part, Blow::Frozen).strike(&scene);
        let start = Instant::now();
        match part {
            // Nobody can tell the clients of the one, and a person may be at the pinentry of the other.
            Helper | Exec | Agent => {}
            Shim if scene.goes_direct() => nobody_notices(&scene),
            Shim | Serve => the_loss_is_noticed(&scene),
        }
        std::thread::sleep(LONG.saturating_sub(start.elapsed()));
        let returned = struck.lift();
        scene.assert_recovers(returned, &format!("{part:?} frozen"));
        scene.await_one_helper();
        let longest = match part {
            Helper | Exec | Agent => LONG,
            // Nobody can tell the clients that it has already.
            Serve if scene.goes_direct() => LONG,
            Shim | Serve => UNTIL_NOTICED,
        };
        ends_well(&scene, longest);
    });
}

#[test]
fn clients_that_read_nothing_are_not_noticed_by_others() {
    let scene = Scene::start(Plan::default());
    // More than are served at once: the others are told so.
    let struck = Fault::Flood(200).strike(&scene);
    scene.assert_recovers(SystemTime::now(), "a flood");
    struck.lift();
    assert_eq!((&scene.bridge()["state"], scene.reconnects()), (&"ready".into(), 0));
    let open = || scene.bridge()["lanes"]["gpg"]["open"].as_u64().unwrap();
    assert!(in_time(SOON * BUSY, || open() < 20), "{} sessions are open", open());
    ends_well(&scene, UNTIL_NOTICED);
}

#[test]
fn bytes_that_no_helper_sends_end_the_link_and_it_is_made_again() {
    let fault = Fault::Garbage;
    let scene = Scene::start(Plan { relay: fault.needs_relay(), ..Plan::default() });
    let returned = fault.strike(&scene).lift();
    scene.assert_recovers(returned, "garbage");
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    ends_well(&scene, UNTIL_NOTICED);
}

#[test]
fn an_engine_that_comes_back_is_followed_again() {
    use EngineFault::{Frozen, Killed, Stopped};
    // One that takes its containers with it, and one that leaves them alone.
    side_by_side([&[][..], &["--live-restore"]], |options| {
        let scene = Scene::start(Plan {
            engine: Some(Engine::start_with(options)),
            options: &["--restart", "always"],
            ..Plan::default()
        });
        for fault in [Stopped, Killed, Frozen] {
            let reconnects = scene.reconnects();
            let struck = Fault::Engine(fault).strike(&scene);
            match fault {
                Stopped | Killed => println!("waiting: {}", scene.await_state("waiting", SOON)),
                Frozen if scene.goes_direct() => nobody_notices(&scene),
                Frozen => {
                    the_loss_is_noticed(&scene);
                    std::thread::sleep(LONG.saturating_sub(UNTIL_NOTICED));
                }
            }
            let returned = struck.lift();
            scene.assert_recovers(returned, &format!("engine {fault:?}"));
            let is_lost = fault != Frozen || !scene.goes_direct();
            assert_eq!(scene.reconnects() > reconnects, is_lost, "{fault:?}\n{}", scene.describe());
            scene.await_one_helper();
        }
        ends_well(&scene, UNTIL_NOTICED);
    });
}
