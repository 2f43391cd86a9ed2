//! The border to a target is one stream of bytes: the host opens, receives and accepts nothing of a target's.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::lab::{Client, Lab};

/// The sockets that are bound to a path, and those that were accepted there, by their inodes.
fn sockets_at(path: &Path) -> HashSet<String> {
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let of_path = table.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
    of_path.map(|line| line.split_whitespace().nth(6).unwrap().to_owned()).collect()
}

/// What a process has open.
fn open_in(pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).collect()
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn no_socket_and_no_file_of_the_target_is_ever_open_in_the_host() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let mut clients: Vec<_> = (0..3).map(|_| Client::greeted(&bridge.socket())).collect();
    for client in &mut clients {
        assert_eq!(client.ask("NOP"), "OK\n");
    }
    let sockets = sockets_at(&bridge.socket());
    let sockets: HashSet<_> = sockets.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let home = format!("{}/", lab.target.path().display());
    let is_of_target = |open: &&String| sockets.contains(*open) || open.starts_with(&home);
    let count = |pid| open_in(pid).iter().filter(is_of_target).count();
    assert!(count(bridge.helper_pid()) > clients.len(), "the listener and each client");
    assert_eq!(count(bridge.host_pid()), 0, "{:?}", open_in(bridge.host_pid()));
    drop(clients);
    bridge.stop();
}
