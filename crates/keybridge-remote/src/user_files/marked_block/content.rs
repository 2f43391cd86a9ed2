//! The text of a marked block, and how it is found in a file, whole or half-written.
//!
//! Text is added with its first byte last: until then a NUL stands there, so that a part of it can't
//! be taken for the user's, nor the user's for a part of it. Lines that the user put after the block
//! are moved up only once a copy of them is at the end of the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const BEGIN: &[u8] = b"# >>> keybridge >>> ";
const END: &[u8] = b"# <<< keybridge <<<";

/// A copy begins with `BEGIN`, this, where its lines belong, and their size.
const COPY: &[u8] = b"lines to be moved: ";

/// The shortest part of our first line that can't be the user's, if another program cut it.
const LEAST: usize = b"# >>> k".len();

/// As many kills on end leave half-added texts in a file. What has more of them was made by somebody else,
/// and each one doubles the work of looking.
const MAX_BEGUN: usize = 8;

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileChange {
    /// Writes at an offset.
    Write(u64, Vec<u8>),
    /// Cuts the file to a size.
    Cut(u64),
}

impl FileChange {
    pub(crate) fn take(&self, file: &File) -> io::Result<()> {
        match self {
            Self::Write(at, bytes) => file.write_all_at(bytes, *at),
            Self::Cut(size) => file.set_len(*size),
        }
    }
}

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

/// Adds text at the end of a file, its first byte last.
pub(crate) fn append(size: u64, text: &[u8]) -> Vec<FileChange> {
    let (first, others) = text.split_at(1.min(text.len()));
    vec![FileChange::Write(size + 1, others.to_vec()), FileChange::Write(size, first.to_vec())]
}

/// Turns a file into one that misses something in its middle: a copy, the move, the cut.
pub(crate) fn move_up(old: &[u8], new: &[u8]) -> Vec<FileChange> {
    let at = same_start(old, new);
    let mut steps = append(old.len() as u64, &copy(old, new));
    steps.push(FileChange::Write(at as u64, new.get(at..).unwrap_or_default().to_vec()));
    steps.push(FileChange::Cut(new.len() as u64));
    steps
}

fn copy(old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = same_start(old, new);
    let lines = new.get(at..).unwrap_or_default();
    let line_end = if has_open_line(old) { &b"\n"[..] } else { b"" };
    let sizes = format!("{at} {}\n", lines.len());
    [line_end, BEGIN, COPY, sizes.as_bytes(), lines, b"\n", END, b"\n"].concat()
}

fn same_start(old: &[u8], new: &[u8]) -> usize {
    old.iter().zip(new).take_while(|(old, new)| old == new).count()
}

fn has_open_line(content: &[u8]) -> bool {
    content.last().is_some_and(|&byte| byte != b'\n')
}

/// Takes out all that is ours, whole or not.
pub(crate) fn without_block(content: &[u8], ours: &str) -> WithoutBlock {
    let content = without_half_added(content, ours);
    let moved = with_lines_moved(content);
    let content = moved.as_deref().unwrap_or(content);
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

/// The content before a text of which the first byte was not written yet.
fn without_half_added<'a>(content: &'a [u8], ours: &str) -> &'a [u8] {
    let begins = |&at: &usize| {
        let text = content.get(at + 1..).unwrap_or_default();
        // What misses its first byte: the line end of the user's last line, or our own `#`.
        [BEGIN, BEGIN.get(1..).unwrap_or_default()]
            .into_iter()
            .any(|begin| !text.is_empty() && (begin.starts_with(text) || text.starts_with(begin)))
    };
    let is_half_added = |&at: &usize| {
        let (before, text) = content.split_at(at);
        let text = text.get(1..).unwrap_or_default();
        let is_rest_of = |whole: &[u8]| whole.get(1..).is_some_and(|whole| whole.starts_with(text));
        [false, true].into_iter().any(|own| is_rest_of(&block(before, ours, own)))
            || is_rest_of(&copy(before, &without_block(before, ours).content))
    };
    let nul = content.iter().enumerate().filter(|&(_, &byte)| byte == 0).map(|(at, _)| at);
    let begun: Vec<usize> = nul.filter(begins).take(MAX_BEGUN + 1).collect();
    if begun.len() > MAX_BEGUN {
        return content;
    }
    let cut = begun.into_iter().find(is_half_added).and_then(|at| content.get(..at));
    // Another kill may have come before.
    cut.map_or(content, |content| without_half_added(content, ours))
}

/// The content after a move that was begun, if there is one.
fn with_lines_moved(content: &[u8]) -> Option<Vec<u8>> {
    let mut start = 0;
    content.split_inclusive(|&byte| byte == b'\n').find_map(|line| {
        let begin = start;
        start += line.len();
        let sizes = line.strip_prefix(BEGIN)?.strip_prefix(COPY)?.trim_ascii_end();
        let (at, size) = std::str::from_utf8(sizes).ok()?.split_once(' ')?;
        let (at, size): (usize, usize) = (at.parse().ok()?, size.parse().ok()?);
        let (lines, after) = content.get(start..)?.split_at_checked(size)?;
        let after = after.strip_prefix(b"\n")?.strip_prefix(END)?.strip_prefix(b"\n")?;
        let kept = content.get(..at).filter(|_| at <= begin)?;
        Some([kept, lines, after].concat())
    })
}

/// How many lines after its first one belong to a block. Without its last line, which a crash or the
/// user took, only lines that we wrote do.
fn block_size(after: &[&[u8]], ours: &str) -> usize {
    let end = after
        .iter()
        .take_while(|line| begin_note(line).is_none())
        .position(|line| line.trim_ascii_end() == END);
    let is_ours = |line: &&&[u8]| {
        let mut known = ours.lines().map(str::as_bytes).chain([END]);
        match line.strip_suffix(b"\n") {
            Some(whole) => known.any(|our| our == whole.trim_ascii_end()),
            None => known.any(|our| our.starts_with(line)),
        }
    };
    end.map_or_else(|| after.iter().take_while(is_ours).count(), |end| end + 1)
}

fn begin_note(line: &[u8]) -> Option<BlockNote> {
    let is_cut = !line.ends_with(b"\n");
    let Some(text) = line.trim_ascii_end().strip_prefix(BEGIN) else {
        return (is_cut && line.len() >= LEAST && BEGIN.starts_with(line))
            .then_some(BlockNote::Nothing);
    };
    let is_note = |note: &BlockNote| note.text().as_bytes() == text;
    let mut begun =
        BlockNote::ALL.into_iter().filter(|note| note.text().as_bytes().starts_with(text));
    let note = BlockNote::ALL.into_iter().find(is_note).or_else(|| {
        // If it is cut after that, it can still be distinguished from the others.
        let note = begun.next().filter(|_| is_cut)?;
        begun.next().is_none().then_some(note)
    });
    Some(note.unwrap_or(BlockNote::Nothing))
}

/// Files of users, for tests.
#[cfg(test)]
pub(super) const ORIGINALS: [&[u8]; 8] = [
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

    /// Every content that a file has on the way, after each byte of each step.
    fn on_the_way(content: &[u8], steps: &[FileChange]) -> Vec<Vec<u8>> {
        let mut content = content.to_vec();
        let mut all = vec![content.clone()];
        for step in steps {
            match step {
                FileChange::Write(at, bytes) => {
                    let at = usize::try_from(*at).unwrap();
                    for (place, &byte) in (at..).zip(bytes) {
                        content.resize(content.len().max(place + 1), 0);
                        content[place] = byte;
                        all.push(content.clone());
                    }
                }
                FileChange::Cut(size) => {
                    content.truncate(usize::try_from(*size).unwrap());
                    all.push(content.clone());
                }
            }
        }
        all
    }

    #[test]
    fn a_block_that_is_cut_anywhere_while_it_is_added_is_taken_out() {
        for original in ORIGINALS {
            let steps = append(original.len() as u64, &block(original, LINES, false));
            let all = on_the_way(original, &steps);
            assert_eq!(all.last(), Some(&with_block(original, false)));
            for cut in all {
                assert_eq!(
                    without_block(&cut, LINES).content,
                    original,
                    "{:?}",
                    cut.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn lines_after_the_block_survive_a_cut_anywhere_while_they_are_moved() {
        for original in ORIGINALS {
            for later in [&b"x"[..], b"\n", b"new\nlines\n", b"open\nend", &[b'y'; 500], &[0; 9]] {
                let old = [with_block(original, false), later.to_vec()].concat();
                let new = without_block(&old, LINES).content;
                assert!(new.starts_with(original) && new.ends_with(later));
                let all = on_the_way(&old, &move_up(&old, &new));
                assert_eq!(all.last(), Some(&new));
                for cut in all {
                    assert_eq!(without_block(&cut, LINES).content, new, "{}", cut.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_full_of_half_added_texts_takes_no_longer() {
        for count in [MAX_BEGUN, 60, 40_000] {
            let content = b"\0# >>> keybridge >>> x".repeat(count);
            assert_eq!(without_block(&content, LINES).content, content);
        }
    }

    #[test]
    fn kills_one_after_the_other_while_lines_are_moved_leave_nothing() {
        let old = [with_block(b"mine\n", false), b"later\n".to_vec()].concat();
        let new = without_block(&old, LINES).content;
        let mut cut = old;
        for _ in 0..MAX_BEGUN {
            cut = on_the_way(&cut, &move_up(&cut, &new))[LEAST * 4].clone();
            assert_eq!(without_block(&cut, LINES).content, new);
        }
    }

    #[test]
    fn a_first_line_that_is_cut_is_known_by_what_is_left() {
        let with = with_block(b"mine\n", false);
        for cut in b"mine\n".len() + LEAST..with.len() {
            assert_eq!(without_block(&with[..cut], LINES).content, b"mine\n", "{cut}");
        }
        let with = with_block(b"", true);
        let told = BEGIN.len() + "`keybridge down` removes these lines and the f".len();
        for cut in told..with.len() {
            assert!(without_block(&with[..cut], LINES).is_no_file(), "{cut}");
        }
        let with = with_block(b"open", false);
        let told = told + b"open\n".len();
        for cut in told..with.len() {
            assert_eq!(without_block(&with[..cut], LINES).content, b"open", "{cut}");
        }
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
        let begin = with.len() - END.len() - 1 - LINES.len();
        for cut in begin..with.len() {
            assert_eq!(without_block(&with[..cut], LINES).content, b"mine\n", "{cut}");
        }
        let mut with = with[..begin + LINES.len()].to_vec();
        with.extend_from_slice(b"keyserver x\n");
        assert_eq!(without_block(&with, LINES).content, b"mine\nkeyserver x\n");
    }

    #[test]
    fn a_block_with_other_line_ends_is_known() {
        let with = String::from_utf8(with_block(b"a\n", false)).unwrap();
        assert_eq!(without_block(with.replace('\n', "\r\n").as_bytes(), LINES).content, b"a\r\n");
    }
}
