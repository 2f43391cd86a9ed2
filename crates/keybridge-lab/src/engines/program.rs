//! The engines' own programs, as a person uses them.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::text;

/// The program of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Docker's.
    Docker,
    /// Podman's.
    Podman,
}

impl Program {
    /// The program with these words.
    pub fn command<'a>(self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = crate::command(self.name());
        command.envs(self.environment()).args(words);
        command
    }

    /// What it is called, also in the addresses of its containers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// What it needs in its environment, and keybridge too, to see the containers of the tests.
    pub fn environment(self) -> Vec<(&'static str, &'static str)> {
        let needed: &[&str] = match self {
            Self::Docker => &[],
            Self::Podman => &["CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"],
        };
        needed.iter().map(|name| (*name, self.fact(name))).collect()
    }

    /// What `scripts/lab` says: the name of an image, or a part of the environment.
    pub fn fact(self, name: &str) -> &'static str {
        let (facts, option): (_, &[&str]) = match self {
            Self::Docker => (&DOCKER, &[]),
            Self::Podman => (&PODMAN, &["--podman"]),
        };
        fact(facts, option, name)
    }

    /// The name of the image of Docker's in which sandboxes can run.
    pub(super) fn sandbox_image() -> &'static str {
        fact(&SANDBOX, &["--sandbox"], "sandbox")
    }

    /// The name of an image of Docker's for arm64.
    pub(super) fn arm64_image(name: &str) -> &'static str {
        fact(&ARM64, &["--arm64"], name)
    }
}

type Facts = OnceLock<HashMap<String, String>>;

fn fact(facts: &'static Facts, option: &[&str], name: &str) -> &'static str {
    let facts = facts.get_or_init(|| lab(option));
    facts.get(name).unwrap_or_else(|| panic!("scripts/lab names no {name}"))
}

static ARM64: Facts = OnceLock::new();
static DOCKER: Facts = OnceLock::new();
static SANDBOX: Facts = OnceLock::new();
static PODMAN: Facts = OnceLock::new();

/// Starts what an engine needs and makes its images, if they aren't there.
fn lab(option: &[&str]) -> HashMap<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/lab");
    // No deadline: the first run of all makes the images, which takes minutes.
    let lab = Command::new(&script).args(option).stdin(Stdio::null()).output();
    let lab = lab.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let (names, said) = (text(&lab.stdout), text(&lab.stderr));
    assert!(
        lab.status.success(),
        "the container tests need an engine and its images, and scripts/lab has failed:\n{said}"
    );
    let pair = |line: &str| line.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
    names.lines().filter_map(pair).collect()
}
