//! The ssh lane over a named pipe, behind which a real ssh-agent is.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use keybridge_lab::SshHome;

use super::{Port, Target, Wine};
use crate::lab::text;

/// A server of a named pipe.
struct Pipe {
    child: Child,
    _port: Port,
}

impl Pipe {
    /// Each of its clients reaches the agent.
    fn to(agent: &SshHome, wine: &Wine, name: &str) -> Self {
        let port = Port::to_socket(&agent.socket());
        let mut server = wine.program("relay.exe");
        server.args([&port.number().to_string(), "--pipe", name]).stdout(Stdio::piped());
        let mut child = server.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), "listening");
        Self { child, _port: port }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The keys of the agent are listed in the target, and one of them signs.
#[track_caller]
fn lists_and_signs(name: &str, options: &[&str]) {
    let (wine, target, agent) = (Wine::new(), Target::new(), SshHome::with_key());
    let _pipe = Pipe::to(&agent, &wine, name);
    let port = target.port();
    let address = format!("exec:relay.exe {}", port.number());
    let words = ["up", &address, "--lanes", "ssh"];
    let shown = wine.keybridge_ok(words.into_iter().chain(options.iter().copied()));
    assert!(shown.contains("ssh-agent with 1 key answers"), "{shown}");
    let set = wine.keybridge_ok(["env", &address]);
    let listed = target.sh(&format!("{set}\nssh-add -l"));
    assert_eq!(text(&listed.stdout), agent.keys(), "{}", text(&listed.stderr));
    let key = agent.public_key("key");
    let signed = target.sh(&format!(
        "{set}
        echo '{0}' >key.pub
        echo 'lab {0}' >signers
        echo a text >text
        ssh-keygen -q -Y sign -n file -f key.pub text
        ssh-keygen -Y verify -n file -f signers -I lab -s text.sig <text",
        key.trim()
    ));
    assert!(signed.status.success(), "{}{}", text(&signed.stdout), text(&signed.stderr));
    wine.keybridge_ok(["down", &address]);
    assert_eq!(target.sockets(), "");
}

/// Where the service of Windows listens.
#[test]
fn the_usual_pipe_is_found() {
    lists_and_signs(r"\\.\pipe\openssh-ssh-agent", &[]);
}

#[test]
fn a_pipe_that_is_named() {
    let name = r"\\.\pipe\an-agent-of-the-test";
    lists_and_signs(name, &["--ssh-socket", name]);
}
