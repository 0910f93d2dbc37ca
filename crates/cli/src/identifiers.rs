//! Identifiers as people type them: whole, or a beginning that only one identifier has.

use crate::list;
use anyhow::bail;
use oxiray_visitor::json;
use oxiray_wire::message::StateQuery;
use std::collections::BTreeSet;

/// The most rows that are looked through for a beginning.
const ROWS_MAX: u32 = 10_000;
/// How many identifiers an error names.
const NAMED_MAX: usize = 4;

/// The column that identifies what is listed under `kind`; `None` where a single one cannot be shown.
pub(crate) fn key_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "actors" => "actor_id",
        "jobs" => "job_id",
        "nodes" => "node_id",
        "objects" => "object_id",
        "placement_groups" => "placement_group_id",
        "tasks" => "task_id",
        "workers" => "worker_id",
        _ => return None,
    })
}

/// The whole identifier that begins with what was given, among all of these kinds.
pub(crate) fn whole(address: Option<&str>, kinds: &[&str], given: &str) -> anyhow::Result<String> {
    let mut found = BTreeSet::new();
    for kind in kinds {
        let asked = StateQuery { kind: json::kind(kind)?, limit: ROWS_MAX, ..StateQuery::default() };
        let (rows, _) = list::rows(address, &asked, list::ANSWER_LIMIT)?;
        let key = key_of(kind).unwrap_or_default();
        found.extend(rows.iter().filter_map(|row| row[key].as_str()).filter(|id| begins(id, given)).map(str::to_owned));
    }
    chosen(&found, kinds, given)
}

fn chosen(found: &BTreeSet<String>, kinds: &[&str], given: &str) -> anyhow::Result<String> {
    let mut all = found.iter();
    match (all.next(), found.len()) {
        (Some(only), 1) => Ok(only.clone()),
        (None, _) => {
            let names: Vec<String> = kinds.iter().map(|kind| kind.replace('_', "-")).collect();
            bail!(
                "no identifier of {} begins with `{given}`: `oxiray list` shows those that there are",
                names.join(", ")
            )
        }
        (Some(_), count) => {
            let named: Vec<&str> = found.iter().map(String::as_str).take(NAMED_MAX).collect();
            let more = if count > NAMED_MAX { ", ..." } else { "" };
            bail!("{count} identifiers begin with `{given}`: {}{more}. Give more of its digits", named.join(", "))
        }
    }
}

fn begins(id: &str, given: &str) -> bool {
    !given.is_empty() && id.get(..given.len()).is_some_and(|start| start.eq_ignore_ascii_case(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_stands_for_the_only_identifier_that_has_it() {
        let find = |given: &str, ids: &[&str]| {
            let found: BTreeSet<String> =
                ids.iter().filter(|id| begins(id, given)).map(|id| (*id).to_owned()).collect();
            chosen(&found, &["placement_groups"], given).map_err(|error| error.to_string())
        };
        assert_eq!(find("AB", &["abcd", "cdef"]), Ok("abcd".into()));
        assert_eq!(
            find("ff", &["abcd"]).unwrap_err(),
            "no identifier of placement-groups begins with `ff`: `oxiray list` shows those that there are"
        );
        assert_eq!(
            find("a", &["ab", "ac"]).unwrap_err(),
            "2 identifiers begin with `a`: ab, ac. Give more of its digits"
        );
        assert!(find("", &["ab"]).is_err());
    }
}
