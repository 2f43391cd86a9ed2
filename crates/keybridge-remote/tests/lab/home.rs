//! GnuPG homes whose programs run while the host's end of the link goes on.

use std::ops::Deref;
use std::process::Output;

use keybridge_lab::output_beside;

/// A GnuPG home with a short path. Its agent ends with it.
pub struct Home(keybridge_lab::Home);

impl Home {
    pub fn new() -> Self {
        Self(keybridge_lab::Home::new())
    }

    /// A home with a key of this name that signs and decrypts.
    pub async fn with_key(name: &str) -> Self {
        let home = Self::new();
        let made = home
            .gpg(&[
                "--batch",
                "--passphrase",
                "",
                "--quick-gen-key",
                name,
                "future-default",
                "default",
            ])
            .await;
        assert!(made.status.success(), "{made:?}");
        home
    }

    pub async fn gpg(&self, arguments: &[&str]) -> Output {
        self.gpg_with_input(arguments, b"").await
    }

    pub async fn gpg_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        self.run("gpg", arguments, input).await
    }

    pub async fn run(&self, program: &str, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(program);
        command.args(arguments);
        output_beside(command, input).await
    }

    /// Starts this home's own agent.
    pub async fn start_agent(&self) {
        let started = self.run("gpgconf", &["--launch", "gpg-agent"], b"").await;
        assert!(started.status.success(), "{started:?}");
    }
}

impl Deref for Home {
    type Target = keybridge_lab::Home;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
