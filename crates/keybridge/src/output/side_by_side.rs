//! The progress of several targets at once: a line for each, redrawn in place on a terminal; elsewhere plain
//! lines that begin with the target's name.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::rc::Rc;
use std::time::Instant;

use super::{Event, Paint, Report, cut};

/// The progress of several targets.
#[derive(Debug, Clone)]
pub(crate) struct SideBySide(Rc<RefCell<Lines>>);

/// The lines of a terminal while something else is shown there. They are drawn again when this is dropped.
#[derive(Debug)]
pub(crate) struct Withdrawn(Rc<RefCell<Lines>>);

#[derive(Debug)]
struct Lines {
    targets: Vec<Progress>,
    /// How many lines are drawn, above the cursor.
    drawn: usize,
    /// How many others use the terminal now.
    withdrawn: usize,
    /// What stays above the lines, and came meanwhile.
    held: String,
    is_redrawn: bool,
    paint: Paint,
    start: Instant,
}

#[derive(Debug)]
struct Progress {
    name: String,
    state: State,
    /// What is being done, or how it ended.
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Working,
    Done,
    Failed,
}

impl SideBySide {
    /// For these targets, on standard output.
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Self {
        let progress =
            |name| Progress { name, state: State::Working, text: "looking for it".to_owned() };
        let targets: Vec<_> = names.into_iter().map(progress).collect();
        // Lines that have left the screen can't be drawn again.
        let fits = terminal_size().is_some_and(|(_, rows)| targets.len() < rows);
        let is_redrawn = std::io::stdout().is_terminal() && fits;
        let paint = Paint::stdout();
        let start = Instant::now();
        let (drawn, withdrawn, held) = (0, 0, String::new());
        let lines = Lines { targets, drawn, withdrawn, held, is_redrawn, paint, start };
        let all = Self(Rc::new(RefCell::new(lines)));
        all.0.borrow_mut().draw("");
        all
    }

    /// A report for the steps of one target, by its place in the list.
    pub(crate) fn report(&self, index: usize) -> Report {
        let lines = Rc::clone(&self.0);
        Report::to(move |event| lines.borrow_mut().event(index, event))
    }

    /// Shows how it ended for a target: what became of it, or nothing if it failed.
    pub(crate) fn ended(&self, index: usize, became: Option<&str>) {
        self.0.borrow_mut().ended(index, became);
    }

    /// Clears the lines away, for a question.
    pub(crate) fn withdraw(&self) -> Withdrawn {
        let mut lines = self.0.borrow_mut();
        let erase = lines.erase();
        print(&erase);
        lines.withdrawn += 1;
        Withdrawn(Rc::clone(&self.0))
    }
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        let mut lines = self.0.borrow_mut();
        lines.withdrawn = lines.withdrawn.saturating_sub(1);
        lines.draw("");
    }
}

impl Lines {
    fn event(&mut self, index: usize, event: &Event) {
        let Some(target) = self.targets.get_mut(index) else { return };
        if !self.is_redrawn {
            let line = event.line(&format!("{}: ", target.name), self.paint);
            return print(&line.map(|line| line + "\n").unwrap_or_default());
        }
        match event {
            Event::Begun { doing } => {
                target.text.clone_from(doing);
                self.draw("");
            }
            // The next step begins at once.
            Event::Done { .. } => {}
            Event::Failed { doing } => {
                target.text.clone_from(doing);
                target.state = State::Failed;
                self.draw("");
            }
            Event::Warning { .. } | Event::Changed { .. } | Event::Said { .. } => {
                let line = event.line(&format!("{}: ", target.name), self.paint);
                self.draw(&line.map(|line| line + "\n").unwrap_or_default());
            }
        }
    }

    fn ended(&mut self, index: usize, became: Option<&str>) {
        let time = self.paint.time(self.start.elapsed());
        let Some(target) = self.targets.get_mut(index) else { return };
        match became {
            Some(became) => {
                target.state = State::Done;
                target.text = became.to_owned();
            }
            None if target.state == State::Failed => {}
            None => {
                target.state = State::Failed;
                target.text = "failed".to_owned();
            }
        }
        if self.is_redrawn {
            self.draw("");
        } else if let Some(became) = became {
            print(&format!("{} {} {became} {time}\n", self.paint.tick(), target.name));
        }
    }

    /// Draws the lines again, below a text that stays.
    fn draw(&mut self, above: &str) {
        if !self.is_redrawn {
            return;
        }
        self.held.push_str(above);
        if self.withdrawn > 0 {
            return;
        }
        let mut text = self.erase() + &std::mem::take(&mut self.held);
        let width = terminal_size().map_or(80, |(columns, _)| columns);
        let names = self.targets.iter().map(|target| target.name.chars().count());
        let longest = names.max().unwrap_or(0).min(width / 2);
        for target in &self.targets {
            let _ = writeln!(text, "{}", target.line(longest, width, self.paint));
        }
        self.drawn = self.targets.len();
        print(&text);
    }

    /// What erases the lines that are drawn.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            drawn => format!("\r\u{1b}[{drawn}A\u{1b}[J"),
        }
    }
}

impl Progress {
    /// One line of a terminal: a longer one would take two, and be drawn at the wrong place.
    fn line(&self, longest: usize, width: usize, paint: Paint) -> String {
        let name = cut(&self.name, longest);
        let (mark, end) = match self.state {
            State::Working => (" ".to_owned(), " …"),
            State::Done => (paint.tick(), ""),
            State::Failed => (paint.cross(), ""),
        };
        let room = width.saturating_sub(longest + 5 + end.chars().count());
        format!("{mark} {name:<longest$}  {}{end}", cut(&self.text, room))
    }
}

/// The columns and rows of the terminal at standard output or standard error.
pub(crate) fn terminal_size() -> Option<(usize, usize)> {
    let (columns, rows) = crate::platform::terminal_size()?;
    // A terminal that doesn't know its size says zero.
    let known = |count: u16, usual: usize| if count == 0 { usual } else { usize::from(count) };
    Some((known(columns, 80), known(rows, 24)))
}

/// A closed pipe is no reason to fail.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_takes_more_than_the_width_of_the_terminal() {
        let name = "docker://a-container-with-quite-a-long-name".to_owned();
        for state in [State::Working, State::Done, State::Failed] {
            let target = Progress { name: name.clone(), state, text: "the helper ".repeat(20) };
            for width in [20, 40, 80] {
                let line = target.line(name.len().min(width / 2), width, Paint::none());
                assert!(line.chars().count() < width, "{width}: {line:?}");
            }
        }
        let target = Progress { name: "web".to_owned(), state: State::Done, text: "up".to_owned() };
        assert_eq!(target.line(5, 80, Paint::none()), "✓ web    up");
    }
}
