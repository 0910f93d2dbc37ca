//! Plans for recorded situations: each file of `tests/plans` is a record, a line `---`, and the plan in words.
//!
//! `OXIRAY_UPDATE_PLANS=1` writes the plans anew; read what changed before you keep it.

use oxiray_autoscaler::{in_words, read_record, situation};
use oxiray_scheduler::plan;
use std::fs;
use std::path::{Path, PathBuf};

const RULE: &str = "\n---\n";

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder of plans").map(|entry| entry.expect("an entry").path()).collect();
    cases.sort();
    cases
}

#[test]
fn every_recorded_situation_has_its_plan() {
    let cases = cases();
    assert!(cases.len() >= 20, "{} cases: some are missing", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let text = fs::read_to_string(&case).expect("a readable case");
        let (given, expected) = text.split_once(RULE).unwrap_or((&text, ""));
        let record = read_record(given).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        let described = situation(&record).unwrap_or_else(|error| panic!("{}: {error}", case.display()));
        let planned = in_words(&plan(&described));
        if planned != expected {
            wrong.push(format!("{}:\nexpected\n{expected}\nplanned\n{planned}", case.display()));
            if std::env::var_os("OXIRAY_UPDATE_PLANS").is_some() {
                fs::write(&case, format!("{given}{RULE}{planned}")).expect("a case that can be written");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
