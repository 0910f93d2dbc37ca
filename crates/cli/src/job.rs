//! `oxiray job`: programs that the cluster runs, so that nobody has to stay for them.

use crate::table::{JsonOption, Printing, Table, width};
use crate::visit::{self, ANSWER_LIMIT};
use crate::{identifiers, say};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use oxiray_state::StateCopy;
use oxiray_visitor::Visitor;
use oxiray_wire::message::{Submission, SubmissionAction, SubmissionAsked, SubmissionSpec, SubmissionState};
use oxiray_wire::state::StateKind;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// How often a job that runs is asked what it printed.
const READ_PERIOD: Duration = Duration::from_millis(200);

/// Whom is asked, and how.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobPlace {
    /// The cluster's address; the default is the current cluster. `http://HOST:PORT` or `https://HOST:PORT` is the address of a
    /// dashboard, of this cluster or another; folders are then those of this machine. RAY_API_SERVER_ADDRESS wins over this
    /// option.
    #[arg(long, env = "RAY_ADDRESS")]
    address: Option<String>,
    /// Headers of requests over HTTP, as a JSON object of texts; those of RAY_JOB_HEADERS and the token of RAY_AUTH_TOKEN beside it.
    #[arg(long, value_name = "JSON")]
    headers: Option<String>,
    /// Over HTTPS: whether the certificate is verified, or a file with the authorities to verify it with.
    #[arg(long, value_name = "true|false|FILE", default_value = "true")]
    verify: String,
}

impl JobPlace {
    /// The address of a dashboard, where one is meant.
    fn http(&self) -> Option<String> {
        let said = std::env::var("RAY_API_SERVER_ADDRESS").ok().filter(|address| !address.is_empty());
        let is_http = |address: &String| address.starts_with("http://") || address.starts_with("https://");
        said.or(self.address.clone()).filter(is_http)
    }
}

#[derive(Debug, Args)]
pub(crate) struct JobOptions {
    #[command(subcommand)]
    order: JobOrder,
}

#[derive(Debug, Subcommand)]
enum JobOrder {
    /// Runs a program on the head's machine and prints its output; the exit status is 0 where it succeeded, and 1 where
    /// it failed or was stopped.
    Submit(Box<SubmitOptions>),
    /// Shows the state of a job.
    Status(OneOptions),
    /// Prints the output of a job.
    Logs(LogOptions),
    /// Stops a job: its processes get SIGTERM, and SIGKILL 5 s later.
    Stop(StopOptions),
    /// Removes a job that has ended from the list.
    Delete(DeleteOptions),
    /// Lists the jobs that were submitted.
    List(ListOptions),
}

/// How urgent what a driver makes is.
const PRIORITY_VARIABLE: &str = "OXIRAY_JOB_PRIORITY";

#[derive(Debug, Args)]
struct SubmitOptions {
    /// The job's name; the default is a new one. A job that is submitted twice under one name runs once.
    #[arg(long, visible_alias = "job-id")]
    submission_id: Option<String>,
    /// A YAML or JSON file with the job's runtime environment.
    #[arg(long, value_name = "FILE")]
    runtime_env: Option<PathBuf>,
    /// The job's runtime environment, JSON.
    #[arg(long, value_name = "JSON", conflicts_with = "runtime_env")]
    runtime_env_json: Option<String>,
    /// A folder or .zip file that the program runs in a copy of: one on the head's machine, or on this one where the job is
    /// submitted to a dashboard; or a .zip file at `s3://bucket/name.zip`. It wins over that of the runtime environment.
    #[arg(long, value_name = "DIRECTORY|FILE|URL")]
    working_dir: Option<String>,
    /// Texts that are stored with the job, as a JSON object.
    #[arg(long, value_name = "JSON")]
    metadata_json: Option<String>,
    /// Processors that the program itself holds.
    #[arg(long)]
    entrypoint_num_cpus: Option<f64>,
    /// GPUs that the program itself holds.
    #[arg(long)]
    entrypoint_num_gpus: Option<f64>,
    /// Bytes of memory that the program itself holds.
    #[arg(long)]
    entrypoint_memory: Option<f64>,
    /// Further resources that the program itself holds, as a JSON object of numbers.
    #[arg(long, value_name = "JSON")]
    entrypoint_resources: Option<String>,
    /// The priority of the program's work, from -1000 to 1000: the higher one goes first; the default is 0.
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    priority: Option<i32>,
    /// Returns at once instead of waiting for the job's end.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    place: JobPlace,
    /// The program with its arguments, or one line for the shell.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    entrypoint: Vec<String>,
}

#[derive(Debug, Args)]
struct OneOptions {
    /// The job's name, or the beginning of it.
    id: String,
    #[command(flatten)]
    printing: JsonOption,
    #[command(flatten)]
    place: JobPlace,
}

#[derive(Debug, Args)]
struct LogOptions {
    /// The job's name, or the beginning of it.
    id: String,
    /// Keeps printing until the job ends.
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    place: JobPlace,
}

#[derive(Debug, Args)]
struct StopOptions {
    /// The job's name, or the beginning of it.
    id: String,
    /// Returns at once instead of waiting for the job's end.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    place: JobPlace,
}

#[derive(Debug, Args)]
struct DeleteOptions {
    /// The job's name, or the beginning of it.
    id: String,
    #[command(flatten)]
    place: JobPlace,
}

#[derive(Debug, Args)]
struct ListOptions {
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    place: JobPlace,
}

impl JobOrder {
    fn place(&self) -> &JobPlace {
        match self {
            Self::Submit(options) => &options.place,
            Self::Status(options) => &options.place,
            Self::Logs(options) => &options.place,
            Self::Stop(options) => &options.place,
            Self::Delete(options) => &options.place,
            Self::List(options) => &options.place,
        }
    }
}

pub(crate) fn run(options: &JobOptions) -> anyhow::Result<()> {
    let place = options.order.place();
    if let Some(address) = place.http() {
        return over_http(&options.order, place, &address);
    }
    if place.headers.is_some() {
        bail!(
            "--headers are of use with --address=http://HOST:PORT only: the daemon of this machine is asked otherwise"
        );
    }
    match &options.order {
        JobOrder::Submit(options) => submit(options),
        JobOrder::Status(options) => status(options),
        JobOrder::Logs(options) => {
            let mut visitor = begin(options.place.address.as_deref())?;
            let id = named(&mut visitor, &options.id)?;
            print(&mut visitor, &id, options.follow).map(drop)
        }
        JobOrder::Stop(options) => stop(options),
        JobOrder::Delete(options) => delete(options),
        JobOrder::List(options) => list(options),
    }
}

/// What a dashboard is asked: the Python package, whose client also packs folders and follows logs, takes this process's place.
fn over_http(order: &JobOrder, place: &JobPlace, address: &str) -> anyhow::Result<()> {
    let order = match order {
        JobOrder::Submit(options) => {
            let spec = spec(options)?;
            let environment: Json = serde_json::from_str(&spec.runtime_env).unwrap_or(Json::Null);
            json!({"do": "submit", "wait": !options.no_wait, "id": options.submission_id, "entrypoint": spec.entrypoint,
                "runtime_env": environment, "metadata": spec.metadata, "resources": spec.resources})
        }
        JobOrder::Status(options) => json!({"do": "status", "id": options.id, "json": options.printing.json}),
        JobOrder::Logs(options) => json!({"do": "logs", "id": options.id, "follow": options.follow}),
        JobOrder::Stop(options) => json!({"do": "stop", "id": options.id, "wait": !options.no_wait}),
        JobOrder::Delete(options) => json!({"do": "delete", "id": options.id}),
        JobOrder::List(options) => json!({"do": "list", "json": options.printing.json}),
    };
    let headers: Json = match &place.headers {
        Some(text) => serde_json::from_str(text)
            .with_context(|| format!("--headers is `{text}`; it is a JSON object of texts"))?,
        None => json!({}),
    };
    let about = json!({"address": address, "headers": headers, "verify": place.verify, "order": order});
    let mut told = std::fs::File::from(rustix::fs::memfd_create("oxiray-job", rustix::fs::MemfdFlags::CLOEXEC)?);
    told.write_all(about.to_string().as_bytes())?;
    told.rewind()?;
    let mut command = oxiray_node::python_command("oxiray._job_command")?;
    let error = command.stdin(told).exec();
    bail!("Python, which speaks to dashboards, cannot be run: {error}")
}

fn begin(address: Option<&str>) -> anyhow::Result<Visitor> {
    visit::begin(&visit::find(address)?)
}

fn asked(action: SubmissionAction, id: &str) -> SubmissionAsked {
    SubmissionAsked { action, id: id.to_owned(), ..SubmissionAsked::default() }
}

/// The whole name of the job that was given, or whose beginning was.
pub(crate) fn named(visitor: &mut Visitor, given: &str) -> anyhow::Result<String> {
    let told = visitor.ask(asked(SubmissionAction::List, ""), ANSWER_LIMIT)?;
    identifiers::among(told.jobs.iter().map(|job| job.id.as_str()), given, ("job", "`oxiray job list`"))
}

/// One job, as the head tells of it.
fn one(visitor: &mut Visitor, action: SubmissionAction, id: &str) -> anyhow::Result<Submission> {
    visitor.ask(asked(action, id), ANSWER_LIMIT)?.jobs.pop().context("the head's answer has no job")
}

fn submit(options: &SubmitOptions) -> anyhow::Result<()> {
    let spec = spec(options)?;
    let mut visitor = begin(options.place.address.as_deref())?;
    let id = options.submission_id.clone().unwrap_or_default();
    let asked = SubmissionAsked { spec: Some(spec), ..asked(SubmissionAction::Submit, &id) };
    let told = visitor.ask(asked, ANSWER_LIMIT)?;
    let job = told.jobs.first().context("the head's answer has no job")?;
    let mut lines = std::io::stderr();
    // Standard output is the program's. Where nobody reads the rest, nobody is to be told.
    let _ = writeln!(lines, "Job {} is submitted.", job.id);
    if options.no_wait {
        let _ = writeln!(
            lines,
            "`oxiray job logs --follow {0}` shows what it prints, `oxiray job stop {0}` ends it.",
            job.id
        );
        return Ok(());
    }
    let ended = print(&mut visitor, &job.id, true)?;
    if ended.state != SubmissionState::Succeeded {
        bail!("job {} {}: {}", ended.id, ended.state.name(), ended.message);
    }
    let _ = writeln!(lines, "Job {} succeeded.", ended.id);
    Ok(())
}

fn spec(options: &SubmitOptions) -> anyhow::Result<SubmissionSpec> {
    let mut environment = environment(options)?;
    if let Some(folder) = &options.working_dir {
        let is_local = !folder.contains("://");
        let place = if is_local { std::path::absolute(folder)?.display().to_string() } else { folder.clone() };
        environment["working_dir"] = json!(place);
    }
    if let Some(priority) = options.priority {
        environment["env_vars"][PRIORITY_VARIABLE] = json!(priority.to_string());
    }
    let mut resources: BTreeMap<String, f64> = match &options.entrypoint_resources {
        Some(text) => serde_json::from_str(text)
            .with_context(|| format!("--entrypoint-resources is `{text}`; it is a JSON object of numbers"))?,
        None => BTreeMap::new(),
    };
    let named = [
        ("CPU", options.entrypoint_num_cpus),
        ("GPU", options.entrypoint_num_gpus),
        ("memory", options.entrypoint_memory),
    ];
    for (name, amount) in named {
        resources.extend(amount.filter(|amount| *amount != 0.0).map(|amount| (name.to_owned(), amount)));
    }
    let metadata = match &options.metadata_json {
        Some(text) => serde_json::from_str(text)
            .with_context(|| format!("--metadata-json is `{text}`; it is a JSON object of texts"))?,
        None => BTreeMap::new(),
    };
    let runtime_env = if environment == json!({}) { String::new() } else { environment.to_string() };
    Ok(SubmissionSpec {
        entrypoint: line(&options.entrypoint),
        runtime_env,
        metadata,
        resources,
        ..SubmissionSpec::default()
    })
}

fn environment(options: &SubmitOptions) -> anyhow::Result<Json> {
    let read: Json = match (&options.runtime_env, &options.runtime_env_json) {
        (Some(file), _) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("--runtime-env {} cannot be read", file.display()))?;
            serde_saphyr::from_str(&text).with_context(|| format!("--runtime-env {} is no YAML", file.display()))?
        }
        (None, Some(text)) => {
            serde_json::from_str(text).with_context(|| format!("--runtime-env-json is `{text}`, which is no JSON"))?
        }
        (None, None) => json!({}),
    };
    if !read.is_object() {
        bail!("the runtime environment is {read}; it is an object, such as {{\"env_vars\": {{}}}}");
    }
    Ok(read)
}

/// One word is a line for the shell; several are a program and its arguments.
fn line(words: &[String]) -> String {
    if let [line] = words {
        return line.clone();
    }
    let is_plain = |word: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&byte);
        !word.is_empty() && word.bytes().all(plain)
    };
    let quoted = words
        .iter()
        .map(|word| if is_plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Prints what the job has printed, or where it is followed, prints until it ends. Returns how it stands then.
fn print(visitor: &mut Visitor, id: &str, follow: bool) -> anyhow::Result<Submission> {
    let (mut offset, mut jobs) = (0, StateCopy::default());
    let mut out = std::io::stdout();
    loop {
        let asked = SubmissionAsked { offset, ..asked(SubmissionAction::Read, id) };
        let told = visitor.ask(asked, ANSWER_LIMIT)?;
        let job = told.jobs.into_iter().next().context("the head's answer has no job")?;
        out.write_all(&told.printed)?;
        out.flush()?;
        offset += told.printed.len() as u64;
        if told.printed.is_empty() {
            if !follow || job.state.is_final() {
                return Ok(job);
            }
            // A job's end is told; what it prints goes into a file, which is looked at from time to time.
            visitor.follow(&mut jobs, &[StateKind::Jobs], READ_PERIOD)?;
        }
    }
}

fn status(options: &OneOptions) -> anyhow::Result<()> {
    let mut visitor = begin(options.place.address.as_deref())?;
    let id = named(&mut visitor, &options.id)?;
    let job = one(&mut visitor, SubmissionAction::List, &id)?;
    let text = if options.printing.json { serde_json::to_string_pretty(&row(&job))? } else { sentence(&job) };
    say(&text);
    Ok(())
}

fn stop(options: &StopOptions) -> anyhow::Result<()> {
    let mut visitor = begin(options.place.address.as_deref())?;
    let id = named(&mut visitor, &options.id)?;
    let mut job = one(&mut visitor, SubmissionAction::Stop, &id)?;
    let mut jobs = StateCopy::default();
    while !options.no_wait && !job.state.is_final() {
        visitor.follow(&mut jobs, &[StateKind::Jobs], ANSWER_LIMIT)?;
        job = one(&mut visitor, SubmissionAction::List, &id)?;
    }
    say(&sentence(&job));
    Ok(())
}

fn delete(options: &DeleteOptions) -> anyhow::Result<()> {
    let mut visitor = begin(options.place.address.as_deref())?;
    let id = named(&mut visitor, &options.id)?;
    let job = one(&mut visitor, SubmissionAction::Delete, &id)?;
    say(&format!("Job {} is deleted.", job.id));
    Ok(())
}

fn list(options: &ListOptions) -> anyhow::Result<()> {
    let told = visit::ask(options.place.address.as_deref(), asked(SubmissionAction::List, ""))?;
    let rows: Vec<Json> = told.jobs.iter().map(row).collect();
    let columns = ["submission_id", "status", "entrypoint", "message"];
    let text = match (options.printing.json, rows.is_empty()) {
        (true, _) => serde_json::to_string_pretty(&rows)?,
        (false, true) => "no job was submitted".to_owned(),
        (false, false) => Table::new(&columns, &rows).within(width(options.printing.wide)).draw(),
    };
    say(text.trim_end());
    Ok(())
}

fn sentence(job: &Submission) -> String {
    format!("Job {} {}: {}.", job.id, job.state.name(), job.message)
}

fn row(job: &Submission) -> Json {
    let spec = job.spec.clone().unwrap_or_default();
    let moment = |ms: u64| if ms == 0 { Json::Null } else { json!(ms) };
    json!({
        "submission_id": job.id,
        "status": job.state.name(),
        "message": job.message,
        "entrypoint": spec.entrypoint,
        "exit_code": job.exit_code,
        "metadata": spec.metadata,
        "runtime_env": serde_json::from_str::<Json>(&spec.runtime_env).unwrap_or(Json::Null),
        "entrypoint_resources": spec.resources,
        "submit_time_ms": moment(job.submitted_ms),
        "start_time_ms": moment(job.started_ms),
        "end_time_ms": moment(job.ended_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn words_become_a_line_that_the_shell_takes_apart_again() {
        let made = |words: &[&str]| line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(made(&["echo hi | wc -l"]), "echo hi | wc -l");
        assert_eq!(made(&["python", "-c", "print('it works')"]), r"python -c 'print('\''it works'\'')'");
        assert_eq!(made(&["touch", ""]), "touch ''");
    }
}
