//! Identifiers as people give them: whole, shortened as tables show them, or the beginning of one.

use crate::table::ELLIPSIS;
use crate::visit;
use anyhow::bail;
use oxiray_ids::{ActorId, JobId, NodeId, ObjectId, PlacementGroupId, TaskId, WorkerId};
use oxiray_visitor::json;
use oxiray_wire::message::{StateFilter, StateQuery};
use std::collections::BTreeSet;

/// The most rows that are looked through for a match.
const ROWS_MAX: u32 = 10_000;
/// How many matches an error names.
const NAMED_MAX: usize = 8;

/// Each list, the column that identifies its rows, and the size of such an identifier.
const KEYS: [(&str, &str, usize); 7] = [
    ("actors", "actor_id", ActorId::BYTES),
    ("jobs", "job_id", JobId::BYTES),
    ("nodes", "node_id", NodeId::BYTES),
    ("objects", "object_id", ObjectId::BYTES),
    ("placement_groups", "placement_group_id", PlacementGroupId::BYTES),
    ("tasks", "task_id", TaskId::BYTES),
    ("workers", "worker_id", WorkerId::BYTES),
];

/// The column that identifies what is listed under `kind`; `None` where a single one cannot be shown.
pub(crate) fn key_of(kind: &str) -> Option<&'static str> {
    KEYS.iter().find(|(list, ..)| *list == kind).map(|(_, key, _)| *key)
}

/// The whole identifier of the only one, among all of these kinds, that what was given stands for.
pub(crate) fn whole(address: Option<&str>, kinds: &[&str], given: &str) -> anyhow::Result<String> {
    let names: Vec<String> = kinds.iter().map(|kind| singular(kind)).collect();
    let lists: Vec<String> = kinds.iter().map(|kind| format!("`oxiray list {}`", kind.replace('_', "-"))).collect();
    let (found, is_all) = matches(address, kinds, given)?;
    if found.is_empty() && !is_all {
        bail!("`{given}` is none of the first {ROWS_MAX} rows of {}: give the whole identifier", lists.join(" or "));
    }
    one_of(&found, given, &names.join(" or "), &lists.join(" or "))
}

/// The filter with the whole identifier where its column is one of identifiers and its value the beginning of one.
pub(crate) fn in_filter(address: Option<&str>, filter: StateFilter) -> anyhow::Result<StateFilter> {
    let Some((kind, _, bytes)) = KEYS.iter().find(|(_, key, _)| filter.key.ends_with(key)) else { return Ok(filter) };
    if filter.value.len() >= 2 * bytes && !filter.value.contains(ELLIPSIS) {
        return Ok(filter);
    }
    let (found, _) = matches(address, &[kind], &filter.value)?;
    if found.is_empty() {
        // Then no row has it: that is no error of a filter.
        return Ok(filter);
    }
    let value = one_of(&found, &filter.value, &singular(kind), "")?;
    Ok(StateFilter { value, ..filter })
}

/// The identifiers that it may stand for, and whether all there are were looked at.
fn matches(address: Option<&str>, kinds: &[&str], given: &str) -> anyhow::Result<(BTreeSet<String>, bool)> {
    let (mut found, mut is_all) = (BTreeSet::new(), true);
    for kind in kinds {
        let asked = StateQuery { kind: json::kind(kind)?, limit: ROWS_MAX, ..StateQuery::default() };
        let (rows, total) = visit::rows(address, &asked, visit::LIST_LIMIT)?;
        is_all &= rows.len() as u64 >= total;
        let key = key_of(kind).unwrap_or_default();
        found.extend(
            rows.iter().filter_map(|row| row[key].as_str()).filter(|id| stands_for(given, id)).map(str::to_owned),
        );
    }
    Ok((found, is_all))
}

/// The only one of the names that what was given stands for; one that is equal to it wins.
pub(crate) fn among<'name>(
    names: impl Iterator<Item = &'name str>,
    given: &str,
    (what, list): (&str, &str),
) -> anyhow::Result<String> {
    let found: BTreeSet<String> = names.filter(|name| stands_for(given, name)).map(str::to_owned).collect();
    if found.contains(given) {
        return Ok(given.to_owned());
    }
    one_of(&found, given, what, list)
}

fn one_of(found: &BTreeSet<String>, given: &str, what: &str, list: &str) -> anyhow::Result<String> {
    let mut all = found.iter();
    match (all.next(), found.len()) {
        (Some(only), 1) => Ok(only.clone()),
        (None, _) => bail!("there is no {what} whose identifier is or begins with `{given}`: see {list}"),
        (Some(_), count) => {
            let named: Vec<&str> = found.iter().map(String::as_str).take(NAMED_MAX).collect();
            let more = if count > NAMED_MAX { format!("\n  and {} more", count - NAMED_MAX) } else { String::new() };
            bail!(
                "`{given}` may be any of {count} identifiers: give more of its digits\n  {}{more}",
                named.join("\n  ")
            )
        }
    }
}

/// Whether what was given is that identifier, the beginning of it, or what a table shows of it: its beginning, an ellipsis,
/// and digits from anywhere behind.
fn stands_for(given: &str, id: &str) -> bool {
    let given = given.to_ascii_lowercase().replace("...", &ELLIPSIS.to_string());
    let id = id.to_ascii_lowercase();
    match given.split_once(ELLIPSIS) {
        Some((begin, rest)) => {
            id.strip_prefix(begin).is_some_and(|behind| behind.contains(rest)) && given.len() > ELLIPSIS.len_utf8()
        }
        None => !given.is_empty() && id.starts_with(&given),
    }
}

fn singular(kind: &str) -> String {
    kind.strip_suffix('s').unwrap_or(kind).replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_stands_for_the_only_identifier_that_has_it() {
        let find = |given: &str, ids: &[&str]| {
            let what = ("placement group", "`oxiray list placement-groups`");
            among(ids.iter().copied(), given, what).map_err(|error| error.to_string())
        };
        assert_eq!(find("AB", &["abcd", "cdef"]), Ok("abcd".into()));
        assert_eq!(find("train", &["train-2", "train"]), Ok("train".into()), "the same wins");
        assert_eq!(
            find("ff", &["abcd"]).unwrap_err(),
            "there is no placement group whose identifier is or begins with `ff`: see `oxiray list placement-groups`"
        );
        assert_eq!(
            find("a", &["ab", "ac"]).unwrap_err(),
            "`a` may be any of 2 identifiers: give more of its digits\n  ab\n  ac"
        );
        assert!(find("", &["ab"]).is_err() && find("\u{2026}", &["ab"]).is_err());
    }

    #[test]
    fn what_tables_show_stands_for_it() {
        let ids = ["ffffffffffffffffdddddddddddddddd01000000", "ffffffffffffffffeeeeeeeeeeeeeeee01000000"];
        for given in ["ffffff\u{2026}dddddddd", "ffffffff...dddddddd", "FFFF...d"] {
            assert_eq!(among(ids.into_iter(), given, ("task", "")).expect("it is the first"), ids[0]);
        }
        assert!(!stands_for("ffffffff...aaaaaaaa", ids[0]));
        assert!(
            crate::table::short_identifiers(&ids.into_iter().collect()).iter().all(|(id, short)| stands_for(short, id))
        );
    }
}
