//! A `cat` in a container, reached as the engine offers it: the floor for whatever goes by its exec.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::error::{Context, Error, Result};
use crate::lab::{Container, Lab};
use crate::question::Way;

/// `cat` through the engine's exec API, with no program between us and the engine.
pub(crate) struct ExecCat {
    stream: UnixStream,
}

/// What the engine puts before each piece of output: the stream's number and the length.
const HEADER: usize = 8;

impl ExecCat {
    pub(crate) fn start(container: &Container) -> Result<Self> {
        let create = json!({ "AttachStdin": true, "AttachStdout": true, "Cmd": ["cat"] });
        let path = format!("/containers/{}/exec", container.name);
        let (_, body) = post(&path, &create.to_string(), false)?;
        let created: serde_json::Value = serde_json::from_str(&body)?;
        let id = created.get("Id").and_then(|id| id.as_str());
        let id = id.ok_or_else(|| Error::new(format!("the engine made no exec: {body}")))?;
        let (stream, _) =
            post(&format!("/exec/{id}/start"), r#"{"Detach":false,"Tty":false}"#, true)?;
        Ok(Self { stream })
    }

    /// Sends bytes and has them back; how long that took, in nanoseconds.
    pub(crate) fn round_trip(&mut self, bytes: &[u8]) -> Result<u64> {
        let mut back = vec![0; HEADER + bytes.len()];
        let start = Instant::now();
        self.stream.write_all(bytes)?;
        self.stream.read_exact(&mut back)?;
        Ok(nanos_since(start))
    }
}

/// Posts to the engine; gives back the connection and, unless it is taken over, the answer's body.
fn post(path: &str, body: &str, take_over: bool) -> Result<(UnixStream, String)> {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    let socket = host.strip_prefix("unix://").unwrap_or("/var/run/docker.sock");
    let mut stream = UnixStream::connect(socket).while_doing(socket)?;
    let connection = if take_over { "Upgrade\r\nUpgrade: tcp" } else { "close" };
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: {connection}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    // Byte by byte: what follows the head is not ours to read.
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).while_doing("the engine's answer")?;
        head.extend(byte);
    }
    let mut answer = String::new();
    if !take_over {
        stream.read_to_string(&mut answer)?;
    }
    let head = String::from_utf8_lossy(&head);
    let is_good = head.split(' ').nth(1).is_some_and(|code| matches!(code, "101" | "200" | "201"));
    if is_good { Ok((stream, answer)) } else { Err(Error::new(format!("{path}: {head}{answer}"))) }
}

/// `docker exec -i … cat`, for bulk.
pub(crate) struct PipedCat<'a> {
    container: &'a Container,
    /// What is read for the way from the target, on this machine and in the container.
    file: std::path::PathBuf,
    bytes: usize,
}

impl<'a> PipedCat<'a> {
    pub(crate) fn new(lab: &Lab, container: &'a Container, bytes: usize) -> Result<Self> {
        let file = lab.at("bulk");
        std::fs::write(&file, vec![b'x'; bytes]).while_doing(file.display())?;
        Ok(Self { container, file, bytes })
    }

    /// Moves the bytes one way; how long that took, in nanoseconds, without the start of the exec.
    pub(crate) fn bulk(&self, way: Way) -> Result<u64> {
        match way {
            // The agent is outside of the container.
            Way::ToAgent => self.fetch(),
            Way::FromAgent => self.send(),
        }
    }

    fn send(&self) -> Result<u64> {
        let (mut child, mut lines) = self.start("echo ready; cat >/dev/null; echo done")?;
        let mut stdin = child.stdin.take().ok_or_else(|| Error::new("no input"))?;
        hear(&mut lines)?;
        let block = vec![b'x'; 64 * 1024];
        let start = Instant::now();
        for _ in 0..self.bytes.div_ceil(block.len()) {
            stdin.write_all(&block)?;
        }
        drop(stdin);
        hear(&mut lines)?;
        let took = nanos_since(start);
        child.wait()?;
        Ok(took)
    }

    fn fetch(&self) -> Result<u64> {
        let script = format!("echo ready; read go; exec cat {}", self.file.display());
        let (mut child, mut lines) = self.start(&script)?;
        hear(&mut lines)?;
        let mut stdin = child.stdin.take().ok_or_else(|| Error::new("no input"))?;
        let mut block = vec![0; 64 * 1024];
        let mut left = self.bytes;
        let start = Instant::now();
        stdin.write_all(b"go\n")?;
        while left > 0 {
            match lines.read(&mut block)? {
                0 => return Err(Error::new("docker exec ended too early")),
                count => left = left.saturating_sub(count),
            }
        }
        let took = nanos_since(start);
        child.wait()?;
        Ok(took)
    }

    fn start(&self, script: &str) -> Result<(Child, BufReader<std::process::ChildStdout>)> {
        let mut command = self.container.command(["sh", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| Error::new("no output"))?;
        Ok((child, BufReader::new(stdout)))
    }
}

fn hear(lines: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    match lines.read_line(&mut line)? {
        0 => Err(Error::new("docker exec said nothing")),
        _ => Ok(()),
    }
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
