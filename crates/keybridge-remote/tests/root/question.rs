//! A helper that is told to ask the agents through its own sockets.

use std::time::Instant;

use crate::lab::{AT_ONCE, ScriptedAgent, SshHome, User, agreeable, run};
use keybridge_proto::Lane;
use keybridge_proto::report::ProbeResult;

fn answer(lane: Lane, outcome: Result<&str, &str>) -> ProbeResult {
    ProbeResult { lane, outcome: outcome.map(str::to_owned).map_err(str::to_owned) }
}

#[test]
fn what_the_agents_say_is_reported_after_the_first_keys() {
    run(async {
        let (user, gpg, ssh) = (User::new(), agreeable(), SshHome::with_key());
        let setup = user.helper_with("gpg,ssh", &gpg.path(), &ssh.socket()).arg("--ask");
        let (mut helper, first) = setup.ready().await;
        assert_eq!(first.answers, []);
        let second = helper.ready().await;
        // The agent of the test knows no version.
        let of_gpg = answer(Lane::Gpg, Err("expected the agent's version, got only OK"));
        assert_eq!(second.answers, [of_gpg, answer(Lane::Ssh, Ok("1"))]);
        // Once.
        helper.send_keys(b"", b"").await;
        assert_eq!(helper.ready().await.answers, []);
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
        let (helper, first) = setup.ready().await;
        assert_eq!(first.answers, []);
        let start = Instant::now();
        assert!(helper.stop().await.success());
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    });
}

#[test]
fn an_agent_that_is_away_is_reported() {
    run(async {
        let user = User::new();
        let nowhere = user.elsewhere("nowhere");
        let setup = user.helper_with("gpg,ssh", &nowhere, &nowhere).arg("--ask");
        let (mut helper, _) = setup.ready().await;
        let answers = helper.ready().await.answers;
        assert_eq!(answers.len(), 2);
        assert!(answers.iter().all(|answer| answer.outcome.is_err()), "{answers:?}");
        assert!(helper.stop().await.success());
    });
}
