//! Finds the direct path of a bridge in the kernel's list of sockets, and cuts it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::Shutdown;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Cuts the one connection between the process of a bridge and that of its helper.
#[track_caller]
pub fn cut_direct_path(bridge: u32, helper: u32) {
    // Several descriptors can be of one connection.
    let inode = |socket: &OwnedFd| rustix::fs::fstat(socket).unwrap().st_ino;
    let mut found = connections(bridge, helper);
    found.sort_by_key(inode);
    found.dedup_by_key(|socket| inode(socket));
    let [socket] = found.as_slice() else { panic!("{} connections to the helper", found.len()) };
    rustix::net::shutdown(socket, Shutdown::Both).unwrap();
}

/// The ends of the connections of a process to another one.
fn connections(from: u32, to: u32) -> Vec<OwnedFd> {
    let from = i32::try_from(from).unwrap();
    let process = pidfd_open(Pid::from_raw(from).unwrap(), PidfdFlags::empty()).unwrap();
    let numbers = std::fs::read_dir(format!("/proc/{from}/fd")).unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let copy = |number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok();
    let leads_there = |socket: &OwnedFd| {
        let peer = rustix::net::sockopt::socket_peercred(socket.as_fd());
        peer.is_ok_and(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(to))
    };
    numbers.filter_map(copy).filter(leads_there).collect()
}
