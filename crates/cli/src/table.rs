//! The table that every command prints: columns below their names, whole in a pipe, and as wide as the terminal on one.
//!
//! - TABLE-1: where there is no limit on the width, nothing is shortened and no column is left out.
//! - TABLE-2: where there is one, the steps are taken in this order until a line fits: identifiers are shortened to what
//!   commands accept (`short_identifiers`), columns that no row has a value in are left out, the last columns are left
//!   out, the widest cells are cut. The last line names what is left out.

use clap::Args;
use oxiray_wire::plain;
use serde_json::Value as Json;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

const EXPECT: &str = "writing to a string does not fail";
const GAP: usize = 2;
/// How narrow a cell of text may become.
const CELL_WIDTH_MIN: usize = 12;
/// As many digits at least has what is shortened as an identifier: those of jobs are shorter, and stay whole.
const IDENTIFIER_DIGITS_MIN: usize = 28;
/// The digits of a shortened identifier, and the most where so few are not distinct.
const SHORT_DIGITS: usize = 8;
const SHORT_DIGITS_MAX: usize = 12;
/// The digits before the ellipsis of one that is shortened in the middle.
const FIRST_DIGITS: usize = 6;

/// What stands for the digits between the beginning of an identifier and those that tell it from others.
pub(crate) const ELLIPSIS: char = '\u{2026}';

/// For whom a command prints what it found.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Printing {
    /// Prints everything that is known as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints every column and every cell whole, however long the lines become. Without it, lines are no longer than the
    /// terminal is wide: identifiers are shortened to what commands accept, and columns are left out. In a pipe or a file
    /// everything is whole.
    #[arg(long, visible_alias = "no-trunc", conflicts_with = "json")]
    pub(crate) wide: bool,
}

/// The same where lines are never shortened.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct JsonOption {
    /// Prints everything that is known as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How wide lines may be: as wide as the terminal, where the output goes to one and `--wide` is not given.
pub(crate) fn width(is_wide: bool) -> Option<usize> {
    if is_wide {
        return None;
    }
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(width.0)).filter(|width| *width > 0)
}

/// Rows that are to be drawn.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    limit: Option<usize>,
    /// Whether the last column goes on below itself rather than being cut or left out.
    wraps: bool,
    /// The headings of all columns, those that are left out among them.
    headings: Vec<String>,
}

#[derive(Debug)]
struct Column {
    heading: String,
    cells: Vec<String>,
    width: usize,
    /// Whether its cells are never cut: what is left of an identifier would stand for nothing.
    is_whole: bool,
}

impl Column {
    fn new(name: &str, rows: &[Json]) -> Self {
        Self::of(name.to_uppercase(), rows.iter().map(|row| cell(&row[name])).collect())
    }

    fn of(heading: String, cells: Vec<String>) -> Self {
        let width = cells.iter().chain([&heading]).map(|text| count(text)).max().unwrap_or(0);
        Self { heading, cells, width, is_whole: false }
    }

    fn is_empty(&self) -> bool {
        self.cells.iter().all(String::is_empty)
    }

    /// How narrow it may become: its heading is never cut.
    fn least(&self) -> usize {
        if self.is_whole { self.width } else { self.width.min(CELL_WIDTH_MIN.max(count(&self.heading))) }
    }

    fn shortened(self) -> Self {
        let identifiers: BTreeSet<&str> =
            self.cells.iter().map(String::as_str).filter(|cell| !cell.is_empty()).collect();
        if identifiers.is_empty() || !identifiers.iter().all(|cell| is_identifier(cell)) {
            return self;
        }
        let short = short_identifiers(&identifiers);
        let cells = self.cells.iter().map(|cell| short.get(cell.as_str()).cloned().unwrap_or_default()).collect();
        Self { is_whole: true, ..Self::of(self.heading, cells) }
    }
}

impl Table {
    pub(crate) fn new(columns: &[&str], rows: &[Json]) -> Self {
        let columns: Vec<Column> = columns.iter().map(|name| Column::new(name, rows)).collect();
        let headings = columns.iter().map(|column| column.heading.clone()).collect();
        Self { columns, limit: None, wraps: false, headings }
    }

    /// No line is longer than that, where there is room for as much as can be read.
    pub(crate) fn within(mut self, limit: Option<usize>) -> Self {
        self.limit = limit;
        self
    }

    /// The last column is one of sentences, none of whose words may be missing.
    pub(crate) fn with_sentences_last(mut self) -> Self {
        self.wraps = true;
        self
    }

    pub(crate) fn draw(mut self) -> String {
        if let Some(limit) = self.limit {
            self.fit(limit);
        }
        let mut text = String::new();
        let heads: Vec<&str> = self.columns.iter().map(|column| column.heading.as_str()).collect();
        self.draw_row(&mut text, &heads);
        for at in 0..self.columns.first().map_or(0, |column| column.cells.len()) {
            let cells: Vec<&str> = self.columns.iter().map(|column| column.cells[at].as_str()).collect();
            self.draw_row(&mut text, &cells);
        }
        let is_drawn = |heading: &&String| heads.contains(&heading.as_str());
        let left_out: Vec<String> =
            self.headings.iter().filter(|heading| !is_drawn(heading)).map(|heading| heading.to_lowercase()).collect();
        if !left_out.is_empty() {
            let note = format!("(--wide shows more: {})", left_out.join(", "));
            writeln!(text, "{}", wrapped(&note, self.limit)).expect(EXPECT);
        }
        text
    }

    fn draw_row(&self, text: &mut String, cells: &[&str]) {
        let begin: usize = self.columns.iter().rev().skip(1).map(|column| column.width + GAP).sum();
        let mut line = String::new();
        for (at, (cell, column)) in cells.iter().zip(&self.columns).enumerate() {
            if self.wraps && at + 1 == cells.len() {
                line.push_str(&lines_of(cell, column.width).join(&format!("\n{}", " ".repeat(begin))));
            } else {
                write!(line, "{:<1$}  ", cut(cell, column.width), column.width).expect(EXPECT);
            }
        }
        writeln!(text, "{}", line.trim_end()).expect(EXPECT);
    }

    /// Takes the steps of TABLE-2.
    fn fit(&mut self, limit: usize) {
        if self.line(|column| column.width) <= limit {
            return;
        }
        self.columns = std::mem::take(&mut self.columns).into_iter().map(Column::shortened).collect();
        if self.line(|column| column.width) > limit {
            self.columns.retain(|column| column.cells.is_empty() || !column.is_empty());
        }
        while self.line(Column::least) > limit && self.columns.len() > 1 + usize::from(self.wraps) {
            self.columns.remove(self.columns.len() - 1 - usize::from(self.wraps));
        }
        for _ in limit..self.line(|column| column.width) {
            match self
                .columns
                .iter_mut()
                .filter(|column| column.width > column.least())
                .max_by_key(|column| column.width)
            {
                Some(widest) => widest.width -= 1,
                None => return,
            }
        }
    }

    fn line(&self, width: impl Fn(&Column) -> usize) -> usize {
        self.columns.iter().map(width).sum::<usize>() + GAP * self.columns.len().saturating_sub(1)
    }
}

/// Each identifier as short as it is distinct among these: its first digits; or those, an ellipsis and digits that no other
/// with the same first ones has anywhere, where many begin alike, as all objects of one task do. It stays whole where it
/// has no such digits.
pub(crate) fn short_identifiers<'id>(all: &BTreeSet<&'id str>) -> BTreeMap<&'id str, String> {
    let sorted: Vec<&str> = all.iter().copied().collect();
    let holders = LazyCell::new(|| holders_of_digits(&sorted));
    let short = |(at, id): (usize, &&'id str)| {
        let beside = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten().filter_map(|at| sorted.get(at));
        // Many identifiers begin with the nil one's digits.
        let nil = id.bytes().take_while(|digit| *digit == b'f').count();
        let shared = beside.map(|other| common(id, other)).max().unwrap_or(0).max(nil);
        if shared < SHORT_DIGITS_MAX {
            return (*id, id[..id.len().min(SHORT_DIGITS.max(shared + 1))].to_owned());
        }
        let from = shared.min(id.len().saturating_sub(SHORT_DIGITS));
        // What differs first is not yet what no other has: `01` at one place of an identifier may stand at another of the next.
        let mut digits = (FIRST_DIGITS..=from).rev().filter_map(|at| id.get(at..at + SHORT_DIGITS));
        let own = digits.find(|digits| holders[&(&id[..FIRST_DIGITS], *digits)] == 1);
        (*id, own.map_or_else(|| (*id).to_owned(), |digits| format!("{}{ELLIPSIS}{digits}", &id[..FIRST_DIGITS])))
    };
    all.iter().enumerate().map(short).collect()
}

/// How many of the identifiers with these first digits have those digits anywhere behind.
fn holders_of_digits<'id>(all: &[&'id str]) -> HashMap<(&'id str, &'id str), usize> {
    let mut holders = HashMap::new();
    for id in all {
        let behind = FIRST_DIGITS..=id.len().saturating_sub(SHORT_DIGITS);
        let had: BTreeSet<&str> = behind.map(|at| &id[at..at + SHORT_DIGITS]).collect();
        for digits in had {
            *holders.entry((&id[..FIRST_DIGITS], digits)).or_default() += 1;
        }
    }
    holders
}

fn is_identifier(text: &str) -> bool {
    text.len() >= IDENTIFIER_DIGITS_MIN && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// The text, or as much of it as there is room for, and a sign that there is more.
fn cut(text: &str, width: usize) -> String {
    if count(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain([ELLIPSIS]).collect()
}

/// The text in lines of at most so many characters, broken between words; longer words stay whole, to be copied.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.is_empty() {
            last.push_str(word);
        } else if count(last) + 1 + count(word) <= width {
            write!(last, " {word}").expect(EXPECT);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The same text with each line that is longer than the limit broken between words, and what follows indented below it.
pub(crate) fn wrapped(text: &str, limit: Option<usize>) -> String {
    const INDENT: usize = 4;
    let Some(limit) = limit else { return text.to_owned() };
    let wrap = |line: &str| {
        if count(line) <= limit {
            return line.to_owned();
        }
        let indent = count(line) - count(line.trim_start());
        let width = limit.saturating_sub(indent + INDENT).max(CELL_WIDTH_MIN);
        let pad = " ".repeat(indent);
        let broken = lines_of(line.trim_start(), width);
        format!("{pad}{}", broken.join(&format!("\n{pad}{}", " ".repeat(INDENT))))
    };
    text.split('\n').map(wrap).collect::<Vec<_>>().join("\n")
}

/// A value as a cell has it: one line that a terminal obeys nothing of.
pub(crate) fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => plain(text).into_owned(),
        Json::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(name, value)| format!("{}: {}", plain(name), cell(value))).collect();
            entries.join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn without_a_limit_everything_is_whole() {
        let rows = [json!({"name": "f", "pid": 12, "labels": {"a": 1}}), json!({"name": "12", "pid": null})];
        let drawn = Table::new(&["name", "pid", "labels"], &rows).draw();
        assert_eq!(drawn, "NAME  PID  LABELS\nf     12   a: 1\n12\n", "TABLE-1");
        let long = Table::new(&["task_id", "name"], &[json!({"task_id": ID, "name": "n".repeat(200)})]).draw();
        assert!(long.contains(ID) && long.contains(&"n".repeat(200)), "TABLE-1: {long}");
    }

    #[test]
    fn what_is_too_wide_is_shortened_left_out_and_cut_in_this_order() {
        let columns = ["task_id", "error", "name", "state", "node"];
        let row = |id: &str| json!({"task_id": id, "name": "train_the_model", "state": "RUNNING", "node": "10.0.0.1"});
        let rows = [row(ID), row(&ID.replace('0', "f"))];
        let draw = |limit| Table::new(&columns, &rows).within(Some(limit)).draw();
        let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            lines(draw(53))[..2],
            ["TASK_ID   ERROR  NAME             STATE    NODE", "01234567         train_the_model  RUNNING  10.0.0.1"],
            "TABLE-2: identifiers first"
        );
        assert_eq!(
            lines(draw(44))[..2],
            ["TASK_ID   NAME             STATE    NODE", "01234567  train_the_model  RUNNING  10.0.0.1"]
        );
        assert_eq!(lines(draw(44)).last().map(String::as_str), Some("(--wide shows more: error)"));
        assert_eq!(lines(draw(42))[1], "01234567  train_the_mo\u{2026}  RUNNING  10.0.0.1");
        assert_eq!(lines(draw(33))[1], "01234567  train_the_mod\u{2026}  RUNNING");
        assert_eq!(lines(draw(3))[1], "01234567", "one column stays");
    }

    #[test]
    fn short_identifiers_are_distinct() {
        let ids = [
            ID,
            "0123456799aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaaaaaa0000000001000000",
            "aaaaaaaaaaaaaaaaaaaaaaaa0000000002000000",
            "ffffffffffffffffdddddddddddddddddddddddd01000000",
        ];
        let all: BTreeSet<&str> = ids.into_iter().collect();
        let short = short_identifiers(&all);
        let expected =
            ["012345678", "012345679", "aaaaaa\u{2026}01000000", "aaaaaa\u{2026}02000000", "ffffff\u{2026}dddddddd"];
        assert_eq!(ids.map(|id| short[id].as_str()), expected);
    }

    #[test]
    fn a_short_identifier_has_digits_that_no_other_has_anywhere() {
        let shortened = |numbers: &[&str]| {
            let ids: Vec<String> =
                numbers.iter().map(|of| format!("28cde7c9dd4140a4587175b83ea4ef1a821f2fec{of}")).collect();
            let short = short_identifiers(&ids.iter().map(String::as_str).collect());
            ids.iter().map(|id| short[id.as_str()].clone()).collect::<Vec<_>>()
        };
        let (first, sixth, other) = ("0100000001000000", "0100000006000000", "0200000001000000");
        assert_eq!(shortened(&[first, sixth]), ["28cde7\u{2026}00100000", "28cde7\u{2026}06000000"]);
        let whole = format!("28cde7c9dd4140a4587175b83ea4ef1a821f2fec{first}");
        let expected = [&whole, "28cde7\u{2026}06000000", "28cde7\u{2026}20000000"];
        assert_eq!(shortened(&[first, sixth, other]), expected, "whole, as the others have every eight digits of it");
    }

    #[test]
    fn sentences_go_on_below_themselves() {
        let rows = [json!({"rule": "busy", "why": "0 of 1 CPU are free until the task ends"})];
        let drawn = Table::new(&["rule", "why"], &rows).within(Some(24)).with_sentences_last().draw();
        assert_eq!(drawn, "RULE  WHY\nbusy  0 of 1 CPU are\n      free until the\n      task ends\n");
        assert_eq!(wrapped("  one two three four\nfive", Some(16)), "  one two\n      three four\nfive");
        assert_eq!(wrapped("  one two three four", None), "  one two three four");
    }

    #[test]
    fn what_programs_chose_makes_no_rows_and_is_not_obeyed() {
        let rows = [json!({"name": "f\n1    forged", "labels": {"\u{1b}[2J": "\u{9b}2J"}})];
        let drawn = Table::new(&["name", "labels"], &rows).draw();
        let expected = ["NAME            LABELS", r"f\n1    forged  \u001b[2J: \u009b2J", ""];
        assert_eq!(drawn, expected.join("\n"));
    }
}
