//! Many connections at once, on one thread: what is measured is the way to the agent, not a
//! scheduler that has a client thread for each of them.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::connection::Connection;
use super::nanos_since;
use crate::error::{Error, Result};
use crate::lane::Lane;

/// Nothing for so long is a hang.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// How long the commands take, in nanoseconds, from the first request to the last answer; each
/// member has one under way. Connecting is not counted.
pub(super) fn run(socket: &Path, lane: Lane, clients: usize, commands: usize) -> Result<u64> {
    let mut crowd = Crowd::gather(socket, lane, clients)?;
    let start = Instant::now();
    for member in &mut crowd.members {
        member.stream.write_all(&crowd.request)?;
    }
    let commands = commands.max(clients);
    crowd.exchange(commands, commands - clients)?;
    Ok(nanos_since(start))
}

struct Crowd {
    lane: Lane,
    request: Vec<u8>,
    members: Vec<Member>,
    epoll: OwnedFd,
}

struct Member {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Crowd {
    fn gather(socket: &Path, lane: Lane, clients: usize) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut members = Vec::with_capacity(clients);
        for number in 0..clients {
            // Each waits for its greeting: ssh drops those that an agent doesn't accept at once.
            let stream = Connection::open(socket, lane)?.into_stream();
            stream.set_nonblocking(true)?;
            let number = epoll::EventData::new_u64(u64::try_from(number).unwrap_or(u64::MAX));
            epoll::add(&epoll, &stream, number, epoll::EventFlags::IN)?;
            members.push(Member { stream, read: Vec::new() });
        }
        Ok(Self { lane, request: lane.small_request(), members, epoll })
    }

    /// Reads so many answers. Whoever got one sends the next request, as long as there are any to
    /// send.
    fn exchange(&mut self, answers: usize, mut to_send: usize) -> Result<()> {
        let mut events = Vec::with_capacity(self.members.len());
        let mut came = 0;
        while came < answers {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&PATIENCE))?;
            if events.is_empty() {
                return Err(Error::new(format!("{came} of {answers} answers, and no more")));
            }
            for event in &events {
                let number = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                let Some(member) = self.members.get_mut(number) else { continue };
                for answer in member.answers(self.lane)? {
                    if !self.lane.is_good(&answer) {
                        return Err(Error::new("a bad answer in the crowd"));
                    }
                    came += 1;
                    if to_send > 0 {
                        to_send -= 1;
                        member.stream.write_all(&self.request)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Member {
    /// The whole answers that are there.
    fn answers(&mut self, lane: Lane) -> Result<Vec<Vec<u8>>> {
        let mut room = [0; 4096];
        match self.stream.read(&mut room) {
            Ok(0) => return Err(Error::new("a connection of the crowd was closed")),
            Ok(count) => self.read.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        let mut answers = Vec::new();
        while let Some(end) = lane.whole_answer(&self.read) {
            answers.push(self.read.drain(..end).collect());
        }
        Ok(answers)
    }
}
