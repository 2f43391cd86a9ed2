//! A slot of the helper's pipes, for an entry in a sandbox that forbids sockets.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keybridge_proto::git::{Pieces, in_pieces};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::{Errno, read, write};

use super::PIPES_ELSEWHERE;
use super::road::{NoRoad, invalid};
use crate::lanes::pipe_folder::{self, SLOTS, answer_name, request_name};

/// How long to wait for a slot.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to look for one.
const PAUSE: Duration = Duration::from_millis(25);

/// How much is read at a time.
const PIECE: usize = 4096;

/// A slot that is ours until it is dropped.
#[derive(Debug)]
pub(super) struct PipeSlot {
    /// The lock is on this one.
    requests: OwnedFd,
    answers: OwnedFd,
}

/// Takes a free slot.
pub(super) fn take(folder: &Path) -> Result<PipeSlot, NoRoad> {
    let folder = open_folder(folder).map_err(|error| reason(&error))?;
    let start = Instant::now();
    loop {
        let mut why = NoRoad::NoBridgeForSandbox;
        for slot in 0..SLOTS {
            match PipeSlot::take(&folder, slot) {
                Ok(slot) => return Ok(slot),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => why = NoRoad::Busy,
                Err(error) if why != NoRoad::Busy => why = reason(&error),
                Err(_) => {}
            }
        }
        if why != NoRoad::Busy || start.elapsed() > PATIENCE {
            return Err(why);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The folder of the pipes, open. It is in the folder of the entries, or that names it. Whoever has made the
/// one has to have made the other: it may be where another user can take its place.
fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let owner = std::fs::metadata(folder)?.uid();
    let elsewhere = std::fs::read(folder.join(PIPES_ELSEWHERE));
    let path = match &elsewhere {
        Ok(path) => PathBuf::from(OsStr::from_bytes(path)),
        Err(_) => pipe_folder::path_in(folder),
    };
    pipe_folder::open_of(&path, owner)
}

fn reason(error: &io::Error) -> NoRoad {
    match error.kind() {
        io::ErrorKind::PermissionDenied => NoRoad::Forbidden,
        _ => NoRoad::NoBridgeForSandbox,
    }
}

impl PipeSlot {
    /// Takes a slot, unless another entry has it. Without a helper the first pipe can't be opened.
    fn take(folder: &OwnedFd, slot: usize) -> io::Result<Self> {
        let name = request_name(slot);
        let requests = pipe_folder::open_pipe(folder, &name, OFlags::WRONLY)?;
        flock(&requests, FlockOperation::NonBlockingLockExclusive)?;
        if !pipe_folder::leads_to(folder, &name, &requests) {
            // It was made anew meanwhile.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let answers = pipe_folder::open_pipe(folder, &answer_name(slot), OFlags::RDONLY)?;
        let slot = Self { requests, answers };
        slot.discard_answers()?;
        Ok(slot)
    }

    /// Throws away what was left for an entry that has gone.
    fn discard_answers(&self) -> io::Result<()> {
        let mut piece = [0; PIECE];
        loop {
            match read(&self.answers, &mut piece[..]) {
                Ok(1..) => {}
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a frame, and waits for the one that answers it.
    pub(super) fn ask(&self, frame: &[u8]) -> io::Result<Vec<u8>> {
        let request = u64::from_ne_bytes(keybridge_link::random()?);
        for piece in in_pieces(request, frame) {
            self.write(&piece)?;
        }
        let mut pieces = Pieces::default();
        loop {
            while let Some((answered, frame)) = pieces.next_frame().map_err(invalid)? {
                if answered == request {
                    return Ok(frame);
                }
            }
            self.read(&mut pieces)?;
        }
    }

    /// Writes a piece, which the pipe takes as a whole or not at all.
    fn write(&self, piece: &[u8]) -> io::Result<()> {
        loop {
            match write(&self.requests, piece) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => wait(&mut [PollFd::new(&self.requests, PollFlags::OUT)])?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads a part of the answer. A person may be asked for it, so it has as long as the helper is there.
    fn read(&self, pieces: &mut Pieces) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let mut helper = Helper::Serves;
        loop {
            match (read(&self.answers, &mut piece[..]), helper) {
                (Ok(0), _) | (Err(Errno::AGAIN), Helper::Gone) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                (Ok(count), _) => {
                    pieces.add(piece.get(..count).unwrap_or_default());
                    return Ok(());
                }
                (Err(Errno::AGAIN), Helper::Serves) => {
                    helper = self.wait_for_answer()?;
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    fn wait_for_answer(&self) -> io::Result<Helper> {
        // Others can have the pipe of the answers open, but only the helper reads requests.
        let requests = PollFd::new(&self.requests, PollFlags::empty());
        let mut pipes = [PollFd::new(&self.answers, PollFlags::IN), requests];
        wait(&mut pipes)?;
        let [_, requests] = pipes;
        Ok(if requests.revents().contains(PollFlags::ERR) { Helper::Gone } else { Helper::Serves })
    }
}

/// Waits until a pipe is ready, or its other end is gone.
fn wait(pipes: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(pipes, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the helper still has its ends of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Helper {
    Serves,
    Gone,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use keybridge_lab::{PATIENCE, eventually, set_mode};
    use tempfile::TempDir;

    use super::*;
    use crate::lanes::pipe_folder::PipeFolder;

    /// A folder of entries whose pipes are in another one, and the helper's ends of the first slot.
    struct Scene {
        entries: TempDir,
        place: TempDir,
        requests: OwnedFd,
        answers: OwnedFd,
    }

    fn scene() -> Scene {
        let (entries, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = pipe_folder::path_in(place.path());
        std::fs::write(entries.path().join(PIPES_ELSEWHERE), path.as_os_str().as_bytes()).unwrap();
        let folder = PipeFolder::make(&path).unwrap();
        let requests = folder.make_pipe(&request_name(0), OFlags::RDONLY).unwrap();
        let answers = folder.make_pipe(&answer_name(0), OFlags::RDWR).unwrap();
        Scene { entries, place, requests, answers }
    }

    #[test]
    fn pipes_that_another_user_can_have_made_are_not_taken() {
        let scene = scene();
        let (folder, pipes) = (scene.entries.path(), pipe_folder::path_in(scene.place.path()));
        take(folder).unwrap();
        for mode in [0o777, 0o720, 0o702] {
            set_mode(&pipes, mode);
            assert_eq!(take(folder).unwrap_err(), NoRoad::NoBridgeForSandbox, "{mode:o}");
        }
        set_mode(&pipes, 0o700);
        take(folder).unwrap();
        let owner = rustix::process::geteuid().as_raw();
        assert!(pipe_folder::open_of(&pipes, owner + 1).is_err());
    }

    #[test]
    #[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to give a folder away")]
    fn pipes_of_another_user_are_not_taken() {
        let scene = scene();
        let folder = scene.entries.path();
        keybridge_lab::set_owner(&pipe_folder::path_in(scene.place.path()), 1);
        assert_eq!(take(folder).unwrap_err(), NoRoad::NoBridgeForSandbox);
        // They are those of whoever has the entries.
        keybridge_lab::set_owner(folder, 1);
        take(folder).unwrap();
    }

    #[test]
    fn an_entry_does_not_wait_for_a_helper_that_is_gone() {
        let scene = scene();
        let slot = take(scene.entries.path()).unwrap();
        let pipes = pipe_folder::path_in(scene.place.path());
        // Somebody else has it open.
        let others = std::fs::File::options().write(true).open(pipes.join(answer_name(0))).unwrap();
        let (told, asked) = channel();
        std::thread::spawn(move || told.send(slot.ask(b"a frame")));
        let mut piece = [0; PIECE];
        eventually("the request is there", || read(&scene.requests, &mut piece[..]).is_ok());
        assert!(asked.try_recv().is_err());
        drop((scene.requests, scene.answers));
        let failed = asked.recv_timeout(PATIENCE).expect("the entry ends").unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::UnexpectedEof);
        drop(others);
    }

    #[test]
    fn the_last_words_of_a_helper_are_heard() {
        let scene = scene();
        let slot = take(scene.entries.path()).unwrap();
        let answer = b"\0\0\0\x04last";
        let answering = std::thread::spawn(move || {
            let mut pieces = Pieces::default();
            let mut piece = [0; PIECE];
            eventually("the request is there", || {
                let Ok(count) = read(&scene.requests, &mut piece[..]) else { return false };
                pieces.add(&piece[..count]);
                count > 0
            });
            let (request, _) = pieces.next_frame().unwrap().unwrap();
            let answer = in_pieces(request, answer).concat();
            write(&scene.answers, &answer).unwrap();
        });
        assert_eq!(slot.ask(b"\0\0\0\x04more").unwrap(), answer);
        answering.join().unwrap();
    }
}
