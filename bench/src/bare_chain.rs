//! The least that can lead from a container to an agent over the engine's exec: one program at each end
//! that waits, reads and writes, for one client. Nothing is multiplexed, checked or counted.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};

use crate::error::{Context, Error, Result};
use crate::subjects::ExecCat;

/// What the engine puts before each piece of output: the stream's number and the length.
const HEAD: usize = 8;

/// The end in the container: a socket, and standard input and output.
pub(crate) fn near_end(socket: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket).while_doing(socket.display())?;
    let (client, _) = listener.accept()?;
    let (stdin, stdout) = (io::stdin(), io::stdout());
    // Without the buffers of the standard library.
    let mut input = std::fs::File::from(stdin.as_fd().try_clone_to_owned()?);
    let output = std::fs::File::from(stdout.as_fd().try_clone_to_owned()?);
    relay((&client, &output), (&mut input, &client), |bytes, mut to| to.write_all(bytes))
}

/// The end on this machine: a command in the container, and the agent.
pub(crate) struct FarEnd {
    pub(crate) container: String,
    pub(crate) program: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) agent: PathBuf,
}

pub(crate) fn far_end(ends: &FarEnd) -> Result<()> {
    let FarEnd { container, program, socket, agent } = ends;
    let (program, socket) = (program.display().to_string(), socket.display().to_string());
    let near_end = [program.as_str(), "near-end", "--listen", &socket];
    let exec = ExecCat::start_command(container, &near_end)?.into_stream();
    let agent = UnixStream::connect(agent).while_doing(agent.display())?;
    let mut come = Vec::new();
    relay((&agent, &exec), (&exec, &agent), |bytes, mut to| {
        come.extend_from_slice(bytes);
        while let Some(&[stream, _, _, _, a, b, c, d]) = come.first_chunk::<HEAD>() {
            let size = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
            let Some(piece) = come.get(HEAD..HEAD + size) else { break };
            if stream == 1 {
                to.write_all(piece)?;
            }
            come.drain(..HEAD + size);
        }
        Ok(())
    })
}

/// Moves bytes both ways, each from the first to the second, until one way ends. What goes the second
/// way is handed over.
fn relay(
    (mut from, mut to): (impl Read + AsFd, impl Write),
    (mut back, client): (impl Read + AsFd, &UnixStream),
    mut hand_over: impl FnMut(&[u8], &UnixStream) -> io::Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let (forth, back_there) = {
            let mut ends = [
                PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(back.as_fd(), PollFlags::IN),
            ];
            poll(&mut ends, None).map_err(io::Error::from)?;
            let [forth, back] = ends.map(|end| !end.revents().is_empty());
            (forth, back)
        };
        if forth {
            let count = from.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            to.write_all(buffer.get(..count).ok_or_else(|| Error::new("a large read"))?)?;
        }
        if back_there {
            let count = back.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            hand_over(buffer.get(..count).unwrap_or_default(), client)?;
        }
    }
}
