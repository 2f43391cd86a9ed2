//! Finds the process that listens at a socket.

use std::path::Path;

/// The process of this user that listens at a path, where `/proc` tells. The kernel's own answer to a client
/// names the process that called listen, which isn't gpg-agent any more: it goes on as a child of that one.
pub(crate) fn listener_at(path: &Path) -> Option<u32> {
    let sockets = std::fs::read_to_string("/proc/net/unix").ok()?;
    let inode = sockets.lines().find_map(|line| inode_of(line, path))?;
    let link = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let mut links = descriptors.flatten().filter_map(|entry| entry.path().read_link().ok());
        links.any(|found| found.as_os_str() == link.as_str())
    })
}

/// Reads `NUMBER: REFERENCES PROTOCOL FLAGS TYPE STATE INODE PATH` of a socket that is listened at.
fn inode_of<'a>(line: &'a str, path: &Path) -> Option<&'a str> {
    const LISTENS: &str = "00010000";
    let mut fields = line.split_ascii_whitespace();
    let flags = fields.nth(3)?;
    let inode = fields.nth(2)?;
    (flags == LISTENS && Path::new(fields.next()?) == path).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_at_the_path_that_is_listened_at_counts() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/S.gpg-agent";
        let path = Path::new("/run/S.gpg-agent");
        assert_eq!(inode_of(line, path), Some("4711"));
        assert_eq!(inode_of(line, Path::new("/run/S")), None);
        assert_eq!(inode_of(&line.replace("00010000", "00000000"), path), None);
        assert_eq!(inode_of("Num RefCount Protocol Flags Type St Inode Path", path), None);
    }
}
