//! Properties of lines and escapes that hold for any bytes.

use keybridge_proto::assuan::{
    LineBuffer, MAX_LINE, RequestLine, ResponseLine, Summary, Verb, escape_into, unescape,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Cuts a stream that arrives in pieces into lines; what is left at the end is a part of a line.
fn lines(pieces: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let mut buffer = LineBuffer::default();
    let mut lines = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let cut = buffer.cut(rest).ok()?;
            lines.extend(cut.line.map(<[u8]>::to_vec));
            rest = &rest[cut.taken..];
        }
    }
    Some(lines)
}

proptest! {
    #[test]
    fn escaped_data_holds_no_line_end_and_comes_back(data in vec(any::<u8>(), 0..2000)) {
        let mut line = Vec::new();
        escape_into(&mut line, &data);
        prop_assert!(!line.contains(&b'\n') && !line.contains(&b'\r'));
        prop_assert_eq!(unescape(&line).unwrap(), data);
    }

    #[test]
    fn unescaping_never_grows(text in vec(any::<u8>(), 0..200)) {
        if let Ok(data) = unescape(&text) {
            prop_assert!(data.len() <= text.len());
        }
    }

    #[test]
    fn lines_do_not_depend_on_how_they_arrive(
        line_lengths in vec(0..MAX_LINE, 0..6),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        for length in line_lengths {
            let line = [vec![b'x'; length], b"\n".to_vec()].concat();
            stream.extend_from_slice(&line);
            expected.push(line);
        }
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        places.extend([0, stream.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
        prop_assert_eq!(lines(&pieces), Some(expected));
    }

    #[test]
    fn a_line_over_the_limit_is_refused_however_it_arrives(
        over in MAX_LINE..3 * MAX_LINE,
        piece in 1..2 * MAX_LINE,
    ) {
        let stream = [vec![b'x'; over], b"\n".to_vec()].concat();
        let pieces: Vec<&[u8]> = stream.chunks(piece).collect();
        prop_assert_eq!(lines(&pieces), None);
    }

    #[test]
    fn any_line_can_be_read_and_summed_up(line in vec(any::<u8>(), 0..MAX_LINE)) {
        let _ = ResponseLine::parse(&line);
        if let Ok(RequestLine::Command(command)) = RequestLine::parse(&line) {
            prop_assert!(line.starts_with(command.verb.as_bytes()));
            prop_assert!(!command.arguments.contains(&0));
        }
        let summary = Summary::of(&line).to_string();
        prop_assert!(summary.is_ascii() && summary.len() < 64);
    }

    #[test]
    fn a_verb_is_the_same_in_any_case(line in "[A-Za-z_]{1,20}( [ -~]{0,40})?") {
        let lower = line.to_ascii_lowercase();
        let name = line.split(' ').next().unwrap();
        prop_assert!(Verb::of(line.as_bytes()).is(&name.to_ascii_uppercase()));
        prop_assert!(Verb::of(lower.as_bytes()).is(name));
    }
}
