//! The least that can lead from a container to an agent over the engine's exec.

use std::path::PathBuf;

use super::{BARE_CHAIN, Role, Subject, Takes};
use crate::error::Result;
use crate::lab::{Agents, Container, Lab, Running, SharedClient};
use crate::lane::Lane;

pub(super) fn subject(
    lab: &Lab,
    client: &SharedClient,
    agents: &[Agents],
    container: &Container,
) -> Result<Subject> {
    let mut sockets = Vec::new();
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    let all = agents.iter().flat_map(Agents::sockets);
    for (endpoint, agent) in all.filter(|(endpoint, _)| endpoint.lane == Lane::Gpg) {
        let socket = PathBuf::from(format!("/tmp/bare-{}", endpoint.agent.name()));
        let mut far_end = lab.command(&lab.program);
        far_end.args(["far-end", "--container", &container.name, "--program"]);
        far_end.arg(&lab.program).arg("--listen").arg(&socket).arg("--agent").arg(agent);
        held.push(Box::new(Running::start(&mut far_end)?));
        sockets.push((endpoint, socket));
    }
    Ok(Subject {
        name: BARE_CHAIN,
        role: Role::Floor,
        takes: Takes::Once,
        client: client.clone(),
        sockets,
        gpg_env: Vec::new(),
        held,
    })
}
