//! Finds the container that a person may have meant.

use crate::candidates::Candidates;
use crate::target::TargetAddress;

/// The running container whose name is most like that of an address, if one is.
pub(crate) async fn to(address: &TargetAddress) -> Option<TargetAddress> {
    let wanted = address.container()?;
    let found = Candidates::list().await.found.into_iter().map(|candidate| candidate.address);
    let near = found.filter_map(|address| {
        let distance = distance(address.container()?, wanted);
        (distance <= limit(wanted)).then_some((distance, address))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, address)| address)
}

/// How many letters may be wrong: more in a longer name.
const fn limit(name: &str) -> usize {
    if name.len() < 9 { 2 } else { name.len() / 4 }
}

/// How many letters have to be changed, added or left out.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut left = above + 1;
        let mut next = vec![left];
        for (pair, expected) in row.windows(2).zip(&other) {
            let [before, here] = pair else { continue };
            let changed = before + usize::from(letter != *expected);
            left = changed.min(here + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_differ_are_counted() {
        for (one, other, count) in
            [("web", "web", 0), ("web", "wbe", 2), ("web", "web1", 1), ("", "ab", 2), ("db", "", 2)]
        {
            assert_eq!(distance(one, other), count, "{one} {other}");
        }
    }
}
