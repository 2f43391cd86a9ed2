//! The events of a console that end a bridge.

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close,
    ctrl_logoff, ctrl_shutdown,
};

use crate::{Error, Result};

/// Catches Ctrl-C and Ctrl-Break, and the end of the console, of the session and of the machine.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: CtrlC,
    ctrl_break: CtrlBreak,
    close: CtrlClose,
    logoff: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn new() -> Result<Self> {
        let failed = |error| Error::failed("can't catch the console's events").caused_by(error);
        Ok(Self {
            interrupt: ctrl_c().map_err(failed)?,
            ctrl_break: ctrl_break().map_err(failed)?,
            close: ctrl_close().map_err(failed)?,
            logoff: ctrl_logoff().map_err(failed)?,
            shutdown: ctrl_shutdown().map_err(failed)?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.ctrl_break.recv() => {}
            _ = self.close.recv() => {}
            _ = self.logoff.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}
