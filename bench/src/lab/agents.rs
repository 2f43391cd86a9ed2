//! The agents of the host: a real one with a key, and a stand-in that gives and takes bulk.

use std::path::{Path, PathBuf};

use keybridge_lab::{Home, StandIn, USER, run, run_with};

use super::Lab;
use crate::error::Result;
use crate::stand_in::answer;

/// A GnuPG home with a key that signs and a subkey that decrypts, and who answers at its restricted socket.
pub(crate) struct Agents {
    /// Ends before the home, whose socket it wakes up by.
    _stand_in: Option<StandIn>,
    pub(crate) name: &'static str,
    /// The GnuPG home that keybridge lends from.
    pub(crate) home: Home,
    /// The restricted socket.
    pub(crate) socket: PathBuf,
}

impl Agents {
    /// gpg-agent itself.
    pub(crate) fn real(lab: &Lab) -> Result<Self> {
        let home = home_with_key(lab, "real")?;
        home.launch_agent();
        Ok(Self { _stand_in: None, name: "real", socket: home.extra_socket(), home })
    }

    /// A stand-in that costs next to nothing. The real agent goes on at the main socket, where gpg asks which
    /// secret keys can be lent.
    pub(crate) fn stand_in(lab: &Lab) -> Result<Self> {
        let home = home_with_key(lab, "standin")?;
        home.launch_agent();
        let stand_in = Some(StandIn::at_home(&home, answer));
        Ok(Self { _stand_in: stand_in, name: "stand-in", socket: home.extra_socket(), home })
    }

    /// The keygrip of the subkey that decrypts.
    pub(crate) fn decrypting_keygrip(&self) -> String {
        self.home.decrypting_keygrip(USER)
    }

    /// A new GnuPG home with the public key, whose agent is at a socket. In a container, where there is no
    /// /run/user, gpg looks for that in the home.
    pub(crate) fn home_at(
        &self,
        lab: &Lab,
        name: &str,
        socket: &Path,
        inside: bool,
    ) -> Result<PathBuf> {
        let path = lab.make_folder(name)?;
        let home = home_in(lab, &path);
        run_with(
            &mut home.gpg(["--no-autostart", "--import"]),
            &run(&mut self.home.gpg(["--export"])),
        );
        let at = if inside { path.join("S.gpg-agent") } else { home.socket() };
        // It is used after this: nothing of it may be taken away here.
        std::mem::forget(home);
        std::fs::write(at, format!("%Assuan%\nsocket={}\n", socket.display()))?;
        Ok(path)
    }
}

fn home_with_key(lab: &Lab, name: &str) -> Result<Home> {
    let home = home_in(lab, &lab.make_folder(name)?);
    home.make_key();
    Ok(home)
}

fn home_in(lab: &Lab, folder: &Path) -> Home {
    Home::at(folder.to_owned(), lab.at("home"), lab.at("tmp"))
}
