//! How many attempts of tasks there are, by name and by job, from what the head counts (pure).
//!
//! - COUNTS-1: each attempt that the head counts is in one row or in the rest, so that the totals are whole however many names there
//!   are.

use oxiray_ids::JobId;
use oxiray_wire::state::AttemptCount;
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many names are told; the others are told of together.
pub(crate) const NAMES_MAX: usize = 500;

/// How many there are in each state.
type States<'text> = BTreeMap<&'text str, u64>;

fn total(states: &States<'_>) -> u64 {
    states.values().sum()
}

fn add<'text>(states: &mut States<'text>, other: &States<'text>) {
    for (state, count) in other {
        *states.entry(state).or_default() += count;
    }
}

/// What has no row of its own; nothing where that is nothing.
fn rest(states: &States<'_>) -> Json {
    if states.is_empty() { Json::Null } else { json!({"total": total(states), "states": states}) }
}

/// By name, those of one job where one is asked for: the most frequent ones, and all others together. `missing` is what the head says
/// of processes that did not answer.
pub(crate) fn by_name(attempts: &[AttemptCount], job: Option<JobId>, missing: &str) -> Json {
    let mut names: BTreeMap<&str, States<'_>> = BTreeMap::new();
    let mut unattributed = 0;
    for one in attempts {
        if job.is_none() || one.job_id == job {
            *names.entry(&one.name).or_default().entry(&one.state).or_default() += one.count;
        } else if one.job_id.is_none() {
            unattributed += one.count;
        }
    }
    let mut others = names.remove("").unwrap_or_default();
    let known = names.len();
    let mut names: Vec<(&str, States<'_>)> = names.into_iter().collect();
    names.sort_by_key(|(_, states)| Reverse(total(states)));
    for (_, states) in names.drain(known.min(NAMES_MAX)..) {
        add(&mut others, &states);
    }
    let row = |(name, states): &(&str, States<'_>)| json!({"name": name, "total": total(states), "states": states});
    let unattributed = (unattributed > 0).then(|| {
        format!(
            "{unattributed} attempts of the cluster are counted without job and name, since there are too many names: some of \
             them may be of this job."
        )
    });
    let notes: Vec<String> =
        unattributed.into_iter().chain(Some(missing.to_owned()).filter(|text| !text.is_empty())).collect();
    json!({
        "rows": names.iter().map(row).collect::<Vec<_>>(), "names": known, "rest": rest(&others),
        "note": (!notes.is_empty()).then(|| notes.join(" ")),
    })
}

/// By job.
pub(crate) fn by_job(attempts: &[AttemptCount]) -> Json {
    let mut jobs: BTreeMap<Option<JobId>, States<'_>> = BTreeMap::new();
    for one in attempts {
        *jobs.entry(one.job_id).or_default().entry(&one.state).or_default() += one.count;
    }
    let others = jobs.remove(&None).unwrap_or_default();
    let row = |(job, states): (&Option<JobId>, &States<'_>)| json!({"job_id": job.map(|job| job.to_string()), "total": total(states), "states": states});
    json!({"rows": jobs.iter().map(row).collect::<Vec<_>>(), "rest": rest(&others)})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(job: u32, name: &str, state: &str, count: u64) -> AttemptCount {
        let job_id = (job > 0).then(|| JobId::from_number(job));
        AttemptCount { job_id, name: name.into(), state: state.into(), count }
    }

    #[test]
    fn counts_are_by_name_of_all_jobs_or_of_one_and_the_rest_is_told_as_such() {
        let told = [
            count(0, "", "FINISHED", 9),
            count(1, "", "FAILED", 2),
            count(1, "f", "FINISHED", 6_000),
            count(1, "f", "RUNNING", 3),
            count(2, "f", "FINISHED", 4),
            count(2, "g", "FAILED", 7_000),
        ];
        let all = by_name(&told, None, "");
        assert_eq!(all["rows"][0], json!({"name": "g", "total": 7_000, "states": {"FAILED": 7_000}}));
        assert_eq!(all["rows"][1]["states"], json!({"FINISHED": 6_004, "RUNNING": 3}));
        assert_eq!((&all["names"], &all["note"]), (&json!(2), &Json::Null));
        assert_eq!(all["rest"], json!({"total": 11, "states": {"FAILED": 2, "FINISHED": 9}}));
        let one = by_name(&told, Some(JobId::from_number(1)), "somebody is silent");
        assert_eq!(
            (&one["rows"][0]["total"], &one["names"], &one["rest"]["total"]),
            (&json!(6_003), &json!(1), &json!(2))
        );
        let note = one["note"].as_str().expect("a note");
        assert!(note.starts_with("9 attempts of the cluster") && note.ends_with("somebody is silent"), "{note}");
        let jobs = by_job(&told);
        assert_eq!(jobs["rows"][0]["states"], json!({"FAILED": 2, "FINISHED": 6_000, "RUNNING": 3}));
        assert_eq!(
            (&jobs["rows"][1]["total"], &jobs["rest"]),
            (&json!(7_004), &json!({"total": 9, "states": {"FINISHED": 9}}))
        );
    }

    #[test]
    fn names_beyond_those_that_are_told_are_in_the_rest() {
        let told: Vec<AttemptCount> = (0..NAMES_MAX as u64 + 20)
            .map(|number| count(1, &number.to_string(), "FINISHED", 1_000 - number))
            .collect();
        let all = by_name(&told, None, "");
        let rows = all["rows"].as_array().expect("rows");
        let sum: u64 = rows.iter().map(|row| row["total"].as_u64().expect("a total")).sum();
        assert_eq!((rows.len(), &all["names"], &rows[0]["name"]), (NAMES_MAX, &json!(NAMES_MAX + 20), &json!("0")));
        let whole: u64 = told.iter().map(|one| one.count).sum();
        assert_eq!(sum + all["rest"]["total"].as_u64().expect("a total"), whole);
        assert_eq!(by_name(&[], None, "")["rest"], Json::Null);
    }
}
