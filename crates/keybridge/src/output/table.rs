//! Rows in aligned columns.

use super::Paint;

/// One cell of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    colour: Option<&'static str>,
}

impl Cell {
    /// The same cell in a colour.
    pub(crate) fn in_colour(self, colour: &'static str) -> Self {
        Self { colour: Some(colour), ..self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: None }
    }
}

/// Rows of as many cells each.
#[derive(Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[Cell; COLUMNS]>,
    /// The columns that may be cut, the first one first, and how much of each is left.
    flexible: Vec<(usize, usize)>,
}

/// Between columns.
const GAP: usize = 2;

impl<const COLUMNS: usize> Table<COLUMNS> {
    /// A table with a row of headings.
    pub(crate) fn new(headings: [&str; COLUMNS]) -> Self {
        Self { rows: vec![headings.map(Cell::from)], flexible: Vec::new() }
    }

    /// Lets a column be cut where the table is too wide, down to so many characters.
    #[must_use]
    pub(crate) fn cutting(mut self, column: usize, least: usize) -> Self {
        self.flexible.push((column, least));
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [Cell; COLUMNS]) {
        self.rows.push(cells);
    }

    /// The lines, each with its end, in at most so many columns of a terminal if that can be.
    pub(crate) fn text(&self, width: Option<usize>, paint: Paint) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            let last = row.iter().rposition(|cell| !cell.text.is_empty());
            for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
                let shown = cut(&cell.text, width);
                let missing = (width + GAP).saturating_sub(shown.chars().count());
                line.push_str(&match cell.colour {
                    Some(colour) => paint.painted(&shown, colour),
                    None => shown,
                });
                if last.is_none_or(|last| index >= last) {
                    break;
                }
                line.extend(std::iter::repeat_n(' ', missing));
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn widths(&self, most: Option<usize>) -> [usize; COLUMNS] {
        let mut widths = [0; COLUMNS];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let all = widths.iter().sum::<usize>() + GAP * COLUMNS.saturating_sub(1);
        let mut excess = most.map_or(0, |most| all.saturating_sub(most));
        for &(column, least) in &self.flexible {
            let Some(width) = widths.get_mut(column) else { continue };
            let less = excess.min(width.saturating_sub(least));
            *width -= less;
            excess -= less;
        }
        widths
    }
}

/// A text of at most so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let mut table = Table::new(["TARGET", "IMAGE", "AGE"]).cutting(1, 5).cutting(0, 8);
        table.row(["docker://web".into(), "debian:bookworm".into(), "3h".into()]);
        table.row(["ssh://a".into(), "".into(), "".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let text =
            "TARGET        IMAGE            AGE\ndocker://web  debian:bookworm  3h\nssh://a\n";
        assert_eq!(table().text(None, Paint::none()), text);
        assert_eq!(table().text(Some(34), Paint::none()), text);
    }

    #[test]
    fn columns_are_cut_in_their_order() {
        let text = "TARGET        IMAGE       AGE\ndocker://web  debian:bo…  3h\nssh://a\n";
        assert_eq!(table().text(Some(29), Paint::none()), text);
        let text = "TARGET    IMAGE  AGE\ndocker:…  debi…  3h\nssh://a\n";
        assert_eq!(table().text(Some(10), Paint::none()), text);
    }

    #[test]
    fn a_text_is_cut_by_its_characters() {
        assert_eq!(
            (cut("äöü", 3), cut("äöüx", 3), cut("ab", 0)),
            ("äöü".into(), "äö…".into(), String::new())
        );
    }
}
