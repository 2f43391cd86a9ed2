//! News of this machine's network: a link that was lost may come back, and one that seems to live may be
//! dead.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use keybridge_link::register;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::debug;

use crate::target::{Following, Presence};

/// Changes of IPv4 and IPv6 addresses and routes (`RTMGRP_…` of rtnetlink).
const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;

/// Changes come in groups: an interface, its addresses, its routes.
const GATHERING: Duration = Duration::from_millis(300);

/// Follows a target that only the network leads to: each change of the network is told as if the target
/// were there again.
pub(super) fn follow() -> Following {
    Following::by(Presence::Running, |told| async move {
        // Without news links are still made again, a little later.
        if let Err(error) = listen(&told).await {
            debug!(%error, "no news of the network");
            told.closed().await;
        }
    })
}

async fn listen(told: &watch::Sender<Presence>) -> io::Result<()> {
    let (network, clock) = (network()?, clock()?);
    let [network, clock] =
        [register(network, Interest::READABLE)?, register(clock, Interest::READABLE)?];
    loop {
        tokio::select! {
            ready = network.readable() => ready?.clear_ready(),
            ready = clock.readable() => ready?.clear_ready(),
        }
        sleep(GATHERING).await;
        drain(network.get_ref());
        drain_clock(clock.get_ref())?;
        told.send_replace(Presence::Running);
    }
}

fn network() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
    Ok(socket)
}

/// What has changed doesn't matter, nor whether some of it was lost.
fn drain(network: &OwnedFd) {
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
