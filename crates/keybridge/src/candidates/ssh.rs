//! The hosts that the user's ssh configuration names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use keybridge_proto::printable;
use keybridge_proto::wildcard::matches;

use crate::candidates::{Candidate, MOST_LISTED};
use crate::platform::variable;
use crate::target::{SshAddress, TargetAddress};
use crate::{Error, Result};

/// How deep files may include others. ssh has the same limit.
const DEEPEST: usize = 16;

/// How many files are read, and how many bytes of them: far more than anybody writes.
const MOST_FILES: usize = 256;
const MOST_BYTES: u64 = 1024 * 1024;

pub(crate) async fn list() -> Result<Vec<Candidate>> {
    let Some(home) = variable("HOME") else {
        return Ok(Vec::new());
    };
    // A file may be on a disk that doesn't answer.
    let read = tokio::task::spawn_blocking(move || Reader::read(Path::new(&home)));
    let hosts = match read.await {
        Ok(hosts) => hosts?,
        Err(error) => return Err(Error::failed("reading ssh's configuration").caused_by(error)),
    };
    Ok(hosts.into_iter().map(Host::candidate).collect())
}

/// A host that is named, and where it is if the same section says so.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    address: SshAddress,
    /// The word that it is named by.
    name: String,
    real_name: Option<String>,
    user: Option<String>,
}

impl Host {
    /// The host of a word behind `Host`, unless that is a pattern.
    fn named(word: &str) -> Option<Self> {
        if word.contains(['*', '?', '!', ',', '@', ':', '[']) {
            return None;
        }
        let address = word.parse().ok()?;
        Some(Self { address, name: word.to_owned(), real_name: None, user: None })
    }

    fn candidate(self) -> Candidate {
        let host = self.real_name.map(|host| host.replace("%h", &self.name));
        let place = match (self.user, host) {
            (Some(user), Some(host)) => format!("{user}@{host}"),
            (Some(user), None) => format!("{user}@{}", self.name),
            (None, host) => host.unwrap_or_default(),
        };
        let address = TargetAddress::Ssh(self.address);
        let (key, detail) = (address.to_string(), printable(&place).to_string());
        Candidate { address, key, detail, age: None }
    }
}

/// Reads `~/.ssh/config` and the files that it includes.
struct Reader {
    home: PathBuf,
    hosts: Vec<Host>,
    files: usize,
    bytes: u64,
}

impl Reader {
    fn read(home: &Path) -> Result<Vec<Host>> {
        let mut reader = Self { home: home.to_owned(), hosts: Vec::new(), files: 0, bytes: 0 };
        let config = reader.folder().join("config");
        match reader.read_file(&config, 0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = config.display().to_string();
                Err(Error::failed(printable(&path).to_string()).caused_by(error))
            }
            Ok(()) | Err(_) => Ok(reader.hosts),
        }
    }

    fn folder(&self) -> PathBuf {
        self.home.join(".ssh")
    }

    fn read_file(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        let left = MOST_BYTES - self.bytes.min(MOST_BYTES);
        if self.files >= MOST_FILES || left == 0 {
            return Ok(());
        }
        // To open a pipe would wait for its other end.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        let mut text = Vec::new();
        File::open(path)?.take(left).read_to_end(&mut text)?;
        self.files += 1;
        self.bytes += u64::try_from(text.len()).unwrap_or(u64::MAX);
        let mut section = Vec::new();
        for line in String::from_utf8_lossy(&text).lines() {
            self.read_line(line, &mut section, depth);
        }
        Ok(())
    }

    /// `section` has the indexes of the hosts that the line is for.
    fn read_line(&mut self, line: &str, section: &mut Vec<usize>, depth: usize) {
        let Some((keyword, words)) = parsed(line) else { return };
        match keyword.as_str() {
            "host" => {
                section.clear();
                section.extend(words.iter().filter_map(|word| self.index_of(word)));
            }
            "match" => section.clear(),
            "include" if depth < DEEPEST => {
                for word in &words {
                    for path in self.included(word) {
                        // ssh too does without a file that can't be read.
                        let _ = self.read_file(&path, depth + 1);
                    }
                }
            }
            "hostname" | "user" => {
                let Some(word) = words.first() else { return };
                for &index in &*section {
                    let Some(host) = self.hosts.get_mut(index) else { continue };
                    let value =
                        if keyword == "user" { &mut host.user } else { &mut host.real_name };
                    // The first value counts.
                    value.get_or_insert_with(|| word.clone());
                }
            }
            _ => {}
        }
    }

    /// The index of a host in the list, which it is added to.
    fn index_of(&mut self, word: &str) -> Option<usize> {
        let known = self.hosts.iter().position(|host| host.name == word);
        known.or_else(|| {
            let host = Host::named(word).filter(|_| self.hosts.len() < MOST_LISTED)?;
            self.hosts.push(host);
            Some(self.hosts.len() - 1)
        })
    }

    /// The files that a word behind `Include` stands for.
    fn included(&self, word: &str) -> Vec<PathBuf> {
        let path = match word.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None => self.folder().join(word),
        };
        let mut found = vec![PathBuf::new()];
        for part in path.components() {
            let pattern = match part {
                Component::Normal(name) => name.to_str().filter(|name| name.contains(['*', '?'])),
                _ => None,
            };
            match pattern {
                None => found.iter_mut().for_each(|path| path.push(part)),
                Some(pattern) => {
                    found = found.iter().flat_map(|folder| matching(folder, pattern)).collect();
                    found.truncate(MOST_FILES);
                }
            }
        }
        found
    }
}

/// The entries of a folder whose names match a pattern, in order.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_FILES * 4);
    let is_meant =
        |name: &str| matches(pattern, name) && (pattern.starts_with('.') || !name.starts_with('.'));
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_meant));
    let mut paths: Vec<_> = named.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The keyword of a line, in lower case, and the words behind it.
fn parsed(line: &str) -> Option<(String, Vec<String>)> {
    let line = line.trim();
    let end = line.find(|character: char| character.is_whitespace() || character == '=')?;
    let (keyword, rest) = line.split_at_checked(end)?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    // It splits as ssh does, and expands nothing. ssh refuses a line with an open quote.
    let words = shell_words::split(rest).ok()?;
    (!keyword.starts_with('#')).then(|| (keyword.to_ascii_lowercase(), words))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts of a home with these files in `.ssh`, and where they are.
    fn hosts(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(".ssh").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let hosts = Reader::read(home.path()).unwrap().into_iter().map(Host::candidate);
        hosts.map(|host| (host.address.to_string(), host.detail)).collect()
    }

    fn names(files: &[(&str, &str)]) -> Vec<String> {
        hosts(files).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn hosts_are_listed_and_patterns_are_not() {
        let config = "# Host no\n\nHost web db\n  HostName %h.example.org\n  User dev\n\
                      host=build\nHOSTNAME = 10.0.0.1\nHostName late\n\
                      Host *.example.org !bad ?x\n  User all\nHost *\n User me\n\
                      Match host x\n HostName y\nHost \"quoted\" # no\nHost 'open\nHost web\n";
        let expected = [
            ("ssh://web", "dev@web.example.org"),
            ("ssh://db", "dev@db.example.org"),
            ("ssh://build", "10.0.0.1"),
            ("ssh://quoted", ""),
        ];
        let expected = expected.map(|(name, detail)| (name.to_owned(), detail.to_owned()));
        assert_eq!(hosts(&[("config", config)]), expected);
    }

    #[test]
    fn files_are_included_by_name_by_pattern_and_from_the_home() {
        let files = [
            ("config", "Include conf.d/* ~/.ssh/more missing\nHost last\n"),
            ("conf.d/b", "Host b\n"),
            ("conf.d/a", "Host a\n"),
            ("conf.d/.hidden", "Host hidden\n"),
            ("more", "Host more\n"),
        ];
        assert_eq!(names(&files), ["ssh://a", "ssh://b", "ssh://more", "ssh://last"]);
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        assert_eq!(names(&[("config", "Host a\nInclude config config\n")]), ["ssh://a"]);
    }

    #[test]
    fn more_than_anybody_writes_is_cut() {
        let many = (0..100_000).map(|at| format!("Host h{at}")).collect::<Vec<_>>().join("\n");
        assert_eq!(names(&[("config", &many)]).len(), MOST_LISTED);
        let long = format!("{}\nHost late\n", "x".repeat(2 * 1024 * 1024));
        assert_eq!(names(&[("config", &long)]), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_host_name_is_not_listed() {
        let config = "Host -oProxyCommand=x a@b c:22 $(x) a;b \u{1b}[31m [::1] ok\n HostName \"\u{1b}[2J\"\n";
        assert_eq!(
            hosts(&[("config", config)]),
            [("ssh://ok".to_owned(), "\\u{1b}[2J".to_owned())]
        );
    }

    #[test]
    fn no_configuration_has_no_hosts_and_one_that_is_a_folder_is_told() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Reader::read(home.path()).unwrap(), []);
        fs::create_dir_all(home.path().join(".ssh/config")).unwrap();
        let told = Reader::read(home.path()).unwrap_err().message;
        assert!(told.ends_with("config: not a file"), "{told}");
    }

    crate::platform::tests_on_unix! {
    #[test]
    fn a_configuration_that_is_a_pipe_is_told() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let home = tempfile::tempdir().unwrap();
        let config = home.path().join(".ssh/config");
        fs::create_dir(home.path().join(".ssh")).unwrap();
        mknodat(CWD, &config, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let told = Reader::read(home.path()).unwrap_err().message;
        assert!(told.ends_with(".ssh/config: not a file"), "{told}");
    }
    }
}
