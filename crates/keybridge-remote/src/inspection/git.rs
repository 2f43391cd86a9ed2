//! git, and the settings with which it signs.

use std::path::Path;

use keybridge_proto::inspection::{GitFacts, GitSetting};
use keybridge_proto::{last_line, printable};

use super::in_time;
use crate::entry;
use crate::subprocess::{command, find_on_path, run};
use crate::user_files::git::{ALL_REPOSITORIES, WITH_REMOTE, installed_version};
use crate::{Environment, GitFolder};

/// How many such files are followed; ours are two.
const MOST_INCLUDES: usize = 4;

/// Asks git. `None` if there is none.
pub(super) async fn inspect(environment: &Environment) -> Option<GitFacts> {
    find_on_path("git")?;
    let home = environment.home_variable.as_deref().or(environment.home.as_deref());
    let folder = home.filter(|home| home.is_dir()).unwrap_or(Path::new("/"));
    let (version, settings) = tokio::join!(in_time(installed_version()), in_time(settings(folder)));
    let mut facts = GitFacts::new(version.map(|(version, _)| version));
    facts.entries = entries(environment);
    match settings {
        Ok(settings) => {
            for (name, setting) in settings {
                if let Some(known) = facts.setting_mut(&name) {
                    *known = Some(setting);
                }
            }
        }
        Err(reason) => facts.problem = Some(reason),
    }
    Some(facts)
}

/// The programs that a bridge has put there.
fn entries(environment: &Environment) -> Vec<String> {
    let Ok(folder) = GitFolder::find(environment) else { return Vec::new() };
    let entries = [entry::GPG, entry::SSH_KEYGEN].map(|name| folder.folder().path().join(name));
    let there = entries.iter().filter(|entry| entry.is_file());
    there.map(|entry| entry.to_string_lossy().into_owned()).collect()
}

type NamedSetting = (String, GitSetting);

/// Every setting outside of repositories, the last one of a name counts. git includes a file for all
/// repositories, or for those with a remote, only in one of them, so such files are listed apart.
async fn settings(folder: &Path) -> Result<Vec<NamedSetting>, String> {
    let mut all = Vec::new();
    let mut includes = 0;
    for setting in list(folder, &[]).await? {
        let is_include = [ALL_REPOSITORIES, WITH_REMOTE]
            .iter()
            .any(|condition| setting.0 == format!("includeif.{condition}.path"));
        let include = Some(&setting.1.value).filter(|path| is_include && path.starts_with('/'));
        if let Some(path) = include.filter(|path| Path::new(path).is_file())
            && includes < MOST_INCLUDES
        {
            includes += 1;
            all.extend(list(folder, &["--file", path]).await?);
        }
        all.push(setting);
    }
    Ok(all)
}

async fn list(folder: &Path, file: &[&str]) -> Result<Vec<NamedSetting>, String> {
    let mut git = command(Path::new("git"));
    // The home may be a repository itself.
    git.current_dir(folder).env("GIT_DIR", "/nonexistent");
    git.arg("config").args(file).args(["--includes", "--show-origin", "--null", "--list"]);
    let output = run(&mut git).await.map_err(|error| format!("git config: {error}"))?;
    if !output.status.success() {
        let said = printable(last_line(&output.stderr)).to_string();
        return Err(format!("git config: {}: {said}", output.status));
    }
    Ok(parse(&output.stdout))
}

/// Pairs of an origin and a name with its value.
fn parse(listing: &[u8]) -> Vec<NamedSetting> {
    let text = String::from_utf8_lossy(listing);
    let mut fields = text.split('\0');
    let mut settings = Vec::new();
    while let (Some(origin), Some(setting)) = (fields.next(), fields.next()) {
        // A name alone means true.
        let (name, value) = setting.split_once('\n').unwrap_or((setting, "true"));
        let file = origin.strip_prefix("file:").map(str::to_owned);
        settings.push((name.to_owned(), GitSetting { value: value.to_owned(), file }));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_pairs() {
        let listing = b"file:/a\0user.email\na\nb\0command line:\0commit.gpgsign\0file:/cut\0";
        let setting = |value: &str, file: Option<&str>| GitSetting {
            value: value.into(),
            file: file.map(Into::into),
        };
        let expected = [
            ("user.email".to_owned(), setting("a\nb", Some("/a"))),
            // As git has it for a variable of the environment too.
            ("commit.gpgsign".to_owned(), setting("true", None)),
        ];
        assert_eq!(parse(listing)[..2], expected);
    }
}
