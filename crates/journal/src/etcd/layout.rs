//! Which keys of etcd hold what.
//!
//! ```text
//! oxiray/NAME/head                          who is the head, for as long as its lease
//! oxiray/NAME/over                          the cluster was ended for good
//! oxiray/NAME/rows/<table: 4><key>          0 and the value, or 1, a version of 16 bytes, and how many parts it has
//! oxiray/NAME/parts/<table: 4><key>/<version: 16><part: 4>
//! ```
//!
//! Parts are written before the row that names them, under a version of their own, so that a row is old or new as a whole.

use super::client::Client;
use crate::{Change, Fault, Rows, Table};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A value above this is written in parts of this size.
const PART_BYTES: usize = 256 << 10;
/// How many rows are read at once.
const PAGE_ROWS: u32 = 32;
/// Bytes of a version.
const VERSION_BYTES: usize = 16;

const WHOLE: u8 = 0;
const IN_PARTS: u8 = 1;

/// A key of etcd.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The revision that it was created with.
    pub(super) created: String,
}

/// The keys of one cluster.
#[derive(Debug)]
pub(super) struct Layout {
    prefix: String,
    in_parts: BTreeSet<(Table, Bytes)>,
}

/// Bytes as etcd's gateway has them.
pub(super) fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The keys in an answer.
pub(super) fn rows_in(answer: &Value) -> impl Iterator<Item = Result<Found, Fault>> {
    let rows = answer["kvs"].as_array().cloned().unwrap_or_default();
    rows.into_iter().map(|row| {
        let bytes =
            |name: &str| STANDARD.decode(row[name].as_str().unwrap_or_default()).map_err(|_| unread("is no base64"));
        let created = row["create_revision"].as_str().unwrap_or_default().to_owned();
        Ok(Found { key: bytes("key")?, value: bytes("value")?, created })
    })
}

fn unread(what: &str) -> Fault {
    Fault::Etcd { store: "etcd".to_owned(), reason: format!("a row there {what}: something else than a head wrote it") }
}

/// The first key after all that begin with these bytes.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

fn delete_all(prefix: &[u8]) -> Value {
    json!({"request_delete_range": {"key": text(prefix), "range_end": text(&end_of(prefix))}})
}

fn put(key: &[u8], value: &[u8]) -> Value {
    json!({"request_put": {"key": text(key), "value": text(value)}})
}

impl Layout {
    pub(super) fn new(name: &str) -> Self {
        Self { prefix: format!("oxiray/{name}/"), in_parts: BTreeSet::new() }
    }

    fn key(&self, rest: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), rest].concat()
    }

    fn key_of(&self, folder: &str, table: Table, key: &[u8]) -> Vec<u8> {
        self.key(&[folder.as_bytes(), &table.to_be_bytes(), key].concat())
    }

    fn parts_of(&self, table: Table, key: &[u8]) -> Vec<u8> {
        [&self.key_of("parts/", table, key)[..], b"/"].concat()
    }

    pub(super) fn head(&self) -> String {
        text(&self.key(b"head"))
    }

    pub(super) fn over(&self) -> String {
        text(&self.key(b"over"))
    }

    /// That the head's key was created with this revision; with 0, that there is none.
    pub(super) fn is_created(&self, revision: &str) -> Value {
        json!({"key": self.head(), "target": "CREATE", "result": "EQUAL", "create_revision": revision})
    }

    pub(super) fn delete_head(&self) -> Value {
        json!({"request_delete_range": {"key": self.head()}})
    }

    pub(super) fn delete_over(&self) -> Value {
        json!({"request_delete_range": {"key": self.over()}})
    }

    pub(super) fn delete_rows(&self) -> Value {
        delete_all(&self.key(b"rows/"))
    }

    pub(super) fn delete_parts(&self) -> Value {
        delete_all(&self.key(b"parts/"))
    }

    /// What makes a change, in this order, each with about its bytes.
    pub(super) fn operations(&mut self, change: &Change) -> Vec<(Value, usize)> {
        let (table, key) = (change.table, &change.key[..]);
        let row = self.key_of("rows/", table, key);
        let parts = self.parts_of(table, key);
        let in_parts = change.value.as_ref().filter(|value| value.len() > PART_BYTES);
        let name = (table, change.key.clone());
        let had_parts = if in_parts.is_some() { !self.in_parts.insert(name) } else { self.in_parts.remove(&name) };
        let Some(value) = in_parts else {
            let (made, size) = match &change.value {
                None => (json!({"request_delete_range": {"key": text(&row)}}), 0),
                Some(value) => (put(&row, &[&[WHOLE], &value[..]].concat()), value.len()),
            };
            let obsolete = had_parts.then(|| (delete_all(&parts), parts.len()));
            return std::iter::once((made, row.len() + size)).chain(obsolete).collect();
        };
        let version = version_of(value);
        let current = [&parts[..], &version].concat();
        let before = json!({"request_delete_range": {"key": text(&parts), "range_end": text(&current)}});
        let after =
            json!({"request_delete_range": {"key": text(&end_of(&current)), "range_end": text(&end_of(&parts))}});
        let obsolete = [before, after].into_iter().filter(|_| had_parts).map(|made| (made, 2 * current.len()));
        let chunks = value.chunks(PART_BYTES).enumerate();
        let written = chunks.map(|(place, chunk)| {
            let key = [&parts[..], &version, &(place as u32).to_be_bytes()].concat();
            (put(&key, chunk), key.len() + chunk.len())
        });
        let count = value.len().div_ceil(PART_BYTES) as u32;
        let named = [&[IN_PARTS], &version[..], &count.to_be_bytes()].concat();
        written.chain([(put(&row, &named), row.len() + named.len())]).chain(obsolete).collect()
    }

    /// All rows.
    pub(super) fn read(&mut self, client: &Client) -> Result<Rows, Fault> {
        let prefix = self.key(b"rows/");
        let mut rows = Rows::new();
        let mut from = prefix.clone();
        loop {
            let question = json!({"key": text(&from), "range_end": text(&end_of(&prefix)), "limit": PAGE_ROWS});
            let answer = client.ask("kv/range", &question)?;
            for found in rows_in(&answer) {
                let found = found?;
                let (table, key) =
                    found.key[prefix.len()..].split_first_chunk().ok_or_else(|| unread("has no table"))?;
                let table = Table::from_be_bytes(*table);
                let value = self.value_of(client, table, key, &found.value)?;
                if found.value.first() == Some(&IN_PARTS) {
                    self.in_parts.insert((table, Bytes::copy_from_slice(key)));
                }
                rows.insert((table, Bytes::copy_from_slice(key)), value);
                from = [&found.key[..], &[0]].concat();
            }
            if !answer["more"].as_bool().unwrap_or(false) {
                return Ok(rows);
            }
        }
    }

    fn value_of(&self, client: &Client, table: Table, key: &[u8], named: &[u8]) -> Result<Bytes, Fault> {
        let rest = match named.split_first() {
            Some((&WHOLE, value)) => return Ok(Bytes::copy_from_slice(value)),
            Some((&IN_PARTS, rest)) if rest.len() == VERSION_BYTES + 4 => rest,
            _ => return Err(unread("has a form that this version does not know")),
        };
        let (version, count) = rest.split_at(VERSION_BYTES);
        let count = u32::from_be_bytes(count.try_into().expect("four bytes"));
        let mut value = BytesMut::new();
        for place in 0..count {
            let key = [&self.parts_of(table, key)[..], version, &place.to_be_bytes()].concat();
            let answer = client.ask("kv/range", &json!({"key": text(&key)}))?;
            let part = rows_in(&answer).next().ok_or_else(|| unread("lacks a part"))??;
            value.put_slice(&part.value);
        }
        if version_of(&value)[..] != *version {
            return Err(unread("has parts that do not belong together"));
        }
        Ok(value.freeze())
    }
}

/// Names what a row in parts holds.
fn version_of(value: &[u8]) -> [u8; VERSION_BYTES] {
    let digest = ring::digest::digest(&ring::digest::SHA256, value);
    digest.as_ref()[..VERSION_BYTES].try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(layout: &mut Layout, length: Option<usize>) -> Vec<(&'static str, Vec<u8>)> {
        let change = Change { table: 7, key: "k".into(), value: length.map(|length| vec![1; length].into()) };
        let kind =
            |made: &Value| if made.get("request_put").is_some() { "request_put" } else { "request_delete_range" };
        let key = |made: &Value| STANDARD.decode(made[kind(made)]["key"].as_str().expect("a key")).expect("base64");
        layout.operations(&change).iter().map(|(made, _)| (kind(made), key(made))).collect()
    }

    #[test]
    fn a_large_value_is_written_before_the_row_that_names_it_and_leaves_nothing_behind() {
        let mut layout = Layout::new("n");
        let row = layout.key_of("rows/", 7, b"k");
        assert_eq!(keys(&mut layout, Some(10)), [("request_put", row.clone())]);
        let parts = keys(&mut layout, Some(2 * PART_BYTES + 1));
        assert_eq!(parts.len(), 4);
        assert!(parts[..3].iter().all(|(kind, key)| *kind == "request_put" && key.starts_with(b"oxiray/n/parts/")));
        assert_eq!(parts[3], ("request_put", row.clone()));
        let others = keys(&mut layout, Some(PART_BYTES + 1));
        assert_eq!(others[2], ("request_put", row.clone()));
        assert_eq!(others[3..].iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["request_delete_range"; 2]);
        let gone = keys(&mut layout, None);
        assert_eq!(gone, [("request_delete_range", row.clone()), ("request_delete_range", layout.parts_of(7, b"k"))]);
        assert_eq!(keys(&mut layout, None), [("request_delete_range", row)]);
    }

    #[test]
    fn a_range_ends_after_all_that_begins_alike() {
        assert_eq!(end_of(b"ab"), b"ac");
        assert_eq!(end_of(b"a\xff\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"");
    }
}
