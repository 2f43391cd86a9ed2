//! A helper whose link is lost: what clients get from it, and how it ends.

use crate::lab::{Client, Home, News, ScriptedAgent, Setup, agreeable, run, until};
use rustix::process::Signal;

const CONF: &[u8] = b"# mine\r\nagent-program /usr/bin/gpg-agent\r\nno line end";

const NO_AGENT: &str = "ERR 67108941 No agent running <GPG Agent>\n";

/// Longer than any test takes.
const LONG: u64 = 600;

#[test]
fn clients_get_their_error_while_the_link_is_down() {
    run(async {
        let home = Home::new();
        let agent = ScriptedAgent::answering(|line| (line == "NOP").then(|| "OK\n".into()));
        let (helper, _) = Setup::new(home.path(), &agent.path()).outliving(LONG).ready().await;
        let mut waiting = Client::greeted(&home.socket()).await;
        waiting.send("PKSIGN\n").await;
        let mut idle = Client::greeted(&home.socket()).await;
        assert_eq!(idle.ask("NOP").await, ["OK\n"]);
        until("the command is on its way", || helper.log().contains("PKSIGN (6 bytes)")).await;
        helper.cut();
        assert_eq!(waiting.line().await, NO_AGENT);
        assert_eq!(waiting.line().await, "");
        assert_eq!(idle.line().await, "");
        for _ in 0..50 {
            assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        }
        let signed = home.gpg_with_input(&["--batch", "--detach-sign"], b"text").await;
        assert!(!signed.status.success(), "{signed:?}");
        helper.kill().await;
    });
}

#[test]
fn after_its_time_everything_is_undone_byte_for_byte() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        std::fs::write(home.file("gpg.conf"), CONF).unwrap();
        let (mut helper, _) = Setup::new(home.path(), &agent.path()).outliving(1).ready().await;
        helper.cut();
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        assert!(helper.child.wait().await.unwrap().success());
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), CONF);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    });
}

#[test]
fn signals_end_the_wait_and_a_hang_up_does_not() {
    run(async {
        for signal in [Signal::TERM, Signal::INT] {
            let (home, agent) = (Home::new(), agreeable());
            let (mut helper, _) =
                Setup::new(home.path(), &agent.path()).outliving(LONG).ready().await;
            helper.cut();
            assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
            helper.signal(Signal::HUP);
            assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
            helper.signal(signal);
            assert!(helper.child.wait().await.unwrap().success(), "{signal:?}");
            assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "{signal:?}");
        }
    });
}

#[test]
fn a_hang_up_ends_the_link_and_the_helper_stays() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (mut helper, _) = Setup::new(home.path(), &agent.path()).outliving(LONG).ready().await;
        let mut client = Client::greeted(&home.socket()).await;
        helper.signal(Signal::HUP);
        assert!(matches!(helper.news().await, News::Ended(_)));
        assert_eq!(client.line().await, "");
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        helper.kill().await;
    });
}

#[test]
fn a_stop_or_a_bridge_that_never_was_ready_is_undone_at_once() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let setup = || Setup::new(home.path(), &agent.path()).outliving(LONG);
        let (mut helper, _) = setup().ready().await;
        helper.link.with_mux(keybridge_proto::mux::Endpoint::stop).unwrap();
        helper.link.flushed().await;
        helper.cut();
        assert!(helper.child.wait().await.unwrap().success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);

        let helper = setup().spawn().await;
        until("the socket is there", || home.has_socket()).await;
        assert!(helper.hang_up().await.success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn the_path_of_the_socket_is_guarded_while_the_link_is_down() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).outliving(LONG).ready().await;
        helper.cut();
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        std::fs::remove_file(home.socket()).unwrap();
        until("the socket is back", || home.has_socket()).await;
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        helper.kill().await;
    });
}

#[test]
fn a_host_that_falls_silent_is_found() {
    run(async {
        let home = Home::new();
        let agent = ScriptedAgent::answering(|_| None);
        let (mut helper, _) = Setup::new(home.path(), &agent.path()).outliving(LONG).ready().await;
        let mut waiting = Client::greeted(&home.socket()).await;
        waiting.send("PKSIGN\n").await;
        until("the command is on its way", || helper.log().contains("PKSIGN (6 bytes)")).await;
        helper.silence();
        let mut client = Client::connect(&home.socket()).await;
        assert_eq!(client.line().await, NO_AGENT);
        assert_eq!(waiting.line().await, NO_AGENT);
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        helper.signal(Signal::TERM);
        assert!(helper.child.wait().await.unwrap().success());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let setup = Setup::new(home.path(), &agent.path()).outliving(LONG).with_unread_log();
        let (helper, _) = setup.ready().await;
        // Far more lines than a pipe holds.
        for _ in 0..20 {
            let mut client = Client::greeted(&home.socket()).await;
            for _ in 0..100 {
                assert_eq!(client.ask("NOP").await, ["OK\n"]);
            }
        }
        helper.cut();
        assert_eq!(Client::turned_away(&home.socket()).await, NO_AGENT);
        helper.kill().await;
    });
}

#[test]
fn a_helper_has_a_session_of_its_own() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let pid = helper.pid().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // State, parent, group and session follow the name in brackets.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        assert_eq!((fields[2], fields[3]), (pid.as_str(), pid.as_str()), "{stat}");
        assert!(helper.stop().await.success());
    });
}
