//! The kernel's news of the network.

use std::io;
use std::os::fd::OwnedFd;

use keybridge_link::register;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Changes of IPv4 and IPv6 addresses and routes (`RTMGRP_…` of rtnetlink).
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;

/// Changes of the host's addresses, routes and clock.
#[derive(Debug)]
pub(crate) struct NetworkChanges {
    network: AsyncFd<OwnedFd>,
    clock: AsyncFd<OwnedFd>,
}

impl NetworkChanges {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            network: register(network()?, Interest::READABLE)?,
            clock: register(clock()?, Interest::READABLE)?,
        })
    }

    /// Waits for a change.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        tokio::select! {
            ready = self.network.readable() => ready?.clear_ready(),
            ready = self.clock.readable() => ready?.clear_ready(),
        }
        Ok(())
    }

    /// Drops the changes that have come meanwhile.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        drain_network(self.network.get_ref());
        drain_clock(self.clock.get_ref())
    }
}

fn network() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket)
}

/// What has changed doesn't matter, nor whether some of it was lost.
fn drain_network(network: &OwnedFd) {
    let mut message = [0; 4096];
    while recv(network, &mut message[..], RecvFlags::DONTWAIT).is_ok() {}
}

/// A timer that is cancelled when the clock is set, which happens when a machine wakes up too.
fn clock() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
    wind(&timer)?;
    Ok(timer)
}

fn wind(timer: &OwnedFd) -> io::Result<()> {
    let never = Timespec { tv_sec: i64::from(i32::MAX), tv_nsec: 0 };
    let off = Timespec { tv_sec: 0, tv_nsec: 0 };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(timer, flags, &Itimerspec { it_interval: off, it_value: never })?;
    Ok(())
}

fn drain_clock(timer: &OwnedFd) -> io::Result<()> {
    match rustix::io::read(timer, &mut [0; 8]) {
        Err(rustix::io::Errno::CANCELED) => wind(timer),
        Ok(_) | Err(_) => Ok(()),
    }
}
