//! The jobs API: what is asked of it, and what it says of a job, in Ray's words.

use oxiray_wire::message::{SubmissionSpec, SubmissionState};
use oxiray_wire::state::JobRow;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// Stands for the value of a variable where a browser reads.
pub(crate) const REDACTED: &str = "<redacted>";
/// What the names of uploaded packages begin with.
const PACKAGE_SCHEME: &str = "gcs://";
/// How many lines of what a job printed its failure quotes, and how many characters.
pub const QUOTED_LINES: usize = 10;
/// The most characters of them.
pub const QUOTED_CHARACTERS: usize = 20_000;

/// The program that connected for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriverInfo {
    /// The job.
    pub id: String,
    /// The address of its machine.
    pub node_ip_address: String,
    /// The process; a text in Ray, too.
    pub pid: String,
}

/// All that is told of a job, in the order in which Ray tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDetails {
    /// `SUBMISSION` or `DRIVER`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The job that its driver is, once there is one.
    pub job_id: Option<String>,
    /// Its name, where it was submitted.
    pub submission_id: Option<String>,
    /// Its driver.
    pub driver_info: Option<DriverInfo>,
    /// Where it stands.
    pub status: &'static str,
    /// What runs.
    pub entrypoint: String,
    /// What there is to say of that, for people.
    pub message: Option<String>,
    /// What kind of failure ended it.
    pub error_type: Option<String>,
    /// When it was submitted or connected, in milliseconds since 1970.
    pub start_time: Option<u64>,
    /// When it ended.
    pub end_time: Option<u64>,
    /// What its user notes of it.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Its runtime environment.
    pub runtime_env: Option<Json>,
    /// Where its node's agent listens: nowhere here.
    pub driver_agent_http_address: Option<String>,
    /// The node of its driver.
    pub driver_node_id: Option<String>,
    /// The status that its entrypoint ended with.
    pub driver_exit_code: Option<i32>,
}

/// What is told of a job; `printed` is the end of what it printed, which a failure quotes. A browser sees no values of
/// variables, and a package that lies in `uploads` is shown by the name that it was uploaded under.
pub fn details(row: &JobRow, printed: Option<&str>, is_for_browser: bool, uploads: &str) -> JobDetails {
    let is_submitted = !row.submission.is_empty();
    let moment = |ms: u64| (ms > 0).then_some(ms);
    let driver = row.driver.as_ref().map(|driver| DriverInfo {
        id: driver.job.to_string(),
        node_ip_address: driver.ip.clone(),
        pid: driver.pid.to_string(),
    });
    JobDetails {
        kind: if is_submitted { "SUBMISSION" } else { "DRIVER" },
        job_id: driver.as_ref().map(|driver| driver.id.clone()),
        submission_id: is_submitted.then(|| row.submission.clone()),
        driver_info: driver,
        status: row.state.name(),
        entrypoint: row.entrypoint.clone().unwrap_or_default(),
        message: if is_submitted { Some(message(row, printed)) } else { row.message.clone() },
        error_type: error_type(row),
        start_time: moment(row.started_ms),
        end_time: moment(row.ended_ms),
        metadata: (!is_submitted || !row.metadata.is_empty()).then(|| row.metadata.clone()),
        runtime_env: environment(&row.runtime_env, is_for_browser, uploads),
        driver_agent_http_address: None,
        driver_node_id: row.node.map(|node| node.to_string()),
        driver_exit_code: row.exit_code,
    }
}

/// What there is to say of where a submitted job stands. What Oxiray alone knows follows Ray's sentence.
fn message(row: &JobRow, printed: Option<&str>) -> String {
    match (row.state, row.exit_code) {
        (SubmissionState::Pending, _) => {
            "Job has not started yet. It may be waiting for resources (CPUs, GPUs, memory, custom \
             resources) to become available. It may be waiting for the runtime environment to be set up."
                .to_owned()
        }
        (SubmissionState::Running, _) => "Job is currently running.".to_owned(),
        (SubmissionState::Stopped, _) => "Job was intentionally stopped.".to_owned(),
        (SubmissionState::Succeeded, _) => "Job finished successfully.".to_owned(),
        (SubmissionState::Failed, Some(code)) => format!(
            "Job entrypoint command failed with exit code {code}, last available logs (truncated to 20,000 chars):\n{}",
            last_lines(printed.unwrap_or_default())
        ),
        (SubmissionState::Failed, None) => row.message.clone().unwrap_or_default(),
    }
}

/// The kind of failure, in Ray's words.
fn error_type(row: &JobRow) -> Option<String> {
    if row.state != SubmissionState::Failed || row.submission.is_empty() || row.error.is_some() {
        return row.error.clone();
    }
    let text = row.message.as_deref().unwrap_or_default();
    let is_of_environment =
        text.contains("RuntimeEnvSetupError") || text.contains("runtime_env") || text.contains("runtime environment");
    Some(if is_of_environment { "RUNTIME_ENV_SETUP_FAILURE" } else { "JOB_SUPERVISOR_ACTOR_DIED" }.to_owned())
}

/// The end of a text that a failure quotes.
fn last_lines(text: &str) -> &str {
    let begin = text.trim_end_matches('\n').rmatch_indices('\n').nth(QUOTED_LINES - 1).map_or(0, |(at, _)| at + 1);
    let lines = &text[begin..];
    let first = lines.char_indices().rev().nth(QUOTED_CHARACTERS - 1).map_or(0, |(at, _)| at);
    &lines[first..]
}

fn environment(written: &str, is_for_browser: bool, uploads: &str) -> Option<Json> {
    let mut environment: Json = serde_json::from_str(written).ok()?;
    for_each_package(&mut environment, &mut |package| {
        let name = package.strip_prefix(uploads).and_then(|rest| rest.strip_prefix('/'))?;
        Some(format!("{PACKAGE_SCHEME}{name}"))
    });
    let variables = environment.get_mut("env_vars").and_then(Json::as_object_mut).filter(|_| is_for_browser);
    for value in variables.into_iter().flat_map(|variables| variables.values_mut()) {
        *value = REDACTED.into();
    }
    Some(environment)
}

/// Puts something else in the place of what an environment names to be unpacked, where there is something.
fn for_each_package(environment: &mut Json, instead: &mut impl FnMut(&str) -> Option<String>) {
    let mut replace = |place: &mut Json| {
        let other = place.as_str().and_then(&mut *instead);
        if let Some(other) = other {
            *place = other.into();
        }
    };
    environment.get_mut("working_dir").into_iter().for_each(&mut replace);
    environment.get_mut("py_modules").and_then(Json::as_array_mut).into_iter().flatten().for_each(&mut replace);
}

/// The name of an uploaded package: `PROTOCOL/NAME` as paths have it. Names are those that Ray's clients make, and none of them
/// is a way to another folder.
pub fn is_package(protocol: &str, name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends_well = [".zip", ".whl", ".jar"].iter().any(|end| name.ends_with(end));
    protocol == "gcs" && name.len() <= 128 && !name.starts_with('.') && name.bytes().all(is_plain) && ends_well
}

/// A job that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSubmitRequest {
    /// Its name; none for a new one.
    pub submission_id: Option<String>,
    /// The job.
    pub spec: SubmissionSpec,
}

/// Why it is none, in Ray's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongRequest {
    /// A field that no job has.
    #[error("TypeError: JobSubmitRequest.__init__() got an unexpected keyword argument '{0}'")]
    Unknown(String),
    /// There is nothing to run.
    #[error("TypeError: JobSubmitRequest.__init__() missing 1 required positional argument: 'entrypoint'")]
    NoEntrypoint,
    /// A field is something else.
    #[error("TypeError: {field} must be {rule}, got {given}")]
    Type {
        /// The field.
        field: String,
        /// What it must be.
        rule: &'static str,
        /// What it is.
        given: String,
    },
    /// Nothing is described.
    #[error("TypeError: the body must be a JSON object, got {0}")]
    NoObject(&'static str),
}

impl JobSubmitRequest {
    /// Reads what was sent.
    ///
    /// # Errors
    /// Where it is no job.
    pub fn parse(sent: Json) -> Result<Self, WrongRequest> {
        let Json::Object(mut sent) = sent else { return Err(WrongRequest::NoObject(python_type(&sent))) };
        let mut take = |name: &str| sent.remove(name).filter(|value| !value.is_null());
        let entrypoint = take("entrypoint").ok_or(WrongRequest::NoEntrypoint)?;
        let entrypoint = text("entrypoint", entrypoint)?;
        let [submission_id, job_id] = ["submission_id", "job_id"].map(|name| take(name).map(|value| text(name, value)));
        let runtime_env = take("runtime_env").map(|value| object("runtime_env", value)).transpose()?;
        let metadata = take("metadata").map(|value| texts("metadata", value)).transpose()?;
        let mut resources = BTreeMap::new();
        for (name, field) in
            [("CPU", "entrypoint_num_cpus"), ("GPU", "entrypoint_num_gpus"), ("memory", "entrypoint_memory")]
        {
            let amount = take(field).map(|value| number(field, &value)).transpose()?;
            resources.extend(amount.filter(|amount| *amount != 0.0).map(|amount| (name.to_owned(), amount)));
        }
        if let Some(value) = take("entrypoint_resources") {
            for (name, value) in object("entrypoint_resources", value)? {
                let amount = number("entrypoint_resources values", &value)?;
                resources.insert(name, amount);
            }
        }
        let selector = take("entrypoint_label_selector");
        let selector = selector.map(|value| texts("entrypoint_label_selector", value)).transpose()?;
        if let Some(unknown) = sent.keys().next() {
            return Err(WrongRequest::Unknown(unknown.clone()));
        }
        let runtime_env =
            runtime_env.filter(|fields| !fields.is_empty()).map(|fields| Json::Object(fields).to_string());
        Ok(Self {
            submission_id: submission_id.or(job_id).transpose()?,
            spec: SubmissionSpec {
                entrypoint,
                runtime_env: runtime_env.unwrap_or_default(),
                metadata: metadata.unwrap_or_default(),
                resources,
                label_selector: selector.unwrap_or_default(),
            },
        })
    }

    /// Puts paths in the place of packages that were uploaded.
    pub fn resolve_packages(&mut self, mut path_of: impl FnMut(&str) -> Option<String>) {
        if let Ok(mut environment) = serde_json::from_str::<Json>(&self.spec.runtime_env) {
            for_each_package(&mut environment, &mut |uri| path_of(uri.strip_prefix(PACKAGE_SCHEME)?));
            self.spec.runtime_env = environment.to_string();
        }
    }
}

/// Letters and digits that are not taken for one another, as in Ray's names of jobs.
const NAME_LETTERS: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz123456789";

/// A new job's name, made of random bytes as Ray makes it.
pub fn new_submission_id(random: [u8; 16]) -> String {
    let letter = |byte: u8| char::from(NAME_LETTERS[usize::from(byte) % NAME_LETTERS.len()]);
    format!("raysubmit_{}", random.map(letter).iter().collect::<String>())
}

fn wrong(field: &str, rule: &'static str, given: &Json) -> WrongRequest {
    WrongRequest::Type { field: field.to_owned(), rule, given: format!("<class '{}'>", python_type(given)) }
}

fn text(field: &str, value: Json) -> Result<String, WrongRequest> {
    match value {
        Json::String(text) => Ok(text),
        other => Err(wrong(field, "a string", &other)),
    }
}

fn object(field: &str, value: Json) -> Result<Map<String, Json>, WrongRequest> {
    match value {
        Json::Object(fields) => Ok(fields),
        other => Err(wrong(field, "a dict", &other)),
    }
}

fn number(field: &str, value: &Json) -> Result<f64, WrongRequest> {
    value.as_f64().ok_or_else(|| wrong(field, "a number", value))
}

fn texts(field: &str, value: Json) -> Result<BTreeMap<String, String>, WrongRequest> {
    let fields = object(field, value)?;
    fields.into_iter().map(|(name, value)| Ok((name, text(&format!("{field} values"), value)?))).collect()
}

/// What Python calls a value's type.
fn python_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "NoneType",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float",
        Json::Number(_) => "int",
        Json::String(_) => "str",
        Json::Array(_) => "list",
        Json::Object(_) => "dict",
    }
}

#[cfg(test)]
mod tests;
