//! git signs over the git lane in containers that can verify it too.

use crate::lab::{ContainerLab, GitRound, Image, Program, SigningKey, run};

/// A round in a fresh container.
#[track_caller]
pub fn signs(engine: Program, image: Image, user: &str, key: SigningKey) {
    let scene = ContainerLab::new_in(engine, image, &[]);
    let round = GitRound::new(&scene.lab, key);
    run(round.lend(&mut scene.up_command(&["--user", user])));
    round.is_signed_and_verified_there(|script| scene.container.sh(Some(user), script));
    scene.down();
}
