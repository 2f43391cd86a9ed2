//! The agent's own socket: the least that anything costs. A container has it mounted.

use super::{MOUNTED, Place, Role, Subject, Takes, gpg_env};
use crate::error::Result;
use crate::lab::{Agents, SharedClient};

pub(super) fn subject(client: &SharedClient, agents: &[Agents], place: Place) -> Result<Subject> {
    let sockets: Vec<_> = agents
        .iter()
        .flat_map(Agents::sockets)
        .map(|(endpoint, socket)| (endpoint, socket.to_owned()))
        .collect();
    let gpg_env = gpg_env(agents, &format!("own-{}", place.name()), &sockets, place)?;
    Ok(Subject {
        name: match place {
            Place::Local => "the agent's own socket",
            Place::Docker => MOUNTED,
        },
        role: Role::Floor,
        takes: Takes::Many,
        client: client.clone(),
        sockets,
        gpg_env,
        held: Vec::new(),
    })
}
