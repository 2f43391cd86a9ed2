//! Each part is harmed while clients sign: signatures work again after its return, or the bridge is gone
//! and says so. No signature is wrong or made twice, and nothing is left in the end.

use std::time::SystemTime;

use crate::faults::{Blow, ContainerFault, EngineFault, Fault, Part, Plan, Scene, processes};
use crate::lab::{Engine, run, text};
use crate::side_by_side;

/// The bridge is ready and stays so, nothing is wrong with what the clients got, and it goes down as ever.
#[track_caller]
fn ends_well(scene: &Scene) {
    scene.await_ready();
    let reconnects = scene.reconnects();
    scene.await_signatures(SystemTime::now());
    assert_eq!(scene.reconnects(), reconnects, "{}", scene.describe());
    scene.assert_signatures_are_right();
    scene.assert_goes_down_clean();
}

#[test]
fn a_container_that_comes_back_is_bridged_again() {
    use ContainerFault::{Killed, Restarted};
    let scene = Scene::start(Plan::default());
    for fault in [Killed, Restarted] {
        let reconnects = scene.reconnects();
        let struck = Fault::Container(fault).strike(&scene);
        if fault == Killed {
            scene.await_waiting();
        }
        let returned = struck.lift();
        scene.await_signatures(returned);
        assert!(scene.reconnects() > reconnects, "{fault:?}\n{}", scene.describe());
        scene.await_one_helper();
    }
    ends_well(&scene);
}

#[test]
fn a_paused_container_keeps_its_link() {
    let scene = Scene::start(Plan::default());
    let struck = Fault::Container(ContainerFault::Paused).strike(&scene);
    scene.eventually("the bridge says that the container is paused", || {
        scene.bridge()["reason"].as_str().is_some_and(|reason| reason.contains("paused"))
    });
    let returned = struck.lift();
    scene.await_signatures(returned);
    assert_eq!(scene.reconnects(), 0, "the link was kept");
    ends_well(&scene);
}

#[test]
fn a_bridge_ends_with_its_container_and_leaves_another_one_of_that_name_alone() {
    let scene = Scene::start(Plan::default());
    let old = scene.container.id();
    // At once, so that a bridge that goes by the name takes the new one for the old one.
    Fault::Container(ContainerFault::Recreated).strike(&scene).lift();
    scene.await_gone();
    let status = text(&run(&mut scene.keybridge(&["status"])));
    assert!(status.contains("nothing is bridged"), "{status}");
    scene.assert_signatures_are_right();
    assert_ne!(scene.container.id(), old);
    scene.assert_nothing_in_container();
    scene.up();
    assert!(scene.signs(), "{}", scene.describe());
    scene.assert_goes_down_clean();
}

#[test]
fn a_helper_that_was_killed_is_started_again() {
    let scene = Scene::start(Plan::default());
    let before = Part::Helper.pids(&scene);
    let returned = Fault::Process(Part::Helper, Blow::Killed).strike(&scene).lift();
    scene.await_signatures(returned);
    scene.await_one_helper();
    assert_ne!(Part::Helper.pids(&scene), before);
    assert!(scene.reconnects() >= 1, "{}", scene.bridge());
    ends_well(&scene);
}

#[test]
fn a_helper_whose_bridge_was_killed_tells_clients_until_a_new_bridge_takes_over() {
    let scene = Scene::start(Plan::default());
    Fault::Process(Part::Serve, Blow::Killed).strike(&scene);
    scene.await_gone();
    scene.assert_a_client_is_told();
    assert_eq!(
        processes::helpers(&scene.container.id()).len(),
        1,
        "the helper outlives its bridge"
    );
    let returned = SystemTime::now();
    scene.up();
    scene.await_signatures(returned);
    scene.await_one_helper();
    ends_well(&scene);
}

#[test]
fn an_agent_that_was_killed_or_reloaded_signs_again() {
    let scene = Scene::start(Plan::default());
    for fault in [Fault::Process(Part::Agent, Blow::Killed), Fault::AgentReloaded] {
        let returned = fault.strike(&scene).lift();
        scene.await_signatures(returned);
        // The way to the target was never lost.
        assert_eq!((&scene.bridge()["state"], scene.reconnects()), (&"ready".into(), 0));
    }
    ends_well(&scene);
}

#[test]
fn a_part_that_was_stopped_goes_on() {
    use Part::{Agent, Helper, Serve};
    let scene = Scene::start(Plan::default());
    for part in [Helper, Agent, Serve] {
        let struck = Fault::Process(part, Blow::Frozen).strike(&scene);
        let mut waiting = scene.client();
        // The helper finds a host that is asleep. Nobody can tell a client of a helper that is, and a person
        // may be at the agent's pinentry.
        if part == Serve {
            scene.assert_a_client_is_told();
        }
        let returned = struck.lift();
        if part != Serve {
            assert!(waiting.line().starts_with("OK "), "{part:?}\n{}", scene.describe());
        }
        scene.await_signatures(returned);
        scene.await_one_helper();
    }
    ends_well(&scene);
}

#[test]
fn an_engine_that_comes_back_is_followed_again() {
    use EngineFault::{Killed, Stopped};
    // One that takes its containers with it, and one that leaves them alone.
    side_by_side([(Stopped, &[][..]), (Killed, &["--live-restore"])], |(fault, options)| {
        let scene = Scene::start(Plan {
            engine: Some(Engine::start_with(options)),
            options: &["--restart", "always"],
            ..Plan::default()
        });
        let struck = Fault::Engine(fault).strike(&scene);
        scene.await_waiting();
        let returned = struck.lift();
        scene.await_signatures(returned);
        assert!(scene.reconnects() >= 1, "{}", scene.describe());
        scene.await_one_helper();
        ends_well(&scene);
    });
}
