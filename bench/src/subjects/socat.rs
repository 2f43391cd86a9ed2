//! socat, as recipes use it: a relay on one machine, and a pair over `docker exec -i`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{PAIR, Place, Role, Subject, Takes, gpg_env};
use keybridge_lab::eventually;

use crate::error::{Context, Error, Result};
use crate::lab::{Agents, Container, Endpoint, Lab, Running, SharedClient, output};

/// A relay on this machine. A container has its socket mounted.
pub(super) fn relay(
    lab: &Lab,
    client: &SharedClient,
    agents: &[Agents],
    place: Place,
) -> Result<Subject> {
    let (name, short) = match place {
        Place::Local => ("socat relay", "relay"),
        Place::Docker => ("socat relay, mounted", "mounted"),
    };
    let mut sockets = Vec::new();
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    for (endpoint, agent) in agents.iter().flat_map(Agents::sockets) {
        let socket = lab.at(&format!("{short}-{}", label(endpoint)));
        let mut socat = lab.command("socat");
        socat.arg(format!("UNIX-LISTEN:{},fork", socket.display()));
        socat.arg(format!("UNIX-CONNECT:{}", agent.display()));
        // It complains of every client that goes before it has read all.
        held.push(Box::new(Running::start(socat.stderr(Stdio::null()))?));
        eventually("socat listens", || socket.exists());
        sockets.push((endpoint, socket));
    }
    let gpg_env = gpg_env(agents, short, &sockets, place)?;
    Ok(Subject {
        name,
        role: Role::Other,
        takes: Takes::Many,
        client: client.clone(),
        sockets,
        gpg_env,
        held,
    })
}

/// A socat in the container that listens, and one on the host at the other end of `docker exec -i`.
/// It carries one connection; a loop starts the pair anew for the next one.
pub(super) fn pair_over_exec(
    lab: &Lab,
    client: &SharedClient,
    agents: &[Agents],
    container: &Container,
) -> Result<Subject> {
    let socat = portable_socat(lab)?;
    let mut sockets = Vec::new();
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    for (endpoint, agent) in agents.iter().flat_map(Agents::sockets) {
        // Not in the folder that is mounted: a socket of the container's own.
        let socket = PathBuf::from(format!("/tmp/pair-{}", label(endpoint)));
        let listen = script(
            lab,
            &format!("listen-{}", label(endpoint)),
            &format!("exec {socat} UNIX-LISTEN:{},unlink-early STDIO", socket.display()),
        )?;
        let around = script(
            lab,
            &format!("pair-{}", label(endpoint)),
            &format!(
                "trap 'kill $pair; exit 0' TERM\n\
                 while :; do\n\
                 socat EXEC:'docker exec -i {} {}' UNIX-CONNECT:{} 2>/dev/null & pair=$!\n\
                 wait $pair\n\
                 done",
                container.name,
                listen.display(),
                agent.display()
            ),
        )?;
        held.push(Box::new(Running::start(&mut lab.command(around))?));
        sockets.push((endpoint, socket));
    }
    let gpg_env = gpg_env(agents, "pair", &sockets, Place::Docker)?;
    Ok(Subject {
        name: PAIR,
        role: Role::Other,
        takes: Takes::OneAtATime,
        client: client.clone(),
        sockets,
        gpg_env,
        held,
    })
}

fn label(endpoint: Endpoint) -> String {
    format!("{}-{}", endpoint.agent.name(), endpoint.lane.name())
}

fn script(lab: &Lab, name: &str, text: &str) -> Result<PathBuf> {
    let path = lab.at(&format!("{name}.sh"));
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).while_doing(path.display())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// This machine's socat with its libraries, as a command that runs in any container: the image has
/// none, and the container no network.
fn portable_socat(lab: &Lab) -> Result<String> {
    let folder = lab.make_folder("socat")?;
    let path = output(lab.command("sh").args(["-c", "command -v socat"]))?;
    let path = PathBuf::from(path.trim());
    let copy = |from: &Path| -> Result<PathBuf> {
        let name = from.file_name().ok_or_else(|| Error::new("a file without a name"))?;
        let to = folder.join(name);
        fs::copy(from, &to).while_doing(from.display())?;
        Ok(to)
    };
    let program = copy(&path)?;
    let needed = output(lab.command("ldd").arg(&path))?;
    let mut loader = None;
    for word in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let library = copy(Path::new(word))?;
        if word.contains("/ld-linux") {
            loader = Some(library);
        }
    }
    let loader = loader.ok_or_else(|| Error::new("ldd names no loader for socat"))?;
    let (loader, folder, program) = (loader.display(), folder.display(), program.display());
    Ok(format!("{loader} --library-path {folder} {program}"))
}
