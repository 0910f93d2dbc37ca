use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn open(path: &Path) -> LogFile {
    let opened = LogFile::open(path).expect("it can be opened");
    assert_eq!(opened.torn, 0);
    opened.journal
}

fn put(table: Table, key: &str, value: &str) -> Change {
    Change { table, key: key.to_owned().into(), value: Some(value.to_owned().into()) }
}

fn gone(table: Table, key: &str) -> Change {
    Change { table, key: key.to_owned().into(), value: None }
}

/// A journal of three batches, and its length after each.
fn three(path: &Path) -> Vec<u64> {
    let mut journal = open(path);
    let batches =
        [vec![put(1, "a", "one"), put(2, "a", "two")], vec![gone(1, "a"), put(1, "b", "")], vec![put(2, "a", "three")]];
    batches
        .iter()
        .map(|batch| (journal.commit(batch).expect("written"), fs::metadata(path).expect("there").len()).1)
        .collect()
}

#[test]
fn rows_are_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    three(&path);
    let rows = open(&path).rows().clone();
    let expected = [((1, "b"), ""), ((2, "a"), "three")];
    let expected = expected.map(|((table, key), value)| ((table, Bytes::from(key)), Bytes::from(value)));
    assert_eq!(rows, Rows::from(expected));
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_was_cut_short_is_dropped_and_what_was_written_before_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let ends = three(&path);
    let whole = fs::read(&path).expect("read");
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).expect("written");
        let opened = LogFile::open(&path).expect("it can be opened");
        let kept = ends.iter().rev().find(|end| **end <= length as u64).copied().unwrap_or(length.min(8) as u64);
        let dropped = if length < 8 { length as u64 } else { length as u64 - kept };
        assert_eq!(opened.torn, dropped, "cut at {length}");
        let mut journal = opened.journal;
        journal.commit(&[put(3, "more", "after")]).expect("written");
        assert_eq!(open(&path).rows(), journal.rows());
    }
    // A machine that lost power may have made the file longer and not have written it.
    let mut longer = whole.clone();
    longer.resize(whole.len() + 100, 0);
    fs::write(&path, longer).expect("written");
    assert_eq!(LogFile::open(&path).expect("it can be opened").torn, 100);
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    three(&path);
    let whole = fs::read(&path).expect("read");
    for (at, bit) in (0..whole.len()).flat_map(|at| [1, 0x80].map(|bit| (at, bit))) {
        let mut changed = whole.clone();
        changed[at] ^= bit;
        fs::write(&path, &changed).expect("written");
        let error = LogFile::open(&path).expect_err("it is not what was written");
        let is_version = (4..8).contains(&at) && matches!(error, Fault::Later { .. });
        assert!(is_version || matches!(error, Fault::Corrupt { .. }), "byte {at}: {error}");
        assert!(error.to_string().contains("--fresh") && error.to_string().contains("journal"), "{error}");
        assert_eq!(fs::read(&path).expect("read"), changed, "what cannot be read is left as it is");
    }
}

#[test]
fn what_a_power_cut_leaves_behind_the_last_record_is_cut_off_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let ends = three(&path);
    let whole = fs::read(&path).expect("read");
    let last = *ends.last().expect("three records") as usize;
    let garbage: Vec<u8> = (0..300_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
    // The length of a record reached the disk, and then other bytes than its own.
    open(&path).commit(&[put(1, "key", &"value".repeat(50))]).expect("written");
    let record = fs::read(&path).expect("read").split_off(last);
    let begun = [&record[..20], &garbage[..record.len() - 20]].concat();
    for tail in [&garbage[..20], &garbage[..7], &garbage[..], &[&[0; 20][..], &garbage].concat(), &begun] {
        fs::write(&path, [&whole, tail].concat()).expect("written");
        let opened = LogFile::open(&path).expect("no record follows");
        assert_eq!(opened.torn, tail.len() as u64);
        assert_eq!(fs::read(&path).expect("read"), whole);
        let kept = opened.kept.map(|kept| fs::read(kept).expect("kept"));
        // Fewer bytes than a length has are the beginning of anything.
        assert_eq!(kept.as_deref(), (tail.len() >= 8).then_some(tail));
    }
    for damaged in [last - 30, last - 5, ends[0] as usize + 1, ends[0] as usize + 12] {
        let mut changed = [&whole[..], &garbage[..20]].concat();
        changed[damaged] ^= 1;
        fs::write(&path, &changed).expect("written");
        assert!(matches!(LogFile::open(&path), Err(Fault::Corrupt { .. })), "byte {damaged} of {last}");
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    fs::write(&path, b"oxjr\x09\0\0\0 whatever").expect("written");
    let error = LogFile::open(&path).expect_err("it is of a later version");
    assert!(matches!(error, Fault::Later { found: 9, known: 1, .. }), "{error}");
}

#[test]
fn a_store_in_etcd_is_named_with_its_hosts_and_its_cluster() {
    let read = |text: &str| EtcdAddress::parse(text).map(|address| address.to_string());
    assert_eq!(read("etcd://one:2379"), Ok("etcd://one:2379/default".into()));
    assert_eq!(read("etcd://one:1,10.0.0.2:2/mine"), Ok("etcd://one:1,10.0.0.2:2/mine".into()));
    for wrong in
        ["", "one:2379", "etcd://", "etcd://one", "etcd://one:x", "etcd://one:1/", "etcd://one:1/a/b", "etcd://one:1,"]
    {
        assert!(read(wrong).is_err_and(|text| text.contains("etcd://HOST:PORT")), "{wrong}");
    }
}

#[test]
fn a_file_is_written_anew_when_most_of_it_is_out_of_date() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let mut journal = open(&path);
    let large = "x".repeat(300_000);
    for number in 0..40 {
        journal.commit(&[put(1, "same", &large), put(2, &number.to_string(), "kept")]).expect("written");
        assert!(fs::metadata(&path).expect("there").len() < 3_000_000);
    }
    assert_eq!(journal.rows().len(), 41);
    assert_eq!(open(&path).rows(), journal.rows());
    assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// JOURNAL-1: at any moment a second opening finds what was committed.
    #[test]
    fn any_batches_are_found_again(
        batches in prop::collection::vec(prop::collection::vec((0_u32..3, 0_u8..6, prop::option::of(0_usize..400_000)), 1..5), 1..25)
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let mut journal = open(&path);
        let mut model = Rows::new();
        for batch in batches {
            let changes: Vec<Change> = batch.iter().map(|(table, key, length)| Change {
                table: *table,
                key: vec![*key].into(),
                value: length.map(|length| vec![*key; length].into()),
            }).collect();
            for Change { table, key, value } in changes.clone() {
                match value {
                    Some(value) => drop(model.insert((table, key), value)),
                    None => drop(model.remove(&(table, key))),
                }
            }
            journal.commit(&changes).expect("written");
            prop_assert_eq!(journal.rows(), &model);
            let again = open(&path);
            prop_assert_eq!(again.rows(), &model);
        }
    }
}
