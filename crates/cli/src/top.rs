//! `oxiray top`: who holds which device now and in the last minute, and what else there is of the cluster, in a terminal.
//!
//! - TOP-1: it reads on a connection that gives no orders, and opens another one for the order that its user confirmed.
//! - TOP-2: nothing is drawn but after an answer or a key, at most ten times a second.
//!
//! `recorded` is what the head told, `screen` what the user chose, `rows`, `tree` and `draw` make a frame of the two: none of them
//! knows the terminal or the cluster.

mod draw;
mod recorded;
mod rows;
mod screen;
#[cfg(test)]
mod tests;
mod tree;

use crate::arguments::TopOptions;
use crate::say;
use crate::visit::{self, ANSWER_LIMIT};
use anyhow::{Context as _, anyhow};
use draw::Palette;
use oxiray_ids::{ActorId, TaskId};
use oxiray_visitor::{FoundSession, Question as _, Visitor, json};
use oxiray_wire::message::{
    ChronicleFollow, ClusterQuery, DaemonToVisitor, DrainAsked, EndAsked, LogSelector, StateFilter, StateQuery,
    StateReport, SubmissionAction, SubmissionAsked,
};
use oxiray_wire::state::StateKind;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use recorded::{Recorded, TaskCounts};
use rows::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use screen::{Act, Key, Request, Screen, View};
use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the cluster's state is asked for.
const STATE_PERIOD: Duration = Duration::from_secs(1);
/// At most once in this time a frame is drawn.
const FRAME_PERIOD: Duration = Duration::from_millis(100);
/// How many events of the past are shown at first.
const EVENTS_AT_FIRST: u64 = 1_000;
/// The most lines of a job's output that are shown.
const LOG_LINES: usize = 200;
/// The most bytes of it.
const LOG_BYTES: usize = 64 << 10;
/// The most jobs that are listed.
const JOBS_MAX: u32 = 1_000;
/// The most calls that the tree shows.
const CALLS_MAX: u32 = 1_000;

fn view(name: &str) -> Result<View, String> {
    let found = View::ALL.into_iter().find(|(_, known)| *known == name);
    let names = || View::ALL.map(|(_, name)| name).join(", ");
    found.map(|(view, _)| view).ok_or_else(|| format!("there is no view `{name}`: there are {}", names()))
}

pub(crate) fn run(options: &TopOptions) -> anyhow::Result<()> {
    let view = view(&options.view).map_err(|error| anyhow!(error))?;
    let found = visit::find(options.address.as_deref())?;
    let mut watch = Watch::begin(found)?;
    let mut screen = Screen { view, ..Screen::default() };
    watch.catch_up(view)?;
    if options.json {
        let mut told = json::value(&watch.recorded)?;
        told["jobs"] = watch.jobs_as_json()?;
        say(&serde_json::to_string_pretty(&told)?);
        return Ok(());
    }
    if options.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        say(&draw::text(&watch.recorded, &screen, (options.cols, options.rows)));
        return Ok(());
    }
    let mut terminal =
        ratatui::try_init().context("the terminal cannot be drawn on; `oxiray top --once` prints a frame")?;
    let palette = Palette { has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    let result = watch.show(&mut terminal, &mut screen, palette);
    ratatui::restore();
    result
}

/// The connection to the head, and what it told.
struct Watch {
    found: FoundSession,
    visitor: Visitor,
    recorded: Recorded,
    jobs: Option<StateReport>,
    /// When the state is asked for next.
    next: Instant,
    /// The last question for calls that are not over; 0 before it.
    live_asked: u64,
}

impl Watch {
    fn begin(found: FoundSession) -> anyhow::Result<Self> {
        let visitor = visit::begin_reading(&found)?;
        Ok(Self { found, visitor, recorded: Recorded::default(), jobs: None, next: Instant::now(), live_asked: 0 })
    }

    /// All that there is now.
    fn catch_up(&mut self, view: View) -> anyhow::Result<()> {
        loop {
            let told = self.visitor.chronicle(self.recorded.cursor, &[], Some(EVENTS_AT_FIRST), ANSWER_LIMIT)?;
            let batch = told.context("the head did not report what happened")?;
            let has_more = batch.has_more;
            self.recorded.apply(batch);
            if !has_more {
                break;
            }
        }
        let report = self.visitor.ask(ClusterQuery::default(), ANSWER_LIMIT)?;
        self.recorded.cluster = json::cluster(report)?;
        let report = self.visitor.ask(jobs_query(), ANSWER_LIMIT)?;
        self.jobs_told(report)?;
        let report = self.visitor.ask(tasks_query(), visit::LIST_LIMIT)?;
        self.tasks_told(&report)?;
        if view == View::Tree {
            let report = self.visitor.ask(live_query(), visit::LIST_LIMIT)?;
            self.live_told(report)?;
        }
        self.recorded.is_now(now_ms());
        Ok(())
    }

    fn jobs_as_json(&self) -> anyhow::Result<serde_json::Value> {
        let report = self.jobs.clone().unwrap_or_default();
        Ok(json::answer(&jobs_query(), &report)?)
    }

    /// Until its user leaves.
    fn show(
        &mut self,
        terminal: &mut ratatui::DefaultTerminal,
        screen: &mut Screen,
        palette: Palette,
    ) -> anyhow::Result<()> {
        self.ask_chronicle()?;
        let mut shown = self.recorded.clone();
        let (mut is_new, mut due) = (true, Instant::now());
        loop {
            if is_new && Instant::now() >= due {
                if !screen.is_paused {
                    self.recorded.is_now(now_ms());
                    shown.clone_from(&self.recorded);
                }
                terminal.draw(|frame| {
                    let area = frame.area();
                    draw::draw(frame.buffer_mut(), area, &shown, screen, palette);
                })?;
                (is_new, due) = (false, Instant::now() + FRAME_PERIOD);
            }
            self.wait(is_new.then_some(due))?;
            is_new |= self.hear()?;
            if Instant::now() >= self.next {
                self.ask_state(screen.view)?;
            }
            while event::poll(Duration::ZERO)? {
                is_new = true;
                let Some(key) = key(&event::read()?) else { continue };
                let Some(request) = screen.press(key, &shown) else { continue };
                if request == Request::Quit {
                    return Ok(());
                }
                let (title, lines) = self.carry_out(&request);
                screen.answered(title, lines);
            }
        }
    }

    /// Until a key is pressed, the head says something, or it is time.
    fn wait(&self, until: Option<Instant>) -> anyhow::Result<()> {
        let until = until.map_or(self.next, |until| until.min(self.next));
        let left = until.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let stdin = std::io::stdin();
        let mut watched = [
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.visitor.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, Some(&limit)) {
            // The window has another size, perhaps.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn ask_chronicle(&mut self) -> anyhow::Result<()> {
        let cursor = Some(self.recorded.cursor);
        let request = self.visitor.new_number();
        self.visitor.send(ChronicleFollow { request, kinds: Vec::new(), cursor, latest: Some(EVENTS_AT_FIRST) })?;
        Ok(())
    }

    fn ask_state(&mut self, view: View) -> anyhow::Result<()> {
        self.next = Instant::now() + STATE_PERIOD;
        let request = self.visitor.new_number();
        self.visitor.send(ClusterQuery { request })?;
        match view {
            View::Jobs | View::Tree => drop(self.ask_list(jobs_query())?),
            View::Tasks => drop(self.ask_list(tasks_query())?),
            _ => {}
        }
        if view == View::Tree {
            self.live_asked = self.ask_list(live_query())?;
        }
        Ok(())
    }

    fn ask_list(&mut self, mut asked: StateQuery) -> anyhow::Result<u64> {
        let number = self.visitor.new_number();
        asked.set_number(number);
        self.visitor.send(asked)?;
        Ok(number)
    }

    /// What the head said since the last call; whether that is anything.
    fn hear(&mut self) -> anyhow::Result<bool> {
        let (told, result) = self.visitor.hear();
        let is_any = !told.is_empty();
        for message in told {
            match message {
                DaemonToVisitor::ChronicleBatch(mut batch) => {
                    if let Some(failure) = batch.failure.take() {
                        anyhow::bail!("{}", failure.text);
                    }
                    self.recorded.apply(*batch);
                    self.ask_chronicle()?;
                }
                DaemonToVisitor::ClusterReport(report) => self.recorded.cluster = json::cluster(*report)?,
                DaemonToVisitor::StateReport(report) if report.summary.is_some() => self.tasks_told(&report)?,
                DaemonToVisitor::StateReport(report) if report.request == self.live_asked => self.live_told(*report)?,
                DaemonToVisitor::StateReport(report) if report.tables.is_some() => self.jobs_told(*report)?,
                DaemonToVisitor::Refused(said) => anyhow::bail!("{}", said.text),
                _ => {}
            }
        }
        result.context("the cluster has ended, or its daemon is gone")?;
        Ok(is_any)
    }

    fn jobs_told(&mut self, report: StateReport) -> anyhow::Result<()> {
        json::check(report.version)?;
        self.recorded.jobs = report.tables.as_ref().map(|tables| tables.jobs.clone()).unwrap_or_default();
        self.jobs = Some(report);
        Ok(())
    }

    fn tasks_told(&mut self, report: &StateReport) -> anyhow::Result<()> {
        json::check(report.version)?;
        let calls = report.summary.iter().flat_map(|summary| &summary.calls);
        let counts = calls.map(|(name, of)| TaskCounts {
            name: name.clone(),
            kind: of.kind.name().to_owned(),
            states: of.states.clone(),
        });
        self.recorded.tasks = counts.collect();
        Ok(())
    }

    /// Where the question was refused, what was told before holds.
    fn live_told(&mut self, report: StateReport) -> anyhow::Result<()> {
        if let Some(tables) = report.tables {
            json::check(report.version)?;
            self.recorded.live = tables.tasks;
        }
        Ok(())
    }

    /// Asks or orders what its user wants, on a connection of its own (TOP-1).
    fn carry_out(&self, request: &Request) -> (String, Vec<String>) {
        let Request::Do(act, targets) = request else { return Default::default() };
        let (mut title, mut lines) = (String::new(), Vec::new());
        for target in targets {
            let (heading, result) = self.done_with(*act, target);
            if targets.len() == 1 {
                title = heading;
            } else {
                title = format!("{} rows", targets.len());
                lines.push(format!("{heading}:"));
            }
            lines.extend(result.unwrap_or_else(|error| vec![format!("{error:#}")]));
        }
        (title, lines)
    }

    fn done_with(&self, act: Act, target: &Target) -> (String, anyhow::Result<Vec<String>>) {
        match (act, target) {
            (Act::Explain, Target::Actor(id) | Target::Task(id)) => (format!("why {id} waits"), self.explain(id)),
            (Act::Log, Target::Submission(id)) => (format!("output of {id}"), self.log(id)),
            (Act::Log, Target::Actor(id) | Target::Task(id)) => (format!("output of {id}"), self.printed_by(target)),
            (Act::Stack, Target::Actor(id) | Target::Task(id)) => (
                format!("stack of {id}"),
                crate::stack::of_identifier(Some(self.address()), id).and_then(|of| self.stack(of)),
            ),
            (Act::Stack, Target::Process(node, pid)) => {
                (format!("stack of pid {pid}"), self.stack(crate::stack::of_process(node, *pid)))
            }
            (Act::Kill, Target::Actor(id)) => (format!("kill {id}"), self.kill(id)),
            (Act::Kill, Target::Task(id)) => (format!("cancel {id}"), self.cancel(id)),
            (Act::StopJob, Target::Submission(id)) => (format!("stop {id}"), self.stop_job(id)),
            (Act::Drain, Target::Node(id)) => (format!("drain {id}"), self.drain(id)),
            (act, target) => unreachable!("`Act::takes` lets no {target:?} through for {act:?}"),
        }
    }

    fn address(&self) -> &str {
        &self.found.description.address
    }

    fn stack(&self, filters: Vec<StateFilter>) -> anyhow::Result<Vec<String>> {
        let told = crate::stack::told(Some(self.address()), filters)?;
        Ok(told.lines().map(str::to_owned).collect())
    }

    fn kill(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let actor = Some(ActorId::from_hex(id)?);
        let told = self.end(actor, None)?;
        let process = if told == 0 { "it had no process" } else { "its process is being killed" };
        Ok(vec![format!("the actor is dead, and is not made anew: {process}")])
    }

    fn cancel(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let task = Some(TaskId::from_hex(id)?);
        let told = self.end(None, task)?;
        Ok(vec![format!(
            "{told} processes of its job were asked, of which its owner cancels it: it leaves the tree when it has ended"
        )])
    }

    fn end(&self, actor: Option<ActorId>, task: Option<TaskId>) -> anyhow::Result<u32> {
        let asked = EndAsked { actor, task, reason: "in `oxiray top`".to_owned(), ..EndAsked::default() };
        let report = visit::begin(&self.found)?.ask(asked, ANSWER_LIMIT)?;
        json::check(report.version)?;
        Ok(report.ended.context("the head does not say what came of it")?.processes)
    }

    fn explain(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let filters = vec![StateFilter { key: "id".into(), differs: false, value: id.to_owned() }];
        let asked = StateQuery { kind: StateKind::Explain, filters, limit: 1, ..StateQuery::default() };
        let report = visit::begin_reading(&self.found)?.ask(asked.clone(), ANSWER_LIMIT)?;
        let told = json::answer(&asked, &report)?;
        Ok(crate::explain::text(&told, None).lines().map(str::to_owned).collect())
    }

    fn log(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let mut visitor = visit::begin_reading(&self.found)?;
        let (mut offset, mut last) = (0, Vec::new());
        loop {
            let (action, id) = (SubmissionAction::Read, id.to_owned());
            let asked = SubmissionAsked { action, id, offset, ..SubmissionAsked::default() };
            let printed = visitor.ask(asked, ANSWER_LIMIT)?.printed;
            if printed.is_empty() {
                break;
            }
            offset += printed.len() as u64;
            last.extend_from_slice(&printed);
            last.drain(..last.len().saturating_sub(LOG_BYTES));
        }
        let text = String::from_utf8_lossy(&last).into_owned();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Ok(lines[lines.len().saturating_sub(LOG_LINES)..].to_vec())
    }

    /// What an actor's processes or a task printed last.
    fn printed_by(&self, target: &Target) -> anyhow::Result<Vec<String>> {
        let (actor, task) = match target {
            Target::Actor(id) => (Some(ActorId::from_hex(id)?), None),
            Target::Task(id) => (None, Some(TaskId::from_hex(id)?)),
            _ => (None, None),
        };
        let wanted = LogSelector { actor, task, ..LogSelector::default() };
        crate::logs::last_lines(&self.found, &wanted, (LOG_LINES as u32, LOG_BYTES))
    }

    fn stop_job(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let asked = SubmissionAsked { action: SubmissionAction::Stop, id: id.to_owned(), ..SubmissionAsked::default() };
        let answer = visit::begin(&self.found)?.ask(asked, ANSWER_LIMIT)?;
        Ok(answer.jobs.into_iter().map(|job| format!("{}: {}", job.state.name(), job.message)).collect())
    }

    fn drain(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let reason = "drained in oxiray top".to_owned();
        let asked = DrainAsked { node: id.to_owned(), reason, ..DrainAsked::default() };
        let report = visit::begin(&self.found)?.ask(asked, ANSWER_LIMIT)?;
        Ok(vec![json::drained(&report)?.to_string()])
    }
}

fn jobs_query() -> StateQuery {
    StateQuery { kind: StateKind::Jobs, limit: JOBS_MAX, detail: true, ..StateQuery::default() }
}

/// The calls that are not over.
fn live_query() -> StateQuery {
    let is_not = |state: &str| StateFilter { key: "state".into(), differs: true, value: state.to_owned() };
    let filters = vec![is_not("FINISHED"), is_not("FAILED")];
    StateQuery { kind: StateKind::Tasks, filters, limit: CALLS_MAX, ..StateQuery::default() }
}

fn tasks_query() -> StateQuery {
    StateQuery { kind: StateKind::Tasks, summary: true, ..StateQuery::default() }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(pressed) = event else { return None };
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    Some(match pressed.code {
        KeyCode::Char('c') if pressed.modifiers.contains(KeyModifiers::CONTROL) => Key::Char('q'),
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
