//! git in a repository of its own, and the way by which it has commits signed.

use crate::error::Result;
use crate::lab::SharedClient;
use crate::question::Question;

/// How many commits are rebased.
const REBASED: usize = 30;

/// git beside a client.
pub(crate) struct Committer {
    pub(crate) name: &'static str,
    client: SharedClient,
    env: Vec<(String, String)>,
    repository: String,
}

impl Committer {
    /// Makes the repository, which has these settings.
    pub(crate) fn new(
        name: &'static str,
        client: &SharedClient,
        env: Vec<(String, String)>,
        repository: String,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let committer = Self { name, client: client.clone(), env, repository };
        let set = |(name, value): &(&str, &str)| format!("git config {name} '{value}'\n");
        let settings = settings.iter().map(set).collect::<Vec<_>>().concat();
        let script = format!(
            "git init -q --initial-branch=main '{}'
            cd '{0}'
            git config user.name Bench
            git config user.email bench@keybridge.example
            git config gc.auto 0
            {settings}
            for number in $(seq 0 {REBASED}); do git commit -q --allow-empty -m $number; done
            git branch start",
            committer.repository
        );
        committer.run(&["sh", "-ec", &script])?;
        Ok(committer)
    }

    /// One signed commit, in nanoseconds.
    pub(crate) fn commit(&self) -> Result<Vec<u64>> {
        self.git(&["commit", "-q", "--allow-empty", "-S", "-m", "signed"])
    }

    /// Thirty commits that are signed anew, in nanoseconds.
    pub(crate) fn rebase(&self) -> Result<Vec<u64>> {
        self.git(&["checkout", "-q", "-B", "rebased", "start"])?;
        let sign = "git commit -q --amend --allow-empty --no-edit -S";
        self.git(&["rebase", "-q", "--exec", sign, &format!("HEAD~{REBASED}")])
    }

    fn git(&self, words: &[&str]) -> Result<Vec<u64>> {
        self.run(&[&["git", "-C", &self.repository], words].concat())
    }

    fn run(&self, words: &[&str]) -> Result<Vec<u64>> {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let (env, input) = (self.env.clone(), String::new());
        self.client.borrow_mut().ask(&Question::Run { socket: None, words, env, input })
    }
}
