//! `keybridge-remote serve`: the link over standard input and output, and the bridge behind it.
//!
//! STOP or a signal undoes everything. After a link that was lost the sockets stay for a while
//! (`--outlive`): then a newer helper of the same bridge takes over, or everything is undone.

use std::process::ExitCode;
use std::time::Duration;

use keybridge_link::{Input, Link, LinkEnd, Notice, Output, detach_stdio};
use keybridge_proto::mux::{self, End, Version};
use keybridge_remote::{Bridge, Environment, Error, MAKE_WAY, Settings, StopSignal, set_up};
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinError, JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use super::arguments::ServeArguments;

/// How long the host may take to read the last frames.
pub(crate) const FLUSH_TIME: Duration = Duration::from_secs(5);

/// Runs the helper to its end.
pub(crate) fn run(arguments: ServeArguments) -> ExitCode {
    run_to_end(serve(arguments))
}

/// Runs a helper on one thread, in a session of its own.
pub(crate) fn run_to_end(work: impl Future<Output = Result<(), Error>> + 'static) -> ExitCode {
    // A hang-up or Ctrl-C where we were started is not for us. This fails for the leader of a process
    // group, which has a session already.
    let _ = rustix::process::setsid();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Error::other("can't start").because(error)),
    };
    // In its own task, because the future that is blocked on is polled at every event.
    let task = async {
        spawn_local(work).await.unwrap_or_else(|error| Err(Error::task("the helper", error)))
    };
    match LocalSet::new().block_on(&runtime, task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::FAILURE
}

async fn serve(arguments: ServeArguments) -> Result<(), Error> {
    let ServeArguments { cookie, settings } = arguments;
    let outlive_time = settings.outlive;
    let (mut signals, input, mut output) = open_process()?;
    output
        .write_all(&cookie.start_line())
        .await
        .map_err(|error| Error::other("can't write the start line").because(error))?;

    let mut link_config = mux::Config::new(End::Helper, Version::Two, &settings.lanes.served);
    link_config.max_streams = settings.max_sessions;
    let link = Link::new(link_config)
        .map_err(|error| Error::other("can't set up the link").because(error))?;
    let stop = StopSignal::default();
    let mut running = run_link(link.clone(), input, output, stop.clone());

    let bridge = match start(settings, &link).await {
        Ok(bridge) => bridge,
        Err(error) => {
            tell_failure(&link, &running, &error).await;
            return Err(error);
        }
    };
    // STOP counts even if the host hangs up right after it.
    let turn = tokio::select! {
        biased;
        () = stop.wait() => ServeEnd::Stop,
        asked = signals.next() => match asked {
            SignalRequest::End => ServeEnd::Stop,
            SignalRequest::MakeWay => ServeEnd::MakeWay,
            SignalRequest::HangUp if outlive_time.is_zero() => ServeEnd::Stop,
            SignalRequest::HangUp => {
                running.abort();
                let _ = (&mut running).await;
                ServeEnd::LinkOver(Ok(()))
            }
        },
        end = &mut running => ServeEnd::LinkOver(link_result(end)),
    };
    match turn {
        ServeEnd::MakeWay => make_way(bridge).await,
        ServeEnd::Stop => {
            let stopped = bridge.stop().await;
            // The host counts its streams until it has received their ends.
            let _ = timeout(FLUSH_TIME, link.flushed()).await;
            stopped
        }
        // A bridge that was never ready doesn't outlive its link.
        ServeEnd::LinkOver(end) if outlive_time.is_zero() || !bridge.was_ready() => {
            bridge.stop().await?;
            end
        }
        ServeEnd::LinkOver(end) => outlive(bridge, end, outlive_time, &mut signals).await,
    }
}

/// The process's signals and its standard input and output.
pub(crate) fn open_process() -> Result<(Signals, Input, Output), Error> {
    let signals =
        Signals::new().map_err(|error| Error::other("can't wait for signals").because(error))?;
    let input =
        Input::open().map_err(|error| Error::other("can't read standard input").because(error))?;
    let output = Output::open()
        .map_err(|error| Error::other("can't write standard output").because(error))?;
    Ok((signals, input, output))
}

/// Why serving ends.
pub(crate) enum ServeEnd {
    /// The host or a signal ends the bridge.
    Stop,
    /// A newer helper of the same bridge goes on.
    MakeWay,
    /// The link is over, with an error or without.
    LinkOver(Result<(), Error>),
}

/// Whether a link has ended without an error.
pub(crate) fn link_result(end: Result<LinkEnd, JoinError>) -> Result<(), Error> {
    match end {
        Ok(LinkEnd::Eof) => Ok(()),
        Ok(end @ (LinkEnd::Io(_) | LinkEnd::Protocol(_) | LinkEnd::Silent)) => {
            Err(Error::other(end.to_string()))
        }
        Err(error) => Err(Error::task("the task of the link", error)),
    }
}

/// Stays for a while after the end of the link, with an error for every client.
async fn outlive(
    bridge: Bridge,
    end: Result<(), Error>,
    time: Duration,
    signals: &mut Signals,
) -> Result<(), Error> {
    let why = end.err().map_or_else(|| LinkEnd::Eof.to_string(), |error| error.to_string());
    tracing::info!("{why}; waiting {} s for another link", time.as_secs());
    bridge.link_lost();
    if let Err(error) = detach_stdio() {
        tracing::debug!(%error, "can't close standard input and output");
    }
    let turn = tokio::select! {
        () = sleep(time) => ServeEnd::Stop,
        turn = signals.end() => turn,
    };
    match turn {
        ServeEnd::MakeWay => make_way(bridge).await,
        ServeEnd::Stop | ServeEnd::LinkOver(_) => bridge.stop().await,
    }
}

async fn make_way(bridge: Bridge) -> Result<(), Error> {
    tracing::info!("a newer helper takes over");
    bridge.make_way().await
}

fn run_link(link: Link, input: Input, output: Output, stop: StopSignal) -> JoinHandle<LinkEnd> {
    spawn_local(async move {
        link.run(&[], input, output, |notice| match notice {
            Notice::Hello(hello) => tracing::info!(?hello, "HELLO of the host"),
            Notice::Stop => stop.set(),
            // The task of the keys sees the end of a series on its stream.
            Notice::KeysEnd => {}
            Notice::Opened(..) | Notice::Ready(_) | Notice::Error(_) => {
                tracing::debug!("ignored a notice that is not for the helper");
            }
        })
        .await
    })
}

async fn start(settings: Settings, link: &Link) -> Result<Bridge, Error> {
    let environment = Environment::of_process();
    let mut bridge = set_up(settings, link.clone(), &environment).await?;
    bridge.receive_keys(environment.user());
    Ok(bridge)
}

async fn tell_failure(link: &Link, running: &JoinHandle<LinkEnd>, error: &Error) {
    let told = link.with_mux(|mux| mux.fail(&error.failure().encode()));
    if told.is_ok() && !running.is_finished() {
        let _ = timeout(FLUSH_TIME, link.flushed()).await;
    }
}

/// The signals, from now on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    make_way: Signal,
}

/// What a signal asks for.
pub(crate) enum SignalRequest {
    /// The end of the bridge, as the host's STOP does.
    End,
    /// The end of the link: the process at its other end has gone.
    HangUp,
    /// The end of the process alone: a newer helper of the same bridge takes its place.
    MakeWay,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            make_way: signal(SignalKind::from_raw(MAKE_WAY.as_raw()))?,
        })
    }

    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.hangup.recv() => SignalRequest::HangUp,
            _ = self.make_way.recv() => SignalRequest::MakeWay,
        }
    }

    /// Waits for one that ends the process. Without a link a hang-up means nothing.
    pub(crate) async fn end(&mut self) -> ServeEnd {
        loop {
            match self.next().await {
                SignalRequest::End => return ServeEnd::Stop,
                SignalRequest::MakeWay => return ServeEnd::MakeWay,
                SignalRequest::HangUp => {}
            }
        }
    }
}
