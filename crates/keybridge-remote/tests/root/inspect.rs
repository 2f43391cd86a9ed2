//! `keybridge-remote inspect` of the ssh lane.

use keybridge_proto::inspection::{Inspection, Listener, StarterKind};
use rustix::process::Signal;

use crate::lab::{self, SshHome, User, run};

async fn inspect(user: &User, auth_sock: Option<&std::path::Path>) -> Inspection {
    let environment: Vec<_> = auth_sock.map(|path| ("SSH_AUTH_SOCK", path)).into_iter().collect();
    let output = user.run_with(lab::program(), &["inspect"], &environment).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Inspection::parse(&output.stdout).unwrap()
}

#[test]
fn the_ssh_lane_without_and_with_an_agent() {
    run(async {
        let (user, agent) = (User::new(), SshHome::with_key());
        let before = user.content();
        let lane = inspect(&user, None).await.lanes.ssh;
        assert_eq!(user.content(), before);
        assert_eq!(lane.socket.as_deref(), user.socket().to_str());
        assert_eq!((lane.listener, lane.is_set_up), (Listener::Nobody, Some(false)));
        assert_eq!(lane.problem, None);

        let socket = agent.socket();
        let lane = inspect(&user, Some(&socket)).await.lanes.ssh;
        assert_eq!(lane.socket.as_deref(), socket.to_str());
        let (pid, program) = (Some(agent.agent_pid()), Some("ssh-agent".to_owned()));
        assert_eq!(lane.listener, Listener::Agent { pid, program, has_secret_keys: Some(true) });
        assert_eq!(user.content(), before);
    });
}

#[test]
fn a_helper_and_a_variable_that_leads_elsewhere() {
    run(async {
        let (user, agent, other) = (User::new(), SshHome::with_key(), SshHome::with_key());
        let (helper, _) = user.helper("ssh", &agent.socket()).outliving(60).ready().await;
        let before = user.content();
        let lane = inspect(&user, None).await.lanes.ssh;
        // Each process of the user has mounts of its own, and so the program of another isn't run.
        assert!(matches!(lane.listener, Listener::Helper { version: None, .. }), "{lane:?}");
        assert_eq!((lane.is_set_up, lane.starters.as_slice()), (Some(true), &[][..]));

        let lane = inspect(&user, Some(&other.socket())).await.lanes.ssh;
        assert!(matches!(lane.listener, Listener::Helper { .. }), "{lane:?}");
        assert_eq!((lane.starters.len(), lane.starters[0].kind), (1, StarterKind::SshAuthSock));
        assert_eq!(Some(lane.starters[0].name.as_str()), other.socket().to_str());
        assert_eq!(lane.starters[0].fix, "unset SSH_AUTH_SOCK");
        assert_eq!(user.content(), before);

        helper.signal(Signal::TERM);
    });
}
