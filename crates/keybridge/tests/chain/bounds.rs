//! Bounds: what bulk data, slow clients and many clients cost, and that others don't notice.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::lab::{
    self, Bridge, Client, Lab, Peer, STAND_IN_VERSION, StandIn, eventually, text, version_answer,
};

const MIB: u64 = 1024 * 1024;

/// What is sent each way.
const BULK: usize = 64 * 1024 * 1024;

/// The longest `D` line: 1000 bytes and its end.
const LINE: usize = 1001;

/// How many round trips have to bring no more, so that nothing will.
const ROUND_TRIPS: usize = 50;

const LIMIT_REACHED: &str = "ERR 67109047 Limit reached <GPG Agent>";

/// A bridge to a stand-in for the agent: a real one doesn't send 64 MiB. It listens in the place of
/// the agent's restricted socket, gives bulk for a `PKSIGN`, and takes it for a `PKDECRYPT`.
struct Bulk {
    bridge: Bridge,
    agent: StandIn,
    /// How many bytes the agent got rid of.
    given: Arc<AtomicUsize>,
    signing: String,
    decrypting: String,
    /// Ends after the others.
    _lab: Lab,
}

impl Bulk {
    fn new() -> Self {
        let lab = Lab::with_key();
        let [signing, decrypting] = lab.host.keygrips().try_into().unwrap();
        let given = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&given);
        let agent = StandIn::at_home(&lab.host, move |line, peer| match line {
            b"PKSIGN" => {
                let line = data_line();
                for _ in 0..BULK.div_ceil(LINE) {
                    peer.write(&line)?;
                    counter.fetch_add(LINE, Ordering::SeqCst);
                }
                peer.write("OK\n")
            }
            b"PKDECRYPT" => take(peer),
            line if line.starts_with(b"SETKEYDESC ") => peer.write("OK\n"),
            _ => peer.write("ERR 67109139 Unknown IPC command <GPG Agent>\n"),
        });
        let bridge = lab.up();
        Self { bridge, agent, given, signing, decrypting, _lab: lab }
    }

    fn client(&self) -> Client {
        Client::greeted(&self.bridge.socket())
    }

    /// A client that has asked for bulk.
    fn taker(&self) -> Client {
        let mut client = self.client();
        assert_eq!(client.ask(format!("SIGKEY {}", self.signing)), "OK\n");
        client.send("PKSIGN\n");
        client
    }

    /// Waits until nobody takes more from the agent, while others are served, and says how much was taken.
    fn stalled(&self) -> usize {
        let mut other = self.client();
        let mut last = 0;
        eventually("the agent stalls", || {
            let before = std::mem::replace(&mut last, self.given.load(Ordering::SeqCst));
            // Each goes through all that would have taken more meanwhile.
            for _ in 0..ROUND_TRIPS {
                assert_eq!(other.ask("GETINFO version"), STAND_IN_VERSION);
            }
            last > 0 && last == before
        });
        last
    }

    /// The descriptors at rest.
    fn descriptors_at_rest(&self) -> usize {
        eventually("every connection to the agent is closed", || self.agent.open() == 0);
        self.bridge.descriptors()
    }

    fn assert_no_session(&self, before: usize) {
        eventually("no session is left", || self.descriptors_at_rest() <= before);
    }
}

fn data_line() -> Vec<u8> {
    let mut line = vec![b'x'; LINE];
    line[..2].copy_from_slice(b"D ");
    line[LINE - 1] = b'\n';
    line
}

/// Asks for data and says how much came.
fn take(peer: &mut Peer) -> std::io::Result<()> {
    peer.write("INQUIRE CIPHERTEXT\n")?;
    let mut taken = 0;
    while let Some(line) = peer.line()? {
        if line == b"END" {
            break;
        }
        taken += line.len() + 1;
    }
    peer.write(format!("D {taken}\nOK\n"))
}

/// The memory at rest, and the most that it grew while something was done.
struct Growth<'a> {
    bridge: &'a Bridge,
    rest: u64,
    most: u64,
}

impl<'a> Growth<'a> {
    fn new(bridge: &'a Bridge) -> Self {
        let rest = bridge.allocated();
        Self { bridge, rest, most: 0 }
    }

    fn look(&mut self) {
        self.most = self.most.max(self.bridge.allocated().saturating_sub(self.rest));
    }

    #[track_caller]
    fn assert_below(mut self, bound: u64) {
        self.look();
        assert!(self.most < bound, "grew by {} KiB", self.most / 1024);
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn bulk_from_the_agent_needs_bounded_memory() {
    let bulk = Bulk::new();
    let mut growth = Growth::new(&bulk.bridge);
    let mut client = bulk.taker();
    let line = data_line();
    let mut came = 0;
    while came < BULK {
        assert!(client.bytes_line() == line, "after {came} bytes");
        came += LINE;
        if came % (LINE * 4096) == 0 {
            growth.look();
        }
    }
    assert_eq!(client.line(), "OK");
    growth.assert_below(4 * MIB);
    drop(client);
    bulk.bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn bulk_to_the_agent_needs_bounded_memory() {
    let bulk = Bulk::new();
    let mut client = bulk.client();
    let mut growth = Growth::new(&bulk.bridge);
    assert_eq!(client.ask(format!("SETKEY {}", bulk.decrypting)), "OK\n");
    assert_eq!(client.ask("PKDECRYPT"), "INQUIRE CIPHERTEXT\n");
    let lines = data_line().repeat(64);
    let mut sent = 0;
    while sent < BULK {
        client.send(&lines);
        sent += lines.len();
        if sent % (lines.len() * 64) == 0 {
            growth.look();
        }
    }
    assert_eq!(client.ask("END"), format!("D {sent}\nOK\n"));
    growth.assert_below(4 * MIB);
    drop(client);
    bulk.bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn a_client_that_never_reads_holds_bounded_memory_and_nobody_up() {
    let bulk = Bulk::new();
    let before = bulk.descriptors_at_rest();
    let growth = Growth::new(&bulk.bridge);
    let deaf = bulk.taker();
    let given = bulk.stalled();
    assert!(given < 4 * 1024 * 1024, "the agent got rid of {given} bytes");
    growth.assert_below(4 * MIB);
    drop(deaf);
    bulk.assert_no_session(before);
    bulk.bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn ten_thousand_clients_one_after_the_other_leave_nothing() {
    let bulk = Bulk::new();
    let socket = bulk.bridge.socket();
    let cycle = |number: u32| match number % 10 {
        // Some stay for the greeting, and some for a question.
        0 => drop(bulk.client()),
        5 => assert_eq!(bulk.client().ask("BYE"), "OK closing connection\n"),
        _ => drop(UnixStream::connect(&socket).unwrap()),
    };
    let before = bulk.descriptors_at_rest();
    // The first ones make room for as many as come at once.
    (0..1000).for_each(cycle);
    bulk.assert_no_session(before);
    let rest = bulk.bridge.allocated();
    (0..10_000).for_each(cycle);
    bulk.assert_no_session(before);
    let grown = bulk.bridge.allocated().saturating_sub(rest);
    assert!(grown < MIB, "grew by {} KiB", grown / 1024);
    assert_eq!(bulk.client().ask("GETINFO version"), STAND_IN_VERSION);
    bulk.bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn past_256_clients_one_is_told_at_once_and_the_others_go_on() {
    let lab = Lab::with_key();
    let bridge = lab.up_with(&["--max-sessions", "256"]);
    let before = bridge.descriptors();
    let mut clients: Vec<_> = (0..300).map(|_| Client::connect(&bridge.socket())).collect();
    let mut refused = 0;
    clients.retain_mut(|client| {
        let line = client.line();
        if line == LIMIT_REACHED {
            assert_eq!(client.rest(), b"");
            refused += 1;
            return false;
        }
        assert!(line.starts_with("OK"), "{line}");
        true
    });
    assert_eq!((clients.len(), refused), (256, 44));
    for client in &mut clients {
        client.send("GETINFO version\n");
    }
    for client in &mut clients {
        assert_eq!(text(&client.response()), version_answer());
    }
    // One goes, and one can come.
    assert_eq!(clients.pop().unwrap().ask("BYE"), "OK closing connection\n");
    eventually("there is room for another", || {
        Client::connect(&bridge.socket()).line().starts_with("OK")
    });
    drop(clients);
    eventually("no session is left", || bridge.descriptors() <= before);
    lab::run_with(&mut lab.target.gpg(["--detach-sign"]), b"words");
    bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn clients_that_misbehave_are_not_noticed_by_others() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let before = bridge.descriptors();
    let grip = &lab.host.keygrips()[1];
    let socket = bridge.socket();
    let good = || {
        lab::run_with(&mut lab.target.gpg(["--detach-sign"]), b"words");
    };
    let silent = Client::connect(&socket);
    good();
    let deaf = Client::connect(&socket);
    deaf.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Questions without end and no answer read: until the bridge takes no more.
    let questions = "GETINFO version\n".repeat(500);
    while std::io::Write::write_all(&mut deaf.stream(), questions.as_bytes()).is_ok() {}
    good();
    // The same where the bridge itself answers.
    let refused = Client::connect(&socket);
    refused.stream().set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let questions = "HELP PKSIGN\nHAVEKEY --list\n".repeat(500);
    while std::io::Write::write_all(&mut refused.stream(), questions.as_bytes()).is_ok() {}
    good();
    for beginning in ["", "GETINFO ver", "GETINFO version\n", "GETINFO version\nNO", "D x\n"] {
        let mut client = Client::greeted(&socket);
        client.send(beginning);
        drop(client);
        good();
    }
    for ending in ["", "D (7:enc-", "D (7:enc-val\n"] {
        let mut client = Client::greeted(&socket);
        assert_eq!(client.ask(format!("SETKEY {grip}")), "OK\n");
        assert!(client.ask("PKDECRYPT").ends_with("INQUIRE CIPHERTEXT\n"));
        client.send(ending);
        drop(client);
        good();
    }
    let mut wrong = Client::greeted(&socket);
    wrong.send([b"NOP\0".as_slice(), &[b'x'; 5000], b"\n"].concat());
    assert!(text(&wrong.rest()).starts_with("ERR "));
    good();
    drop((silent, deaf, refused, wrong));
    eventually("no session is left", || bridge.descriptors() <= before);
    bridge.stop();
}
