//! The least that one program between client and agent can be.

use keybridge_lab::eventually;

use super::{BARE_RELAY, Place, Role, Subject, Takes};
use crate::error::Result;
use crate::lab::{Agents, Lab, Running, SharedClient};
use crate::lane::Lane;

/// On this machine. A container has its socket mounted.
pub(super) fn subject(
    lab: &Lab,
    client: &SharedClient,
    agents: &[Agents],
    place: Place,
) -> Result<Subject> {
    let mut sockets = Vec::new();
    let mut held: Vec<Box<dyn std::any::Any>> = Vec::new();
    let all = agents.iter().flat_map(Agents::sockets);
    for (endpoint, agent) in all.filter(|(endpoint, _)| endpoint.lane == Lane::Gpg) {
        let socket = lab.at(&format!("bare-{}-{}", place.name(), endpoint.agent.name()));
        let mut relay = lab.command(&lab.program);
        relay.arg("relay").arg("--listen").arg(&socket).arg("--agent").arg(agent);
        held.push(Box::new(Running::start(&mut relay)?));
        eventually("the relay listens", || socket.exists());
        sockets.push((endpoint, socket));
    }
    Ok(Subject {
        name: BARE_RELAY,
        role: Role::Floor,
        takes: Takes::ManySmall,
        client: client.clone(),
        sockets,
        gpg_env: Vec::new(),
        held,
    })
}
