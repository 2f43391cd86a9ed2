//! The configuration file: defaults, and a table for each pattern of targets.

use std::path::{Path, PathBuf};

use keybridge_proto::printable;
use keybridge_proto::wildcard::matches;
use serde::Deserialize;

use super::{Environment, Invocation, Options, Settings, usage};
use crate::Result;
use crate::platform::{System, expand, variable};

/// The configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// Where it was read from.
    #[serde(skip)]
    path: Option<PathBuf>,
    defaults: Options,
    target: Vec<Options>,
}

impl ConfigFile {
    /// Reads the file, if it is there.
    pub fn load(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let file = Self::parse(&text, path)?;
                Ok(Self { path: Some(path.to_owned()), ..file })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(usage(format!("{}: {error}", path.display()))),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
            let message = printable(error.message()).to_string();
            let message = message.replace("expected usize", "expected a number");
            let message = message.replace("expected u64", "expected a number");
            usage(format!("{} line {line}: {message}", path.display()))
        })?;
        if file.defaults.r#match.is_some() {
            return Err(usage(format!("{}: [defaults] takes no `match`", path.display())));
        }
        if file.target.iter().any(|table| table.r#match.is_none()) {
            return Err(usage(format!("{}: a [[target]] table needs `match`", path.display()))
                .hint("for example match = \"web-*\", where * stands for any text"));
        }
        Ok(file)
    }

    /// Where it was read from, if it was there.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The settings for a target, for a caller in this process's environment.
    pub(crate) fn settings(&self, target: &str, options: &Options) -> Result<Settings> {
        Settings::new(self.layered(target, options), &Environment::of_this_process())
    }

    /// The settings for a target that another process asks for.
    pub(crate) fn settings_for(&self, target: &str, invocation: &Invocation) -> Result<Settings> {
        Settings::new(self.layered(target, &invocation.options), &invocation.environment)
    }

    /// The settings of a target for which no table is, and those of each table.
    pub(crate) fn all_settings(&self, invocation: &Invocation) -> Result<Vec<Settings>> {
        let named = &invocation.options;
        let tables = self.target.iter().map(|table| named.clone().or(table));
        std::iter::once(named.clone())
            .chain(tables)
            .map(|options| Settings::new(options.or(&self.defaults), &invocation.environment))
            .collect()
    }

    /// What is set for a target: on the command line or in the environment, else in the last table
    /// that matches, else in the defaults.
    pub(crate) fn layered(&self, target: &str, options: &Options) -> Options {
        // People name a container without its engine: a table that is passed over lends too much.
        let engines = ["docker://", "podman://"];
        let name = engines.iter().find_map(|engine| target.strip_prefix(engine));
        let is_meant =
            |one: &String| matches(one, target) || name.is_some_and(|name| matches(one, name));
        let is_for_it = |table: &&Options| table.r#match.as_ref().is_some_and(is_meant);
        let tables = self.target.iter().rev().filter(is_for_it);
        tables.chain([&self.defaults]).fold(options.clone(), Options::or)
    }
}

/// Where the configuration is looked for.
pub(crate) fn default_path() -> Option<PathBuf> {
    let folders = expand(System::here().config_folders, variable);
    folders.first().map(|folder| folder.join("keybridge/config.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use keybridge_proto::gate::AgentSocket;

    fn parse(text: &str) -> Result<ConfigFile> {
        ConfigFile::parse(text, Path::new("config.toml"))
    }

    #[test]
    fn the_command_line_is_stronger_than_a_table_and_a_table_than_the_defaults() {
        let file = parse(
            "[defaults]\nkeys = \"all\"\nmax-sessions = 7\nsocket = \"main\"\n\
             [[target]]\nmatch = \"local:*\"\nkeys = \"A\"\nmax-sessions = 8\n\
             [[target]]\nmatch = \"local:/x?\"\nkeys = \"B\"\n",
        )
        .unwrap();
        let nothing = Options::default();
        let settings = |target, named| file.settings(target, named).unwrap();
        assert_eq!(settings("docker://x", &nothing).lending.keys.as_deref(), Some("all"));
        assert_eq!(settings("docker://x", &nothing).max_sessions, 7);
        assert_eq!(settings("local:/y", &nothing).lending.keys.as_deref(), Some("A"));
        assert_eq!(settings("local:/xy", &nothing).lending.keys.as_deref(), Some("B"));
        assert_eq!(settings("local:/xy", &nothing).max_sessions, 8);
        assert_eq!(settings("local:/xy", &nothing).policy.socket, AgentSocket::Main);
        let named = Options { keys: Some("C".into()), ..Options::default() };
        assert_eq!(settings("local:/xy", &named).lending.keys.as_deref(), Some("C"));
        let built_in = ConfigFile::default().settings("x", &nothing).unwrap();
        assert_eq!((built_in.lending.keys.as_deref(), built_in.max_sessions), (None, 256));
    }

    #[test]
    fn a_table_for_a_container_names_it_with_or_without_its_engine() {
        let file = parse(
            "[[target]]\nmatch = \"web\"\nmax-sessions = 1\n\
             [[target]]\nmatch = \"podman://db*\"\nmax-sessions = 2\n\
             [[target]]\nmatch = \"app-?\"\nmax-sessions = 3\n",
        )
        .unwrap();
        for (target, sessions) in [
            ("docker://web", 1),
            ("podman://web", 1),
            ("podman://db1", 2),
            ("docker://app-1", 3),
            ("docker://db1", 256),
            ("docker://web2", 256),
            ("ssh://web", 256),
            ("wsl://web", 256),
        ] {
            let settings = file.settings(target, &Options::default()).unwrap();
            assert_eq!(settings.max_sessions, sessions, "{target}");
        }
    }

    #[test]
    fn a_wrong_type_is_told_without_the_names_of_a_programming_language() {
        for setting in ["max-sessions", "outlive"] {
            let error = parse(&format!("[defaults]\n{setting} = \"many\"\n")).unwrap_err();
            let expected = "config.toml line 2: invalid type: string \"many\", expected a number";
            assert_eq!(error.message, expected);
        }
    }

    #[test]
    fn an_unknown_word_is_named_with_its_line() {
        for (text, line, word) in [
            ("[defaults]\nkeys = \"all\"\nkyes = \"all\"\n", 3, "kyes"),
            ("\n\n[defualts]\n", 3, "defualts"),
            ("[[target]]\nmatch = \"x\"\nlnaes = []\n", 3, "lnaes"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            let expected = format!("config.toml line {line}: unknown field `{word}`");
            assert!(error.message.starts_with(&expected), "{error}");
        }
        assert!(parse("[[target]]\nkeys = \"x\"\n").unwrap_err().message.contains("needs `match`"));
        assert!(parse("[defaults]\nmatch = \"x\"\n").is_err());
        assert!(parse("[defaults\n").unwrap_err().message.starts_with("config.toml line 1: "));
    }
}
