//! Stacks and profiles of processes: for the page below `/ox/v1/`, and as Ray's paths name them.
//!
//! - PROFILES-1: only who may write is told them: stacks name what programs do, and a profile takes time from them.
//! - PROFILES-2: at most [`TAKEN_MAX`] profiles are taken at once, and the last [`KEPT_MAX`] that the page was told are kept, so
//!   that a file is made of the profile that is seen, and not of another one.

use crate::answer::{Answer, answer, json, text};
use crate::query::Query;
use crate::routes::{Request, Route, Site, route};
use crate::state::{has_too_many, told};
use http::StatusCode;
use oxiray_ids::{ActorId, NodeId, TaskId, WorkerId};
use oxiray_network::porch::Right;
use oxiray_ray_api::profiling::{self, CPU_SECONDS, MEMORY_SECONDS};
use oxiray_visitor::{VisitError, json as state_json, profile as written};
use oxiray_wire::message::{Profile, StateFilter, StateQuery, TaskStage};
use oxiray_wire::plain;
use oxiray_wire::state::{ProcessStacks, ProfileKind, StateKind, TaskRow};
use serde_json::{Value as Json, json};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Their paths.
pub(crate) const ROUTES: &[Route] = &[
    route!("GET", "/ox/v1/profile", page_profile),
    route!("GET", "/ox/v1/stacks", page_stacks),
    route!("GET", "/worker/traceback", traceback),
    route!("GET", "/task/traceback", traceback),
    route!("GET", "/worker/cpu_profile", cpu_profile),
    route!("GET", "/task/cpu_profile", cpu_profile),
    route!("GET", "/memory_profile", memory_profile),
    route!("GET", "/api/profiling_enabled", enabled),
    route!("GET", "/worker/gpu_profile", unsupported),
    route!("GET", "/worker/jax_profile", unsupported),
];

/// PROFILES-2.
const TAKEN_MAX: usize = 4;
const KEPT_MAX: usize = 4;
/// Processes of which one answer tells.
const PROCESSES_MAX: u32 = 16;
/// How often stacks are sampled where nothing is said.
const RATE_HZ: u32 = 100;
/// How long an answer may take, without the time over which is sampled: longer than the head waits for processes.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Functions that a table has.
const FUNCTIONS_MAX: usize = 100;
const EXPECT: &str = "writing to a string does not fail";

/// What is wrong with a question, or with the answer.
#[derive(Debug, PartialEq, Eq)]
struct Refusal(StatusCode, String);

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self(StatusCode::BAD_REQUEST, why)
    }
}

impl From<VisitError> for Refusal {
    fn from(error: VisitError) -> Self {
        let is_the_heads = matches!(error, VisitError::Failed(_));
        Self(if is_the_heads { StatusCode::CONFLICT } else { StatusCode::INTERNAL_SERVER_ERROR }, error.to_string())
    }
}

/// A profile that was taken.
#[derive(Debug)]
struct Taken {
    profile: Profile,
    processes: Vec<ProcessStacks>,
}

/// Places of those who take profiles, and the last profiles with their numbers.
#[derive(Debug)]
pub(crate) struct Profiles {
    places: Semaphore,
    kept: RefCell<VecDeque<(u64, Rc<Taken>)>>,
    count: Cell<u64>,
}

impl Profiles {
    pub(crate) fn new() -> Self {
        Self { places: Semaphore::new(TAKEN_MAX), kept: RefCell::default(), count: Cell::new(0) }
    }

    fn place(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let too_many = || format!("{TAKEN_MAX} profiles are being taken: ask again when one of them is over");
        self.places.try_acquire().map_err(|_| Refusal(StatusCode::TOO_MANY_REQUESTS, too_many()))
    }

    fn keep(&self, taken: Rc<Taken>) -> u64 {
        let number = self.count.get() + 1;
        self.count.set(number);
        let mut kept = self.kept.borrow_mut();
        kept.push_back((number, taken));
        let surplus = kept.len().saturating_sub(KEPT_MAX);
        kept.drain(..surplus);
        number
    }

    fn kept(&self, number: u64) -> Result<Rc<Taken>, Refusal> {
        let kept = self.kept.borrow();
        let found = kept.iter().find(|(known, _)| *known == number).map(|(_, taken)| Rc::clone(taken));
        let gone =
            || format!("taken={number}: the last {KEPT_MAX} profiles are kept, and it is none of them: take another");
        found.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, gone()))
    }
}

/// PROFILES-1.
fn may_look(request: &Request) -> Result<(), Refusal> {
    let why = "Forbidden: this token only reads, and stacks are shown to who may write: ask with the token that writes";
    if request.right == Right::All { Ok(()) } else { Err(Refusal(StatusCode::FORBIDDEN, why.to_owned())) }
}

fn answered(told: Result<Answer, Refusal>) -> Answer {
    told.unwrap_or_else(|Refusal(status, why)| text(status, why))
}

/// How a profile is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Svg,
    Speedscope,
    Folded,
    /// The functions that weigh most, as text.
    Table,
}

/// The page's names of formats, and Ray's.
const PAGE_FORMATS: [(&str, Format); 4] =
    [("json", Format::Json), ("svg", Format::Svg), ("speedscope", Format::Speedscope), ("folded", Format::Folded)];
const CPU_FORMATS: [(&str, Format); 3] =
    [("flamegraph", Format::Svg), ("raw", Format::Folded), ("speedscope", Format::Speedscope)];
const MEMORY_FORMATS: [(&str, Format); 2] = [("flamegraph", Format::Svg), ("table", Format::Table)];

/// `/ox/v1/profile`: takes a profile, or writes one that was taken in another format.
async fn page_profile(site: Rc<Site>, request: Request) -> Answer {
    let query = Query::of(&request);
    let told = async {
        may_look(&request)?;
        let format = query.choice("format", &PAGE_FORMATS)?;
        if let Some(number) = query.read("taken", "number of a profile that was taken")? {
            if let Some(other) = query.names().find(|name| !["taken", "format"].contains(name)) {
                return Err(
                    format!("{other} does not go with taken, which names a profile that is there already").into()
                );
            }
            return in_format(&*site.profiles.kept(number)?, format, number);
        }
        let taken = Rc::new(take(&site, &query, page_asked(&query)?).await?);
        let number = if format == Format::Json { site.profiles.keep(Rc::clone(&taken)) } else { 0 };
        in_format(&taken, format, number)
    };
    answered(told.await)
}

/// `/ox/v1/stacks`: where threads are now.
async fn page_stacks(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let told = async {
        may_look(&request)?;
        let processes = stacks(&site, &Query::of(&request), None).await?;
        let told: Vec<Json> = processes.iter().map(|process| in_json(process, &json!(process.stacks))).collect();
        Ok(json(&json!({"processes": told})))
    };
    answered(told.await)
}

/// `/worker/traceback` and `/task/traceback`.
async fn traceback(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let query = Query::of(&request);
    let told = async {
        may_look(&request)?;
        is_of_python(&query)?;
        Ok(text(StatusCode::OK, in_text(&stacks(&site, &query, None).await?)))
    };
    answered(told.await)
}

/// `/worker/cpu_profile` and `/task/cpu_profile`.
async fn cpu_profile(site: Rc<Site>, request: Request) -> Answer {
    let query = Query::of(&request);
    let told = async {
        may_look(&request)?;
        let (profile, format) = cpu_asked(&query)?;
        in_format(&take(&site, &query, profile).await?, format, 0)
    };
    answered(told.await)
}

/// `/memory_profile`.
async fn memory_profile(site: Rc<Site>, request: Request) -> Answer {
    let query = Query::of(&request);
    let told = async {
        may_look(&request)?;
        let (profile, format) = memory_asked(&query)?;
        in_format(&take(&site, &query, profile).await?, format, 0)
    };
    answered(told.await)
}

/// `/api/profiling_enabled`.
async fn enabled(_: Rc<Site>, request: Request) -> Answer {
    told(profiling::enabled(request.right == Right::All, Profile::DURATION_MAX_MS / 1000))
}

/// What Ray has other programs do.
async fn unsupported(_: Rc<Site>, request: Request) -> Answer {
    let path = request.head.uri.path();
    let why = format!(
        "404: {path} is not answered: kernels on devices are not profiled here. Have the program itself use its framework's \
         profiler, such as torch.profiler or jax.profiler; /worker/cpu_profile tells what its Python threads do"
    );
    text(StatusCode::NOT_FOUND, why)
}

/// What the page asks for.
fn page_asked(query: &Query) -> Result<Profile, String> {
    let kinds = ProfileKind::ALL.iter().map(|kind| (kind.name(), *kind));
    let kind = query.choice("kind", &kinds.collect::<Vec<_>>())?;
    let rate = query.read("rate", "whole number of samples a second")?;
    if let (ProfileKind::Memory, Some(rate)) = (kind, rate) {
        return Err(format!("rate={rate}: memory is traced and not sampled: leave it out"));
    }
    let profile = lasting(query, "seconds", CPU_SECONDS, kind)?;
    let profile = Profile { rate_hz: rate.unwrap_or(RATE_HZ), ..profile };
    profile.check().map_err(|why| format!("rate={}: {why}", profile.rate_hz))?;
    Ok(profile)
}

/// What Ray's clients ask for: `idle=1` counts the time that threads wait for, too.
fn cpu_asked(query: &Query) -> Result<(Profile, Format), String> {
    is_of_python(query)?;
    let format = query.choice("format", &CPU_FORMATS)?;
    let kind = if query.flag("idle")? { ProfileKind::Wall } else { ProfileKind::Cpu };
    Ok((lasting(query, "duration", CPU_SECONDS, kind)?, format))
}

/// Of memory, what was not freed is told, of Python's allocators too: `leaks` and `trace_python_allocators` ask for that.
fn memory_asked(query: &Query) -> Result<(Profile, Format), String> {
    is_of_python(query)?;
    query.flag("leaks")?;
    query.flag("trace_python_allocators")?;
    let format = query.choice("format", &MEMORY_FORMATS)?;
    Ok((lasting(query, "duration", MEMORY_SECONDS, ProfileKind::Memory)?, format))
}

fn lasting(query: &Query, name: &str, usual: u32, kind: ProfileKind) -> Result<Profile, String> {
    let seconds = query.read(name, "number of seconds")?.unwrap_or(f64::from(usual));
    // What is no such number becomes 0 or the largest there is, and is refused by the check.
    let profile = Profile { kind, duration_ms: (seconds * 1e3) as u32, rate_hz: RATE_HZ };
    profile.check().map_err(|why| format!("{name}={seconds}: {why}"))?;
    Ok(profile)
}

/// Options that would have an answer tell more than it can.
fn is_of_python(query: &Query) -> Result<(), String> {
    if query.flag("native")? {
        return Err("native=1: only frames of Python are told here: leave it out, or run `py-spy record --native --pid PID` on \
                    the process's machine"
            .to_owned());
    }
    if query.flag("subprocesses")? {
        return Err("subprocesses=1: processes that a program starts itself are not included: leave it out".to_owned());
    }
    Ok(())
}

async fn take(site: &Site, query: &Query, profile: Profile) -> Result<Taken, Refusal> {
    let _place = site.profiles.place()?;
    Ok(Taken { profile, processes: stacks(site, query, Some(profile)).await? })
}

/// The stacks of the processes that are meant.
async fn stacks(site: &Site, query: &Query, profile: Option<Profile>) -> Result<Vec<ProcessStacks>, Refusal> {
    let (filters, named) = match Meant::of(query)? {
        Meant::Process(filters, named) => (filters, named),
        Meant::Task(task) => {
            (vec![equal("worker_id", running(site, &task).await?.hex())], format!("task_id={}", task.id))
        }
    };
    let sampled = profile.map_or(Duration::ZERO, |profile| Duration::from_millis(profile.duration_ms.into()));
    let asked = StateQuery { kind: StateKind::Stacks, filters, limit: PROCESSES_MAX, profile, ..StateQuery::default() };
    let report = site.daemon.ask_within(ANSWER_LIMIT + sampled, asked).await?;
    state_json::check(report.version).map_err(VisitError::from)?;
    let found = report.tables.unwrap_or_default().stacks;
    if found.is_empty() {
        let why = format!(
            "no process of the cluster's is {named}: it has ended, or there was none: `oxiray list workers` shows those that \
             there are"
        );
        return Err(Refusal(StatusCode::NOT_FOUND, why));
    }
    Ok(found)
}

/// What a question is about.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// The processes that fit, and how they were named.
    Process(Vec<StateFilter>, String),
    /// The process that runs a task.
    Task(AskedTask),
}

#[derive(Debug, PartialEq, Eq)]
struct AskedTask {
    id: TaskId,
    /// The running one where none is named.
    attempt: Option<u32>,
    node: Option<NodeId>,
}

impl Meant {
    fn of(query: &Query) -> Result<Self, String> {
        let named = ["worker_id", "actor_id", "task_id", "pid"].into_iter().filter(|name| query.text(name).is_some());
        let [name] = named.collect::<Vec<_>>()[..] else {
            return Err(
                "name one process: by worker_id, by actor_id, by task_id, or by pid with node_id or ip".to_owned()
            );
        };
        let node = query.id("node_id", NodeId::from_hex)?;
        let id = match name {
            "worker_id" => query.id(name, WorkerId::from_hex)?.map(|id| id.hex()),
            "actor_id" => query.id(name, ActorId::from_hex)?.map(|id| id.hex()),
            "pid" => query.read::<u32>(name, "process id")?.map(|pid| pid.to_string()),
            _ => {
                let attempt = query.read("attempt_number", "number of an attempt, which count from 0")?;
                let task = query.id(name, TaskId::from_hex)?.map(|id| AskedTask { id, attempt, node });
                return task.map(Self::Task).ok_or_else(|| format!("{name} is left out"));
            }
        };
        let id = id.ok_or_else(|| format!("{name} is left out"))?;
        let machine = node.map(|node| ("node_id", node.hex())).or(query.text("ip").map(|ip| ("ip", ip.to_owned())));
        if name == "pid" && machine.is_none() {
            return Err(format!("pid={id} is given without node_id or ip: name the machine that it is of"));
        }
        let filters: Vec<StateFilter> =
            [(name, id)].into_iter().chain(machine).map(|(name, value)| equal(name, value)).collect();
        let named: Vec<String> = filters.iter().map(|filter| format!("{}={}", filter.key, filter.value)).collect();
        Ok(Self::Process(filters, named.join(" with ")))
    }
}

fn equal(key: &str, value: String) -> StateFilter {
    StateFilter { key: key.to_owned(), differs: false, value }
}

/// The process that runs a task.
async fn running(site: &Site, task: &AskedTask) -> Result<WorkerId, Refusal> {
    let filters = vec![equal("task_id", task.id.hex())];
    let asked = StateQuery { kind: StateKind::Tasks, filters, limit: 100, ..StateQuery::default() };
    let report = site.daemon.ask(asked).await?;
    state_json::check(report.version).map_err(VisitError::from)?;
    runs(task, &report.tables.unwrap_or_default().tasks).map_err(|why| Refusal(StatusCode::NOT_FOUND, why))
}

/// The process that runs the attempt that is meant, of these.
fn runs(task: &AskedTask, attempts: &[TaskRow]) -> Result<WorkerId, String> {
    let id = task.id.hex();
    let meant: Vec<&TaskRow> =
        attempts.iter().filter(|row| task.attempt.is_none_or(|attempt| row.attempt == attempt)).collect();
    let found = meant.iter().find(|row| row.stage == TaskStage::Runs).or(meant.last());
    let Some(row) = found else {
        let of = task.attempt.map_or_else(String::new, |attempt| format!("attempt {attempt} of "));
        return Err(format!(
            "{of}task {id} is not known: it ended long ago, or there was none: `oxiray list tasks` shows those that there are"
        ));
    };
    let has = match row.stage {
        TaskStage::Runs => match (row.worker_id, task.node) {
            (Some(_), Some(node)) if row.node_id != Some(node) => "runs on another node than node_id says",
            (Some(worker), _) => return Ok(worker),
            (None, _) => "begins at this moment: ask again",
        },
        TaskStage::Finished => "has finished",
        TaskStage::Failed => "has failed",
        _ => "waits to run",
    };
    let attempt = row.attempt;
    Err(format!("task {id} (attempt {attempt}) {has}: there is no process of it to look at"))
}

fn name(process: &ProcessStacks) -> &str {
    if process.is_driver { "driver" } else { &process.name }
}

fn in_json(process: &ProcessStacks, stacks: &Json) -> Json {
    let ProcessStacks { pid, ip, note, .. } = process;
    json!({"pid": pid, "name": name(process), "ip": ip, "note": note, "stacks": stacks})
}

/// A profile in a format. A picture of nothing is refused, with what to do instead.
fn in_format(taken: &Taken, format: Format, number: u64) -> Result<Answer, Refusal> {
    let Taken { profile, processes } = taken;
    let total = written::total(processes);
    if format != Format::Json && total == 0 {
        return Err(Refusal(StatusCode::CONFLICT, nothing(taken)));
    }
    Ok(match format {
        Format::Json => {
            let stack = |process: &ProcessStacks| -> Json {
                let weighed = process.stacks.iter();
                weighed.map(|one| json!({"name": one.name, "weight": one.weight, "frames": one.frames})).collect()
            };
            let told: Vec<Json> = processes.iter().map(|process| in_json(process, &stack(process))).collect();
            let unit = if profile.kind == ProfileKind::Memory { "bytes" } else { "us" };
            let title = written::title(profile);
            json(&json!({"title": title, "unit": unit, "total": total, "taken": number, "processes": told}))
        }
        Format::Svg => answer(StatusCode::OK, "image/svg+xml; charset=utf-8", written::flame_graph(processes, profile)),
        Format::Speedscope => json(&written::speedscope(processes, profile)),
        Format::Folded => text(StatusCode::OK, written::folded(processes)),
        Format::Table => text(StatusCode::OK, table(taken)),
    })
}

/// Why there is nothing to see, and what to do.
fn nothing(taken: &Taken) -> String {
    let notes: Vec<&str> = taken.processes.iter().map(|process| process.note.as_str()).collect();
    let hint = match taken.profile.kind {
        ProfileKind::Cpu => "no thread of it computed: wall-clock time (idle=1, or kind=wall) shows where threads wait",
        ProfileKind::Wall => "no thread of it runs Python code",
        ProfileKind::Memory => "nothing was allocated that is still there",
    };
    let noted = notes.into_iter().find(|note| !note.is_empty());
    format!("{}: there is nothing to show: {}", written::title(&taken.profile), noted.map_or(hint.into(), plain))
}

/// Processes with their threads, as text.
fn in_text(processes: &[ProcessStacks]) -> String {
    let mut text = String::new();
    for process in processes {
        let pid = process.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string());
        writeln!(text, "Process {pid} on {}: {}", plain(&process.ip), plain(name(process))).expect(EXPECT);
        if !process.note.is_empty() {
            writeln!(text, "Note: {}", plain(&process.note)).expect(EXPECT);
        }
        for stack in &process.stacks {
            let kind = if stack.is_task { "Asyncio task" } else { "Thread" };
            writeln!(text, "\n{kind} \"{}\"", plain(&stack.name)).expect(EXPECT);
            for frame in &stack.frames {
                writeln!(text, "    {} ({}:{})", plain(&frame.function), plain(&frame.file), frame.line).expect(EXPECT);
            }
        }
        text.push('\n');
    }
    text
}

/// The functions of a profile, those that weigh most themselves first, as text.
fn table(taken: &Taken) -> String {
    let kind = taken.profile.kind;
    let functions = written::functions(kind, &taken.processes);
    let mut text = format!("{}\n{:>12} {:>12}  PLACE\n", written::title(&taken.profile), "SELF", "TOTAL");
    for one in functions.iter().take(FUNCTIONS_MAX) {
        let (own, all) = (written::amount(kind, one.own), written::amount(kind, one.total));
        let (function, file) = (plain(&one.function), plain(&one.file));
        writeln!(text, "{own:>12} {all:>12}  {function} ({file}:{})", one.line).expect(EXPECT);
    }
    if let Some(more) = functions.len().checked_sub(FUNCTIONS_MAX).filter(|more| *more > 0) {
        writeln!(text, "and {more} more: format=flamegraph draws all of them").expect(EXPECT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: std::fmt::Debug>(told: &Result<T, String>, says: &str) {
        assert!(matches!(told, Err(why) if why.contains(says)), "{told:?} does not say {says}");
    }

    #[test]
    fn the_page_asks_for_a_kind_a_time_and_a_rate() {
        let asked = |text: &str| page_asked(&Query::written(text));
        assert_eq!(asked(""), Ok(Profile { kind: ProfileKind::Cpu, duration_ms: 5000, rate_hz: 100 }));
        let wall = Profile { kind: ProfileKind::Wall, duration_ms: 500, rate_hz: 7 };
        assert_eq!(asked("kind=wall&seconds=0.5&rate=7"), Ok(wall));
        refused(&asked("kind=gpu"), "kind=gpu is none of cpu, wall, memory");
        for seconds in ["61", "0", "-1", "nan", "inf"] {
            refused(&asked(&format!("seconds={seconds}")), "more than 0 s and at most 60 s");
        }
        refused(&asked("seconds=x"), "seconds=x is no number of seconds");
        refused(&asked("rate=1001"), "rate=1001: ");
        refused(&asked("rate=1.5"), "rate=1.5 is no whole number");
        refused(&asked("kind=memory&rate=100"), "leave it out");
    }

    #[test]
    fn rays_options_are_taken_or_refused_and_never_passed_over() {
        let cpu = |text| {
            cpu_asked(&Query::written(text)).map(|(profile, format)| (profile.kind, profile.duration_ms, format))
        };
        assert_eq!(cpu("native=0&idle=0"), Ok((ProfileKind::Cpu, 5000, Format::Svg)));
        assert_eq!(cpu("idle=1&duration=60&format=raw"), Ok((ProfileKind::Wall, 60_000, Format::Folded)));
        refused(&cpu("native=1"), "py-spy record --native");
        refused(&cpu("native=maybe"), "native=maybe is none of");
        refused(&cpu("subprocesses=1"), "subprocesses=1");
        refused(&cpu("format=html"), "format=html is none of flamegraph, raw, speedscope");
        refused(&cpu("duration=61"), "duration=61: ");
        let memory =
            |text: &str| memory_asked(&Query::written(text)).map(|(profile, format)| (profile.duration_ms, format));
        assert_eq!(memory("leaks=1&trace_python_allocators=True"), Ok((10_000, Format::Svg)));
        assert_eq!(memory("format=table&duration=1"), Ok((1000, Format::Table)));
        refused(&memory("native=1"), "native=1");
        refused(&memory("leaks=some"), "leaks=some is none of");
    }

    #[test]
    fn a_process_is_named_in_one_way() {
        let meant = |text: &str| Meant::of(&Query::written(text));
        let filters = vec![equal("pid", "7".into()), equal("ip", "10.0.0.1".into())];
        assert_eq!(meant("pid=7&ip=10.0.0.1"), Ok(Meant::Process(filters, "pid=7 with ip=10.0.0.1".into())));
        refused(&meant(""), "name one process");
        refused(&meant("pid=7&worker_id=ab"), "name one process");
        refused(&meant("pid=7"), "without node_id or ip");
        refused(&meant("pid=-7&ip=a"), "pid=-7 is no process id");
        refused(&meant("worker_id=zz"), "worker_id=zz is no identifier");
        refused(&meant("pid=7&node_id=zz"), "node_id=zz is no identifier");
        let id = "ab".repeat(TaskId::BYTES);
        assert!(
            matches!(meant(&format!("task_id={id}&attempt_number=2")), Ok(Meant::Task(task)) if task.attempt == Some(2))
        );
        refused(&meant(&format!("task_id={id}&attempt_number=x")), "attempt_number=x");
    }

    #[test]
    fn a_task_that_does_not_run_has_no_process() {
        let id = TaskId::from_hex(&"ab".repeat(TaskId::BYTES)).expect("an identifier");
        let row = |attempt, stage| TaskRow { task_id: id, attempt, stage, ..TaskRow::default() };
        let attempts = [row(0, TaskStage::Failed), row(1, TaskStage::Finished), row(2, TaskStage::WaitsForWorker)];
        let asked = |attempt| runs(&AskedTask { id, attempt, node: None }, &attempts);
        refused(&asked(Some(0)), "has failed");
        refused(&asked(Some(1)), "has finished");
        refused(&asked(None), "(attempt 2) waits to run");
        refused(&asked(Some(3)), "attempt 3 of task");
    }

    #[test]
    fn the_last_profiles_are_kept() {
        let profiles = Profiles::new();
        let profile = Profile { kind: ProfileKind::Cpu, duration_ms: 1000, rate_hz: 100 };
        let taken = Rc::new(Taken { profile, processes: Vec::new() });
        let numbers: Vec<u64> = (0..=KEPT_MAX).map(|_| profiles.keep(Rc::clone(&taken))).collect();
        assert!(profiles.kept(numbers[0]).is_err_and(|Refusal(status, _)| status == StatusCode::NOT_FOUND));
        assert!(numbers[1..].iter().all(|number| profiles.kept(*number).is_ok()));
        let places: Vec<_> = (0..TAKEN_MAX).map(|_| profiles.place()).collect();
        assert!(places.iter().all(Result::is_ok));
        assert!(profiles.place().is_err_and(|Refusal(status, _)| status == StatusCode::TOO_MANY_REQUESTS));
        let why = in_format(&taken, Format::Svg, 0).expect_err("there is nothing");
        assert!(why.1.contains("kind=wall"), "{why:?}");
    }
}
