//! The command interface as JSON-RPC, over pipes in this process.

use crate::agent_home::{Home, agent, gnupg, local};
use keybridge::interface::{CommandInterface, Settings, rpc};
use keybridge_lab::version_answer;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

struct Caller {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
    server: JoinHandle<keybridge::Result<()>>,
}

impl Caller {
    async fn new(home: &Home) -> Self {
        let interface = CommandInterface::new(gnupg(home), agent(home).await, Settings::default());
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let server = tokio::task::spawn_local(rpc::serve(interface, reader, writer));
        let (reader, writer) = tokio::io::split(ours);
        Self { reader: BufReader::new(reader), writer, server }
    }

    async fn send(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.send(&request.to_string()).await;
        let answer = self.answer().await;
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
        answer
    }
}

#[test]
fn calls_are_answered() {
    let home = Home::with_key("rpc@test");
    let fingerprint = home.fingerprint_of("rpc@test");
    local(async {
        let mut caller = Caller::new(&home).await;
        let connected = caller.call("connectAgent", json!({})).await;
        let id = connected["result"]["sessionId"].as_str().unwrap().to_owned();
        let greeting = connected["result"]["greeting"].as_str().unwrap();
        assert!(greeting.starts_with("OK Pleased to meet you"));
        let params = json!({ "sessionId": id, "block": "GETINFO version" });
        let answer = caller.call("sendCommands", params).await;
        assert_eq!(answer["result"], json!({ "response": version_answer() }));
        for filter in [json!("pairs"), json!("all"), json!("rpc@test"), json!(["rpc@test"])] {
            let answer = caller.call("exportPublicKeys", json!({ "filter": filter })).await;
            assert_eq!(answer["result"]["keys"][0]["fingerprint"], fingerprint.as_str());
            assert_eq!(answer["result"]["keys"][0]["userId"], "rpc@test");
            let armored = answer["result"]["armored"].as_str().unwrap();
            assert!(armored.starts_with("-----BEGIN PGP PUBLIC KEY BLOCK-----"));
        }
        let version = env!("CARGO_PKG_VERSION");
        let answer = caller.call("checkVersion", json!({ "version": version })).await;
        assert_eq!(answer["result"], json!({ "version": version, "compatible": true }));
        let answer = caller.call("checkVersion", json!({ "version": "99.0.0" })).await;
        assert_eq!(answer["result"]["compatible"], false);
        let answer = caller.call("disconnectAgent", json!({ "sessionId": id })).await;
        assert_eq!(answer["result"], json!({}));
        let answer = caller.call("disconnectAgent", json!({ "sessionId": id })).await;
        assert_eq!(answer["error"]["data"]["kind"], "unknownId");
        let answer = caller.call("disconnectAgent", json!({ "sessionId": "x" })).await;
        assert_eq!(answer["error"]["data"]["kind"], "malformedId");
    });
}

#[test]
fn calls_run_side_by_side() {
    let home = Home::new();
    local(async {
        let mut caller = Caller::new(&home).await;
        let answer = caller.call("connectAgent", json!({})).await;
        let id = answer["result"]["sessionId"].clone();
        let pid = home.agent_pid();
        home.signal_agent(pid, Signal::STOP);
        let send = |number: u32| {
            let params = json!({ "sessionId": id, "block": "NOP" });
            json!({ "jsonrpc": "2.0", "id": number, "method": "sendCommands", "params": params })
        };
        caller.send(&send(1).to_string()).await;
        caller.send(&send(2).to_string()).await;
        let second = caller.answer().await;
        assert_eq!(second["id"], 2);
        assert_eq!(second["error"]["data"]["kind"], "notReady");
        let state = second["error"]["data"]["state"].as_str().unwrap();
        assert!(["SendingToAgent", "WaitingForAgent"].contains(&state), "{state}");
        // The end of the input leaves the first call its answer.
        caller.writer.shutdown().await.unwrap();
        home.signal_agent(pid, Signal::CONT);
        let first = caller.answer().await;
        assert_eq!((&first["id"], &first["result"]["response"]), (&json!(1), &json!("OK\n")));
        caller.server.await.unwrap().unwrap();
    });
}

#[test]
fn what_is_no_request_is_told_so() {
    let home = Home::new();
    local(async {
        let mut caller = Caller::new(&home).await;
        for (line, code) in [
            ("{", -32700),
            ("\u{1b}", -32700),
            ("[]", -32600),
            ("7", -32600),
            (r#"{"id":1,"method":"checkVersion"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, -32601),
            (r#"{"jsonrpc":"2.0","id":1,"method":"checkVersion"}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":1,"method":"checkVersion","params":["1"]}"#, -32602),
            (r#"{"jsonrpc":"2.0","id":1,"method":"checkVersion","params":{"version":1}}"#, -32602),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"exportPublicKeys","params":{"filter":[1]}}"#,
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"checkVersion","params":{"version":"x"}}"#,
                -32000,
            ),
        ] {
            caller.send(line).await;
            assert_eq!(caller.answer().await["error"]["code"], code, "{line}");
        }
        // A notification and an empty line are not answered.
        caller.send(r#"{"jsonrpc":"2.0","method":"nothing"}"#).await;
        caller.send("").await;
        let params = json!({ "version": "0.1.0" });
        assert!(caller.call("checkVersion", params).await["result"].is_object());
        // A last line may lack its end.
        let last = r#"{"jsonrpc":"2.0","id":9,"method":"x"}"#;
        caller.writer.write_all(last.as_bytes()).await.unwrap();
        caller.writer.shutdown().await.unwrap();
        assert_eq!(caller.answer().await["id"], 9);
        caller.server.await.unwrap().unwrap();
    });
}

#[test]
fn a_line_over_the_bound_is_refused_and_the_next_one_is_read() {
    let home = Home::new();
    local(async {
        let mut caller = Caller::new(&home).await;
        let part = vec![b'x'; 1 << 20];
        for _ in 0..=rpc::MAX_LINE >> 20 {
            caller.writer.write_all(&part).await.unwrap();
        }
        caller.send("").await;
        assert_eq!(caller.answer().await["error"]["code"], -32600);
        let answer = caller.call("checkVersion", json!({ "version": "0.1.0" })).await;
        assert!(answer["result"].is_object());
    });
}
