//! A home with both agents and a container, in which everything works until a test breaks it.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use keybridge_lab::{SshHome, program};
use serde_json::Value;

use crate::lab::{
    Container, ContainerLab, Image, KEYBRIDGE, Lab, command, docker, output, run, snapshot, text,
};

/// The address on the key of the lab.
pub const EMAIL: &str = "lab@keybridge.example";

/// A home, a container, and how `keybridge` is called.
pub struct Scene {
    // Before the agent: a bridge ends before what it leads to.
    pub docker: ContainerLab,
    pub ssh: SshHome,
    /// What `doctor` is called with.
    pub target: String,
    /// The user in the container, if it isn't the default one.
    pub user: Option<&'static str>,
    /// More of the environment.
    pub environment: Vec<(&'static str, String)>,
}

/// What `doctor` has said, as JSON and to a person.
pub struct Diagnosis {
    pub json: Value,
    pub text: String,
    pub status: Option<i32>,
}

impl Scene {
    /// A container that was never bridged, and a home whose primary key only certifies. git in the container
    /// is set up to sign.
    pub fn new() -> Self {
        Self::with(Image::Bookworm, &[], None)
    }

    /// A container that is started with options, for a user.
    pub fn with(image: Image, options: &[&str], user: Option<&'static str>) -> Self {
        let mut docker = ContainerLab::new(image, options);
        // ssh finds the settings of the machine's user whatever HOME says.
        let ssh = program("ssh");
        docker.lab.put_before("ssh", &format!("exec {} -F none \"$@\"", ssh.display()));
        // The commands that `doctor` prints name the program.
        symlink(KEYBRIDGE, docker.lab.at("bin/keybridge")).unwrap();
        let target = docker.container.name.clone();
        let scene =
            Self { docker, ssh: SshHome::with_key(), target, user, environment: Vec::new() };
        if image != Image::Bare {
            let key = scene.lab().host.fingerprint();
            scene.sh(&format!(
                "git config --global user.email {EMAIL}
                git config --global user.signingkey {key}"
            ));
        }
        scene
    }

    /// A container that is bridged, and of which `doctor` says that everything works.
    pub fn bridged() -> Self {
        Self::bridged_for(None)
    }

    /// The same, for a user of the container.
    pub fn bridged_for(user: Option<&'static str>) -> Self {
        let scene = Self::with(Image::Bookworm, &[], user);
        scene.up(&[]);
        scene.assert_clean();
        scene
    }

    pub fn lab(&self) -> &Lab {
        &self.docker.lab
    }

    pub fn container(&self) -> &Container {
        &self.docker.container
    }

    /// Runs a script in the container, as the user who is bridged. It has to succeed.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        self.container().sh(self.user, script)
    }

    /// `keybridge` where both agents are at hand.
    pub fn keybridge<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.docker.keybridge(words);
        command.env("SSH_AUTH_SOCK", self.ssh.socket());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Bridges the container, which has to work.
    #[track_caller]
    pub fn up(&self, options: &[&str]) {
        let name = self.container().name.as_str();
        let user = self.user.into_iter().flat_map(|user| ["--user", user]);
        let words = ["up", name].into_iter().chain(user).chain(options.iter().copied());
        run(&mut self.keybridge(words));
    }

    /// Settings of the person at home.
    pub fn configure(&self, settings: &str) {
        let folder = self.lab().at("home/.config/keybridge");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), settings).unwrap();
    }

    /// `keybridge doctor` for the target.
    pub fn doctor_command(&self, options: &[&str]) -> Command {
        let user = self.user.into_iter().flat_map(|user| ["--user", user]);
        let words = ["doctor", &self.target].into_iter().chain(user);
        self.keybridge(words.chain(options.iter().copied()))
    }

    /// Asks `doctor` for JSON and for text. It has to leave everything as it was.
    #[track_caller]
    pub fn diagnose(&self) -> Diagnosis {
        let before = self.traces();
        let asked = output(&mut self.doctor_command(&["--json"]));
        let json = text(&asked.stdout);
        let json: Value = serde_json::from_str(&json)
            .unwrap_or_else(|error| panic!("{error}: {json}{}", text(&asked.stderr)));
        let shown = output(&mut self.doctor_command(&[]));
        assert_eq!(shown.status.code(), asked.status.code(), "{json}\n{}", text(&shown.stdout));
        assert_eq!(text(&shown.stderr), "");
        let shown = text(&shown.stdout);
        for line in shown.lines() {
            assert!(!line.contains(char::is_control), "raw control characters: {line:?}");
        }
        let after = self.traces();
        let changed: Vec<_> = after.symmetric_difference(&before).collect();
        assert!(changed.is_empty(), "doctor has changed something: {changed:?}\n{shown}");
        Diagnosis { json, text: shown, status: asked.status.code() }
    }

    /// What `doctor` could leave behind: in the container, in keybridge's own folder, at home.
    pub fn traces(&self) -> BTreeSet<String> {
        let diff = output(&mut docker(["diff", &self.container().id]));
        let diff = text(&diff.stdout);
        let mut traces: BTreeSet<String> =
            diff.lines().map(|line| format!("in the container: {line}")).collect();
        let folders = [self.lab().at("state"), self.lab().at("home"), self.lab().at("tmp")];
        for folder in folders.iter().filter(|folder| folder.exists()) {
            traces.extend(snapshot(folder).into_keys().map(|path| path.display().to_string()));
        }
        // The bridge records the signature that doctor has made.
        let record = self.lab().at("state/record").display().to_string();
        traces.retain(|trace| !trace.starts_with(&record));
        // gpg's files, with what is in them.
        for (path, (_, mode, _, content)) in snapshot(self.lab().host.path()) {
            // gpg-agent makes this one by itself, when an ssh client comes for the first time.
            if !path.ends_with("sshcontrol") {
                traces.insert(format!("{} {mode:o} {content:?}", path.display()));
            }
        }
        traces
    }

    /// `doctor` has nothing to say.
    #[track_caller]
    pub fn assert_clean(&self) -> Diagnosis {
        let diagnosis = self.diagnose();
        assert_eq!(diagnosis.status, Some(0), "{}", diagnosis.text);
        assert_eq!(diagnosis.json["ok"], true, "{}", diagnosis.text);
        assert_eq!(diagnosis.json["first"], Value::Null, "{}", diagnosis.text);
        diagnosis
    }

    /// `doctor` names this check first, with a cause that has these words in it; the command that it prints for
    /// this is run, and then `doctor` has nothing to say. Gives back the command.
    #[track_caller]
    pub fn assert_found_and_fixed(&self, check: &str, status: i32, words: &[&str]) -> String {
        let fix = self.assert_found(check, status, words);
        let fixed = self.type_in(&fix);
        let said = text(&[fixed.stdout, fixed.stderr].concat());
        assert!(fixed.status.success(), "`{fix}`: {}\n{said}", fixed.status);
        self.assert_clean();
        fix
    }

    /// `doctor` names this check first, with a cause that has these words in it. Gives back the command that it
    /// prints for this.
    #[track_caller]
    pub fn assert_found(&self, check: &str, status: i32, words: &[&str]) -> String {
        let diagnosis = self.diagnose();
        let shown = &diagnosis.text;
        assert_eq!(diagnosis.json["first"], check, "{shown}");
        assert_eq!(diagnosis.status, Some(status), "{shown}");
        let row = diagnosis.row(check);
        let (outcome, word) = match status {
            0 => ("warning", "nothing is broken; the first warning is"),
            _ => ("broken", "the first problem is"),
        };
        assert_eq!(row["outcome"], outcome, "{shown}");
        let cause = row["cause"].as_str().unwrap();
        for word in words {
            assert!(cause.contains(word), "{word:?} is not in the cause: {cause}");
        }
        let mut lines = shown.lines();
        let headline = lines.next().unwrap_or_default();
        assert!(headline.ends_with(&format!("{word} {check}")), "{shown}");
        assert_eq!(lines.next(), Some(format!("  {cause}").as_str()), "{shown}");
        let fix = lines.next().and_then(|line| line.strip_prefix("  → "));
        let fix = fix.unwrap_or_else(|| panic!("no fix is printed:\n{shown}"));
        assert_eq!(row["fixes"][0]["command"], fix, "{shown}");
        println!("{check}: {cause}\n  → {fix}");
        fix.to_owned()
    }

    /// Types a command into the shell that `keybridge` is called from.
    pub fn type_in(&self, line: &str) -> Output {
        let mut shell = command("/bin/sh");
        shell.env_clear();
        for (name, value) in self.keybridge([]).get_envs() {
            shell.env(name, value.unwrap());
        }
        output(shell.args(["-c", line]).current_dir(self.lab().at("home")))
    }

    /// Puts a program where the person at home has theirs.
    pub fn put_program(&self, name: &str, script: &str) {
        let path = self.lab().at("bin").join(name);
        let _ = std::fs::remove_file(&path);
        crate::lab::write_program(&path, format!("#!/bin/sh\n{script}"));
    }

    /// A PATH with nothing on it but some programs of this machine, and those of the lab.
    pub fn set_programs(&mut self, names: &[&str]) {
        let bin = self.lab().at("bin");
        for name in names {
            symlink(program_at(name), bin.join(name)).unwrap();
        }
        self.docker.lab.set_path(bin.display().to_string());
    }
}

/// Where a program of this machine is.
fn program_at(name: &str) -> std::path::PathBuf {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("{name} is missing"))
}

impl Diagnosis {
    /// What was found for a check.
    #[track_caller]
    pub fn row(&self, check: &str) -> &Value {
        let rows = self.json["checks"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == check);
        row.unwrap_or_else(|| panic!("no check {check}:\n{}", self.text))
    }
}
