//! The cgroups of a process, and the container that they tell of.
//!
//! Engines put each container into a cgroup that has the container's id in its name:
//!
//! | engine | cgroup |
//! |---|---|
//! | Docker | `/docker/ID`, `/system.slice/docker-ID.scope` |
//! | Podman | `/libpod_parent/libpod-ID`, `/machine.slice/libpod-ID.scope/container`; rootless below the user's own |
//! | containerd, CRI-O | `/default/ID`, `/kubepods/…/cri-containerd-ID.scope`, `/kubepods/…/crio-ID` |
//!
//! A container may make cgroups below its own and name them as it likes. So the first such name counts.

use keybridge_proto::gate::ContainerId;

/// What engines write before the id. `libpod-conmon-` isn't among them: that is the process that watches a
/// container from outside.
const PREFIXES: [&str; 6] = ["", "docker-", "libpod-", "cri-containerd-", "nerdctl-", "crio-"];

/// The cgroups of a process: one in each hierarchy of version 1, and one in that of version 2.
#[derive(Debug)]
pub(super) struct Cgroups(Vec<Cgroup>);

#[derive(Debug)]
struct Cgroup {
    /// The controllers of the hierarchy; empty for version 2.
    hierarchy: String,
    path: String,
}

/// The cgroup of a container, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scope {
    hierarchy: String,
    path: String,
}

impl Cgroups {
    /// Parses `/proc/PID/cgroup`. A line that isn't text, or was cut, is left out.
    pub(super) fn parse(file: &[u8]) -> Self {
        let end = file.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        let complete = file.get(..end).unwrap_or_default();
        let lines = complete.split(|&byte| byte == b'\n');
        Self(lines.filter_map(|line| Cgroup::parse(str::from_utf8(line).ok()?)).collect())
    }

    /// The container and its cgroup. If this process is in a container itself, only containers inside
    /// that one count.
    pub(super) fn container(&self, own: Option<&Scope>) -> Option<(Scope, ContainerId)> {
        self.0.iter().find_map(|cgroup| cgroup.container(own))
    }

    /// Whether the process is in this container, or in one inside it.
    pub(super) fn are_in(&self, scope: &Scope) -> bool {
        self.0.iter().any(|cgroup| cgroup.below(scope).is_some())
    }
}

impl Cgroup {
    /// `ID:CONTROLLERS:PATH`; the path may contain colons.
    fn parse(line: &str) -> Option<Self> {
        let (hierarchy, path) = line.split_once(':')?.1.split_once(':')?;
        Some(Self { hierarchy: hierarchy.to_owned(), path: path.to_owned() })
    }

    fn container(&self, own: Option<&Scope>) -> Option<(Scope, ContainerId)> {
        let inner = own.and_then(|own| self.below(own)).unwrap_or(&self.path);
        let mut end = self.path.len() - inner.len();
        for name in inner.split_inclusive('/') {
            let bare = name.strip_suffix('/').unwrap_or(name);
            if let Some(id) = container_id(bare) {
                let path = self.path.get(..end + bare.len())?.to_owned();
                return Some((Scope { hierarchy: self.hierarchy.clone(), path }, id));
            }
            end += name.len();
        }
        None
    }

    /// The rest of the path, if it is this scope or below it.
    fn below(&self, scope: &Scope) -> Option<&str> {
        let rest = self.path.strip_prefix(&scope.path)?;
        let is_below =
            self.hierarchy == scope.hierarchy && (rest.is_empty() || rest.starts_with('/'));
        is_below.then_some(rest)
    }
}

fn container_id(name: &str) -> Option<ContainerId> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    PREFIXES.iter().find_map(|prefix| ContainerId::parse(name.strip_prefix(prefix)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn found(file: &str, own: Option<&Scope>) -> Option<(String, String)> {
        let (scope, id) = Cgroups::parse(file.as_bytes()).container(own)?;
        Some((scope.path, id.as_str().to_owned()))
    }

    #[test]
    fn the_container_is_found_as_each_engine_writes_it() {
        let a = id('a');
        for (path, scope) in [
            (format!("/docker/{a}"), format!("/docker/{a}")),
            (format!("/docker/{a}/init.scope"), format!("/docker/{a}")),
            (format!("/system.slice/docker-{a}.scope"), format!("/system.slice/docker-{a}.scope")),
            (format!("/libpod_parent/libpod-{a}"), format!("/libpod_parent/libpod-{a}")),
            (
                format!("/user.slice/u@1000.service/user.slice/libpod-{a}.scope/container"),
                format!("/user.slice/u@1000.service/user.slice/libpod-{a}.scope"),
            ),
            (
                format!("/kubepods.slice/pod7.slice/cri-containerd-{a}.scope"),
                format!("/kubepods.slice/pod7.slice/cri-containerd-{a}.scope"),
            ),
        ] {
            let second = format!("0::{path}\n");
            assert_eq!(found(&second, None), Some((scope.clone(), a.clone())), "{path}");
            let first = format!("9:name=systemd:/\n8:pids:{path}\n0::/\n");
            assert_eq!(found(&first, None), Some((scope, a.clone())), "{path}");
        }
    }

    #[test]
    fn other_names_are_no_container() {
        let a = id('a');
        for path in [
            "/".to_owned(),
            "/user.slice/user-0.slice/session-1.scope".to_owned(),
            format!("/machine.slice/libpod-conmon-{a}.scope"),
            format!("/evil-{a}"),
            format!("/{a}.service"),
            format!("/docker/{}", &a[1..]),
            format!("/docker-{}.scope", a.to_uppercase()),
        ] {
            assert_eq!(found(&format!("0::{path}\n"), None), None, "{path}");
        }
    }

    #[test]
    fn a_container_cannot_name_a_cgroup_of_its_own_after_another_one() {
        let (a, b) = (id('a'), id('b'));
        let inner = format!("0::/docker/{a}/docker/{b}\n");
        assert_eq!(found(&inner, None).unwrap().1, a);
        let target =
            Cgroups::parse(format!("0::/docker/{b}\n").as_bytes()).container(None).unwrap().0;
        assert!(!Cgroups::parse(inner.as_bytes()).are_in(&target));
    }

    #[test]
    fn what_is_in_a_container_is_told_from_what_only_looks_so() {
        let a = id('a');
        let file = format!("3:pids:/docker/{a}\n");
        let target = Cgroups::parse(file.as_bytes()).container(None).unwrap().0;
        for (file, is_in) in [
            (file.clone(), true),
            (format!("3:pids:/docker/{a}/docker/{}\n", id('c')), true),
            (format!("3:pids:/docker/{a}x\n"), false),
            (format!("3:pids:/docker/{}\n", id('b')), false),
            (format!("4:memory:/docker/{a}\n"), false),
            (format!("0::/docker/{a}\n"), false),
            (format!("3:pids:/x/docker/{a}\n"), false),
            ("3:pids:/\n".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(Cgroups::parse(file.as_bytes()).are_in(&target), is_in, "{file}");
        }
    }

    #[test]
    fn inside_a_container_the_containers_in_it_count() {
        let (a, b) = (id('a'), id('b'));
        let own = Cgroups::parse(format!("0::/docker/{a}\n").as_bytes()).container(None).unwrap().0;
        let inner = format!("0::/docker/{a}/docker/{b}\n");
        let scope = format!("/docker/{a}/docker/{b}");
        assert_eq!(found(&inner, Some(&own)), Some((scope, b.clone())));
        assert_eq!(found(&format!("0::/docker/{a}/x\n"), Some(&own)), None);
        let beside = format!("0::/docker/{b}\n");
        assert_eq!(found(&beside, Some(&own)).unwrap().1, b);
    }

    #[test]
    fn a_file_that_is_cut_or_no_text_gives_what_is_whole() {
        let a = id('a');
        for file in ["", "\n", ":", "0:", "0::", "x\ny\n"] {
            assert_eq!(found(file, None), None, "{file:?}");
        }
        assert_eq!(found(&format!("0::/docker/{a}"), None), None);
        let mut file = b"1:x:/\xff\n".to_vec();
        file.extend_from_slice(format!("0::/docker/{a}\n").as_bytes());
        assert_eq!(Cgroups::parse(&file).container(None).unwrap().1.as_str(), a);
        assert_eq!(found(&format!("0::/a:b/docker-{a}.scope\n"), None).unwrap().1, a);
    }
}
