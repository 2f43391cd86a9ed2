//! Commands that a person types on the host, and that run in a target.

use super::{CommandTarget, Target};
use crate::container::ContainerTarget;
use crate::shell_quote::line;

/// Who a command runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// The user that the target is bridged for.
    User,
    /// The superuser.
    Root,
}

impl Target {
    /// The command line that runs these words in the target.
    pub(crate) fn typed(&self, words: &[&str], run_as: RunAs) -> String {
        let inner = words.iter().map(|word| (*word).to_owned()).collect();
        let words = match self {
            Self::Container(target) => target.typed(inner, run_as),
            Self::Command(target) => target.typed(inner, run_as),
            Self::Local(target) => match target.home() {
                Some(home) => {
                    let home = format!("GNUPGHOME={}", home.display());
                    ["env".to_owned(), home].into_iter().chain(inner).collect()
                }
                None => inner,
            },
            // Only a terminal of the editor leads there.
            Self::Editor(_) => inner,
        };
        line(words)
    }
}

impl ContainerTarget {
    fn typed(&self, words: Vec<String>, run_as: RunAs) -> Vec<String> {
        let user = match run_as {
            RunAs::User => self.user().map(str::to_owned),
            RunAs::Root => Some("root".to_owned()),
        };
        let mut typed = vec![self.engine_kind().program().to_owned(), "exec".to_owned()];
        typed.extend(user.into_iter().flat_map(|user| ["-u".to_owned(), user]));
        typed.push(self.name().to_owned());
        typed.extend(words);
        typed
    }
}

impl CommandTarget {
    fn typed(&self, words: Vec<String>, run_as: RunAs) -> Vec<String> {
        let words = match run_as {
            RunAs::User => words,
            RunAs::Root => std::iter::once("sudo".to_owned()).chain(words).collect(),
        };
        let mut typed = self.leading_words();
        if self.is_ssh() {
            // The user's shell there splits it again.
            typed.push(shell_words::join(words));
        } else {
            typed.extend(words);
        }
        typed
    }
}

crate::platform::tests_on_unix! {
#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetAddress;

    async fn typed(address: &str, run_as: RunAs) -> String {
        let address: TargetAddress = address.parse().unwrap();
        let (target, _) = Target::find_any(&address, None).await.unwrap();
        target.typed(&["git", "config", "user.name", "A B"], run_as)
    }

    #[tokio::test]
    async fn a_command_is_quoted_for_every_shell_that_reads_it() {
        let git = "git config user.name 'A B'";
        let ssh = r"ssh -l dev -p 22 -- web 'git config user.name '\''A B'\'''";
        assert_eq!(typed("ssh://dev@web:22", RunAs::User).await, ssh);
        assert_eq!(typed("exec:'a b' -i", RunAs::User).await, format!("'a b' -i {git}"));
        assert_eq!(typed("exec:x", RunAs::Root).await, format!("x sudo {git}"));
        assert_eq!(typed("wsl://D", RunAs::User).await, format!("wsl.exe -d D --exec {git}"));
        assert_eq!(typed("local:/g h", RunAs::User).await, format!("env 'GNUPGHOME=/g h' {git}"));
    }
}
}
