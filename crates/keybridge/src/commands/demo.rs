//! `keybridge demo`: the whole chain on the host alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use keybridge_proto::gpg_listing::Record;
use keybridge_proto::printable;
use tokio::process::Command;

use crate::config::{ConfigFile, Options};
use crate::output::Report;
use crate::platform::{Signals, make_private_folder};
use crate::program::{RunError, run_with};
use crate::setup::{Link, LinkSetup};
use crate::target::{Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// Show the whole chain on the host alone, with a throw-away key
#[derive(Debug, Args)]
pub(crate) struct Demo {}

/// Every program of the demo prints some lines.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// A key takes longest, where random numbers are slow to come.
const TIME_LIMIT: Duration = Duration::from_mins(2);

const USER: &str = "Demo <demo@keybridge.example>";

impl Demo {
    pub(crate) async fn run(self) -> Result<()> {
        let report = Report::new();
        let mut signals = Signals::new()?;
        let folder = tempfile::Builder::new()
            // Short: a socket's path may have 107 bytes.
            .prefix("kb")
            .tempdir()
            .map_err(|error| Error::failed("can't create a temporary folder").caused_by(error))?;
        let stage = Stage::new(folder.path())?;
        let shown = tokio::select! {
            shown = stage.show(&report) => shown,
            () = signals.received() => Err(Error::failed("interrupted")),
        };
        let cleared = report.step("removing everything", stage.clear(folder)).await;
        shown.and(cleared)?;
        report.say("done: the key never left the first home");
        Ok(())
    }
}

/// Two GnuPG homes and a repository.
struct Stage {
    first: PathBuf,
    second: PathBuf,
    repository: PathBuf,
}

impl Stage {
    fn new(folder: &Path) -> Result<Self> {
        let stage = Self {
            first: folder.join("first"),
            second: folder.join("second"),
            repository: folder.join("repository"),
        };
        for home in [&stage.first, &stage.second, &stage.repository] {
            make_private_folder(home)
                .map_err(|error| Error::failed(home.display().to_string()).caused_by(error))?;
        }
        Ok(stage)
    }

    async fn show(&self, report: &Report) -> Result<()> {
        let key = report.step("a first GnuPG home with a new key", self.make_key()).await?;
        let link = Box::pin(self.bridge(report)).await?;
        let shown = self.use_key(report, &key).await;
        let stop = async {
            link.stop().await?;
            link.remove_helper().await.map(|()| ((), String::new()))
        };
        let stopped = report.step("taking the bridge down", stop).await;
        shown.and(stopped)
    }

    async fn make_key(&self) -> Result<(String, String)> {
        let gpg =
            ["--batch", "--passphrase", "", "--quick-gen-key", USER, "default", "default", "never"];
        run("gpg", &gpg, &self.first, &self.first, b"").await?;
        let listing =
            run("gpg", &["--list-keys", "--with-colons"], &self.first, &self.first, b"").await?;
        let fingerprint = listing
            .lines()
            .map(Record::of)
            .find_map(|record| (record.field(1) == "fpr").then(|| record.field(10)))
            .ok_or_else(|| Error::failed("gpg lists no key"))?;
        Ok((fingerprint.to_owned(), short_id(fingerprint).to_owned()))
    }

    async fn bridge(&self, report: &Report) -> Result<Link> {
        let options = Options { gnupg_home: Some(self.first.clone().into()), ..Options::default() };
        let address = TargetAddress::Local(self.second.clone());
        let settings = ConfigFile::default().settings(&address.to_string(), &options)?;
        let target = Target::find(&address, None).await?;
        LinkSetup::new(&target, &settings).run(report).await
    }

    async fn use_key(&self, report: &Report, key: &str) -> Result<()> {
        let commit = self.commit(key);
        report.step("git commit -S in the second home", commit).await?;
        let verify = async {
            let log = self.git(&["verify-commit", "--raw", "HEAD"]).await?;
            let signer = log.lines().find_map(|line| line.strip_prefix("[GNUPG:] VALIDSIG "));
            match signer {
                Some(signer) if signer.starts_with(key) => Ok(((), "a good signature".to_owned())),
                Some(_) | None => Err(Error::failed("the commit isn't signed by the key")),
            }
        };
        report.step("git verify-commit", verify).await?;
        let decrypt = async {
            let secret = b"what only the first home can read\n";
            let encrypt =
                ["--batch", "--trust-model", "always", "--encrypt", "--armor", "--recipient", key];
            let sealed = run("gpg", &encrypt, &self.second, &self.second, secret).await?;
            let decrypt = ["--batch", "--quiet", "--decrypt"];
            let opened =
                run("gpg", &decrypt, &self.second, &self.second, sealed.as_bytes()).await?;
            if opened.as_bytes() == secret {
                Ok(((), format!("{} bytes", secret.len())))
            } else {
                Err(Error::failed("the decrypted text isn't what was encrypted"))
            }
        };
        report.step("gpg --decrypt in the second home", decrypt).await
    }

    async fn commit(&self, key: &str) -> Result<((), String)> {
        self.git(&["init", "--quiet"]).await?;
        std::fs::write(self.repository.join("file"), "signed\n")
            .map_err(|error| Error::failed(error.to_string()))?;
        self.git(&["add", "file"]).await?;
        let signing_key = format!("user.signingKey={key}");
        let commit =
            ["-c", &signing_key, "commit", "--quiet", "-S", "-m", "Signed through the bridge"];
        self.git(&commit).await?;
        let head = self.git(&["rev-parse", "--short", "HEAD"]).await?;
        Ok(((), head.trim().to_owned()))
    }

    async fn git(&self, arguments: &[&str]) -> Result<String> {
        run("git", arguments, &self.second, &self.repository, b"").await
    }

    /// Ends the agents of both homes and removes everything.
    async fn clear(self, folder: tempfile::TempDir) -> Result<((), String)> {
        for home in [&self.first, &self.second] {
            run("gpgconf", &["--kill", "all"], home, home, b"").await?;
            // There is one outside of the home where the user has a runtime folder.
            let _ = run("gpgconf", &["--remove-socketdir"], home, home, b"").await;
        }
        let path = folder.path().to_owned();
        folder
            .close()
            .map_err(|error| Error::failed(path.display().to_string()).caused_by(error))?;
        Ok(((), String::new()))
    }
}

/// Runs a program with a GnuPG home; gives back what it wrote, on either output.
async fn run(
    program: &str,
    arguments: &[&str],
    home: &Path,
    folder: &Path,
    input: &[u8],
) -> Result<String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("GNUPGHOME", home)
        // Nothing of the person's own configuration takes part.
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"].map(|name| (name, "Demo")))
        .envs(
            ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"]
                .map(|name| (name, "demo@keybridge.example")),
        )
        .current_dir(folder);
    let output = match run_with(command, Some(input), OUTPUT_LIMIT, TIME_LIMIT).await {
        Ok(output) => output,
        Err(RunError::NotStarted(error)) => {
            return Err(Error::new(ErrorKind::ProgramMissing, program.to_string())
                .caused_by(error)
                .hint(format!("install {program}")));
        }
        Err(RunError::Failed(error)) => return Err(error),
    };
    if !output.status.success() {
        let complaint = printable(output.messages.trim_ascii()).to_string();
        return Err(Error::failed(format!("{program} {}: {complaint}", arguments.join(" "))));
    }
    // git shows what gpg says of a signature on its standard error.
    let text =
        [output.stdout, if program == "git" { output.messages } else { Vec::new() }].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn short_id(fingerprint: &str) -> &str {
    fingerprint.get(fingerprint.len().saturating_sub(16)..).unwrap_or(fingerprint)
}
