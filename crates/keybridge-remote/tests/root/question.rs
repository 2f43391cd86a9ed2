//! A helper that is told to ask the agents through its own sockets.

use crate::lab::{News, ScriptedAgent, SshHome, User, agreeable, run};
use keybridge_proto::report::ProbeResult;
use keybridge_proto::{Lane, mux::Endpoint};

fn answer(lane: Lane, outcome: Result<&str, &str>) -> ProbeResult {
    ProbeResult { lane, outcome: outcome.map(str::to_owned).map_err(str::to_owned) }
}

#[test]
fn what_the_agents_say_is_reported_after_the_first_keys() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), SshHome::with_key());
        let setup = user.helper_with("gpg,ssh", &gpg.path(), &ssh.socket()).arg("--ask");
        let (mut helper, _) = setup.ready().await;
        let answers = helper.answers().await;
        // The agent of the test knows no version.
        let of_gpg = answer(Lane::Gpg, Err("expected the agent's version, got only OK"));
        assert_eq!(answers, [of_gpg, answer(Lane::Ssh, Ok("1"))]);
        // Once.
        helper.send_keys(b"", b"").await;
        helper.ready().await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn an_agent_that_says_nothing_keeps_nobody_from_ending_the_bridge() {
    run(async {
        let (user, gpg) = (User::new(), agreeable());
        let ssh = ScriptedAgent::serving(|socket| async move {
            std::future::pending::<()>().await;
            drop(socket);
        });
        let setup = user.helper_with("ssh", &gpg.path(), &ssh.path()).arg("--ask");
        let (mut helper, _) = setup.ready().await;
        helper.link.with_mux(Endpoint::stop).unwrap();
        assert!(helper.child.wait().await.unwrap().success());
        // It hasn't waited for the answer, which it would have given.
        let news = helper.news().await;
        assert!(matches!(news, News::Ended(_)), "{news:?}");
    });
}

#[test]
fn an_agent_that_is_away_is_reported() {
    run(async {
        let user = User::new();
        let nowhere = user.elsewhere("nowhere");
        let setup = user.helper_with("gpg,ssh", &nowhere, &nowhere).arg("--ask");
        let (mut helper, _) = setup.ready().await;
        let answers = helper.answers().await;
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|answer| answer.outcome.is_err()), "{answers:?}");
        assert!(helper.stop().await.success());
    });
}
