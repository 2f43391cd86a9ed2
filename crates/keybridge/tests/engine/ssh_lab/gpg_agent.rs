//! gpg-agent in the place of ssh-agent.

use crate::lab::{Home, run, text};

/// Has the agent of a home speak ssh-agent's protocol, with a new subkey for it. `flags` are those of
/// `sshcontrol`, and `settings` are added to the agent's own. Gives back the public key.
pub fn be_ssh_agent(home: &Home, flags: &str, settings: &str) -> String {
    let fingerprint = home.fingerprint();
    let words = ["--passphrase", "", "--quick-add-key", &fingerprint, "ed25519", "auth", "never"];
    run(&mut home.gpg(words));
    let keygrip = home.keygrips().pop().unwrap();
    std::fs::write(home.file("sshcontrol"), format!("{keygrip} 0 {flags}\n")).unwrap();
    std::fs::write(home.file("gpg-agent.conf"), format!("enable-ssh-support\n{settings}")).unwrap();
    home.end_agents();
    home.launch_agent();
    let mut list = keybridge_lab::command("ssh-add");
    let listed = text(&run(list.arg("-L").env("SSH_AUTH_SOCK", home.dirs("agent-ssh-socket"))));
    let fields: Vec<&str> = listed.split_whitespace().take(2).collect();
    fields.join(" ")
}
