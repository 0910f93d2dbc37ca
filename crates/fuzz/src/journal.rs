//! A head's journal whose file something else changes between two heads: cut, overwritten, lengthened.
//!
//! What it holds is then what it held after one of the commits, or it is refused (JOURNAL-3); and whatever was cut off, it
//! goes on from there.

use bytes::Bytes;
use fastrand::Rng;
use oxiray_journal::{Change, Fault, LogFile, Rows, Store};
use std::fs;
use std::path::Path;

/// The most commits of one life of a journal.
const COMMITS_MAX: usize = 12;
/// The most rows of a commit, and the tables and keys that they are of.
const ROWS_MAX: usize = 6;
const TABLES: u32 = 3;
const KEYS: u8 = 8;
/// The longest value, in bytes.
const VALUE_MAX: usize = 300;

/// What was done to journals, and what became of them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Those that were opened again as they had been left.
    pub whole: u64,
    /// Those that were changed and had lost their last commits, or none.
    pub shorter: u64,
    /// Those that were changed and refused.
    pub refused: u64,
}

/// Writes a journal, changes its file, and opens it again, some times over.
///
/// # Panics
/// Where it holds something that it never held.
pub fn run(seed: u64, folder: &Path) -> Tally {
    let mut random = Rng::with_seed(seed);
    let path = folder.join(format!("journal-{seed}"));
    let mut told = Tally::default();
    // All that it ever held: where much is cut off, an earlier life's commit is the last.
    let mut held = vec![Rows::new()];
    for _ in 0..random.usize(1..5) {
        live(&path, &mut random, &mut held);
        let was_changed = random.u8(..4) > 0 && change(&path, &mut random);
        match LogFile::open(&path) {
            Ok(opened) => {
                let found = opened.journal.rows().clone();
                let at = held.iter().rposition(|held| *held == found);
                assert!(at.is_some(), "JOURNAL-3: seed {seed}: it holds what it never held");
                let is_whole = at == Some(held.len() - 1);
                assert!(was_changed || is_whole, "JOURNAL-1: seed {seed}: commits are lost and nothing was changed");
                *if was_changed { &mut told.shorter } else { &mut told.whole } += 1;
                held.push(found);
            }
            Err(Fault::Corrupt { .. } | Fault::Later { .. }) if was_changed => {
                told.refused += 1;
                fs::remove_file(&path).expect("it was there");
                held = vec![Rows::new()];
            }
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
    told
}

/// Opens a journal that holds the last of these rows and commits some batches; adds what it holds after each.
fn live(path: &Path, random: &mut Rng, held: &mut Vec<Rows>) {
    let mut journal = LogFile::open(path).expect("it is as the last life left it").journal;
    assert_eq!(journal.rows(), &held[held.len() - 1], "it was opened before, and goes on");
    for _ in 0..random.usize(..COMMITS_MAX) {
        let batch: Vec<Change> = (0..random.usize(1..=ROWS_MAX)).map(|_| any_change(random)).collect();
        journal.commit(&batch).expect("the disk takes it");
        let mut rows = held[held.len() - 1].clone();
        for Change { table, key, value } in batch {
            match value {
                Some(value) => rows.insert((table, key), value),
                None => rows.remove(&(table, key)),
            };
        }
        held.push(rows);
    }
}

fn any_change(random: &mut Rng) -> Change {
    let value = (random.u8(..4) > 0).then(|| {
        let length = random.usize(..VALUE_MAX);
        std::iter::repeat_with(|| random.u8(..)).take(length).collect::<Vec<_>>()
    });
    Change {
        table: random.u32(..TABLES),
        key: Bytes::copy_from_slice(&[random.u8(..KEYS)]),
        value: value.map(Bytes::from),
    }
}

/// Changes the file; whether it is another afterwards.
fn change(path: &Path, random: &mut Rng) -> bool {
    let before = fs::read(path).expect("it was written");
    let mut bytes = before.clone();
    for _ in 0..random.usize(1..3) {
        let at = random.usize(..=bytes.len());
        match random.u8(..4) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            2 => {
                let more = random.usize(1..64);
                bytes.extend(std::iter::repeat_with(|| random.u8(..)).take(more));
            }
            // A part of it, such as a whole record, once more.
            _ => {
                let part = bytes[random.usize(..=at)..at].to_vec();
                bytes.extend(part);
            }
        }
    }
    fs::write(path, &bytes).expect("it can be written");
    bytes != before
}
