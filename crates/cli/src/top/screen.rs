//! What the user of `oxiray top` chose, and what follows from a key: no terminal and no cluster.

use super::recorded::{DeviceStory, Recorded};
use super::rows::{Target, list};
use std::collections::BTreeSet;

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
    /// Jobs with their actors, and these with their calls.
    Tree,
}

impl View {
    /// In the order of their numbers, and the tree.
    pub(crate) const ALL: [(Self, &str); 8] = [
        (Self::Devices, "devices"),
        (Self::Nodes, "nodes"),
        (Self::Jobs, "jobs"),
        (Self::Tasks, "tasks"),
        (Self::Actors, "actors"),
        (Self::Waiting, "waiting"),
        (Self::Events, "events"),
        (Self::Tree, "tree"),
    ];
}

/// How much of each row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Layout {
    /// All of it where all rows have room so, and else a line.
    #[default]
    Auto,
    /// What the columns cut stands beneath the row, and so do all holders of a device.
    Full,
    /// A line each.
    Compact,
}

/// What is done with rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Say why it waits, or where it stands.
    Explain,
    /// Show what a submitted job, an actor or a task printed.
    Log,
    /// Show where its threads are.
    Stack,
    /// Kill an actor, or have a task cancelled.
    Kill,
    /// End a submitted job.
    StopJob,
    /// Empty a node.
    Drain,
}

impl Act {
    fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'e' => Self::Explain,
            'l' => Self::Log,
            's' => Self::Stack,
            'K' => Self::Kill,
            'S' => Self::StopJob,
            'D' => Self::Drain,
            _ => return None,
        })
    }

    fn takes(self, target: &Target) -> bool {
        match self {
            Self::Explain => matches!(target, Target::Actor(_) | Target::Task(_)),
            Self::Log => matches!(target, Target::Submission(_) | Target::Actor(_) | Target::Task(_)),
            Self::StopJob => matches!(target, Target::Submission(_)),
            Self::Stack => matches!(target, Target::Actor(_) | Target::Task(_) | Target::Device(_)),
            Self::Kill => matches!(target, Target::Actor(_) | Target::Task(_)),
            Self::Drain => matches!(target, Target::Node(_)),
        }
    }

    /// What it is called where it is to be confirmed; nothing where it changes nothing.
    fn order(self) -> Option<&'static str> {
        match self {
            Self::Explain | Self::Log | Self::Stack => None,
            Self::Kill => Some("kill"),
            Self::StopJob => Some("stop"),
            Self::Drain => Some("drain"),
        }
    }

    /// Where it is of use.
    fn no_use(self) -> &'static str {
        match self {
            Self::Explain => "`e` explains an actor (5), a task in the tree (t) or what waits (6)",
            Self::Log => "`l` shows what a submitted job (3), an actor (5) or a task in the tree (t) printed",
            Self::Stack => {
                "`s` shows the stack of an actor (5), of a task in the tree (t) or of a device's holders (1)"
            }
            Self::Kill => "`K` kills an actor (5) and cancels a task in the tree (t)",
            Self::StopJob => "`S` stops a submitted job (3)",
            Self::Drain => "`D` drains a living node (2)",
        }
    }
}

/// What the loop is to do, which asks the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Quit,
    Do(Act, Vec<Target>),
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
    /// What acts are of in place of the row that is chosen, where any is.
    pub(crate) tagged: BTreeSet<Target>,
    pub(crate) layout: Layout,
    /// Where the tree is left for.
    pub(crate) before_tree: View,
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
            Key::Char(letter @ ('e' | 'l' | 's' | 'K' | 'S' | 'D')) => {
                return Act::of(letter).and_then(|act| self.act(act, recorded));
            }
            Key::Char('t') if self.view == View::Tree => self.show(self.before_tree),
            Key::Char('t') => {
                let before_tree = self.view;
                self.show(View::Tree);
                self.before_tree = before_tree;
            }
            Key::Char(' ') => self.tag(recorded),
            Key::Char('a') => self.layout = Layout::Auto,
            Key::Char('f') => self.layout = Layout::Full,
            Key::Char('c') => self.layout = Layout::Compact,
            Key::Enter => self.shows_detail = !list(recorded, self).rows.is_empty(),
            Key::Escape if !self.tagged.is_empty() => self.tagged.clear(),
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
            *self = Self { view, filter, is_paused, layout: self.layout, ..Self::default() };
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

    /// Tags the row that is chosen, or takes its tag off, and goes on to the next.
    fn tag(&mut self, recorded: &Recorded) {
        match self.target(recorded) {
            Target::Nothing => {
                let line = "nothing can be done with this row: jobs, nodes, actors, devices, and tasks in the tree can be tagged";
                self.answered("not here".to_owned(), vec![line.to_owned()]);
            }
            target => {
                if !self.tagged.remove(&target) {
                    self.tagged.insert(target);
                }
                self.choose(self.chosen + 1, recorded);
            }
        }
    }

    fn target(&self, recorded: &Recorded) -> Target {
        list(recorded, self).rows.into_iter().nth(self.chosen).map(|row| row.target).unwrap_or_default()
    }

    /// What is to be done with the rows that are tagged, or with the one that is chosen.
    fn act(&mut self, act: Act, recorded: &Recorded) -> Option<Request> {
        if act == Act::Explain && self.view == View::Waiting {
            self.shows_detail = !recorded.cluster.waiting.is_empty();
            return None;
        }
        let tagged: Vec<Target> = self.tagged.iter().cloned().collect();
        let meant = if tagged.is_empty() { vec![self.target(recorded)] } else { tagged };
        let others = meant.iter().filter(|target| !act.takes(target)).count();
        if others > 0 {
            let of = if meant.len() > 1 {
                format!(": {others} of the {} rows tagged are no such", meant.len())
            } else {
                String::new()
            };
            self.answered("not here".to_owned(), vec![format!("{}{of}", act.no_use())]);
            return None;
        }
        let targets: Vec<Target> = meant.into_iter().flat_map(|target| processes(target, recorded)).collect();
        if targets.is_empty() {
            self.answered("not here".to_owned(), vec!["no process holds it".to_owned()]);
            return None;
        }
        let Some(verb) = act.order() else { return Some(Request::Do(act, targets)) };
        let word = if targets.len() == 1 { word(&targets[0]) } else { format!("{verb} {}", targets.len()) };
        self.begin_typing(Typing::Confirm { word, what: Request::Do(act, targets) });
        None
    }
}

/// The processes that hold a device; whatever else is itself.
fn processes(target: Target, recorded: &Recorded) -> Vec<Target> {
    let Target::Device(key) = target else { return vec![target] };
    let holders = recorded.devices.get(&key).into_iter().flat_map(DeviceStory::holders);
    holders.filter(|span| span.pid > 0).map(|span| Target::Process(key.0.hex(), span.pid)).collect()
}

/// What is typed to confirm what is done with it: a job's name, or the first digits of an identifier.
fn word(target: &Target) -> String {
    match target {
        Target::Submission(name) => name.clone(),
        Target::Node(id) | Target::Actor(id) | Target::Task(id) => id[..8.min(id.len())].to_owned(),
        Target::Nothing | Target::Device(_) | Target::Process(..) => String::new(),
    }
}
