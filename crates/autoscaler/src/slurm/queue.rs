//! What `squeue` prints of jobs, read strictly: a line that is not as it was asked for ends the reading.

use thiserror::Error;

/// What is asked of each job: number, state, reason, time limit, time left, name. Slurm has these letters since long before it
/// had JSON. The name is last: that of a job which somebody else started may have anything in it.
pub(super) const FORMAT: &str = "%A|%T|%r|%l|%L|%j";
/// How many those are.
const FIELDS: usize = 6;
/// The most characters of a reason that are told.
const REASON_CHARS_MAX: usize = 200;

/// A job, as Slurm has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) job: u64,
    pub(super) stage: Stage,
    /// The state and the reason, in Slurm's words.
    pub(super) state: String,
    pub(super) reason: String,
    /// Its time limit, in seconds; nothing where it has none.
    pub(super) limit_s: Option<u64>,
    /// What is left of that.
    pub(super) left_s: Option<u64>,
    pub(super) name: String,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn.
    Queued,
    /// Its node is being made ready.
    Starting,
    Running,
    /// It has ended, and its processes may not have.
    Completing,
    Ended,
}

/// A line that is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`squeue --format='{FORMAT}'` printed `{line}`: {what}")]
pub(super) struct QueueError {
    line: String,
    what: String,
}

/// The jobs that `squeue` printed.
pub(super) fn rows(text: &str) -> Result<Vec<Row>, QueueError> {
    text.lines().filter(|line| !line.trim().is_empty()).map(row).collect()
}

fn row(line: &str) -> Result<Row, QueueError> {
    let wrong = |what: String| QueueError { line: line.chars().take(REASON_CHARS_MAX).collect(), what };
    let fields: Vec<&str> = line.splitn(FIELDS, '|').map(str::trim).collect();
    let [job, state, reason, limit, left, name] = fields[..] else {
        return Err(wrong(format!("these are not {FIELDS} fields")));
    };
    let number = job.parse().map_err(|_| wrong(format!("`{job}` is no number of a job")))?;
    let stage = stage(state).ok_or_else(|| wrong(format!("no state of a job is called `{state}`")))?;
    let time = |text: &str| seconds(text).ok_or_else(|| wrong(format!("`{text}` is no time")));
    Ok(Row {
        job: number,
        stage,
        state: state.to_owned(),
        reason: reason.trim_matches(['(', ')']).chars().take(REASON_CHARS_MAX).collect(),
        limit_s: time(limit)?,
        left_s: time(left)?,
        name: name.to_owned(),
    })
}

fn stage(state: &str) -> Option<Stage> {
    Some(match state {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => Stage::Queued,
        "CONFIGURING" | "POWER_UP_NODE" => Stage::Starting,
        "RUNNING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING" => Stage::Running,
        "COMPLETING" | "STAGE_OUT" => Stage::Completing,
        "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "LAUNCH_FAILED" | "NODE_FAIL"
        | "OUT_OF_MEMORY" | "PREEMPTED" | "RECONFIG_FAIL" | "REVOKED" | "TIMEOUT" => Stage::Ended,
        _ => return None,
    })
}

/// `DAYS-HOURS:MINUTES:SECONDS` with what is zero left out, in seconds; nothing inside where there is no such time. The outer
/// nothing: it is none of these.
#[expect(clippy::option_option, reason = "a time that Slurm does not have is not one that cannot be read")]
fn seconds(text: &str) -> Option<Option<u64>> {
    if matches!(text, "UNLIMITED" | "NOT_SET" | "INVALID" | "N/A" | "Partition_Limit") {
        return Some(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let parts = rest.split(':').map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
    if !(1..=3).contains(&parts.len()) || text.contains('-') && parts.len() != 3 {
        return None;
    }
    let of_day = parts.iter().fold(0_u64, |sum, part| sum.saturating_mul(60).saturating_add(*part));
    Some(Some(days.saturating_mul(86_400).saturating_add(of_day)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_as_slurm_prints_them() {
        let text = "12|PENDING|Resources|1:00|1:00|oxiray.ab.r-1.0.gpu\n\
                    7|RUNNING|None|UNLIMITED|UNLIMITED|a|b\n\n\
                    9|FAILED|NonZeroExitCode|2-00:00:00|INVALID|x\n";
        let found = rows(text).expect("rows");
        let told: Vec<_> = found.iter().map(|row| (row.job, row.stage, row.reason.as_str(), row.left_s)).collect();
        assert_eq!(
            told,
            [
                (12, Stage::Queued, "Resources", Some(60)),
                (7, Stage::Running, "None", None),
                (9, Stage::Ended, "NonZeroExitCode", None)
            ]
        );
        assert_eq!(found[1].name, "a|b");
        assert_eq!(found[2].limit_s, Some(172_800));
    }

    #[test]
    fn what_is_not_as_it_was_asked_for_is_an_error_that_shows_it() {
        for (line, what) in [
            ("12|PENDING|Resources", "not 6 fields"),
            ("slurm_load_jobs error|||||", "no number of a job"),
            ("12|DANCING|None|1:00|1:00|x", "`DANCING`"),
            ("12|RUNNING|None|soon|1:00|x", "`soon` is no time"),
        ] {
            let told = rows(line).expect_err(line).to_string();
            assert!(told.contains(what) && told.contains(line), "{told}");
        }
    }

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("30", Some(Some(30))),
            ("1:30", Some(Some(90))),
            ("4:00:00", Some(Some(14_400))),
            ("1-02:03:04", Some(Some(93_784))),
            ("UNLIMITED", Some(None)),
            ("NOT_SET", Some(None)),
            ("", None),
            ("1:", None),
            ("1-2", None),
            ("1:2:3:4", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
