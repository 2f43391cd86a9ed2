//! What goes wrong before a bridge works: a clear error with its exit status, and nothing left behind.

use crate::lab::{AARCH64, ContainerLab, Image, output, program_for, run, text};
use crate::ssh_host::SshHost;
use crate::{assert_signs, assert_undone, refused};

#[test]
fn an_unknown_host() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let said = refused(&scene, "ssh://no-such-host.invalid", 3);
    assert!(said.contains("Could not resolve hostname no-such-host.invalid"), "{said}");
}

#[test]
fn a_host_where_nobody_listens() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let said = refused(&scene, "ssh://127.0.0.1:1", 3);
    assert!(
        said.contains("ssh://127.0.0.1:1: ssh says: connect to host 127.0.0.1 port 1"),
        "{said}"
    );
}

#[test]
fn a_refused_key() {
    let host = SshHost::new(Image::Bookworm);
    host.scene.container.sh(Some("0"), "rm /etc/ssh/authorized-dev");
    let said = refused(&host.scene, "ssh://far", 1);
    assert!(said.contains("the login was refused") && said.contains("Permission denied"), "{said}");
}

#[test]
fn addresses_that_are_options() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    for address in ["ssh://-oProxyCommand=true", "ssh://x@-y", "exec:", "exec:'x", "wsl://--exec"] {
        refused(&scene, address, 2);
    }
}

/// What a user's profile there does before our shell starts.
#[track_caller]
fn with_profile(profile: &str) -> SshHost {
    let host = SshHost::new(Image::Bookworm);
    host.scene.container.sh(Some("0"), "usermod --shell /bin/bash dev");
    host.scene.container.sh_with(Some("dev"), "cat >~/.bashrc", profile.as_bytes());
    host
}

#[test]
fn a_profile_that_prints_ten_kilobytes() {
    let host = with_profile(
        "head -c 10240 /dev/urandom; echo; seq 2000; printf 'no end of line'; seq 9 >&2",
    );
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.down();
    assert_undone(&host.scene, Some("dev"), "/home/dev");
}

#[test]
fn a_profile_that_prints_without_end() {
    let host = with_profile("yes");
    let said = refused(&host.scene, "ssh://far", 1);
    assert!(said.contains("64 KiB and no answer"), "{said}");
}

#[test]
fn a_profile_that_waits_for_a_key() {
    let host = with_profile("read -p 'press return' x; read -p 'once more' x");
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.down();
}

#[test]
fn a_profile_that_reads_all_there_is() {
    let host = with_profile("cat >/dev/null");
    let said = refused(&host.scene, "ssh://far", 3);
    assert!(said.contains("no answer within") && said.contains("profile"), "{said}");
}

#[test]
fn a_profile_that_ends_the_shell() {
    let host = with_profile("echo 'not today' >&2; exit 5");
    let said = refused(&host.scene, "ssh://far", 3);
    assert!(said.contains("exit status 5") && said.contains("not today"), "{said}");
}

#[test]
fn a_target_without_a_shell() {
    let scene = ContainerLab::new(Image::NoShell, &[]);
    let address = format!("exec:docker exec -i {}", scene.container.name);
    let said = refused(&scene, &address, 1);
    assert!(said.contains("no shell can be started there"), "{said}");
}

#[test]
fn a_command_that_gives_its_program_a_terminal() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let inner = format!("docker exec -it {} sh", scene.container.name);
    let address = format!("exec:sh -c 'exec script -qec \"{inner}\" /dev/null' x");
    let said = refused(&scene, &address, 2);
    assert!(said.contains("a terminal"), "{said}");
}

#[track_caller]
fn refused_in(options: &[&str], words: &[&str]) {
    let scene = ContainerLab::new(Image::Bookworm, options);
    let before = scene.container.listing();
    let said = refused(&scene, &format!("exec:docker exec -i {}", scene.container.name), 1);
    for word in words {
        assert!(said.contains(word), "{said}");
    }
    scene.container.assert_unchanged(&before);
    assert_eq!(scene.helpers(), Vec::<String>::new());
}

#[test]
fn a_full_file_system() {
    refused_in(
        &["--read-only", "--tmpfs", "/root:exec,size=512k"],
        &["did not arrive whole in /root/.cache/keybridge", "disk may be full"],
    );
}

#[test]
fn a_read_only_file_system() {
    refused_in(&["--read-only"], &["no folder that the helper can be put in"]);
}

#[test]
fn noexec_on_every_folder_that_can_be_written() {
    let mounts = ["--read-only", "--tmpfs", "/root:noexec", "--tmpfs", "/tmp:noexec"];
    refused_in(&mounts, &["no folder that the helper can be put in", "noexec"]);
}

/// A script stands in for uname.
#[test]
fn another_system_and_another_processor() {
    for (system, processor, words) in [
        ("Darwin", "arm64", "runs Darwin"),
        ("Linux", "riscv64", "no helper for the target's processor riscv64"),
    ] {
        let scene = ContainerLab::new(Image::Bookworm, &[]);
        let uname = format!("#!/bin/sh\n[ \"$1\" = -s ] && echo {system} || echo {processor}\n");
        scene.container.put_program("/usr/bin/uname", uname.as_bytes());
        let said = refused(&scene, &format!("exec:docker exec -i {}", scene.container.name), 1);
        assert!(said.contains(words), "{said}");
    }
}

/// The helper would be for a processor that the target hasn't, and shells read such a file as a script.
#[test]
fn a_uname_that_names_another_processor() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let uname = "#!/bin/sh\n[ \"$1\" = -s ] && echo Linux || echo aarch64\n";
    scene.container.put_program("/usr/bin/uname", uname.as_bytes());
    let said = refused_with(&scene, program_for(AARCH64));
    assert!(said.contains("its uname reports aarch64, but its programs are for x86_64"), "{said}");
    assert!(said.contains("  → make `uname -m` there"), "{said}");
}

#[test]
fn a_helper_for_another_processor() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let said = refused_with(&scene, program_for(AARCH64));
    assert!(said.contains("/helper is for aarch64, and the target has x86_64"), "{said}");
    assert!(said.contains("  → put one for x86_64 there"), "{said}");
}

/// What `up` says with a helper that isn't right. Nothing comes into the container.
#[track_caller]
fn refused_with(scene: &ContainerLab, helper: Vec<u8>) -> String {
    let helper = scene.lab.file("helper", helper);
    let before = scene.container.listing();
    let address = format!("exec:docker exec -i {}", scene.container.name);
    let ended = output(scene.keybridge(["up", &address, "--helper-program"]).arg(&helper));
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    assert_eq!(scene.bridges().len(), 0);
    scene.container.assert_unchanged(&before);
    text(&ended.stderr)
}

/// The link is cut in the middle of the helper, and the next `up` works.
#[test]
fn a_link_that_is_cut_while_the_helper_travels() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let relay = "while (($n = sysread STDIN, $b, 4096) > 0) { syswrite STDOUT, $b; exit if ($t += $n) > 1e5 }";
    let script = format!("perl -e '{relay}' | docker exec -i {} sh\n", scene.container.name);
    let cut = scene.lab.file("cut", script);
    let said = refused(&scene, &format!("exec:sh {}", cut.display()), 1);
    assert!(said.contains("did not arrive whole"), "{said}");
    let left = "find /root/.cache /tmp -name '.new-*' -o -name 'keybridge-remote-*'";
    assert_eq!(scene.container.try_sh(None, left).stdout, b"");
    let address = format!("exec:docker exec -i {}", scene.container.name);
    run(&mut scene.keybridge(["up", &address]));
    assert_signs(&scene, None);
    run(&mut scene.keybridge(["down", &address]));
}

/// A helper that says half of its greeting and no more.
#[test]
fn half_a_frame_and_then_silence() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let helper = scene.lab.file("helper", "#!/bin/sh\nfor last; do :; done\nprintf '\\nKEYBRIDGE 2 %s\\n\\000\\000' \"$last\"\nexec cat >/dev/null\n");
    let address = format!("exec:docker exec -i {}", scene.container.name);
    let ended = output(scene.keybridge(["up", &address, "--helper-program"]).arg(&helper));
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    assert_eq!(scene.bridges().len(), 0);
}
