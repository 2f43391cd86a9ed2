//! A container, reached through its engine's API.

mod archive;
mod exec;
mod follow;

use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use keybridge_proto::printable;

use crate::engine::error::{NotRun, engine_message, no_container};
use crate::engine::{Engine, EngineKind};
use crate::shell_quote::quoted;
use crate::target::{
    CommandError, Following, Presence, Process, Target, TargetAddress, TargetCommand, says,
};
use crate::{Error, ErrorKind, Result};
pub(crate) use exec::Exec;

/// A container.
#[derive(Debug, Clone)]
pub struct ContainerTarget {
    engine: Engine,
    /// The whole id: names can move from one container to another.
    id: String,
    name: String,
    user: Option<String>,
}

impl Engine {
    /// Finds a container by its name, its id or a prefix of that, and its state. Commands run as this user
    /// or as its default one.
    pub async fn find(&self, wanted: &str, user: Option<&str>) -> Result<(Target, Presence)> {
        let container = self.inspect_existing(wanted).await?;
        let presence = follow::presence_of(&container);
        Ok((Target::Container(ContainerTarget::new(self, wanted, container, user)?), presence))
    }

    /// Finds a running container.
    pub(crate) async fn find_running(&self, wanted: &str, user: Option<&str>) -> Result<Target> {
        let container = self.inspect_existing(wanted).await?;
        check_running(self.kind(), wanted, &container)?;
        Ok(Target::Container(ContainerTarget::new(self, wanted, container, user)?))
    }

    async fn inspect_existing(&self, wanted: &str) -> Result<ContainerInspectResponse> {
        self.inspect(wanted).await?.ok_or_else(|| no_container(self.kind(), wanted))
    }
}

impl ContainerTarget {
    fn new(
        engine: &Engine,
        wanted: &str,
        container: ContainerInspectResponse,
        user: Option<&str>,
    ) -> Result<Self> {
        let name = container.name.as_deref().unwrap_or(wanted).trim_start_matches('/').to_owned();
        let user = user.map(str::to_owned).or_else(|| default_user(&container));
        let id = container.id.ok_or_else(|| Error::failed("the engine reports no container id"))?;
        Ok(Self { engine: engine.clone(), id, name, user })
    }

    pub(crate) async fn follow(&self) -> Following {
        follow::follow(self.engine.clone(), self.id.clone()).await
    }

    pub(crate) fn describe(&self) -> String {
        let user = self.user.as_deref().unwrap_or("root");
        let id = self.id.get(..12).unwrap_or(&self.id);
        format!("{} ({id}), user {}", printable(&self.name), printable(user))
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The user that commands run as, if it isn't root.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) const fn engine_kind(&self) -> EngineKind {
        self.engine.kind()
    }

    /// The whole id of the container.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Its address, with the engine.
    pub(crate) fn address(&self) -> TargetAddress {
        let name = self.name.clone();
        match self.engine.kind() {
            EngineKind::Docker => TargetAddress::Docker(name),
            EngineKind::Podman => TargetAddress::Podman(name),
        }
    }

    /// The same container, whose commands run as another user.
    pub(crate) fn for_user(self, user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..self }
    }

    /// The error for a command without output, and a clearer one if it could not be run at all.
    pub(crate) fn explain_output(&self, error: CommandError) -> Error {
        let not_run = error.words().and_then(NotRun::find);
        self.explain(not_run, error.named(&self.name))
    }

    /// Explains why a shell ended at once. The engine may have written the reason to the shell's output.
    pub(crate) fn explain_shell(&self, code: Option<i32>, said: &str) -> Error {
        let last = said.lines().last().unwrap_or_default();
        let not_run = NotRun::find(last);
        let error = Error::failed(says(&self.name, last));
        let mut error = match not_run {
            Some(_) => self.explain(not_run, error),
            None => error.context(format!("starting a shell in {}", printable(&self.name))),
        };
        if code == Some(127) {
            error.kind = ErrorKind::NoShell;
        }
        error
    }

    /// A clearer error, if a command could not be run at all.
    fn explain(&self, not_run: Option<NotRun>, error: Error) -> Error {
        match not_run {
            Some(why) => why.error(self.engine.kind(), &self.name, self.user.as_deref(), &error),
            None => error,
        }
    }

    /// The processor that the container's image is for, as `uname -m` names it.
    pub(crate) async fn processor(&self) -> Result<String> {
        let image = self.engine.inspect_existing(&self.id).await?.image.unwrap_or_default();
        let image = self.engine.api().await?.inspect_image(&image).await;
        let image = image.map_err(|error| {
            let name = printable(&self.name);
            Error::failed(format!("inspecting the image of {name}: {}", engine_message(&error)))
        })?;
        let processor = image.architecture.filter(|name| !name.is_empty());
        Ok(processor.map_or_else(|| std::env::consts::ARCH.to_owned(), |name| uname(&name)))
    }

    /// Says which processors don't fit, if its programs can't be run.
    pub(crate) async fn name_processors(&self, error: Error) -> Error {
        let (Ok(image), Ok(api)) = (self.processor().await, self.engine.api().await) else {
            return error;
        };
        let Ok(version) = api.version().await else { return error };
        let engine = uname(&version.arch.unwrap_or_default());
        let (name, image, engine) = (printable(&self.name), printable(&image), printable(&engine));
        let message = format!(
            "the container {name} is for {image}, and its engine runs on {engine} and can't run its programs"
        );
        Error::new(ErrorKind::WrongProcessor, message).hint(format!(
            "install emulation of {image} on the engine's machine (Debian: qemu-user-static, binfmt-support)"
        ))
    }

    /// Copies a program into its own folder, without a shell; returns its path.
    pub(crate) async fn put(&self, name: &str, program: &[u8]) -> Result<String> {
        let container = self.engine.inspect_existing(&self.id).await?;
        let api = self.engine.api().await?;
        let owner = archive::owner(api, &self.id, self.user.as_deref()).await?;
        let mut last = Error::failed("the container has no folder for the helper");
        for folder in archive::FOLDERS {
            if !archive::is_reachable(&container, folder) {
                continue;
            }
            match archive::put(api, &self.id, folder, owner, name, program).await {
                Ok(copy) => match self.try_out(&copy.path).await {
                    Ok(()) => return Ok(copy.path),
                    Err(error) => {
                        last = error;
                        copy.empty(api, &self.id, owner).await;
                        if last.kind == ErrorKind::WrongProcessor {
                            let left = format!("{} stays there, empty", copy.path);
                            return Err(self.name_processors(last).await.hint(left));
                        }
                    }
                },
                Err(error) => last = error,
            }
        }
        Err(last.hint("the container has no shell; give it one, or a writable /tmp"))
    }

    async fn try_out(&self, path: &str) -> Result<()> {
        let process = self.run(&TargetCommand::new([path, "--version"])).await?;
        process.output().await.map(|_| ()).map_err(|error| self.explain_output(error))
    }

    /// Runs it with the engine's own program, which handles terminals.
    pub(crate) fn in_the_foreground(
        &self,
        command: &TargetCommand,
        terminal: bool,
    ) -> std::process::Command {
        let mut program = self.engine.own_program();
        program.args(["exec", "-i"]).args(terminal.then_some("-t"));
        program.args(self.user.iter().flat_map(|user| ["--user", user]));
        for pair in command.env_pairs() {
            program.arg("--env").arg(pair);
        }
        program.arg(&self.id).args(&command.words);
        program
    }

    pub(crate) async fn run(&self, command: &TargetCommand) -> Result<Process> {
        let api = self.engine.api().await?;
        exec::start(api, &self.id, self.user.as_deref(), command).await.map_err(|error| {
            let words = engine_message(&error);
            let doing = format!("running a command in {}", printable(&self.name));
            self.explain(NotRun::find(&words), Error::failed(format!("{doing}: {words}")))
        })
    }
}

/// A processor by the name that `uname -m` has for it.
fn uname(engine_name: &str) -> String {
    match engine_name {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
    .to_owned()
}

fn check_running(
    kind: EngineKind,
    wanted: &str,
    container: &ContainerInspectResponse,
) -> Result<()> {
    use ContainerStateStatusEnum as Status;
    let status = container.state.as_ref().and_then(|state| state.status);
    let shown = printable(wanted);
    let (state, fix) = match status {
        Some(Status::RUNNING) => return Ok(()),
        Some(Status::PAUSED) => ("is paused", "unpause"),
        Some(Status::RESTARTING) => ("is restarting", "logs"),
        Some(Status::CREATED) => ("was never started", "start"),
        Some(Status::EXITED | Status::STOPPING) => ("isn't running", "start"),
        Some(Status::DEAD | Status::REMOVING) => ("is being removed", "ps"),
        Some(Status::EMPTY) | None => ("is in an unknown state", "ps"),
    };
    Err(Error::new(ErrorKind::NoTarget, format!("the container {shown} {state}")).hint(format!(
        "{} {fix} {}",
        kind.program(),
        quoted(wanted)
    )))
}

/// The user of the dev container or of the image; otherwise the engine uses root.
fn default_user(container: &ContainerInspectResponse) -> Option<String> {
    let config = container.config.as_ref()?;
    let labels = config.labels.as_ref();
    let metadata = labels.and_then(|labels| labels.get("devcontainer.metadata"));
    let of_dev_container = metadata.and_then(|metadata| remote_user(metadata));
    of_dev_container.or_else(|| config.user.clone().filter(|user| !user.is_empty()))
}

/// The `remoteUser` of a dev container's metadata, which is an object or a list of objects. In a list the
/// last one counts.
fn remote_user(metadata: &str) -> Option<String> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    let objects = match &metadata {
        serde_json::Value::Array(objects) => objects.as_slice(),
        one => std::slice::from_ref(one),
    };
    let user = objects.iter().rev().find_map(|object| object.get("remoteUser")?.as_str())?;
    Some(user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_remote_user_of_a_dev_container_counts() {
        for (metadata, user) in [
            (r#"[{"remoteUser":"a"},{"remoteUser":"b"},{"x":1}]"#, Some("b")),
            (r#"{"remoteUser":"vscode"}"#, Some("vscode")),
            (r#"[{"remoteUser":3}]"#, None),
            ("[]", None),
            ("not json", None),
        ] {
            assert_eq!(remote_user(metadata).as_deref(), user, "{metadata}");
        }
    }
}
