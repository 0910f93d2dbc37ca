//! Rows of lists as the page asks for them: narrowed, in order, a page at a time, with the columns that it shows (pure).
//!
//! - ROWS-1: an answer has [`ROWS_MAX`] rows at most. The next begin behind the last one's place in the order, whether that row
//!   is still there or not.
//! - ROWS-2: of rows that are read when they are wanted, one is read at a time, and those of the answer are kept: a list may be as
//!   long as it is.

use serde_json::{Map, Value as Json};

/// How many rows an answer has.
const ROWS_MAX: usize = 500;
/// How many rows an answer has where nobody says.
const ROWS_USUAL: usize = 200;

/// A row: its place in the order, highest first, its key, and its cells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// What rows are put in order by: the highest comes first.
    pub(crate) rank: u64,
    /// What names it.
    pub(crate) key: String,
    /// Its cells by column.
    pub(crate) cells: Map<String, Json>,
}

impl Row {
    /// A row of these cells, which are a JSON object.
    pub(crate) fn new(rank: u64, key: impl Into<String>, cells: Json) -> Self {
        let Json::Object(cells) = cells else { unreachable!("cells are given as an object") };
        Self { rank, key: key.into(), cells }
    }
}

/// A row whose cells are read when they are wanted.
pub(crate) trait Unread {
    /// What rows are put in order by: the highest comes first.
    fn rank(&self) -> u64;

    /// What names it.
    fn key(&self) -> &str;

    /// The row, where it can be read.
    fn read(&self) -> Option<Row>;

    /// Whether its cells may be what is asked for: what is quick to see is not there.
    fn may_have(&self, asked: &Asked) -> bool;
}

/// A row whose cells are text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextRow<'text> {
    /// What rows are put in order by: the highest comes first.
    pub(crate) rank: u64,
    /// What names it.
    pub(crate) key: &'text str,
    /// Its cells: a JSON object, as `serde_json` writes it without spaces.
    pub(crate) cells: &'text str,
}

impl Unread for TextRow<'_> {
    fn rank(&self) -> u64 {
        self.rank
    }

    fn key(&self) -> &str {
        self.key
    }

    fn read(&self) -> Option<Row> {
        Some(Row { rank: self.rank, key: self.key.to_owned(), cells: serde_json::from_str(self.cells).ok()? })
    }

    fn may_have(&self, asked: &Asked) -> bool {
        let has_all = || asked.equal.iter().all(|(_, value)| self.cells.contains(&*escaped(value)));
        // Letters beyond ASCII have small ones that depend on what stands beside them.
        let has_search = || !asked.search.is_ascii() || self.cells.to_lowercase().contains(&*escaped(&asked.search));
        has_all() && has_search()
    }
}

/// A row whose cells are made, as a JSON object, of what the head said.
#[derive(Debug)]
pub(crate) struct MadeRow<Make> {
    rank: u64,
    key: String,
    make: Make,
}

impl<Make: Fn() -> Json> MadeRow<Make> {
    /// A row whose cells this makes.
    pub(crate) fn new(rank: u64, key: impl Into<String>, make: Make) -> Self {
        Self { rank, key: key.into(), make }
    }

    /// The row.
    pub(crate) fn made(&self) -> Row {
        Row::new(self.rank, &*self.key, (self.make)())
    }
}

impl<Make: Fn() -> Json> Unread for MadeRow<Make> {
    fn rank(&self) -> u64 {
        self.rank
    }

    fn key(&self) -> &str {
        &self.key
    }

    fn read(&self) -> Option<Row> {
        Some(self.made())
    }

    fn may_have(&self, _: &Asked) -> bool {
        true
    }
}

/// What is asked of a list.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    columns: Vec<String>,
    after: Option<(u64, String)>,
    limit: usize,
    search: String,
    key: Option<String>,
    equal: Vec<(String, String)>,
}

impl Asked {
    /// Reads the parameters of a request. What is no word of this protocol is a column that must be equal.
    pub(crate) fn read(parameters: impl IntoIterator<Item = (String, String)>) -> Result<Self, String> {
        let mut asked = Self { limit: ROWS_USUAL, ..Self::default() };
        for (name, value) in parameters {
            match name.as_str() {
                "columns" => {
                    asked.columns = value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                }
                "limit" => {
                    asked.limit = value.parse().map_err(|_| format!("limit={value} is no number"))?;
                    if asked.limit == 0 || asked.limit > ROWS_MAX {
                        return Err(format!("limit={value} is not between 1 and {ROWS_MAX}"));
                    }
                }
                "after" => {
                    let (rank, key) = value.split_once('~').ok_or(format!("after={value} is not what `next` said"))?;
                    let rank = rank.parse().map_err(|_| format!("after={value} is not what `next` said"))?;
                    asked.after = Some((rank, key.to_owned()));
                }
                "search" => asked.search = value.to_lowercase(),
                "key" => asked.key = Some(value),
                _ => asked.equal.push((name, value)),
            }
        }
        Ok(asked)
    }

    /// Takes a parameter that the list itself understands.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.equal.iter().position(|(known, _)| known == name)?;
        Some(self.equal.swap_remove(at).1)
    }

    /// What a column must be.
    pub(crate) fn equals(&self, name: &str) -> Option<&str> {
        self.equal.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The key of the one row that is wanted.
    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Whether rows are left out for what their cells say.
    fn reads_cells(&self) -> bool {
        !self.equal.is_empty() || !self.search.is_empty()
    }

    /// Whether a row may pass that was not read yet.
    fn may_pass(&self, row: &impl Unread) -> bool {
        self.key.as_ref().is_none_or(|key| key == row.key()) && row.may_have(self)
    }

    /// Whether a row comes behind the last one that was told.
    fn is_behind(&self, rank: u64, key: &str) -> bool {
        self.after.as_ref().is_none_or(|(last, last_key)| rank < *last || (rank == *last && key > last_key.as_str()))
    }

    fn passes(&self, row: &Row) -> bool {
        self.key.as_ref().is_none_or(|key| *key == row.key)
            && self.equal.iter().all(|(name, value)| row.cells.get(name).is_some_and(|cell| is(cell, value)))
            && (self.search.is_empty() || row.cells.values().any(|cell| has(cell, &self.search)))
    }
}

/// Whether a cell says this.
fn is(cell: &Json, value: &str) -> bool {
    match cell {
        Json::String(text) => text == value,
        Json::Bool(flag) => value == if *flag { "true" } else { "false" },
        Json::Number(number) => *value == number.to_string(),
        Json::Null | Json::Array(_) | Json::Object(_) => false,
    }
}

/// Whether one of a cell's texts and numbers has this in it; `searched` is in small letters.
fn has(cell: &Json, searched: &str) -> bool {
    match cell {
        Json::String(text) => text.to_lowercase().contains(searched),
        Json::Number(number) => number.to_string() == searched,
        Json::Array(cells) => cells.iter().any(|cell| has(cell, searched)),
        Json::Object(cells) => {
            cells.iter().any(|(name, cell)| name.to_lowercase().contains(searched) || has(cell, searched))
        }
        Json::Null | Json::Bool(_) => false,
    }
}

/// The rows that are asked for, as the page reads them. `note` is what there is to know of the list.
pub(crate) fn listed(mut rows: Vec<Row>, asked: &Asked, note: Option<&str>) -> Json {
    rows.retain(|row| asked.passes(row));
    let total = rows.len();
    rows.sort_by(|one, other| other.rank.cmp(&one.rank).then_with(|| one.key.cmp(&other.key)));
    rows.retain(|row| asked.is_behind(row.rank, &row.key));
    let has_more = rows.len() > asked.limit;
    rows.truncate(asked.limit);
    let next = rows.last().filter(|_| has_more).map(|row| format!("{}~{}", row.rank, row.key));
    let rows: Vec<Json> = rows.into_iter().map(|row| shown(row, &asked.columns)).collect();
    serde_json::json!({"total": total, "rows": rows, "next": next, "note": note})
}

/// The same of rows that are read when they are wanted, of which only those are kept that are told (ROWS-2).
pub(crate) fn listed_unread(mut rows: Vec<impl Unread>, asked: &Asked, note: Option<&str>) -> Json {
    rows.sort_by(|one, other| other.rank().cmp(&one.rank()).then_with(|| one.key().cmp(other.key())));
    let (mut total, mut told, mut has_more) = (0_usize, Vec::new(), false);
    for unread in rows.iter().filter(|row| asked.may_pass(*row)) {
        let is_wanted = told.len() < asked.limit && asked.is_behind(unread.rank(), unread.key());
        let row = if is_wanted || asked.reads_cells() { unread.read() } else { None };
        if asked.reads_cells() && !row.as_ref().is_some_and(|row| asked.passes(row)) {
            continue;
        }
        total += 1;
        has_more |= !is_wanted && told.len() == asked.limit;
        told.extend(row.filter(|_| is_wanted));
    }
    let next = told.last().filter(|_| has_more).map(|row| format!("{}~{}", row.rank, row.key));
    let rows: Vec<Json> = told.into_iter().map(|row| shown(row, &asked.columns)).collect();
    serde_json::json!({"total": total, "rows": rows, "next": next, "note": note})
}

/// A text as it stands in JSON, without its quotes.
fn escaped(text: &str) -> String {
    let quoted = Json::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn shown(row: Row, columns: &[String]) -> Json {
    let mut cells = row.cells;
    if !columns.is_empty() {
        cells.retain(|name, _| columns.iter().any(|column| column == name));
    }
    cells.insert("key".into(), row.key.into());
    Json::Object(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(query: &[(&str, &str)]) -> Asked {
        Asked::read(query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
            .expect("it is a question")
    }

    fn rows() -> Vec<Row> {
        let state = |n: u64| if n.is_multiple_of(2) { "ALIVE" } else { "DEAD" };
        (0..7).map(|n| Row::new(n / 2, format!("k{n}"), json!({"n": n, "state": state(n), "of": {"GPU": 1}}))).collect()
    }

    fn keys(answer: &Json) -> Vec<&str> {
        answer["rows"].as_array().expect("rows").iter().map(|row| row["key"].as_str().expect("a key")).collect()
    }

    #[test]
    fn a_list_is_read_page_by_page_even_where_rows_go_meanwhile() {
        let mut rows = rows();
        let first = listed(rows.clone(), &asked(&[("limit", "3")]), None);
        assert_eq!((keys(&first), &first["total"]), (vec!["k6", "k4", "k5"], &json!(7)));
        let next = first["next"].as_str().expect("there is more").to_owned();
        rows.retain(|row| row.key != "k5");
        let second = listed(rows, &asked(&[("limit", "500"), ("after", &next)]), None);
        assert_eq!((keys(&second), &second["next"]), (vec!["k2", "k3", "k0", "k1"], &Json::Null));
    }

    #[test]
    fn rows_are_narrowed_by_columns_text_and_key() {
        let found = |query: &[(&str, &str)]| listed(rows(), &asked(query), None)["total"].as_u64();
        assert_eq!(found(&[("state", "ALIVE")]), Some(4));
        assert_eq!(found(&[("state", "ALIVE"), ("n", "2")]), Some(1));
        assert_eq!(found(&[("search", "dea")]), Some(3));
        assert_eq!(found(&[("search", "gpu")]), Some(7));
        assert_eq!(found(&[("key", "k3")]), Some(1));
        assert_eq!(found(&[("nothing", "x")]), Some(0));
    }

    #[test]
    fn rows_that_are_read_when_they_are_wanted_are_told_as_others_are() {
        let mut rows = rows();
        rows.push(Row::new(9, "k9", json!({"n": 2, "state": "Tab\t\"é\" ΣΑΣ", "of": {}})));
        rows.push(Row::new(8, "k8", json!({"n": 12, "state": null, "is": true})));
        rows.sort_by(|one, other| other.rank.cmp(&one.rank).then_with(|| one.key.cmp(&other.key)));
        let kept: Vec<String> = rows.iter().map(|row| Json::Object(row.cells.clone()).to_string()).collect();
        let made =
            || rows.iter().rev().map(|row| MadeRow::new(row.rank, &*row.key, || Json::Object(row.cells.clone())));
        let texts = || rows.iter().zip(&kept).map(|(row, cells)| TextRow { rank: row.rank, key: &row.key, cells });
        for query in [
            &[][..],
            &[("limit", "3")],
            &[("limit", "3"), ("after", "3~k6")],
            &[("limit", "2"), ("after", "2~k4"), ("state", "ALIVE")],
            &[("limit", "500"), ("columns", "n")],
            &[("limit", "9")],
            &[("n", "2"), ("limit", "1")],
            &[("is", "true")],
            &[("search", "TAB\t\"É")],
            &[("search", "σας")],
            &[("search", "gpu"), ("limit", "2")],
            &[("search", "2")],
            &[("key", "k3")],
            &[("key", "k3"), ("state", "ALIVE")],
            &[("nothing", "x")],
        ] {
            let asked = asked(query);
            let wanted = listed(rows.clone(), &asked, None);
            assert_eq!(listed_unread(texts().collect(), &asked, None), wanted, "{query:?}");
            assert_eq!(listed_unread(made().collect(), &asked, None), wanted, "{query:?}");
        }
    }

    #[test]
    fn of_rows_that_are_not_narrowed_those_are_made_that_are_told() {
        let made = std::cell::Cell::new(0);
        let row = |n: u64| {
            let make = || {
                made.set(made.get() + 1);
                json!({"n": 1})
            };
            MadeRow::new(n, n.to_string(), make)
        };
        let first = listed_unread((0..1_000).map(row).collect(), &asked(&[("limit", "3")]), Some("cut"));
        assert_eq!((keys(&first), &first["total"], made.get()), (vec!["999", "998", "997"], &json!(1_000), 3));
        assert_eq!((&first["next"], &first["note"]), (&json!("997~997"), &json!("cut")));
    }

    #[test]
    fn only_the_columns_that_are_asked_for_are_told() {
        let answer = listed(rows(), &asked(&[("columns", "n"), ("limit", "1")]), Some("cut"));
        assert_eq!(answer["rows"], json!([{"key": "k6", "n": 6}]));
        assert_eq!(answer["note"], "cut");
    }

    #[test]
    fn a_question_that_is_none_is_refused_with_the_rule() {
        for (name, value) in [("limit", "0"), ("limit", "501"), ("limit", "many"), ("after", "x"), ("after", "x~y")] {
            let told = Asked::read([(name.to_owned(), value.to_owned())]).expect_err("refused");
            assert!(told.contains(&format!("{name}={value}")), "{told}");
        }
    }
}
