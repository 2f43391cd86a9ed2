//! Changes of the network, found by looking: where the kernel's own news need calls that aren't safe.
//!
//! A change is seen some seconds late. One that keeps the addresses, as a change of the Wi-Fi network
//! can, isn't seen: such a link is lost by its silence.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;

/// Seldom enough for a battery, and often enough for a person who waits.
const PERIOD: Duration = Duration::from_secs(5);

/// By how much the clock may differ from the elapsed time. It is corrected by less than this all the time.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// Changes of the host's addresses and clock.
#[derive(Debug)]
pub(crate) struct NetworkChanges {
    seen: Reading,
}

impl NetworkChanges {
    /// Begins to look.
    #[expect(clippy::unnecessary_wraps, reason = "as on other systems")]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { seen: Reading::now() })
    }

    /// Waits for a change.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        loop {
            sleep(PERIOD).await;
            let now = Reading::now();
            let is_changed = now.differs_from(&self.seen);
            self.seen = now;
            if is_changed {
                return Ok(());
            }
        }
    }

    /// Drops the changes that have come meanwhile.
    #[expect(clippy::unnecessary_wraps, reason = "as on other systems")]
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        self.seen = Reading::now();
        Ok(())
    }
}

/// What is looked at.
#[derive(Debug, Clone)]
struct Reading {
    clock: SystemTime,
    /// It stands still while the machine sleeps, and the clock doesn't.
    elapsed: Instant,
    /// The addresses that packets to the Internet would have, for both versions of IP.
    addresses: [Option<IpAddr>; 2],
}

impl Reading {
    fn now() -> Self {
        // Addresses that are for documentation.
        let far = [
            Ipv4Addr::new(192, 0, 2, 1).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        ];
        Self { clock: SystemTime::now(), elapsed: Instant::now(), addresses: far.map(own_address) }
    }

    fn differs_from(&self, earlier: &Self) -> bool {
        let elapsed = self.elapsed.saturating_duration_since(earlier.elapsed);
        let is_set = self
            .clock
            .duration_since(earlier.clock)
            .map_or(true, |by_clock| by_clock.abs_diff(elapsed) > CLOCK_TOLERANCE);
        is_set || self.addresses != earlier.addresses
    }
}

/// The address of the host for packets to another one. Nothing is sent.
fn own_address(far: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match far {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_clock_that_jumps_are_changes_and_time_that_passes_is_none() {
        let before = Reading::now();
        let later = |clock: u64, elapsed: u64| Reading {
            clock: before.clock + Duration::from_secs(clock),
            elapsed: before.elapsed + Duration::from_secs(elapsed),
            ..before.clone()
        };
        assert!(!later(5, 5).differs_from(&before));
        assert!(!later(6, 5).differs_from(&before), "a clock that is corrected");
        assert!(later(600, 5).differs_from(&before), "a machine that slept");
        assert!(before.differs_from(&later(600, 0)), "a clock that was set back");
        let [v4, _] = before.addresses;
        let moved = Reading { addresses: [v4, Some(Ipv6Addr::LOCALHOST.into())], ..later(5, 5) };
        assert!(moved.differs_from(&before));
    }

    #[test]
    fn the_own_address_is_that_of_the_route() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(own_address(here), Some(here));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_that_stays_as_it_is_is_no_news() {
        let mut changes = NetworkChanges::listen().unwrap();
        let waiting = tokio::time::timeout(PERIOD * 3, changes.next());
        waiting.await.expect_err("nothing has changed");
        let elsewhere = [Some(Ipv4Addr::BROADCAST.into()), None];
        changes.seen.addresses = elsewhere;
        changes.drain().unwrap();
        let waiting = tokio::time::timeout(PERIOD * 3, changes.next());
        waiting.await.expect_err("the change was dropped");
        changes.seen.addresses = elsewhere;
        tokio::time::timeout(PERIOD * 3, changes.next()).await.unwrap().unwrap();
    }
}
