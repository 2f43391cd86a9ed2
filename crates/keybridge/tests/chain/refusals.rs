//! What a bridge refuses: with an exit status, one line that names the place, a way out, and nothing
//! changed. And what another user of the machine can't do to it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lab::{
    self, Client, Lab, as_user, eventually, gpg_version, make_private, output, set_mode, set_owner,
    snapshot, text, user_command,
};

/// Nobody of this machine.
const STRANGER: u32 = 54_321;

/// The uid that stands for all that have none.
const NOBODY: u32 = 65_534;

/// Runs a command that has to be refused: one line that has `words` in it, and a hint. The JSON has
/// the same, and the kind.
#[track_caller]
fn refused(command: &mut Command, kind: &str, words: &[&str]) -> String {
    let is_json = command.get_args().any(|word| word == "--json");
    let output = output(command);
    let said = text(&output.stderr);
    let status = match kind {
        "usage" => 2,
        "program-missing" | "not-found" => 3,
        _ => 1,
    };
    assert_eq!(output.status.code(), Some(status), "{said}");
    if is_json {
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = &told["error"];
        assert_eq!(error["kind"], kind, "{told}");
        let message = format!("keybridge: {}\n", error["message"].as_str().unwrap());
        assert!(said.starts_with(&message), "{said} {told}");
        assert_eq!(error["hints"].as_array().unwrap().len() + 1, said.lines().count(), "{told}");
    } else {
        assert_eq!(text(&output.stdout), "", "{said}");
    }
    let mut lines = said.lines();
    let message = lines.next().unwrap_or_default();
    assert!(message.starts_with("keybridge: "), "{said}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in the message: {said}");
    }
    let hints: Vec<_> = lines.collect();
    assert!(!hints.is_empty() && hints.iter().all(|hint| hint.starts_with("  → ")), "{said}");
    said
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_socket_that_is_not_restricted() {
    let lab = Lab::with_key();
    let (main, extra) = (lab.host.socket(), lab.host.extra_socket());
    fs::remove_file(&extra).unwrap();
    fs::write(&extra, format!("%Assuan%\nsocket={}\n", main.display())).unwrap();
    let before = snapshot(lab.target.path());
    refused(&mut lab.up_command(&[]), "failed", &[shown(&extra), "restricted"]);
    assert_eq!(snapshot(lab.target.path()), before);
}

#[test]
fn the_main_socket_only_when_it_is_asked_for_by_name() {
    let lab = Lab::with_key();
    let bridge = lab.up_with(&["--socket", "main"]);
    lab::run_with(&mut lab.target.gpg(["--detach-sign"]), b"words");
    let mut client = Client::greeted(&bridge.socket());
    let forbidden = "ERR 67109115 Forbidden <GPG Agent>\n";
    let grip = &lab.host.keygrips()[0];
    for command in ["KILLAGENT", "SCD LEARN", "GET_PASSPHRASE X X X X", "OPTION ttyname=/dev/x"] {
        assert_eq!(client.ask(command), forbidden, "{command}");
    }
    for verb in ["EXPORT_KEY", "DELETE_KEY --force", "READKEY --no-data", "PASSWD"] {
        assert_eq!(client.ask(format!("{verb} {grip}")), forbidden, "{verb}");
    }
    // The public half of a lent key, and of no other.
    client.send(format!("READKEY {grip}\n"));
    assert!(client.response().starts_with(b"D (10:public-key"));
    let unknown = client.ask(format!("READKEY {}", "0".repeat(40)));
    assert_eq!(unknown, "ERR 67108891 Not found <GPG Agent>\n");
    drop(client);
    bridge.stop();
}

#[test]
fn a_home_that_does_not_exist() {
    let lab = Lab::with_key();
    let missing = lab.at("missing");
    let said = refused(&mut lab.up_command_for(&missing, &[]), "not-found", &[shown(&missing)]);
    assert!(said.contains("mkdir"), "{said}");
    assert!(!missing.exists());
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_home_that_belongs_to_someone_else() {
    let lab = Lab::with_key();
    // The owner lays traps: a root that follows them would harm itself.
    let victim = lab.file("victim", "precious");
    set_mode(&victim, 0o600);
    let home = lab.target.path();
    symlink(&victim, home.join("gpg.conf")).unwrap();
    symlink(&victim, home.join("S.gpg-agent")).unwrap();
    for owner in [NOBODY, STRANGER] {
        set_owner(home, owner);
        let before = (snapshot(home), snapshot(&victim));
        refused(&mut lab.up_command(&[]), "not-permitted", &[shown(home), &format!("uid {owner}")]);
        refused(&mut lab.up_command(&["--replace"]), "not-permitted", &[shown(home)]);
        assert_eq!((snapshot(home), snapshot(&victim)), before);
    }
}

#[test]
fn a_home_that_others_can_write_to_or_that_is_a_link_or_a_file() {
    let lab = Lab::with_key();
    let home = lab.target.path();
    set_mode(home, 0o777);
    let said = refused(&mut lab.up_command(&[]), "not-permitted", &[shown(home), "0777"]);
    assert!(said.contains("chmod 700"), "{said}");
    set_mode(home, 0o700);
    let link = lab.at("link");
    symlink(home, &link).unwrap();
    refused(&mut lab.up_command_for(&link, &[]), "not-permitted", &[shown(&link), "link"]);
    let file = lab.file("file", "");
    refused(&mut lab.up_command_for(&file, &[]), "not-permitted", &[shown(&file)]);
    assert_eq!(fs::read_dir(home).unwrap().count(), 0);
}

#[test]
fn the_hosts_own_home() {
    let lab = Lab::with_key();
    let before = snapshot(lab.host.path());
    let home = lab.host.path();
    refused(&mut lab.up_command_for(home, &[]), "same-home", &[shown(home), "host's own"]);
    // By another way to the same folder too.
    let detour = home.join("../h");
    refused(&mut lab.up_command_for(&detour, &["--replace"]), "same-home", &["host's own"]);
    assert_eq!(snapshot(home), before);
}

#[test]
fn a_live_agent_with_secret_keys() {
    let lab = Lab::with_key();
    lab.target.make_key();
    let agent = lab.target.agent_pid();
    let before = snapshot(lab.target.path());
    let socket = lab.target.socket();
    let words = [shown(&socket), "gpg-agent", "secret keys"];
    let said = refused(&mut lab.up_command(&[]), "in-use", &words);
    assert!(said.contains("--replace"), "{said}");
    assert_eq!(snapshot(lab.target.path()), before);
    assert_eq!(lab.target.agent_pid(), agent);
}

#[test]
fn something_else_in_the_place_of_the_socket() {
    let lab = Lab::with_key();
    let socket = lab.target.socket();
    let victim = lab.file("victim", "precious");
    symlink(&victim, &socket).unwrap();
    refused_for_what_is_there(&lab, &victim, "link");
    fs::write(&socket, "precious").unwrap();
    refused_for_what_is_there(&lab, &victim, "not a socket");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_socket_of_another_user() {
    let lab = Lab::with_key();
    let socket = lab.target.socket();
    let victim = lab.file("victim", "precious");
    lab::leave_dead_socket(&socket);
    set_owner(&socket, STRANGER);
    refused_for_what_is_there(&lab, &victim, &format!("uid {STRANGER}"));
}

/// What is in the place of the socket is named and left alone, as is the file that it may lead to.
#[track_caller]
fn refused_for_what_is_there(lab: &Lab, victim: &Path, what: &str) {
    let socket = lab.target.socket();
    let before = (snapshot(lab.target.path()), snapshot(victim));
    refused(&mut lab.up_command(&[]), "not-permitted", &[shown(&socket), what]);
    refused(&mut lab.up_command(&["--replace"]), "not-permitted", &[shown(&socket), what]);
    assert_eq!((snapshot(lab.target.path()), snapshot(victim)), before);
    fs::remove_file(&socket).unwrap();
}

/// A lab whose sockets are not in the home, but in a folder that somebody could make first.
fn with_folder_of_sockets() -> (Lab, PathBuf) {
    let mut lab = Lab::with_key();
    let folder = lab.at("sockets");
    let script = format!(
        "[ \"$GNUPGHOME\" = '{home}' ] || exec {gpgconf} \"$@\"\n\
         {gpgconf} \"$@\" | sed 's|^agent-socket:.*|agent-socket:{folder}/S.gpg-agent|'\n",
        home = lab.target.path().display(),
        gpgconf = lab::program("gpgconf").display(),
        folder = folder.display()
    );
    lab.put_before("gpgconf", &script);
    (lab, folder)
}

#[track_caller]
fn refused_for_the_folder(lab: &Lab, folder: &Path, word: &str) {
    let before = snapshot(lab.target.path());
    refused(&mut lab.up_command(&[]), "not-permitted", &[shown(folder), word]);
    assert_eq!(snapshot(lab.target.path()), before);
}

#[test]
fn a_folder_of_the_socket_that_is_open_to_others_or_a_link() {
    let (lab, folder) = with_folder_of_sockets();
    let victim = lab.at("victim");
    make_private(&victim);
    let before = snapshot(&victim);
    symlink(&victim, &folder).unwrap();
    refused_for_the_folder(&lab, &folder, "link");
    assert_eq!(snapshot(&victim), before);
    fs::remove_file(&folder).unwrap();
    make_private(&folder);
    set_mode(&folder, 0o1777);
    refused_for_the_folder(&lab, &folder, "1777");
    set_mode(&folder, 0o700);
    let bridge = lab.up();
    assert_eq!(bridge.socket(), folder.join("S.gpg-agent"));
    bridge.stop();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_folder_of_the_socket_of_another_user() {
    let (lab, folder) = with_folder_of_sockets();
    make_private(&folder);
    set_owner(&folder, STRANGER);
    refused_for_the_folder(&lab, &folder, &format!("uid {STRANGER}"));
}

#[test]
fn an_unknown_word_in_the_configuration() {
    let lab = Lab::with_key();
    let file = lab.file("config.toml", "[defaults]\nkeys = \"pairs\"\nsokcet = \"extra\"\n");
    let mut command = lab.up_command(&[]);
    let output = output(command.arg("--config").arg(&file));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = format!("keybridge: {} line 3: unknown field `sokcet`", file.display());
    assert!(said.starts_with(&expected), "{said}");
    // The same file where it is looked for without being named.
    let usual = lab.at("home").join(".config/keybridge");
    fs::create_dir_all(&usual).unwrap();
    fs::rename(&file, usual.join("config.toml")).unwrap();
    let said = text(&lab::output(&mut lab.up_command(&[])).stderr);
    assert!(said.contains("config.toml line 3: unknown field `sokcet`"), "{said}");
    assert_eq!(fs::read_dir(lab.target.path()).unwrap().count(), 0);
}

#[test]
fn words_that_are_no_target() {
    let lab = Lab::with_key();
    for word in ["local:", "docker://", "a/b", "", "podman://", "\u{1b}[31mred"] {
        let mut command = lab.keybridge();
        let said = refused(command.args(["up", word, "--foreground"]), "usage", &[]);
        assert!(said.contains("local:DIR") && !said.contains('\u{1b}'), "{said}");
    }
    for words in [
        &["up"][..],
        &["up", "local:/x", "--frob"],
        &["frob"],
        &["up", "local:/x", "y", "--foreground"],
    ] {
        let output = output(lab.keybridge().args(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
    }
    for words in [["--lanes", "gpgg"], ["--socket", "browser"], ["--max-sessions", "0"]] {
        let output = output(&mut lab.up_command(&words));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    }
    assert_eq!(fs::read_dir(lab.target.path()).unwrap().count(), 0);
}

#[test]
fn a_host_without_gnupg() {
    let mut lab = Lab::with_key();
    // All that a target needs, less GnuPG.
    let bin = lab.at("few");
    make_private(&bin);
    for program in ["sh", "id", "uname", "cat", "mkdir", "chmod", "mv", "rm", "sha256sum", "cut"] {
        symlink(lab::program(program), bin.join(program)).unwrap();
    }
    lab.set_path(shown(&bin));
    let said = refused(&mut lab.up_command(&[]), "program-missing", &["gpgconf"]);
    assert!(said.contains("install GnuPG"), "{said}");
    assert_eq!(fs::read_dir(lab.target.path()).unwrap().count(), 0);
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn another_user_can_not_connect() {
    let lab = Lab::with_key();
    let bridge = lab.up_with(&["--log", "info"]);
    let socket = bridge.socket();
    let metadata = fs::metadata(&socket).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.uid()), (0o600, 0));
    let connect = format!(
        "gpg-connect-agent --no-autostart -S '{}' 'GETINFO version' /bye 2>&1",
        socket.display()
    );
    let tried = text(&as_user(STRANGER, &connect).stdout);
    assert!(!tried.contains(gpg_version()), "{tried}");
    // Even where folder and socket are open to all: the kernel says who it is.
    for path in [lab.folder(), lab.target.path()] {
        set_mode(path, 0o755);
    }
    set_mode(&socket, 0o666);
    for user in [STRANGER, NOBODY] {
        let tried = text(&as_user(user, &connect).stdout);
        assert!(!tried.contains(gpg_version()) && !tried.contains("\nOK"), "{tried}");
        eventually("the refusal is logged", || bridge.stderr().contains(&format!("uid {user}")));
    }
    // Our own user and root still can.
    assert!(
        text(&output(keybridge_lab::command("sh").args(["-c", &connect])).stdout)
            .contains(gpg_version())
    );
    bridge.stop();
}

/// A folder in which everybody can make files, and HOME and cache folder that can't be used: the
/// helper goes into the temporary folder then, or into the one of the whole machine: such tests take turns.
fn with_shared_folder(lab: &mut Lab) -> (PathBuf, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = lab.at("tmp");
    set_mode(&shared, 0o1777);
    set_mode(lab.folder(), 0o755);
    let file = lab.file("no-cache", "");
    lab.set_cache(file.join("x"));
    fs::write(lab.at("home").join(".cache"), "").unwrap();
    (shared, turn)
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn another_user_can_not_place_the_helpers_folder_first() {
    let mut lab = Lab::with_key();
    let (shared, _turn) = with_shared_folder(&mut lab);
    let victim = lab.at("victim");
    make_private(&victim);
    fs::write(victim.join("file"), "precious").unwrap();
    let name = shared.join("keybridge-0");
    // What the name would be with a helper in it, for one who knows the hash.
    let bridge = lab.up();
    let helper = bridge.helper_program();
    assert!(helper.starts_with(&name), "{}", helper.display());
    let helper_name = helper.file_name().unwrap().to_str().unwrap().to_owned();
    bridge.stop();
    fs::remove_dir_all(&name).unwrap();

    let traps = [
        format!(
            "mkdir -m 777 {0} && printf '#!/bin/sh\\ntouch {1}/ran\\n' > {0}/{helper_name} \
                 && chmod 755 {0}/{helper_name}",
            name.display(),
            shared.display()
        ),
        format!("ln -s {} {}", victim.display(), name.display()),
        format!("ln -s {}/nowhere {}", shared.display(), name.display()),
        format!("echo mine > {}", name.display()),
        format!("mkfifo {}", name.display()),
    ];
    for trap in traps {
        let placed = as_user(STRANGER, &trap);
        assert!(placed.status.success(), "{trap}: {}", text(&placed.stderr));
        let before = (snapshot(&victim), snapshot(&name));
        let bridge = lab.up();
        let folder = bridge.helper_program().parent().unwrap().to_owned();
        let metadata = fs::symlink_metadata(&folder).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o777), (0, 0o700), "{trap}");
        assert_ne!(folder, name, "{trap}");
        bridge.stop();
        assert_eq!((snapshot(&victim), snapshot(&name)), before, "{trap}");
        assert!(!shared.join("ran").exists() && !shared.join("nowhere").exists(), "{trap}");
        for entry in fs::read_dir(&shared).unwrap() {
            let path = entry.unwrap().path();
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_cache_folder_that_another_user_has_made() {
    let mut lab = Lab::with_key();
    let cache = lab.at("cache");
    make_private(&cache);
    lab.set_cache(&cache);
    let folder = cache.join("keybridge");
    make_private(&folder);
    fs::write(folder.join("file"), "theirs").unwrap();
    set_owner(&folder, STRANGER);
    let before = snapshot(&folder);
    let bridge = lab.up();
    assert!(!bridge.helper_program().starts_with(&folder));
    bridge.stop();
    assert_eq!(snapshot(&folder), before);
}

#[test]
fn a_helper_that_was_tampered_with_is_not_run() {
    let mut lab = Lab::with_key();
    let cache = lab.at("cache");
    make_private(&cache);
    lab.set_cache(&cache);
    let bridge = lab.up();
    let helper = bridge.helper_program();
    bridge.stop();
    let good = fs::read(&helper).unwrap();
    let ran = lab.at("ran");
    for replacement in [format!("#!/bin/sh\ntouch {}\n", ran.display()).into_bytes(), Vec::new()] {
        fs::remove_file(&helper).unwrap();
        fs::write(&helper, replacement).unwrap();
        set_mode(&helper, 0o700);
        lab.up().stop();
        assert!(!ran.exists());
        assert!(fs::read(&helper).unwrap() == good, "the helper is put anew");
    }
    // A link is not followed, neither to run nor to write.
    let elsewhere = lab.file("elsewhere", "precious");
    fs::remove_file(&helper).unwrap();
    symlink(&elsewhere, &helper).unwrap();
    lab.up().stop();
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn another_user_can_not_make_us_remove_or_own_anything() {
    let mut lab = Lab::with_key();
    let (shared, _turn) = with_shared_folder(&mut lab);
    let victim = lab.file("victim", "precious");
    set_mode(&victim, 0o600);
    let before = snapshot(&victim);
    // Changes what stands at the names as fast as it can while bridges come and go.
    let script = format!(
        "cd {shared} && while [ -d {shared} ] && [ ! -e stop ]; do \
           ln -s {victim} keybridge-0; rm -f keybridge-0; mkdir keybridge-0; \
           ln -s {victim} keybridge-0/.new-$$; rm -rf keybridge-0; done 2>/dev/null",
        shared = shared.display(),
        victim = victim.display(),
    );
    // Without a deadline: it lasts for as long as the bridges take. It ends with the folder too.
    let mut trouble = user_command(STRANGER, &script).spawn().unwrap();
    for _ in 0..5 {
        let bridge = lab.up();
        let folder = bridge.helper_program().parent().unwrap().to_owned();
        assert_eq!(fs::symlink_metadata(&folder).unwrap().uid(), 0);
        bridge.stop();
        fs::remove_dir_all(folder).unwrap();
    }
    fs::write(shared.join("stop"), "").unwrap();
    eventually("the trouble is over", || trouble.try_wait().unwrap().is_some());
    assert_eq!(snapshot(&victim), before);
}
