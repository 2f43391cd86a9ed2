//! What is broken between the person's machine and the target.

use crate::lab::{docker, run};
use crate::scene::Scene;

#[test]
fn no_such_container() {
    let mut scene = Scene::bridged();
    // A slip of the finger. The command that is right names the container that was meant.
    scene.target.pop();
    scene.target.push('x');
    let fix = scene.assert_found("target", 3, &["there is no container", &scene.target]);
    assert_eq!(fix, format!("keybridge doctor docker://{}", scene.container().name));
    let typed = scene.type_in(&fix);
    assert!(typed.status.success(), "{typed:?}");
}

#[test]
fn a_container_that_is_paused() {
    let scene = Scene::bridged();
    run(&mut docker(["pause", &scene.container().name]));
    scene.assert_found_and_fixed("target", 3, &["is paused"]);
}
