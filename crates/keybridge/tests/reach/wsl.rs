//! `wsl://DISTRO`. There is no Windows here: a script stands in for `wsl.exe`, takes its arguments, and runs
//! the command in a container.

use crate::lab::{ContainerLab, Image, run, text};
use crate::{assert_signs, assert_undone};

#[test]
fn a_distribution_is_reached_by_wsl_exe() {
    let mut scene = ContainerLab::new(Image::Bookworm, &[]);
    let arguments = scene.lab.at("arguments");
    let stand_in = format!(
        "echo \"$*\" >>{}
        [ \"$1 $2 $3\" = '-d Debian --exec' ] || exit 64
        shift 3
        exec docker exec -i {} \"$@\"\n",
        arguments.display(),
        scene.container.name
    );
    scene.lab.put_before("wsl.exe", &stand_in);
    run(&mut scene.keybridge(["up", "wsl://Debian"]));
    assert_signs(&scene, None);
    let said = run(&mut scene.keybridge(["run", "wsl://Debian", "--", "echo", "a b"]));
    assert_eq!(text(&said), "a b\n");
    run(&mut scene.keybridge(["down", "wsl://Debian"]));
    assert_undone(&scene, None, "/root");
    let arguments = std::fs::read_to_string(arguments).unwrap();
    assert_eq!(arguments, "-d Debian --exec sh\n-d Debian --exec echo a b\n");
}
