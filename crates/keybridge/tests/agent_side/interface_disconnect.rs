//! The end of a session of the command interface while the agent waits for a person, or for nothing.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::agent_home::{Home, agent, gnupg, local};
use keybridge::interface::{CallError, CommandInterface, Settings};
use keybridge_lab::{descriptors_of, eventually, write_program};
use rustix::process::Signal;
use serde_json::{Value, json};

/// More than a person ever has at once.
const CLIENTS: usize = 100;

/// What the program allows by default.
const MAX_SESSIONS: usize = 256;

/// A pinentry that tells its process, and then waits for a person who never comes.
struct Pinentry {
    asked: BufReader<File>,
}

impl Pinentry {
    fn set(home: &Home) -> Self {
        let (script, pipe) = (home.file("pinentry"), home.file("asked"));
        home.ok("mkfifo", &[pipe.to_str().unwrap()]);
        let text = format!(
            "#!/bin/sh\necho OK\nwhile read -r verb rest; do\n  \
             case $verb in GETPIN) echo $$ >{}; exec sleep 600;; esac\n  echo OK\ndone\n",
            pipe.display()
        );
        write_program(&script, text);
        let config = format!("pinentry-program {}\n", script.display());
        std::fs::write(home.file("gpg-agent.conf"), config).unwrap();
        // With a writer of our own the pipe never ends.
        let asked = OpenOptions::new().read(true).write(true).open(pipe).unwrap();
        Self { asked: BufReader::new(asked) }
    }

    /// Waits until the agent has started one; its process.
    fn next(&mut self) -> u32 {
        let mut line = String::new();
        self.asked.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

/// A home whose key needs a passphrase, and what a client sends before PKSIGN.
fn locked() -> (Home, Pinentry, [String; 2]) {
    let home = Home::new();
    let pinentry = Pinentry::set(&home);
    let words = ["--batch", "--pinentry-mode", "loopback", "--passphrase", "secret"];
    let key = ["--quick-gen-key", "locked@test", "ed25519", "sign"];
    home.ok("gpg", &[&words[..], &key[..]].concat());
    // What was typed is forgotten.
    home.ok("gpgconf", &["--reload", "gpg-agent"]);
    let grip = home.keygrip_of("locked@test");
    (home, pinentry, [format!("SIGKEY {grip}"), format!("SETHASH 8 {}", "AB".repeat(32))])
}

/// `keybridge rpc`, as an editor runs it.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(home: &Home) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_keybridge"))
            .arg("rpc")
            .env("GNUPGHOME", home.path())
            .env("XDG_CONFIG_HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn send(&mut self, id: &str, method: &str, params: &Value) {
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{call}").unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, method, params);
        let answer = self.answer();
        assert_eq!(answer["id"], method, "{answer}");
        answer
    }

    fn connect(&mut self) -> Value {
        self.call("connectAgent", &json!({}))["result"]["sessionId"].clone()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The sockets that listen at a path or were accepted there. The agent shows its descriptors to root
/// alone.
fn sockets(path: &Path) -> usize {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap();
    all.lines().filter(|line| line.ends_with(path.to_str().unwrap())).count()
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn a_hundred_clients_killed_at_a_pinentry_leave_nothing() {
    let (home, mut pinentry, steps) = locked();
    let mut program = Program::start(&home);
    // One session is there all the time, and is not disturbed.
    let kept = program.connect();
    let ours = descriptors_of(program.child.id());
    let theirs = sockets(&home.extra_socket());
    for _ in 0..CLIENTS {
        let session = program.connect();
        for step in &steps {
            let params = json!({ "sessionId": session, "block": step });
            assert_eq!(program.call("sendCommands", &params)["result"]["response"], "OK\n");
        }
        let params = json!({ "sessionId": session, "block": "PKSIGN" });
        program.send("sign", "sendCommands", &params);
        let dialog = pinentry.next();
        program.send("end", "disconnectAgent", &json!({ "sessionId": session }));
        let mut answers = [program.answer(), program.answer()];
        answers.sort_by_key(|answer| answer["id"].to_string());
        assert_eq!(answers[0]["result"], json!({}), "{}", answers[0]);
        assert_eq!(answers[1]["error"]["data"]["kind"], "ended", "{}", answers[1]);
        // An agent of 2.4 ends its dialog when the client goes. One of 2.2 leaves that to the person.
        home.ok("kill", &[&dialog.to_string()]);
        eventually("the dialog is gone", || !Path::new(&format!("/proc/{dialog}")).exists());
    }
    eventually("the agent's connections are closed", || sockets(&home.extra_socket()) <= theirs);
    eventually("ours are closed", || descriptors_of(program.child.id()) == ours);
    let params = json!({ "sessionId": kept, "block": "NOP" });
    assert_eq!(program.call("sendCommands", &params)["result"]["response"], "OK\n");
    // All places but one are free again.
    for _ in 1..MAX_SESSIONS {
        assert!(program.connect().is_string());
    }
    let answer = program.call("connectAgent", &json!({}));
    assert_eq!(answer["error"]["data"]["kind"], "tooManySessions", "{answer}");
}

#[test]
fn a_session_ends_whatever_it_is_doing() {
    let home = Home::with_decrypting_key("end@test");
    let grip = home.decrypting_keygrip("end@test");
    local(async {
        let interface =
            CommandInterface::new(gnupg(&home), agent(&home).await, Settings::default());
        let connect = async || interface.connect_agent(None).await.unwrap().session_id.to_string();
        // In an inquiry, where BYE would be no command.
        let inquired = connect().await;
        let block = format!("SETKEY {grip}\nPKDECRYPT");
        let asked = interface.send_commands(&inquired, &block).await.unwrap();
        assert!(asked.ends_with("INQUIRE CIPHERTEXT\n"), "{asked:?}");
        interface.disconnect_agent(&inquired).await.unwrap();
        assert_eq!(interface.sessions(), 0);
        // While the agent hangs: with a call under way, with none, and before the greeting.
        let (busy, idle) = (connect().await, connect().await);
        let early = uuid::Uuid::new_v4().to_string();
        let pid = home.agent_pid();
        home.signal_agent(pid, Signal::STOP);
        let ending = async {
            for id in [&busy, &idle, &early] {
                interface.disconnect_agent(id).await.unwrap();
            }
        };
        let (answer, greeting, ()) = tokio::join!(
            interface.send_commands(&busy, "NOP"),
            interface.connect_agent(Some(&early)),
            ending,
        );
        for error in [answer.unwrap_err(), greeting.unwrap_err()] {
            assert!(matches!(error, CallError::Ended { .. }), "{error}");
            assert!(error.to_string().ends_with("the caller ended it"), "{error}");
        }
        assert_eq!(interface.sessions(), 0);
        home.signal_agent(pid, Signal::CONT);
        // Two at once who end the same session.
        let twice = connect().await;
        let both =
            tokio::join!(interface.disconnect_agent(&twice), interface.disconnect_agent(&twice));
        assert_eq!(both, (Ok(()), Ok(())));
        let error = interface.disconnect_agent(&twice).await.unwrap_err();
        assert!(matches!(error, CallError::UnknownId(_)), "{error}");
    });
}
