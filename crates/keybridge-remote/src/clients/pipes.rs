//! Entries of git that come by a pipe, since their sandbox forbids sockets. Each slot serves one at a time.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::git::{Answer, Pieces, in_pieces};
use rustix::fs::{FlockOperation, OFlags, flock};
use tokio::io::Interest;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::git::forward;
use super::session::SessionContext;
use crate::StopSignal;
use crate::error::Error;
use crate::lanes::pipe_folder::{PipeFolder, SLOTS, answer_name, request_name};

/// How often to look whether a slot is held by an entry that asks nothing, and whether its pipes are there.
const LOOK_INTERVAL: Duration = Duration::from_secs(20);

/// How long one may hold a slot and ask nothing. It has its request when it takes the slot.
const HELD_TIME: Duration = Duration::from_mins(1);

/// How long an entry may take to read its answer.
const LINGER: Duration = Duration::from_secs(2);

/// How much is read at a time.
const PIECE: usize = 4096;

/// The slots of a lane.
#[derive(Debug)]
pub(crate) struct Pipes(Vec<Slot>);

impl Pipes {
    /// Makes all pipes anew, in a folder that is made if it isn't there.
    pub(crate) fn make(folder: &Path) -> Result<Self, Error> {
        (0..SLOTS).map(|number| Slot::make(folder, number)).collect::<Result<_, _>>().map(Self)
    }

    /// Serves the slots until the lane stops.
    pub(crate) async fn serve(self, context: SessionContext, stop: StopSignal) {
        let mut slots = JoinSet::new();
        for mut slot in self.0 {
            let (context, stop) = (context.clone(), stop.clone());
            slots.spawn_local(async move {
                tokio::select! {
                    never = slot.serve(&context) => match never {},
                    () = stop.wait() => {}
                }
            });
        }
        while slots.join_next().await.is_some() {}
    }
}

/// Two pipes, and the request that comes by them.
#[derive(Debug)]
struct Slot {
    /// Where the pipes are. Somebody may clean there.
    folder: PathBuf,
    number: usize,
    /// Opened for reading alone, so that it shows when the entry goes.
    requests: Receiver,
    /// Opened for both, so that the entry sees when we go.
    answers: Sender,
    pieces: Pieces,
    /// Since when somebody has been seen who may hold it, without a whole request.
    held_since: Option<Instant>,
    next_look: Instant,
}

/// What shows at the pipe of the requests.
enum Arrival {
    Bytes,
    /// Nobody has it open any more.
    Gone,
    /// Nobody has, and its name leads elsewhere.
    Lost,
}

impl Slot {
    fn make(path: &Path, number: usize) -> Result<Self, Error> {
        let folder = PipeFolder::make(path)?;
        let make = || {
            let answers = folder.make_pipe(&answer_name(number), OFlags::RDWR)?;
            // Last: entries begin with this one.
            let requests = folder.make_pipe(&request_name(number), OFlags::RDONLY)?;
            Ok((Receiver::from_owned_fd(requests)?, Sender::from_owned_fd(answers)?))
        };
        let (requests, answers) =
            make().map_err(|error| Error::io("make pipes in", path, error))?;
        Ok(Self {
            folder: path.to_owned(),
            number,
            requests,
            answers,
            pieces: Pieces::default(),
            held_since: None,
            next_look: Instant::now() + LOOK_INTERVAL,
        })
    }

    /// Serves one entry after the other.
    async fn serve(&mut self, context: &SessionContext) -> Infallible {
        loop {
            let (request, frame) = self.next_request().await;
            if let Err(error) = self.answer(request, &frame, context).await {
                tracing::warn!(%error, slot = self.number, "can't serve a pipe");
                self.remake().await;
            }
        }
    }

    /// The next request. A slot that is of no use any more gets new pipes.
    async fn next_request(&mut self) -> (u64, Vec<u8>) {
        loop {
            match self.try_next_request().await {
                Ok(Some(request)) => return request,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, slot = self.number, "can't serve a pipe"),
            }
            self.remake().await;
        }
    }

    /// Makes the pipes anew, also where that fails for a while.
    async fn remake(&mut self) {
        let mut has_failed = false;
        loop {
            match Self::make(&self.folder, self.number) {
                Ok(slot) => {
                    tracing::debug!(slot = self.number, "a slot is made anew");
                    *self = slot;
                    return;
                }
                Err(error) if std::mem::replace(&mut has_failed, true) => {
                    tracing::debug!(%error, slot = self.number, "a slot is still not there");
                }
                Err(error) => {
                    tracing::warn!(%error, slot = self.number, "can't make a slot anew yet");
                }
            }
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// The next request; nothing if the slot is of no use any more.
    async fn try_next_request(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            match self.pieces.next_frame() {
                Ok(None) => {}
                Ok(request) => {
                    self.held_since = None;
                    return Ok(request);
                }
                Err(error) => {
                    tracing::debug!(%error, slot = self.number, "a bad request by a pipe");
                    return Ok(None);
                }
            }
            let look = self.next_look;
            tokio::select! {
                arrival = self.arrival() => match arrival? {
                    // Its time goes on, however many bytes come.
                    Arrival::Bytes => drop(self.held_since.get_or_insert_with(Instant::now)),
                    Arrival::Gone => self.held_since = None,
                    Arrival::Lost => return Ok(None),
                },
                () = sleep_until(look) => {
                    self.next_look = Instant::now() + LOOK_INTERVAL;
                    if self.is_blocked() || !self.is_in_place() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Has a request answered, unless its entry goes meanwhile.
    async fn answer(
        &mut self,
        request: u64,
        frame: &[u8],
        context: &SessionContext,
    ) -> io::Result<()> {
        let answer = async {
            let Some(permit) = context.session_limit.acquire() else {
                return Answer::Busy.encode().unwrap_or_default();
            };
            let answer = forward(frame, context).await;
            drop(permit);
            answer
                .inspect_err(|error| tracing::debug!(%error, "a request by a pipe has no answer"))
                .unwrap_or_default()
        };
        let answer = tokio::select! {
            answer = answer => answer,
            arrival = self.arrival() => match arrival? {
                Arrival::Gone | Arrival::Lost => return Ok(()),
                // An entry asks once. This is another one, or the first one is no entry.
                Arrival::Bytes => Vec::new(),
            },
        };
        let sending = async {
            for piece in in_pieces(request, &answer) {
                write_whole(&self.answers, &piece).await?;
            }
            Ok(())
        };
        // What one has left that has gone is thrown away by the next one.
        timeout(LINGER, sending).await.unwrap_or(Ok(()))
    }

    /// Waits for bytes, or for the end of the entry.
    async fn arrival(&mut self) -> io::Result<Arrival> {
        let mut piece = [0; PIECE];
        loop {
            let ready = self.requests.ready(Interest::READABLE).await?;
            match self.requests.try_read(&mut piece) {
                Ok(0) => {
                    // A pipe without a writer stays at its end. It is never without a reader.
                    let Ok(requests) = self.reopen() else { return Ok(Arrival::Lost) };
                    self.requests = requests;
                    self.pieces = Pieces::default();
                    return Ok(Arrival::Gone);
                }
                Ok(count) => {
                    self.pieces.add(piece.get(..count).unwrap_or_default());
                    return Ok(Arrival::Bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // tokio keeps for good that one entry has gone, also when another one has come: it would be
                    // ready, and empty, for ever.
                    if ready.is_read_closed() {
                        let same = self.requests.as_fd().try_clone_to_owned()?;
                        self.requests = Receiver::from_owned_fd(same)?;
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens the pipe of the requests again, if it is still the same.
    fn reopen(&self) -> io::Result<Receiver> {
        let (folder, name) = (PipeFolder::open(&self.folder)?, request_name(self.number));
        let requests = folder.open_pipe(&name, OFlags::RDONLY)?;
        if !folder.leads_to(&name, &self.requests) || !folder.leads_to(&name, &requests) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Receiver::from_owned_fd(requests)
    }

    /// Whether the names of the pipes lead to them: somebody may have cleaned there.
    fn is_in_place(&self) -> bool {
        PipeFolder::open(&self.folder).is_ok_and(|folder| {
            folder.leads_to(&request_name(self.number), &self.requests)
                && folder.leads_to(&answer_name(self.number), &self.answers)
        })
    }

    /// Whether somebody has held the slot for too long.
    fn is_blocked(&mut self) -> bool {
        if flock(&self.requests, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Fails for nothing that matters: the lock goes with the descriptor.
            let _ = flock(&self.requests, FlockOperation::Unlock);
            self.held_since = None;
            return false;
        }
        let now = Instant::now();
        now.duration_since(*self.held_since.get_or_insert(now)) >= HELD_TIME
    }
}

/// Writes a piece, which the pipe takes as a whole or not at all.
async fn write_whole(pipe: &Sender, piece: &[u8]) -> io::Result<()> {
    loop {
        pipe.writable().await?;
        match pipe.try_write(piece) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use tempfile::TempDir;

    use super::*;
    use crate::lanes::pipe_folder::path_in;

    /// Long enough for whatever is to happen, by the clock of the test.
    const LONG: Duration = Duration::from_hours(1);

    /// What a whole frame begins with: the piece goes on.
    const HALF: &[u8] = &[0x0f, 0];

    fn slot() -> (TempDir, Slot) {
        let home = tempfile::tempdir().unwrap();
        let slot = Slot::make(&path_in(home.path()), 0).unwrap();
        (home, slot)
    }

    /// Opens the pipe of the requests as an entry does, and takes the slot.
    fn hold(home: &TempDir) -> OwnedFd {
        let folder = PipeFolder::open(&path_in(home.path())).unwrap();
        let held = folder.open_pipe(&request_name(0), OFlags::WRONLY).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        held
    }

    fn send(pipe: &OwnedFd, request: u64) {
        rustix::io::write(pipe, &in_pieces(request, b"").concat()).unwrap();
    }

    #[test]
    fn an_entry_that_comes_just_as_another_one_goes_keeps_nobody_from_the_thread() {
        let (told, ended) = std::sync::mpsc::channel();
        // Nothing could end what never yields.
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            let request = runtime.block_on(async {
                let (home, mut slot) = slot();
                drop(hold(&home));
                slot.requests.readable().await.unwrap();
                let held = hold(&home);
                let entry = async {
                    sleep(LOOK_INTERVAL / 2).await;
                    send(&held, 3);
                };
                tokio::join!(slot.try_next_request(), entry).0.unwrap()
            });
            told.send(request)
        });
        assert_eq!(ended.recv_timeout(Duration::from_mins(1)), Ok(Some((3, Vec::new()))));
    }

    async fn is_made_anew(slot: &mut Slot) {
        let ended = timeout(LONG, slot.try_next_request()).await;
        assert_eq!(ended.expect("the slot is of no use").unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_is_held_without_a_request_gets_new_pipes() {
        let (home, mut slot) = slot();
        let free = timeout(4 * HELD_TIME, slot.try_next_request()).await;
        assert!(free.is_err(), "{free:?}");
        let _held = hold(&home);
        let start = Instant::now();
        is_made_anew(&mut slot).await;
        assert!(start.elapsed() >= HELD_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_whose_request_never_ends_gets_new_pipes() {
        let (home, mut slot) = slot();
        let held = hold(&home);
        let writing = async {
            rustix::io::write(&held, HALF).unwrap();
            loop {
                sleep(LOOK_INTERVAL / 2).await;
                rustix::io::write(&held, b"x").unwrap();
            }
        };
        tokio::select! {
            () = is_made_anew(&mut slot) => {}
            () = writing => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_whose_request_is_served_is_not_taken_for_a_blocked_one() {
        let (home, mut slot) = slot();
        let held = hold(&home);
        let entry = async {
            sleep(HELD_TIME / 2).await;
            send(&held, 3);
        };
        let (request, ()) = tokio::join!(slot.try_next_request(), entry);
        assert_eq!(request.unwrap(), Some((3, Vec::new())));
        assert!(slot.held_since.is_none());
    }

    /// Whether the slot serves an entry that comes after a while.
    async fn serves_again(home: &TempDir, slot: &mut Slot) {
        let entry = async {
            sleep(3 * LOOK_INTERVAL).await;
            send(&hold(home), 7);
        };
        let (request, ()) = tokio::join!(timeout(LONG, slot.next_request()), entry);
        assert_eq!(request.expect("the slot serves"), (7, Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_whose_pipes_somebody_takes_away_serves_again() {
        let (home, mut slot) = slot();
        let folder = path_in(home.path());
        let at = |name: String| folder.join(name);
        std::fs::write(home.path().join("own"), "the user's").unwrap();
        std::fs::remove_file(at(request_name(0))).unwrap();
        serves_again(&home, &mut slot).await;
        std::fs::remove_file(at(answer_name(0))).unwrap();
        std::os::unix::fs::symlink(home.path().join("own"), at(answer_name(0))).unwrap();
        serves_again(&home, &mut slot).await;
        std::fs::remove_dir_all(&folder).unwrap();
        serves_again(&home, &mut slot).await;
        // Somebody has it open meanwhile, and goes.
        let held = hold(&home);
        std::fs::remove_file(at(request_name(0))).unwrap();
        std::fs::write(at(request_name(0)), "a file").unwrap();
        drop(held);
        serves_again(&home, &mut slot).await;
        assert_eq!(std::fs::read(home.path().join("own")).unwrap(), b"the user's");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_cannot_be_made_anew_is_made_when_it_can() {
        let (home, mut slot) = slot();
        let folder = path_in(home.path());
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "a file").unwrap();
        let waiting = timeout(LONG, slot.next_request()).await;
        assert!(waiting.is_err(), "{waiting:?}");
        std::fs::remove_file(&folder).unwrap();
        serves_again(&home, &mut slot).await;
    }
}
