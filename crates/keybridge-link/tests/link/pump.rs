//! Sessions between two scripted ends.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keybridge_link::{StopSignal, pump, reach};
use keybridge_proto::assuan::Reply;
use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::session::{AgentSession, Limits, Session, SessionError};
use keybridge_proto::socket_file::Opening;
use keybridge_proto::ssh::{RelaySession, Request};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

use crate::scripted::{End, Script, Scripted, Then};

const LINGER: Duration = Duration::from_secs(10);
/// The answer to a request of ssh that is refused.
const REFUSED: [u8; 5] = [0, 0, 0, 1, 5];
const GREETING: &[u8] = b"OK Pleased to meet you\n";

/// A session under way, and both of its ends.
struct Talk<S = AgentSession> {
    client: End,
    agent: End,
    stop: StopSignal,
    task: JoinHandle<S>,
}

impl<S: Session + 'static> Talk<S> {
    fn of(mut session: S) -> Self {
        let (client, agent, stop) = (End::new(), End::new(), StopSignal::default());
        let (mut client_side, agent_side) = (Scripted(client.clone()), Scripted(agent.clone()));
        let stopped = stop.clone();
        let task = spawn_local(async move {
            let stop = stopped.wait();
            pump(&mut client_side, &mut session, Some(agent_side), stop, LINGER).await;
            session
        });
        Self { client, agent, stop, task }
    }

    /// The session when it is over.
    async fn end(self) -> S {
        let session = self.task.await.unwrap();
        assert!(self.agent.is_dropped() && self.client.0.borrow().is_shut_down);
        session
    }
}

impl Talk {
    fn begin() -> Self {
        let policy = Policy { socket: AgentSocket::Main, ..Policy::default() };
        let mut session = AgentSession::new(policy, Arc::default(), Limits::default());
        session.connect_requested(Instant::now());
        session.agent_connected(Opening::none(), Instant::now());
        Self::of(session)
    }

    async fn greeted() -> Self {
        let talk = Self::begin();
        talk.agent.says(GREETING).await;
        assert_eq!(talk.client.got().as_bytes(), GREETING);
        talk
    }

    /// Asks something that the agent then works on.
    async fn asks(&self) {
        self.client.says(b"NOP\n").await;
        assert_eq!(self.agent.got(), "NOP\n");
    }
}

impl Talk<RelaySession> {
    /// A client that has asked so much.
    async fn asked(requests: usize) -> Self {
        let mut relay = RelaySession::connected();
        relay.agent_connected();
        let talk = Self::of(relay);
        talk.client.says(&Request::LIST.repeat(requests)).await;
        assert_eq!(talk.agent.got_bytes(), Request::LIST.repeat(requests));
        talk
    }
}

async fn locally(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_half_close_gets_every_answer_first() {
    locally(async {
        let talk = Talk::greeted().await;
        let asked = |script: &mut Script| {
            script.to_read.extend(b"NOP\nNOP\n");
            script.then = Then::End;
        };
        talk.client.play(asked).await;
        for _ in 0..2 {
            assert_eq!(talk.agent.got(), "NOP\n");
            talk.agent.says(b"OK\n").await;
        }
        assert_eq!(talk.client.got(), "OK\nOK\n");
        assert_eq!(talk.end().await.error(), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hang_up_closes_the_agent_at_once() {
    locally(async {
        let talk = Talk::greeted().await;
        talk.asks().await;
        talk.client.play(|script| script.has_hung_up = true).await;
        assert!(talk.agent.is_dropped());
        assert_eq!(talk.end().await.error(), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_floods_is_read_no_further_than_one_buffer() {
    locally(async {
        let talk = Talk::greeted().await;
        talk.client.says(&b"NOP\n".repeat(100_000)).await;
        assert_eq!(talk.agent.got(), "NOP\n");
        assert!(talk.client.0.borrow().read <= 16 * 1024);
        // Not a byte is lost of what was read too early.
        talk.agent.says(b"OK\n").await;
        assert_eq!((talk.agent.got(), talk.client.got()), ("NOP\n".into(), "OK\n".into()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn sides_that_always_have_something_let_other_tasks_run() {
    locally(async {
        let talk = Talk::greeted().await;
        // The test runs in the same thread.
        talk.agent.play(|script| script.then = Then::CommentsForEver).await;
        talk.client.play(|script| script.has_hung_up = true).await;
        assert_eq!(talk.end().await.error(), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_gets_all_of_an_agent_that_is_gone() {
    locally(async {
        let talk = Talk::greeted().await;
        talk.asks().await;
        talk.client.play(|script| script.room = 0).await;
        let answer = [&b"S SOME status of the agent\n".repeat(4000)[..], b"OK\n"].concat();
        let answered = |script: &mut Script| {
            script.to_read.extend(&answer);
            script.then = Then::End;
        };
        talk.agent.play(answered).await;
        let mut got = 0;
        while got < answer.len() {
            tokio::time::sleep(LINGER * 2).await;
            talk.client.play(|script| script.room = 1000).await;
            got += talk.client.got().len();
        }
        assert_eq!(got, answer.len());
        assert_eq!(talk.end().await.error(), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_has_come_survives_a_write_that_fails() {
    locally(async {
        let talk = Talk::greeted().await;
        talk.asks().await;
        let died = |script: &mut Script| {
            script.to_read.extend(b"OK\n");
            script.failure = Some(io::ErrorKind::ConnectionReset);
        };
        talk.client.0.borrow_mut().to_read.extend(b"NOP\n");
        talk.agent.play(died).await;
        let expected = ["OK\n", std::str::from_utf8(Reply::NoAgent.line()).unwrap()].concat();
        assert_eq!(talk.client.got(), expected);
        assert!(talk.end().await.error().is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_agent_also_while_bytes_of_that_are_unread() {
    locally(async {
        let talk = Talk::greeted().await;
        talk.agent.play(|script| script.room = 0).await;
        talk.client.says(b"NOP\n").await;
        talk.agent.says(b"OK too early\n").await;
        talk.agent.fails().await;
        assert_eq!(talk.client.got().as_bytes(), Reply::NoAgent.line());
        assert!(talk.end().await.error().is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_farewell_comes_after_the_agent_is_closed_and_waits_no_longer_than_the_linger() {
    locally(async {
        let talk = Talk::greeted().await;
        talk.asks().await;
        talk.client.play(|script| script.room = 0).await;
        talk.stop.set();
        talk.client.play(|_| {}).await;
        assert!(talk.agent.is_dropped() && !talk.task.is_finished());
        let client = talk.client.clone();
        let session = talk.end().await;
        assert_eq!(client.got(), "");
        let error = session.error().map(SessionError::to_string);
        assert!(error.is_some_and(|text| text.contains("didn't take its last answer")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_greet_is_given_up() {
    locally(async {
        let talk = Talk::begin();
        let client = talk.client.clone();
        let session = talk.end().await;
        assert!(matches!(session.error(), Some(SessionError::GreetingTimeout(_))));
        assert_eq!(client.got().as_bytes(), Reply::NoAgent.line());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_ends_the_search_for_an_agent() {
    locally(async {
        let client = End::new();
        let mut session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
        session.connect_requested(Instant::now());
        let mut side = Scripted(client.clone());
        let reaching = async {
            let dial = pending::<Result<(), &str>>();
            assert!(reach(&mut side, &mut session, None, dial).await.is_none());
        };
        tokio::join!(reaching, client.play(|script| script.has_hung_up = true));
        assert!(session.is_over() && session.error().is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_farewell_that_comes_in_pieces_is_sent_to_its_end() {
    locally(async {
        // More failures than a session holds at once.
        let talk = Talk::asked(20_000).await;
        let client = talk.client.clone();
        talk.agent.play(|script| script.then = Then::End).await;
        talk.end().await;
        assert_eq!(client.got_bytes(), REFUSED.repeat(20_000));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_closed_is_not_taken_for_one_that_failed() {
    locally(async {
        let talk = Talk::asked(1).await;
        // A further request finds nobody who reads it.
        talk.client.0.borrow_mut().to_read.extend(Request::LIST);
        let closed = |script: &mut Script| {
            script.write_failure = Some(io::ErrorKind::BrokenPipe);
            script.then = Then::End;
        };
        talk.agent.play(closed).await;
        assert_eq!(talk.client.got_bytes(), REFUSED.repeat(2));
        assert!(talk.task.is_finished());
        assert_eq!(talk.end().await.error(), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_client_goes_on_without_an_agent_that_failed() {
    locally(async {
        let talk = Talk::asked(2).await;
        talk.agent.fails().await;
        assert!(talk.agent.is_dropped());
        assert_eq!(talk.client.got_bytes(), REFUSED.repeat(2));
        talk.client.says(&Request::LIST).await;
        assert_eq!(talk.client.got_bytes(), REFUSED);
        talk.client.play(|script| script.then = Then::End).await;
        assert!(talk.end().await.error().is_some());
    })
    .await;
}
