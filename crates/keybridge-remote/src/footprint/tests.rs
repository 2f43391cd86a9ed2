use std::cell::Cell;
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::home::acquire_lock::acquire;
use crate::lanes::start_lane::{self, StartedLane};
use crate::lanes::undo_lane::{UndoOutcome, undo};
use crate::user_files::marked_block::MarkedBlock;
use crate::user_files::planned_edit::{Importance, PlannedEdit, PlannedFile};
use crate::{Environment, Git, Settings};

/// What is in `~/.ssh/config` before.
const CONFIG: &str = "Host a\n    User b";

/// A home with a `.ssh` folder, or without.
struct Home(TempDir);

impl Home {
    fn new(has_ssh_folder: bool) -> Self {
        let home = Self(keybridge_lab::short_folder("kbf"));
        std::fs::write(home.at(".gitconfig"), "[user]\n\tname = a\n").unwrap();
        if has_ssh_folder {
            keybridge_lab::make_private(&home.at(".ssh"));
            std::fs::write(home.at(".ssh/config"), CONFIG).unwrap();
        }
        home
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    async fn discover(&self) -> DiscoveredLane {
        let home = Some(self.0.path().to_owned());
        let environment = Environment { home, ..Environment::default() };
        let lane = keybridge_proto::Lane::Ssh;
        DiscoveredLane::find(lane, &environment, None).await.unwrap()
    }

    /// Everything that is in the home: names, and what files contain.
    fn content(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    folders.push(path.clone());
                }
                found.push((path.clone(), std::fs::read(&path).ok()));
            }
        }
        found.sort();
        found
    }

    async fn undo(&self) {
        // A child of another test has the lock's descriptor until it runs its program.
        let until = Instant::now() + keybridge_lab::PATIENCE;
        while undo(&self.discover().await, None).await.unwrap() != UndoOutcome::Clean {
            assert!(Instant::now() < until);
            tokio::task::yield_now().await;
        }
    }
}

async fn footprint(discovered: &DiscoveredLane) -> Footprint {
    let lock = acquire(discovered.path(), Path::new("/S"), None, false).await;
    Footprint::read(lock.unwrap(), discovered)
}

async fn start(
    settings: &Settings,
    git: Option<&Git>,
    discovered: DiscoveredLane,
) -> Result<StartedLane, Error> {
    start_lane::start(settings, git, discovered, &Cell::new(false)).await
}

/// git's edit and its files, as with an SSH key.
fn planned(home: &Home) -> PlannedEdit {
    let file = PlannedFile::new(home.at(".ssh/.keybridge-git"), "[gpg]\n");
    let program = PlannedFile::program(home.at(".ssh/.keybridge-ssh-keygen"), "#!/bin/sh\n");
    PlannedEdit {
        block: MarkedBlock::new(home.at(".gitconfig"), "[include]\n\tpath = x\n"),
        files: vec![file, program],
        importance: Importance::Needed,
    }
}

/// What a helper does for a lane, one step after the other, until it is killed after this many of them.
/// The sockets and the lock go as they do with a process.
async fn helper_killed_after(home: &Home, steps: usize) -> bool {
    let discovered = home.discover().await;
    let mut left = steps;
    let mut step = move || {
        let goes_on = left > 0;
        left = left.saturating_sub(1);
        goes_on
    };
    let is_new = discovered.folder().create().unwrap();
    let footprint = footprint(&discovered).await;
    if is_new {
        footprint.record(Change::CreatedLaneFolder).unwrap();
    }
    let socket = home.at(".ssh/agent.sock");
    let edits: Vec<PlannedEdit> =
        discovered.edits(&socket).into_iter().chain([planned(home)]).collect();
    for edit in &edits {
        for file in &edit.files {
            if !step() {
                return false;
            }
            footprint.record(Change::CreatedFile(file.path().to_owned())).unwrap();
            if !step() {
                return false;
            }
            file.create().unwrap();
        }
        if !step() {
            return false;
        }
        footprint.record(Change::EditedFile(edit.block.clone())).unwrap();
        if !step() {
            return false;
        }
        edit.block.put().unwrap();
    }
    if !step() {
        return false;
    }
    footprint.record(Change::BoundSocket(socket.clone())).unwrap();
    if !step() {
        return false;
    }
    drop(UnixListener::bind(socket).unwrap());
    true
}

#[tokio::test]
async fn a_kill_after_any_step_is_undone() {
    for has_ssh_folder in [true, false] {
        let mut steps = 0;
        loop {
            let home = Home::new(has_ssh_folder);
            let before = home.content();
            let is_whole = helper_killed_after(&home, steps).await;
            home.undo().await;
            assert_eq!(home.content(), before, "killed after {steps} steps");
            home.undo().await;
            assert_eq!(home.content(), before, "undone twice after {steps} steps");
            if is_whole {
                break;
            }
            steps += 1;
        }
        assert!(steps > 8, "{steps}");
    }
}

#[tokio::test]
async fn a_helper_that_starts_again_after_a_kill_can_be_undone() {
    let home = Home::new(true);
    let before = home.content();
    for steps in [3, 5, 100] {
        helper_killed_after(&home, steps).await;
        let _ = std::fs::remove_file(home.at(".ssh/agent.sock"));
    }
    home.undo().await;
    assert_eq!(home.content(), before);
}

/// The names of what changes in some folders, in order, as the kernel tells it.
struct Events(rustix::fd::OwnedFd);

impl Events {
    fn of(folders: [&Path; 2]) -> Self {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        for folder in folders {
            inotify::add_watch(&fd, folder, WatchFlags::CREATE | WatchFlags::MODIFY).unwrap();
        }
        Self(fd)
    }

    fn names(&self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 8192];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        names
    }
}

#[tokio::test]
async fn a_change_is_on_record_before_it_is_made() {
    let home = Home::new(true);
    let discovered = home.discover().await;
    let events = Events::of([discovered.path(), home.0.path()]);
    let signing = "ssh=ssh-ed25519 AAAA".parse().unwrap();
    let git = Git::at(home.at(".gitconfig"), signing);
    let Ok(started) = start(&Settings::default(), Some(&git), discovered).await else { panic!() };
    let names = events.names();
    let lock = ".keybridge-lock";
    for name in [
        ".keybridge-new-config",
        ".keybridge-new-.keybridge-ssh-keygen",
        ".keybridge-new-.keybridge-git.pub",
        ".keybridge-new-.keybridge-git",
        ".keybridge-new-.gitconfig",
        "agent.sock",
    ] {
        let first = names.iter().position(|event| event == name);
        let first = first.unwrap_or_else(|| panic!("{name} in {names:?}"));
        assert_eq!(names[first - 1], lock, "before {name} in {names:?}");
    }
    started.lane.undo().await.unwrap();
    assert!(!home.at(".ssh/.keybridge-lock").exists());
}

#[tokio::test]
async fn what_the_user_changed_meanwhile_stays() {
    let home = Home::new(true);
    helper_killed_after(&home, usize::MAX).await;
    let precious = home.at("precious");
    std::fs::write(&precious, "precious").unwrap();
    // One file is gone, one is a link now, the socket is a file, and a line was added.
    std::fs::remove_file(home.at(".ssh/.keybridge-ssh-keygen")).unwrap();
    std::fs::remove_file(home.at(".ssh/.keybridge-git")).unwrap();
    symlink(&precious, home.at(".ssh/.keybridge-git")).unwrap();
    std::fs::remove_file(home.at(".ssh/agent.sock")).unwrap();
    std::fs::write(home.at(".ssh/agent.sock"), "mine").unwrap();
    let config = std::fs::read_to_string(home.at(".ssh/config")).unwrap() + "Host c\n";
    std::fs::write(home.at(".ssh/config"), config).unwrap();
    home.undo().await;
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(home.at(".ssh/agent.sock")).unwrap(), "mine");
    let config = std::fs::read_to_string(home.at(".ssh/config")).unwrap();
    assert_eq!(config, format!("{CONFIG}\nHost c\n"));
    assert!(!home.at(".ssh/.keybridge-git").is_symlink());
}

#[tokio::test]
async fn a_file_in_a_folder_that_others_can_write_to_stays() {
    let home = Home::new(true);
    let (folder, file) = (home.at(".ssh"), home.at(".ssh/.keybridge-git"));
    // And what a kill has left of a newer one.
    let newer = home.at(".ssh/.keybridge-new-.keybridge-git");
    for file in [&file, &newer] {
        std::fs::write(file, "").unwrap();
    }
    let discovered = home.discover().await;
    let footprint = footprint(&discovered).await;
    footprint.record(Change::CreatedFile(file.clone())).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    let context = UndoContext { discovered: &discovered, bound: &[] };
    let error = footprint.undo_all(&context).await.unwrap_err();
    assert!(error.to_string().contains("can be written by others"), "{error}");
    assert!(file.exists() && newer.exists());
    // It stays on record for another time.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    drop(footprint);
    home.undo().await;
    assert!(folder.exists() && !file.exists() && !newer.exists());
    assert!(!home.at(".ssh/.keybridge-lock").exists());
}

/// A folder can be somebody else's work: a repository, an archive.
#[tokio::test]
async fn a_lock_file_that_came_with_the_folder_removes_nothing_of_the_users() {
    let home = Home::new(true);
    let names = ["precious", ".ssh/id_ed25519", "folder/.keybridge-git", ".ssh/x/.keybridge-git"];
    let mut text = "1\n".to_owned();
    for name in names {
        std::fs::create_dir_all(home.at(name).parent().unwrap()).unwrap();
        std::fs::write(home.at(name), "precious").unwrap();
        let path = home.at(name);
        let other_way = home.at(".ssh/../").join(name);
        for change in [
            json!({ "created-file": path }),
            json!({ "bound-socket": path }),
            json!({ "edited-file": { "path": path, "lines": "precious" } }),
            json!({ "created-file": other_way }),
        ] {
            writeln!(text, "{change}").unwrap();
        }
    }
    let before = home.content();
    let lock = LaneLock::path_in(&home.at(".ssh"));
    std::fs::write(&lock, &text).unwrap();
    home.undo().await;
    assert_eq!(home.content(), before);
    std::fs::write(&lock, &text).unwrap();
    let started = start(&Settings::default(), None, home.discover().await).await;
    started.unwrap_or_else(|error| panic!("{error}")).lane.undo().await.unwrap();
    assert_eq!(home.content(), before);
}

#[tokio::test]
async fn a_record_that_came_with_a_gnupg_home_unmasks_no_unit() {
    let user = keybridge_lab::short_folder("kbf");
    let at = |name: &str| user.path().join(name);
    let mask = at(".config/systemd/user/mine.socket");
    // Each on its own: a test beside this one may bind a socket, with a umask that is the whole process's.
    for name in [".config", ".config/systemd", ".config/systemd/user"] {
        keybridge_lab::make_private(&at(name));
    }
    symlink("/dev/null", &mask).unwrap();
    // In the user's own home it is a helper's.
    for (name, stays) in [("cloned", true), (".gnupg", false)] {
        let gnupg_home = at(name);
        keybridge_lab::make_private(&gnupg_home);
        let lock = LaneLock::path_in(&gnupg_home);
        std::fs::write(&lock, "1\n{\"masked-unit\":[\"mine.socket\",\"inactive\"]}\n").unwrap();
        let home = Some(user.path().to_owned());
        let gnupg_home = Some(gnupg_home.into());
        let environment = Environment { gnupg_home, home, ..Environment::default() };
        let lane = keybridge_proto::Lane::Gpg;
        let discovered = DiscoveredLane::find(lane, &environment, None).await.unwrap();
        assert_eq!(undo(&discovered, None).await.unwrap(), UndoOutcome::Clean);
        assert_eq!(mask.is_symlink(), stays, "{name}");
        assert!(!lock.exists());
    }
}
