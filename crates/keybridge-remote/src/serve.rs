//! `keybridge-remote serve`: the link over standard input and output, and the bridge behind it.

use std::process::ExitCode;
use std::time::Duration;

use keybridge_link::{Link, LinkEnd, Notice};
use keybridge_proto::mux::{self, End, Version};
use keybridge_proto::{Lane, printable};
use keybridge_remote::{
    Config, Deps, Environment, Gnupg, Handle, Input, Output, StartError, Stopping, start,
};
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

use crate::arguments::Options;

/// How long the host may take to read the last words.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// Runs the helper to its end.
pub(crate) fn run(options: Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("starting: {error}")),
    };
    match LocalSet::new().block_on(&runtime, serve(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    tracing::error!("{}", printable(error));
    ExitCode::FAILURE
}

async fn serve(options: Options) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|error| format!("waiting for signals: {error}"))?;
    let input = Input::open().map_err(|error| error.to_string())?;
    let mut output = Output::open().map_err(|error| error.to_string())?;
    output
        .write_all(&options.cookie.start_line())
        .await
        .map_err(|error| format!("writing the start line: {error}"))?;

    let mut link_config = mux::Config::new(End::Helper, Version::Two, &[Lane::Gpg]);
    link_config.max_streams = options.max_sessions;
    link_config.program = env!("CARGO_PKG_VERSION").to_owned();
    let link = Link::new(link_config).map_err(|error| error.to_string())?;
    let stop = Stopping::default();
    let mut running = run_link(link.clone(), input, output, stop.clone());

    let bridge = match set_up(&options, &link).await {
        Ok(bridge) => bridge,
        Err(error) => {
            tell_failure(&link, &running, &error).await;
            return Err(error.to_string());
        }
    };
    let end = tokio::select! {
        end = &mut running => Some(end),
        () = stop.wait() => None,
        () = signals.any() => None,
    };
    let stopped = bridge.stop().await;
    if end.is_none() {
        // The host counts its streams until their ends are told.
        let _ = timeout(FLUSH_TIME, async {
            tokio::select! {
                () = link.flushed() => {}
                _ = &mut running => {}
            }
        })
        .await;
    }
    stopped.map_err(|error| error.to_string())?;
    match end {
        None | Some(Ok(LinkEnd::Eof)) => Ok(()),
        Some(Ok(end @ (LinkEnd::Io(_) | LinkEnd::Protocol(_)))) => Err(end.to_string()),
        Some(Err(error)) => Err(format!("the link's task broke: {error}")),
    }
}

fn run_link(link: Link, input: Input, output: Output, stop: Stopping) -> JoinHandle<LinkEnd> {
    spawn_local(async move {
        link.run(&[], input, output, |notice| match notice {
            Notice::Hello(hello) => tracing::info!(?hello, "the host"),
            Notice::Stop => stop.say(),
            // The task of the keys sees the end of a series on its stream.
            Notice::KeysEnd => {}
            Notice::Opened(..) | Notice::Ready(_) | Notice::Error(_) | Notice::Pong(_) => {
                tracing::debug!("a notice that is not for this end");
            }
        })
        .await
    })
}

async fn set_up(options: &Options, link: &Link) -> Result<Handle, StartError> {
    let gnupg = Gnupg::find(Environment::of_process(), options.host_home).await?;
    let config = Config {
        max_sessions: options.max_sessions,
        replace: options.replace,
        ..Config::default()
    };
    start(config, Deps::new(link.clone(), gnupg)).await
}

async fn tell_failure(link: &Link, running: &JoinHandle<LinkEnd>, error: &StartError) {
    let told = link.with_mux(|mux| mux.fail(&error.failure().encode()));
    if told.is_ok() && !running.is_finished() {
        let _ = timeout(FLUSH_TIME, link.flushed()).await;
    }
}

/// The signals that end the bridge as the host's STOP does.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
