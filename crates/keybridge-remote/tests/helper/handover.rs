//! A newer helper of the same bridge takes the place of an older one.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::lab::{Client, Home, ScriptedAgent, Setup, agreeable, run, until};
use keybridge_lab::PATIENCE;
use keybridge_proto::report::FailureKind;
use rustix::fs::{FlockOperation, flock};
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

/// Whether somebody has the lock.
fn is_locked(path: &Path) -> bool {
    let file = std::fs::File::open(path).unwrap();
    flock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

#[test]
fn no_client_finds_the_door_closed_and_the_lock_is_never_free() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        let inode = std::fs::metadata(home.socket()).unwrap().ino();
        let dialling: Vec<_> = (0..3)
            .map(|_| {
                let socket = home.socket();
                Loop::start(move || dial(&socket))
            })
            .collect();
        let lock: PathBuf = home.file(".keybridge-lock");
        let looking = Loop::start(move || is_locked(&lock));
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
                    Ok("ERR" | "") => {}
                    Ok(_) | Err(_) => panic!("{found:?}"),
                }
            }
        }
        assert!(greeted > 0);
        let looks = looking.end().await;
        assert!(!looks.is_empty() && looks.iter().all(|locked| *locked));
        assert_eq!(std::fs::metadata(home.socket()).unwrap().ino(), inode, "bound anew");
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
        let start = Instant::now();
        let (newer, _) = of_bridge(&home, &agent).ready().await;
        // It is given a second, and a busy machine some more.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
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
        assert!(!home.file(".keybridge-handover").exists());
        let refused = plain().of_bridge(TOKEN).failure().await;
        assert_eq!(refused.kind, FailureKind::InUse, "{refused:?}");
        assert!(older.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_link_that_breaks_right_after_the_hand_over_is_outlived() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        let newer = of_bridge(&home, &agent).spawn().await;
        assert!(older.child.wait().await.unwrap().success());
        newer.cut();
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        let (last, _) = of_bridge(&home, &agent).ready().await;
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_newer_one_that_fails_after_the_hand_over_undoes_the_work_of_both() {
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

/// Asks for the place of a helper by hand, and gives what it says up to here.
fn ask_by_hand(home: &Home, token: &str) -> (UnixStream, Vec<u8>) {
    let mut stream = UnixStream::connect(home.file(".keybridge-handover")).unwrap();
    stream.write_all(format!("TAKE {token}\n").as_bytes()).unwrap();
    let mut answer = vec![0; 4096];
    // Descriptors that come with it are closed by the kernel.
    let count = stream.read(&mut answer).unwrap();
    answer.truncate(count);
    (stream, answer)
}

#[test]
fn one_that_asks_and_goes_leaves_the_older_one_in_its_place() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut older, _) = of_bridge(&home, &agent).ready().await;
        let door = home.file(".keybridge-handover");
        assert_eq!(std::fs::metadata(&door).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(ask_by_hand(&home, OTHER).1, b"NO\0\0");
        let (stream, place) = ask_by_hand(&home, TOKEN);
        let socket = home.socket();
        assert!(place.starts_with(format!("PLACE\0{}\0", socket.display()).as_bytes()));
        drop(stream);
        // One that is as far and says nothing more is not waited for long.
        let (_silent, _) = ask_by_hand(&home, TOKEN);
        until("it is given up", || older.log().contains("stopped answering")).await;
        assert_eq!(lock_note(&home), format!("{} {TOKEN}\n", older.pid()));
        Client::greeted(&socket).await;
        let (newer, _) = of_bridge(&home, &agent).ready().await;
        assert!(older.child.wait().await.unwrap().success());
        newer.kill().await;

        // What is left of a killed one is in nobody's way.
        assert!(door.exists());
        let (last, _) = of_bridge(&home, &agent).ready().await;
        Client::greeted(&socket).await;
        assert!(last.stop().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}
