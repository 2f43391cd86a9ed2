//! Container engines, their containers, and the ways to them.

mod container;
mod docker_engine;
mod podman_socket;
mod program;
mod relay;

pub use container::{Container, Image, docker};
pub use docker_engine::Engine;
pub use podman_socket::PodmanSocket;
pub use program::Program;
pub use relay::{Flow, Over, Relay};
