//! What the user of `oxiray top` chose, and what follows from a key: no terminal and no cluster.

use super::recorded::Recorded;
use super::rows::{Target, list};

/// A key, as far as any means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum View {
    #[default]
    Devices,
    Nodes,
    Jobs,
    Tasks,
    Actors,
    Waiting,
    Events,
}

impl View {
    /// In the order of their numbers.
    pub(crate) const ALL: [(Self, &str); 7] = [
        (Self::Devices, "devices"),
        (Self::Nodes, "nodes"),
        (Self::Jobs, "jobs"),
        (Self::Tasks, "tasks"),
        (Self::Actors, "actors"),
        (Self::Waiting, "waiting"),
        (Self::Events, "events"),
    ];
}

/// What the loop is to do, which asks the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Quit,
    /// Say why this waits, or where it stands.
    Explain(String),
    /// Show what a submitted job printed.
    Log(String),
    /// End a submitted job.
    StopJob(String),
    /// Empty a node.
    Drain(String),
}

/// What is written into the bottom line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typing {
    Filter,
    /// A confirmation: what is to be done when this word is typed.
    Confirm {
        word: String,
        what: Request,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) view: View,
    /// Which row is chosen, counted from the first.
    pub(crate) chosen: usize,
    pub(crate) filter: String,
    pub(crate) sorted_by: Option<usize>,
    pub(crate) is_inverted: bool,
    pub(crate) is_paused: bool,
    pub(crate) shows_detail: bool,
    pub(crate) shows_help: bool,
    pub(crate) typing: Option<Typing>,
    pub(crate) typed: String,
    /// What came of the last request; shown in place of the rows.
    pub(crate) said: Option<(String, Vec<String>)>,
}

/// How far a page goes.
const PAGE: usize = 10;

impl Screen {
    pub(crate) fn press(&mut self, key: Key, recorded: &Recorded) -> Option<Request> {
        if let Some(typing) = self.typing.clone() {
            return self.type_in(key, typing);
        }
        if self.is_over_rows() {
            return self.close(key);
        }
        match key {
            Key::Char('q') => return Some(Request::Quit),
            Key::Char(digit @ '1'..='7') => self.show(View::ALL[digit as usize - '1' as usize].0),
            Key::Char('/') => self.begin_typing(Typing::Filter),
            Key::Char('p') => self.is_paused = !self.is_paused,
            Key::Char('?') => self.shows_help = true,
            Key::Char('I') => self.is_inverted = !self.is_inverted,
            Key::Char('.' | '>') => self.sort(1, recorded),
            Key::Char(',' | '<') => self.sort(-1, recorded),
            Key::Char('e' | 'l' | 'S' | 'D') => return self.act(key, recorded),
            Key::Enter => self.shows_detail = !list(recorded, self).rows.is_empty(),
            Key::Escape => self.filter.clear(),
            Key::Up => self.chosen = self.chosen.saturating_sub(1),
            Key::PageUp => self.chosen = self.chosen.saturating_sub(PAGE),
            Key::Down => self.choose(self.chosen + 1, recorded),
            Key::PageDown => self.choose(self.chosen + PAGE, recorded),
            Key::Char(_) | Key::Backspace => {}
        }
        None
    }

    /// What was asked for is there, or why it is not.
    pub(crate) fn answered(&mut self, title: String, lines: Vec<String>) {
        self.said = Some((title, lines));
    }

    /// Whether something is shown in place of the rows.
    pub(crate) fn is_over_rows(&self) -> bool {
        self.shows_help || self.shows_detail || self.said.is_some()
    }

    fn close(&mut self, key: Key) -> Option<Request> {
        match key {
            Key::Char('q') => Some(Request::Quit),
            Key::Char('p') => {
                self.is_paused = !self.is_paused;
                None
            }
            _ => {
                (self.shows_help, self.shows_detail, self.said) = (false, false, None);
                None
            }
        }
    }

    fn show(&mut self, view: View) {
        if self.view != view {
            let (is_paused, filter) = (self.is_paused, std::mem::take(&mut self.filter));
            *self = Self { view, filter, is_paused, ..Self::default() };
        }
    }

    fn choose(&mut self, wanted: usize, recorded: &Recorded) {
        self.chosen = wanted.min(list(recorded, self).rows.len().saturating_sub(1));
    }

    /// Another column: the one without an order is before the first and behind the last.
    fn sort(&mut self, by: isize, recorded: &Recorded) {
        let count = list(recorded, self).columns.len() as isize;
        let now = self.sorted_by.map_or(0, |column| column as isize + 1);
        let next = (now + by).rem_euclid(count + 1);
        self.sorted_by = usize::try_from(next - 1).ok();
    }

    fn begin_typing(&mut self, what: Typing) {
        (self.typing, self.typed) = (Some(what), self.filter.clone());
        if self.typing != Some(Typing::Filter) {
            self.typed.clear();
        }
    }

    fn type_in(&mut self, key: Key, typing: Typing) -> Option<Request> {
        match key {
            Key::Char(letter) => self.typed.push(letter),
            Key::Backspace => drop(self.typed.pop()),
            Key::Escape => self.typing = None,
            Key::Enter => {
                self.typing = None;
                let typed = std::mem::take(&mut self.typed);
                match typing {
                    Typing::Filter => (self.filter, self.chosen) = (typed, 0),
                    Typing::Confirm { word, what } if typed == word => return Some(what),
                    Typing::Confirm { word, .. } => {
                        let line = format!("nothing was done: `{typed}` was typed, and not `{word}`");
                        self.answered("not confirmed".to_owned(), vec![line]);
                    }
                }
            }
            Key::Up | Key::Down | Key::PageUp | Key::PageDown => {}
        }
        if self.typing == Some(Typing::Filter) {
            (self.filter, self.chosen) = (self.typed.clone(), 0);
        }
        None
    }

    /// What is to be done with the row that is chosen.
    fn act(&mut self, key: Key, recorded: &Recorded) -> Option<Request> {
        let target = list(recorded, self).rows.get(self.chosen).map(|row| row.target.clone()).unwrap_or_default();
        match (key, target) {
            (Key::Char('e'), Target::Explained(id)) => Some(Request::Explain(id)),
            (Key::Char('e'), _) if self.view == View::Waiting => {
                self.shows_detail = !recorded.cluster.waiting.is_empty();
                None
            }
            (Key::Char('l'), Target::Submission(id)) => Some(Request::Log(id)),
            (Key::Char('S'), Target::Submission(id)) => {
                self.begin_typing(Typing::Confirm { word: id.clone(), what: Request::StopJob(id) });
                None
            }
            (Key::Char('D'), Target::Node(id)) => {
                let word = id[..8.min(id.len())].to_owned();
                self.begin_typing(Typing::Confirm { word, what: Request::Drain(id) });
                None
            }
            (Key::Char(letter), _) => {
                self.answered("not here".to_owned(), vec![no_use(letter).to_owned()]);
                None
            }
            _ => None,
        }
    }
}

/// Where a key is of use.
fn no_use(letter: char) -> &'static str {
    match letter {
        'e' => "`e` explains an actor (5) or what waits (6)",
        'l' => "`l` shows what a submitted job printed (3)",
        'S' => "`S` stops a submitted job (3)",
        _ => "`D` drains a living node (2)",
    }
}
