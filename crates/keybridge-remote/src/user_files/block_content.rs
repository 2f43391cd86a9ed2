//! The text of a marked block, and how it is found in a file.

const BEGIN: &[u8] = b"# >>> keybridge >>> ";
const END: &[u8] = b"# <<< keybridge <<<";

/// A file's content without the block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WithoutBlock {
    pub(crate) content: Vec<u8>,
    file_is_ours: bool,
}

impl WithoutBlock {
    /// Whether there would be no file without us.
    pub(crate) fn is_no_file(&self) -> bool {
        self.file_is_ours && self.content.is_empty()
    }
}

/// The note in the first line of a block: what has to be undone beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockNote {
    Nothing,
    /// The user's last line had no end and got one.
    LineEndAdded,
    /// There was no file.
    FileIsOurs,
}

impl BlockNote {
    const ALL: [Self; 3] = [Self::Nothing, Self::LineEndAdded, Self::FileIsOurs];

    const fn text(self) -> &'static str {
        match self {
            Self::Nothing => "`keybridge down` removes these lines",
            Self::LineEndAdded => "`keybridge down` removes these lines and the line end before",
            Self::FileIsOurs => "`keybridge down` removes these lines and the file",
        }
    }
}

/// The block that belongs after the user's content.
pub(crate) fn block(content: &[u8], lines: &str, file_is_ours: bool) -> Vec<u8> {
    let open = has_open_line(content);
    let note = match (file_is_ours, open) {
        (true, _) => BlockNote::FileIsOurs,
        (false, true) => BlockNote::LineEndAdded,
        (false, false) => BlockNote::Nothing,
    };
    let first = [if open { &b"\n"[..] } else { b"" }, BEGIN, note.text().as_bytes(), b"\n"];
    [&first.concat(), lines.as_bytes(), END, b"\n"].concat()
}

fn has_open_line(content: &[u8]) -> bool {
    content.last().is_some_and(|&byte| byte != b'\n')
}

/// Takes out all that is ours.
pub(crate) fn without_block(content: &[u8], ours: &str) -> WithoutBlock {
    let mut rest = WithoutBlock { content: Vec::with_capacity(content.len()), file_is_ours: false };
    let lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
    let mut lines = lines.as_slice();
    while let Some((line, after)) = lines.split_first() {
        lines = after;
        let Some(note) = begin_note(line) else {
            rest.content.extend_from_slice(line);
            continue;
        };
        rest.file_is_ours |= note == BlockNote::FileIsOurs;
        lines = after.get(block_size(after, ours)..).unwrap_or_default();
        if note == BlockNote::LineEndAdded && lines.is_empty() && rest.content.ends_with(b"\n") {
            rest.content.pop();
        }
    }
    rest
}

/// How many lines after its first one belong to a block. Without its last line, which the user took, only
/// lines that we wrote do.
fn block_size(after: &[&[u8]], ours: &str) -> usize {
    let end = after
        .iter()
        .take_while(|line| begin_note(line).is_none())
        .position(|line| line.trim_ascii_end() == END);
    let is_ours =
        |line: &&&[u8]| ours.lines().any(|our| our.trim_end().as_bytes() == line.trim_ascii_end());
    end.map_or_else(|| after.iter().take_while(is_ours).count(), |end| end + 1)
}

fn begin_note(line: &[u8]) -> Option<BlockNote> {
    let text = line.trim_ascii_end().strip_prefix(BEGIN)?;
    let note = BlockNote::ALL.into_iter().find(|note| note.text().as_bytes() == text);
    Some(note.unwrap_or(BlockNote::Nothing))
}

/// Files of users, for tests.
#[cfg(test)]
pub(crate) const ORIGINALS: [&[u8]; 8] = [
    b"",
    b"\n",
    b"# mine\nuse-agent\n",
    b"# mine\r\nagent-program /usr/bin/gpg-agent\r\n",
    b"no line end",
    b"crlf and no line end\r\nlast",
    b"ends with cr\r",
    b"\xff\0raw\n\n\n",
];

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "agent-program /nonexistent\n";

    fn with_block(content: &[u8], file_is_ours: bool) -> Vec<u8> {
        [content, &block(content, LINES, file_is_ours)].concat()
    }

    #[test]
    fn what_is_left_is_the_original() {
        for original in ORIGINALS {
            for ours in [false, true] {
                let with = with_block(original, ours);
                assert!(with.ends_with(b"\n# <<< keybridge <<<\n"));
                let rest = without_block(&with, LINES);
                if !ours {
                    assert_eq!(
                        rest,
                        WithoutBlock { content: original.to_vec(), file_is_ours: false }
                    );
                }
                assert_eq!(rest.file_is_ours, ours);
            }
            let untouched = WithoutBlock { content: original.to_vec(), file_is_ours: false };
            assert_eq!(without_block(original, LINES), untouched);
        }
    }

    #[test]
    fn lines_that_were_added_after_the_block_are_kept() {
        for (original, left) in [(&b"mine\n"[..], &b"mine\nnew\n"[..]), (b"open", b"open\nnew\n")] {
            let mut with = with_block(original, false);
            with.extend_from_slice(b"new\n");
            assert_eq!(without_block(&with, LINES).content, left);
        }
    }

    #[test]
    fn a_block_without_its_end_takes_only_our_lines() {
        let with = with_block(b"mine\n", false);
        let mut with = with[..with.len() - END.len() - 1].to_vec();
        assert_eq!(without_block(&with, LINES).content, b"mine\n");
        with.extend_from_slice(b"keyserver x\n");
        assert_eq!(without_block(&with, LINES).content, b"mine\nkeyserver x\n");
    }

    #[test]
    fn a_block_with_other_line_ends_is_known() {
        let with = String::from_utf8(with_block(b"a\n", false)).unwrap();
        assert_eq!(without_block(with.replace('\n', "\r\n").as_bytes(), LINES).content, b"a\r\n");
    }
}
