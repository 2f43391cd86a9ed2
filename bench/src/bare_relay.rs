//! The least that a relay for many clients can do: one thread that waits, reads, looks at each line and
//! writes. A write blocks until its reader catches up, so only small commands are sent through it.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::error::{Context, Result};

/// What one read takes.
const READ_SIZE: usize = 32 * 1024;

/// How many sockets are looked at after one wait.
const EVENTS: usize = 256;

/// Serves a socket until it is killed.
pub(crate) fn run(socket: &Path, agent: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket).while_doing(socket.display())?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listening = watch(&epoll, &listener)?;
    // From each socket to the one that its bytes go to.
    let mut ways: HashMap<u64, (Rc<UnixStream>, Rc<UnixStream>)> = HashMap::new();
    let (mut events, mut buffer) = (Vec::with_capacity(EVENTS), vec![0; READ_SIZE]);
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let from = event.data.u64();
            if from == listening {
                let (client, _) = listener.accept()?;
                let agent = UnixStream::connect(agent).while_doing(agent.display())?;
                let (client, agent) = (Rc::new(client), Rc::new(agent));
                ways.insert(watch(&epoll, &client)?, (Rc::clone(&client), Rc::clone(&agent)));
                ways.insert(watch(&epoll, &agent)?, (agent, client));
            } else if let Some((source, sink)) = ways.get(&from)
                && !matches!(relay(source, sink, &mut buffer), Ok(true))
            {
                let other = number(sink);
                ways.remove(&from);
                ways.remove(&other);
            }
        }
    }
}

/// Moves what is there; false at the end.
fn relay(mut from: &UnixStream, mut to: &UnixStream, buffer: &mut [u8]) -> io::Result<bool> {
    let count = from.read(buffer)?;
    let bytes = buffer.get(..count).unwrap_or_default();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        black_box(line);
    }
    to.write_all(bytes)?;
    Ok(count > 0)
}

/// Waits for a socket too, under a number.
fn watch(epoll: &OwnedFd, socket: &(impl AsFd + AsRawFd)) -> io::Result<u64> {
    let number = number(socket);
    epoll::add(epoll, socket, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    Ok(number)
}

fn number(socket: &impl AsRawFd) -> u64 {
    u64::try_from(socket.as_raw_fd()).unwrap_or(u64::MAX)
}
