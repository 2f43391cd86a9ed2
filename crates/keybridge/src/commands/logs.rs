//! `keybridge logs TARGET`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::targets;
use crate::config::Options;
use crate::log::older;
use crate::platform::id_of_open_file;
use crate::supervisor::BridgeManager;
use crate::{Error, ErrorKind, Result};

/// Show what a bridge did
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The target
    target: Option<String>,
    /// Keep showing new lines until the bridge ends
    #[arg(short, long)]
    follow: bool,
}

/// How often a log that is followed is looked at: a person reads it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Logs {
    pub(crate) async fn run(self) -> Result<()> {
        let manager = BridgeManager::new(Options::default())?;
        let address = targets::one_named(self.target.as_deref(), &manager).await?;
        let folder = manager.folder(&address).await?;
        let mut log = Log::open(folder.log()).map_err(|error| {
            Error::new(ErrorKind::NoTarget, format!("{address} has no log"))
                .caused_by(error)
                .hint(format!("keybridge up {address} starts a bridge"))
        })?;
        let failed = |error: io::Error| {
            Error::failed(format!("can't read the log of {address}")).caused_by(error)
        };
        let mut text = log.older();
        loop {
            // Checked first: what is written later is shown in the next turn.
            let alive = folder.is_alive();
            text.extend(log.news().map_err(failed)?);
            if io::stdout().write_all(&text).is_err() || !self.follow || !alive {
                return Ok(());
            }
            text.clear();
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// A log that is read while it is written, and begun anew when it is full.
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        Ok(Self { file: File::open(&path)?, path })
    }

    /// The older part, which may not be there.
    fn older(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Ok(mut older) = File::open(older(&self.path))
            // The one that is read may have become the older one just now.
            && id_of_open_file(&older) != id_of_open_file(&self.file)
        {
            let _ = older.read_to_end(&mut text);
        }
        text
    }

    /// What was written since the last look.
    pub(super) fn news(&mut self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        // Looked for first: nothing is added to a log once there is a newer one.
        let newer = File::open(&self.path).ok();
        self.file.read_to_end(&mut text)?;
        if let Some(newer) =
            newer.filter(|newer| id_of_open_file(newer) != id_of_open_file(&self.file))
        {
            self.file = newer;
            self.file.read_to_end(&mut text)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_or_shown_twice_when_a_log_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let add = |text: &str| crate::log::open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        std::fs::write(older(&path), "zero ").unwrap();
        add("one ");
        let mut log = Log::open(path.clone()).unwrap();
        let mut shown = log.older();
        shown.extend(log.news().unwrap());
        add("two ");
        std::fs::rename(&path, older(&path)).unwrap();
        // While there is no new one yet.
        shown.extend(log.news().unwrap());
        add("three ");
        shown.extend(log.news().unwrap());
        shown.extend(log.news().unwrap());
        add("four");
        shown.extend(log.news().unwrap());
        assert_eq!(String::from_utf8(shown).unwrap(), "zero one two three four");
        // One that became the older one before that was read.
        let log = Log::open(path.clone()).unwrap();
        std::fs::rename(&path, older(&path)).unwrap();
        assert_eq!(log.older(), b"");
    }
}
