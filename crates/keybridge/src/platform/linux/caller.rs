//! Who is at the other end of a client's connection.
//!
//! The kernel keeps the pid, uid and gid of the process that opened a connection. A pid can be reused, so
//! by itself it proves nothing about the process that has it now. A pidfd of the connection does, since
//! Linux 6.5: as long as it leads to a process, nobody else has that pid. So `/proc/PID` is opened first,
//! then the pidfd is looked at, and then everything is read through the folder that was opened. The kernel
//! ties that folder to its process, not to the number.
//!
//! The process that opened a connection can pass it on to another one, as with any descriptor.

mod cgroup;
mod process;

use std::os::fd::OwnedFd;

use keybridge_link::ClientStream;
use keybridge_proto::gate::{Caller, MOST_PARENTS, Place, Program, Source};
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::sys::socket::{UnixCredentials, getsockopt};
use rustix::io::Errno;

use crate::{Error, Result};
use cgroup::{Cgroups, Scope};
use process::{Namespace, Process, pid_of};

/// How far up a process of the target is searched. Between it and a client in a container of its own are
/// the programs of an engine.
const MOST_ANCESTORS: usize = 16;

/// The end of a connection that isn't ours, as the kernel knows it. Quick to get.
#[derive(Debug)]
pub(crate) struct Peer {
    credentials: UnixCredentials,
    /// None before Linux 6.5, and for a process that is gone.
    pidfd: Option<OwnedFd>,
}

/// What tells the processes of a target from others.
#[derive(Debug)]
pub(crate) struct TargetProcesses {
    /// Where containers begin for this process, which may be in one itself.
    own: Option<Scope>,
    own_namespace: Option<Namespace>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A container: its cgroup and its pid namespace, as far as they are known.
    Container { scope: Option<Scope>, namespace: Option<Namespace> },
    /// This machine, without the containers on it.
    Machine,
}

/// A caller's process, to read what may take long.
#[derive(Debug)]
pub(crate) struct CallerProcess(Process);

impl Peer {
    /// The peer of a connected Unix socket.
    pub(crate) fn of(socket: &ClientStream) -> Result<Self> {
        let credentials = getsockopt(socket, PeerCredentials)
            .map_err(|error| Error::failed("can't ask the kernel for a client").caused_by(error))?;
        Ok(Self { credentials, pidfd: getsockopt(socket, PeerPidfd).ok() })
    }

    fn pid(&self) -> Option<u32> {
        // 0 is the number of a process that isn't in our pid namespace.
        u32::try_from(self.credentials.pid()).ok().filter(|&pid| pid != 0)
    }

    /// Opens the peer's process, and tells whether it is certain to be that one.
    fn open(&self) -> (Source, Option<Process>) {
        let process = self.pid().and_then(|pid| Process::open(pid).ok());
        match &self.pidfd {
            Some(pidfd) => {
                let pid = pid_of(pidfd);
                let is_same = pid.is_some() && pid == self.pid();
                (Source::Proven, process.filter(|_| is_same))
            }
            None => (Source::Claimed, process),
        }
    }
}

impl TargetProcesses {
    /// Those of the container in which the helper with this pid runs.
    pub(crate) fn of_container(helper: i32) -> Result<Self> {
        let unreadable = |error: Errno| {
            Error::failed(format!("can't inspect the helper's process {helper}")).caused_by(error)
        };
        let helper = u32::try_from(helper).map_err(|_| unreadable(Errno::INVAL))?;
        let helper = Process::open(helper).map_err(unreadable)?;
        let (own, own_namespace) = own()?;
        let cgroups = helper.cgroups().map_err(unreadable)?;
        let scope = cgroups.container(own.as_ref()).map(|(scope, _)| scope);
        let namespace = helper.pid_namespace().ok();
        Ok(Self { own, own_namespace, target: Target::Container { scope, namespace } })
    }

    /// Those of this machine.
    pub(crate) fn of_this_machine() -> Result<Self> {
        let (own, own_namespace) = own()?;
        Ok(Self { own, own_namespace, target: Target::Machine })
    }

    /// What can be told of a peer without waiting, and its process, if it is still there. A fact that
    /// can't be read is left out.
    pub(crate) fn identify(&self, peer: &Peer) -> (Caller, Option<CallerProcess>) {
        let (source, process) = peer.open();
        let mut caller = Caller {
            source,
            pid: peer.pid(),
            uid: peer.credentials.uid(),
            gid: peer.credentials.gid(),
            container: None,
            place: Place::Unknown,
            program: Program::default(),
        };
        let Some(process) = process else { return (caller, None) };
        if let Ok(cgroups) = process.cgroups() {
            let container = cgroups.container(self.own.as_ref()).map(|(_, id)| id);
            caller.place = self.place(&process, &cgroups, container.is_some());
            caller.container = container;
        }
        caller.program = Program {
            executable: process.executable().ok(),
            arguments: Vec::new(),
            folder: process.working_folder().ok(),
            parents: process.claimed_parents(MOST_PARENTS),
        };
        (caller, Some(CallerProcess(process)))
    }

    fn place(&self, process: &Process, cgroups: &Cgroups, in_container: bool) -> Place {
        // The usual case first, because it needs no more system calls.
        if let Target::Container { scope: Some(scope), .. } = &self.target
            && cgroups.are_in(scope)
        {
            return Place::Target;
        }
        let namespace = process.pid_namespace().ok();
        let is_ours = namespace.is_some() && namespace == self.own_namespace;
        let is_in_target = match &self.target {
            Target::Container { scope: Some(scope), namespace: target } => {
                namespace != *target && is_below(process, target.as_ref(), scope)
            }
            // An engine without rights to cgroups: only the namespace tells.
            Target::Container { scope: None, namespace: target } => {
                !in_container && !is_ours && namespace.is_some() && namespace == *target
            }
            Target::Machine => !in_container && is_ours,
        };
        if is_in_target {
            Place::Target
        } else if in_container {
            Place::OtherContainer
        } else if is_ours {
            Place::Host
        } else {
            Place::Unknown
        }
    }
}

impl CallerProcess {
    /// Reads the command line. This may block for as long as the process likes, because the line is in
    /// the process's own memory.
    pub(crate) fn command_line(&self) -> Option<Vec<u8>> {
        self.0.command_line().ok()
    }
}

/// Whether a process is in a pid namespace below the target's, in another cgroup: in a container that
/// somebody in the target has started. The parent of a process is in the same namespace or above it, so a
/// process of the target among the ancestors shows it.
fn is_below(process: &Process, target: Option<&Namespace>, scope: &Scope) -> bool {
    let is_of_target = |above: &Process| {
        above.pid_namespace().is_ok_and(|namespace| Some(&namespace) == target)
            && above.cgroups().is_ok_and(|cgroups| cgroups.are_in(scope))
    };
    let ancestors = std::iter::successors(process.parent(), Process::parent);
    ancestors.take(MOST_ANCESTORS).any(|above| is_of_target(&above))
}

/// The container that this process is in, if it is in one, and its pid namespace.
fn own() -> Result<(Option<Scope>, Option<Namespace>)> {
    let unreadable =
        |error: Errno| Error::failed("can't inspect this process in /proc").caused_by(error);
    let this = Process::open(std::process::id()).map_err(unreadable)?;
    let scope = this.cgroups().map_err(unreadable)?.container(None).map(|(scope, _)| scope);
    Ok((scope, this.pid_namespace().ok()))
}
