//! A newer helper of the same bridge takes the place of an older one.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::lab::{Client, GitHome, Helper, Home, ScriptedAgent, Setup, agreeable, run, until};
use keybridge_lab::{PATIENCE, snapshot};
use keybridge_proto::git::Answer;
use keybridge_proto::report::FailureKind;
use rustix::process::Signal;

const TOKEN: &str = "0123456789abcdef";

const OTHER: &str = "0123456789abcdee";

const NO_AGENT: &str = "ERR 67108941 No agent running <GPG Agent>\n";

/// Longer than any test takes.
const LONG: u64 = 600;

fn of_bridge(home: &Home, agent: &ScriptedAgent) -> Setup {
    Setup::new(home.path(), &agent.path()).of_bridge(TOKEN).outliving(LONG)
}

/// Who has the lock, as its file says.
fn lock_note(home: &Home) -> String {
    let note = std::fs::read_to_string(home.file(".keybridge-lock")).unwrap();
    note.split_inclusive('\n').next().unwrap().to_owned()
}

/// Does something all the time, in a thread of its own, until it is told to stop.
struct Loop<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<T>>,
}

impl<T: Send + 'static> Loop<T> {
    fn start(mut turn: impl FnMut() -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            while !told.load(Ordering::Relaxed) {
                all.push(turn());
                std::thread::sleep(Duration::from_millis(1));
            }
            all
        });
        Self { stop, thread }
    }

    /// Waits for its end; what it waits for may be done by this thread.
    async fn end(self) -> Vec<T> {
        self.stop.store(true, Ordering::Relaxed);
        until("the loop ends", || self.thread.is_finished()).await;
        self.thread.join().unwrap()
    }
}

/// What a client finds: the first word of the greeting, if it comes to that.
fn dial(socket: &Path) -> Result<String, ErrorKind> {
    let stream = UnixStream::connect(socket).map_err(|error| error.kind())?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Ok(_) => Ok(line.split(' ').next().unwrap().trim().to_owned()),
        // The session was ended before its greeting.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(String::new()),
        Err(error) => Err(error.kind()),
    }
}

#[test]
fn nothing_is_undone_between_two_helpers_and_clients_find_the_newer_one() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        let dialling: Vec<_> = (0..3)
            .map(|_| {
                let socket = home.socket();
                Loop::start(move || dial(&socket))
            })
            .collect();
        let conf = std::fs::read(home.file("gpg.conf")).unwrap();
        let (path, lock) = (home.file("gpg.conf"), home.file(".keybridge-lock"));
        let looking = Loop::start(move || (std::fs::read(&path).unwrap(), lock.exists()));
        for round in 0..6 {
            // Its link is down in every second round, and it believes that it is up in the others.
            if round % 2 == 0 {
                older.cut();
                Client::turned_away(&home.socket()).await;
            }
            let (newer, _) = of_bridge(&home, &agent).ready().await;
            assert!(older.child.wait().await.unwrap().success());
            assert_eq!(lock_note(&home), format!("{} {TOKEN}\n", newer.pid()));
            Client::greeted(&home.socket()).await;
            older = newer;
        }
        let mut greeted = 0;
        for dialling in dialling {
            for found in dialling.end().await {
                match found.as_deref() {
                    Ok("OK") => greeted += 1,
                    Ok("ERR" | "") | Err(ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {}
                    Ok(_) | Err(_) => panic!("{found:?}"),
                }
            }
        }
        assert!(greeted > 0);
        let looks = looking.end().await;
        assert!(!looks.is_empty() && looks.iter().all(|(text, locked)| *text == conf && *locked));
        assert!(older.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn sessions_of_the_older_one_get_their_error() {
    run(async {
        let home = Home::new();
        let agent = ScriptedAgent::answering(|_| None);
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        let mut waiting = Client::greeted(&home.socket()).await;
        waiting.send("PKSIGN\n").await;
        until("the command is on its way", || older.log().contains("PKSIGN (6 bytes)")).await;
        let (newer, _) = of_bridge(&home, &agent).ready().await;
        assert_eq!(waiting.line().await, NO_AGENT);
        assert_eq!(waiting.line().await, "");
        assert!(older.child.wait().await.unwrap().success());
        assert!(home.file("gpg.conf").exists());
        assert!(newer.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn one_that_is_stopped_is_killed_and_its_place_taken() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        std::fs::write(home.file("gpg.conf"), "# mine").unwrap();
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        older.signal(Signal::STOP);
        let (newer, _) = of_bridge(&home, &agent).ready().await;
        assert_eq!(older.child.wait().await.unwrap().signal(), Some(9));
        Client::greeted(&home.socket()).await;
        assert!(newer.stop().await.success());
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), b"# mine");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    });
}

#[test]
fn helpers_of_other_bridges_are_refused_also_by_one_that_is_stopped() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let plain = || Setup::new(home.path(), &agent.path());
        let (older, _) = of_bridge(&home, &agent).ready().await;
        for (state, setup) in [
            (Signal::CONT, plain().of_bridge(OTHER)),
            (Signal::CONT, plain()),
            (Signal::STOP, plain().of_bridge(OTHER)),
        ] {
            older.signal(state);
            let refused = setup.failure().await;
            assert_eq!(refused.kind, FailureKind::InUse, "{refused:?}");
            assert!(refused.message.contains(&format!("(pid {})", older.pid())), "{refused:?}");
        }
        older.signal(Signal::CONT);
        Client::greeted(&home.socket()).await;
        assert!(older.stop().await.success());

        // Nor does one with a name take the place of one that has none.
        let (older, _) = plain().ready().await;
        let refused = plain().of_bridge(TOKEN).failure().await;
        assert_eq!(refused.kind, FailureKind::InUse, "{refused:?}");
        assert!(older.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_link_that_breaks_right_after_the_older_one_made_way_is_outlived() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        let newer = of_bridge(&home, &agent).spawn().await;
        assert!(older.child.wait().await.unwrap().success());
        newer.cut();
        until("the newer one listens", || UnixStream::connect(home.socket()).is_ok()).await;
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        let (last, _) = of_bridge(&home, &agent).ready().await;
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_newer_one_that_fails_undoes_the_work_of_the_older_one_too() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        std::fs::remove_file(home.file("gpg.conf")).unwrap();
        std::fs::create_dir(home.file("gpg.conf")).unwrap();
        let failure = of_bridge(&home, &agent).failure().await;
        assert_eq!(failure.kind, FailureKind::NotPermitted, "{failure:?}");
        assert!(older.child.wait().await.unwrap().success());
        std::fs::remove_dir(home.file("gpg.conf")).unwrap();
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn of_newer_ones_that_come_at_once_one_is_left() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (older, _) = of_bridge(&home, &agent).ready().await;
        let mut helpers = vec![older];
        for _ in 0..4 {
            let helper = of_bridge(&home, &agent).spawn().await;
            helper.send_keys(b"", b"").await;
            helpers.push(helper);
        }
        let alive = |helpers: &mut Vec<Helper>| {
            helpers.retain_mut(|helper| helper.child.try_wait().unwrap().is_none());
            helpers.len()
        };
        until("one of them is left", || alive(&mut helpers) <= 1).await;
        let mut last = helpers.pop().unwrap();
        last.ready().await;
        assert_eq!(lock_note(&home), format!("{} {TOKEN}\n", last.pid()));
        Client::greeted(&home.socket()).await;
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn what_is_left_by_a_newer_one_that_dies_is_taken_over() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        std::fs::write(home.file("gpg.conf"), "# mine").unwrap();
        for _ in 0..4 {
            let (mut older, _) = of_bridge(&home, &agent).ready().await;
            let newer = of_bridge(&home, &agent).spawn().await;
            assert!(older.child.wait().await.unwrap().success());
            // It may have got anywhere by now.
            newer.kill().await;
        }
        let (last, _) = of_bridge(&home, &agent).ready().await;
        Client::greeted(&home.socket()).await;
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), b"# mine");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    });
}

#[test]
fn one_that_makes_way_does_not_bind_its_socket_again() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        older.signal(Signal::USR1);
        std::fs::remove_file(home.socket()).unwrap();
        assert!(older.child.wait().await.unwrap().success());
        assert!(home.file("gpg.conf").exists());
        // The guard may have been quicker than the signal, but nobody listens.
        assert!(UnixStream::connect(home.socket()).is_err());
        let (last, _) = of_bridge(&home, &agent).ready().await;
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

fn signed(by: &str) -> Answer {
    Answer::Signed { status: String::new(), signature: by.into() }
}

#[test]
fn what_git_reads_and_runs_stays_in_place_for_a_helper_of_the_same_version() {
    run(async {
        let home = GitHome::new();
        let setup = |by| home.helper().of_bridge(TOKEN).outliving(LONG).answering(signed(by));
        // Without those of the bridge itself: its record, its socket, its pipes.
        let files = || {
            let own = ["lock", "git.sock", "pipes"];
            let mut files = snapshot(&home.home());
            files.retain(|path, _| !own.iter().any(|own| path.to_string_lossy().contains(own)));
            files
        };
        let (mut older, _) = setup("older").ready().await;
        let before = files();
        assert!(before.contains_key(&home.file(".keybridge-program")), "{:?}", before.keys());
        for round in 0..2 {
            // Its link is lost in the second round.
            if round == 1 {
                older.cut();
            }
            let (newer, _) = setup("newer").ready().await;
            assert!(older.child.wait().await.unwrap().success());
            assert_eq!(files(), before);
            assert_eq!(home.sign().await.stdout, b"newer");
            older = newer;
        }
        assert!(older.stop().await.success());
        assert_eq!(std::fs::read_dir(home.home()).unwrap().count(), 0);
    });
}

#[test]
fn the_path_of_the_entries_survives_an_upgrade_of_the_helper() {
    run(async {
        let home = GitHome::new();
        let (mut older, _) = home.helper().of_bridge(TOKEN).outliving(LONG).ready().await;
        let waiting = home.entry(".keybridge-gpg", &["-bsau", "KEY"]);
        let waiting = keybridge_lab::output_beside(waiting, b"an object");
        let upgrade = async {
            until("the host is asked", || !older.git_requests().is_empty()).await;
            let program = home.at("newer");
            let content = std::fs::read(crate::lab::program()).unwrap();
            keybridge_lab::write_program(&program, [&content[..], b"newer"].concat());
            let setup = home.helper_of(&program, "gpg=0123456789ABCDEF").of_bridge(TOKEN);
            let (newer, _) = setup.answering(signed("newer")).ready().await;
            assert!(older.child.wait().await.unwrap().success());
            newer
        };
        let (waited, newer) = tokio::join!(waiting, upgrade);
        // What runs goes on to its own end.
        assert_eq!(waited.status.code(), Some(127), "{waited:?}");
        let (entries, program) = (home.file(".keybridge-program"), home.at("newer"));
        assert!(std::fs::read(entries).unwrap() == std::fs::read(program).unwrap());
        assert_eq!(home.sign().await.stdout, b"newer");
        assert!(newer.stop().await.success());
        assert_eq!(std::fs::read_dir(home.home()).unwrap().count(), 0);
    });
}
