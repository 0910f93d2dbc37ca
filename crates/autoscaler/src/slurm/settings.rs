//! What a file of groups says of Slurm, and what `sbatch` is asked for it.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// How often Slurm is asked about the jobs of a cluster, where the file does not say: one question of `squeue`, about the
/// jobs of one user.
const INTERVAL_S: f64 = 10.0;
/// The least and the most seconds between two such questions.
const INTERVAL_S_LIMITS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
/// The most bytes of a group's name, which is part of the names of its jobs.
const NAME_BYTES_MAX: usize = 100;
/// What Slurm counts its memory in where no letter says it.
const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// Options of `sbatch` that are the autoscaler's: it finds its jobs by some, and others would make of a job what is no node.
const OWN_OPTIONS: [&str; 12] = [
    "--job-name",
    "--nodes",
    "--ntasks",
    "--array",
    "--parsable",
    "--wrap",
    "--wait",
    "--requeue",
    "--test-only",
    "--clusters",
    "--quiet",
    "--uid",
];
/// The same as single letters.
const OWN_LETTERS: [char; 8] = ['J', 'N', 'n', 'a', 'W', 'M', 'Q', 'h'];

/// How the jobs of all groups are asked for, and those of one, whose word goes before.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobSettings {
    /// The partition.
    pub partition: Option<String>,
    /// Generic resources of a node, such as `gpu:a100:2`.
    pub gres: Option<String>,
    /// Processors of a node.
    pub cpus: Option<u32>,
    /// Memory of a node, as in `64G`.
    pub memory: Option<String>,
    /// The time limit, as Slurm writes it.
    pub time: Option<String>,
    /// The account that is charged.
    pub account: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// Further options of `sbatch`.
    pub options: Vec<String>,
    /// Lines of Bash that run before the node is started.
    pub setup: Option<String>,
    /// The program `oxiray` on the nodes.
    pub program: Option<PathBuf>,
    /// A file with the join token on each node; without it the job's script carries the cluster's.
    pub token_file: Option<PathBuf>,
    /// For how many seconds a job may be queued before other groups are tried.
    pub queue_limit_s: Option<f64>,
    /// How many seconds there are between two questions to Slurm; for all groups.
    pub interval_s: Option<f64>,
}

/// Why no job can be asked for.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum JobError {
    /// The group's name cannot be in the name of a job.
    #[error("its name is in the names of its jobs, and has to be 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`")]
    Name,
    /// Several hosts.
    #[error("`hosts` is {0}, and each replica of a group of Slurm is a job of one node: leave it out")]
    Hosts(u32),
    /// No generic resource.
    #[error("`gres` is `{0}`, which is no list of NAME:COUNT or NAME:TYPE:COUNT, such as gpu:2 or gpu:a100:2")]
    Gres(String),
    /// No amount of memory.
    #[error("`memory` is `{0}`, which is no number with K, M, G or T, such as 64G")]
    Memory(String),
    /// No processors.
    #[error("`cpus` is 0: a node has one processor at least")]
    Cpus,
    /// No time.
    #[error("`{0}` is {1}; it is a number of seconds {2}")]
    Seconds(&'static str, f64, &'static str),
    /// What all groups have in common.
    #[error("`interval_s` holds for all groups: it stands under `slurm` at the top of the file")]
    Interval,
    /// An option that begins with nothing.
    #[error("`{0}` is no option of sbatch: options are written as in --constraint=h100, each in one text")]
    Option(String),
    /// An option that the autoscaler has itself.
    #[error("the autoscaler says {0} to sbatch itself: leave it out of `options`")]
    OwnOption(String),
    /// A value that is empty, or would be read as something else.
    #[error("`{0}` is empty or has a line break: leave it out, or say one value")]
    Value(&'static str),
}

/// How the jobs of a cluster are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Jobs {
    /// How long there is between two questions to Slurm.
    pub interval: Duration,
    /// By the group's name.
    pub(crate) templates: BTreeMap<String, JobTemplate>,
}

/// How the jobs of a group are asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobTemplate {
    /// What `sbatch` is told besides the name.
    pub(crate) options: Vec<String>,
    pub(crate) setup: String,
    pub(crate) program: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) queue_limit: Option<Duration>,
}

impl JobSettings {
    /// What holds for a group: its own word, and else what is said for all.
    pub(crate) fn over(&self, all: &Self) -> Self {
        let own = self.clone();
        let all = all.clone();
        Self {
            partition: own.partition.or(all.partition),
            gres: own.gres.or(all.gres),
            cpus: own.cpus.or(all.cpus),
            memory: own.memory.or(all.memory),
            time: own.time.or(all.time),
            account: own.account.or(all.account),
            qos: own.qos.or(all.qos),
            options: [all.options, own.options].concat(),
            setup: own.setup.or(all.setup),
            program: own.program.or(all.program),
            token_file: own.token_file.or(all.token_file),
            queue_limit_s: own.queue_limit_s.or(all.queue_limit_s),
            interval_s: own.interval_s.or(all.interval_s),
        }
    }

    /// How long there is between two questions to Slurm.
    pub(crate) fn interval(&self) -> Result<Duration, JobError> {
        let seconds = self.interval_s.unwrap_or(INTERVAL_S);
        if !INTERVAL_S_LIMITS.contains(&seconds) {
            return Err(JobError::Seconds("interval_s", seconds, "from 0.1 to 3600"));
        }
        Ok(Duration::from_secs_f64(seconds))
    }

    /// What a node of these jobs offers, as far as it follows from what they ask for.
    pub(crate) fn offers(&self) -> Result<BTreeMap<String, f64>, JobError> {
        let mut offers = BTreeMap::from([("CPU".to_owned(), f64::from(self.cpus.unwrap_or(1)))]);
        let gpus = self.gres.as_deref().map_or(Ok(0), gpus)?;
        if gpus > 0 {
            offers.insert("GPU".to_owned(), f64::from(gpus));
        }
        // Of all memory of a node (`0`) nobody knows here how much that is.
        let memory = self.memory.as_deref().map(bytes).transpose()?.filter(|bytes| *bytes > 0.0);
        offers.extend(memory.map(|bytes| ("memory".to_owned(), bytes)));
        Ok(offers)
    }

    /// How the jobs of a group with these settings are asked for.
    pub(crate) fn template(&self) -> Result<JobTemplate, JobError> {
        if self.cpus == Some(0) {
            return Err(JobError::Cpus);
        }
        let mut options = vec![
            "--parsable".to_owned(),
            "--no-requeue".to_owned(),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            format!("--cpus-per-task={}", self.cpus.unwrap_or(1)),
        ];
        let named = [
            ("partition", "--partition", &self.partition),
            ("gres", "--gres", &self.gres),
            ("memory", "--mem", &self.memory),
            ("time", "--time", &self.time),
            ("account", "--account", &self.account),
            ("qos", "--qos", &self.qos),
        ];
        for (name, option, value) in named {
            let Some(value) = value else { continue };
            if value.trim().is_empty() || value.contains(['\n', '\0']) {
                return Err(JobError::Value(name));
            }
            options.push(format!("{option}={value}"));
        }
        for option in &self.options {
            options.push(further(option)?.to_owned());
        }
        let queue_limit = match self.queue_limit_s {
            Some(seconds) => Some(
                Duration::try_from_secs_f64(seconds)
                    .map_err(|_| JobError::Seconds("queue_limit_s", seconds, "zero or more"))?,
            ),
            None => None,
        };
        Ok(JobTemplate {
            options,
            setup: self.setup.clone().unwrap_or_default(),
            program: self.program.clone(),
            token_file: self.token_file.clone(),
            queue_limit,
        })
    }
}

/// Whether a group's name can be in the name of a job.
pub(crate) fn check_name(name: &str) -> Result<(), JobError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_allowed) {
        return Err(JobError::Name);
    }
    Ok(())
}

/// One of the further options of `sbatch`, where it may be given.
fn further(option: &str) -> Result<&str, JobError> {
    let name = option.split('=').next().unwrap_or_default();
    let letter = name.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.chars().next());
    if !name.starts_with('-') || name.trim_start_matches('-').is_empty() || option.contains('\0') {
        return Err(JobError::Option(option.to_owned()));
    }
    // `sbatch` takes the beginning of a long option for the whole of it.
    let is_own = |own: &&str| name.len() > 3 && own.starts_with(name);
    if OWN_OPTIONS.iter().any(is_own) || letter.is_some_and(|letter| OWN_LETTERS.contains(&letter)) {
        return Err(JobError::OwnOption(name.to_owned()));
    }
    Ok(option)
}

/// How many GPUs a list of generic resources asks for.
fn gpus(list: &str) -> Result<u32, JobError> {
    let wrong = || JobError::Gres(list.to_owned());
    let mut count = 0_u32;
    for entry in list.split(',') {
        let mut parts = entry.trim().trim_start_matches("gres/").trim_start_matches("gres:").split(':');
        let (name, rest) = (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>());
        if name.is_empty() || rest.len() > 2 || rest.iter().any(|part| part.is_empty()) {
            return Err(wrong());
        }
        let number = rest.last().and_then(|last| last.parse::<u32>().ok());
        if rest.len() == 2 && number.is_none() {
            return Err(wrong());
        }
        if name == "gpu" {
            count = count.checked_add(number.unwrap_or(1)).ok_or_else(wrong)?;
        }
    }
    Ok(count)
}

/// An amount of memory as Slurm writes it, in bytes.
fn bytes(text: &str) -> Result<f64, JobError> {
    let wrong = || JobError::Memory(text.to_owned());
    let (number, unit) = match text.trim().strip_suffix(['K', 'k', 'M', 'm', 'G', 'g', 'T', 't']) {
        Some(number) => (number, text.trim().as_bytes().last().copied().unwrap_or_default().to_ascii_uppercase()),
        None => (text.trim(), b'M'),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        b'K' => 1024.0,
        b'G' => MEBIBYTE * 1024.0,
        b'T' => MEBIBYTE * 1024.0 * 1024.0,
        _ => MEBIBYTE,
    };
    Ok(number as f64 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_says_more_than_all_and_goes_before() {
        let all = JobSettings {
            account: Some("ml".to_owned()),
            time: Some("1:00:00".to_owned()),
            options: vec!["--exclusive".to_owned()],
            ..JobSettings::default()
        };
        let own = JobSettings {
            partition: Some("gpu".to_owned()),
            gres: Some("gpu:a100:2".to_owned()),
            cpus: Some(16),
            memory: Some("64G".to_owned()),
            time: Some("4:00:00".to_owned()),
            options: vec!["--constraint=nvlink".to_owned()],
            ..JobSettings::default()
        };
        let settings = own.over(&all);
        let told = settings.template().expect("a job").options;
        let expected = "--parsable --no-requeue --nodes=1 --ntasks=1 --cpus-per-task=16 --partition=gpu --gres=gpu:a100:2 \
                        --mem=64G --time=4:00:00 --account=ml --exclusive --constraint=nvlink";
        assert_eq!(told.join(" "), expected);
        let gibibyte = 1024.0 * MEBIBYTE;
        let offers = [("CPU".to_owned(), 16.0), ("GPU".to_owned(), 2.0), ("memory".to_owned(), 64.0 * gibibyte)];
        assert_eq!(settings.offers(), Ok(BTreeMap::from(offers)));
        assert_eq!(all.offers(), Ok(BTreeMap::from([("CPU".to_owned(), 1.0)])));
    }

    #[test]
    fn generic_resources_are_counted() {
        for (list, expected) in [
            ("gpu", Some(1)),
            ("gpu:4", Some(4)),
            ("gpu:a100", Some(1)),
            ("gpu:a100:2,gpu:v100:1,lustre:1", Some(3)),
            ("gres/gpu:2", Some(2)),
            ("shard:4", Some(0)),
            ("", None),
            ("gpu:", None),
            ("gpu:a:b", None),
            ("gpu:a:1:2", None),
            ("gpu:2,", None),
        ] {
            assert_eq!(gpus(list).ok(), expected, "{list}");
        }
    }

    #[test]
    fn memory_is_counted_as_slurm_does() {
        for (text, expected) in [
            ("4000", Some(4000.0 * MEBIBYTE)),
            ("8K", Some(8192.0)),
            ("2g", Some(2048.0 * MEBIBYTE)),
            ("1T", Some(1_048_576.0 * MEBIBYTE)),
            ("0", Some(0.0)),
            ("1.5G", None),
            ("G", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn what_no_job_can_have_is_refused_with_the_way_out() {
        let with = |options: &[&str]| JobSettings {
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..JobSettings::default()
        };
        let refused = |settings: JobSettings| settings.template().expect_err("no job").to_string();
        for own in ["--job-name=x", "-J", "-n4", "--nodes=2", "--node=2", "--array=1-3", "--wrap=true"] {
            assert!(refused(with(&[own])).contains("leave it out of `options`"), "{own}");
        }
        for none in ["constraint=h100", "", "--", "-"] {
            assert!(refused(with(&[none])).contains("is no option of sbatch"), "{none}");
        }
        for allowed in ["-C", "--nodelist=n1", "--ntasks-per-node=1", "--export=NONE", "--nice", "--no-kill"] {
            assert!(with(&[allowed]).template().is_ok(), "{allowed}");
        }
        assert!(refused(JobSettings { cpus: Some(0), ..JobSettings::default() }).contains("`cpus` is 0"));
        assert!(refused(JobSettings { qos: Some(" ".into()), ..JobSettings::default() }).contains("`qos` is empty"));
        let limit = JobSettings { queue_limit_s: Some(-1.0), ..JobSettings::default() };
        assert!(refused(limit).contains("`queue_limit_s` is -1"));
        let often = JobSettings { interval_s: Some(0.0), ..JobSettings::default() };
        assert!(often.interval().is_err());
        for wrong in ["", "a b", "a.b", &"x".repeat(101)] {
            assert_eq!(check_name(wrong), Err(JobError::Name), "{wrong}");
        }
        assert_eq!(check_name("gpu-a100_2"), Ok(()));
    }
}
