//! What runs, what ran and what is referred to: collected from every process when somebody asks.
//!
//! - CENSUS-2: of one attempt of a call, the word of who is furthest counts.

use super::HeadCore;
use super::rows::ROWS_MAX;
use super::validation::clear_long_environment;
use crate::actors::{Actor, ActorState, Making};
use crate::census::{CallReport, Heard, OPEN_MAX, PATIENCE, Question, patience, reports};
use crate::clock::Alarm;
use crate::ended_tasks::Alike;
use oxiray_ids::{NodeId, TaskId, WorkerId};
use oxiray_machine::{Key, check_name, cut};
use oxiray_resources::{Quantity, ResourceName};
use oxiray_state::list;
use oxiray_wire::Message;
use oxiray_wire::message::{
    Amount, CallError, EndedCalls, Failure, FailureCode, ObjectLogQuery, StackQuery, StateQuery, StateReport, TaskLog,
    TaskLogQuery, TaskRecord, TaskStage,
};
use oxiray_wire::state::{Amounts, STATE_VERSION, StateKind, Summary, TaskRow, TaskSurroundings};
use std::collections::{BTreeMap, BTreeSet};

/// Processes that are named which did not answer, at most.
const NAMED_MAX: usize = 8;
/// The most counts of calls that ended which one message may have. A client sends fewer: it counts 200 combinations of name, attempt and end apart.
const ENDED_MAX: usize = 1_000;
/// Resources of one call that are shown, at most.
const RESOURCES_MAX: usize = 32;

impl HeadCore {
    /// Somebody asks for a list or a summary.
    pub(crate) fn state_query(&mut self, asker: Key, asked: StateQuery) {
        for text in asked.filters.iter().flat_map(|filter| [&filter.key, &filter.value]) {
            if let Err(text) = check_name("a text of a filter,", text) {
                return self.refuse_state(asker, asked.request, text);
            }
        }
        let number = self.new_key();
        let question: Message = match asked.kind {
            StateKind::Tasks | StateKind::Timeline | StateKind::Explain => TaskLogQuery { number }.into(),
            StateKind::Objects => ObjectLogQuery { number }.into(),
            StateKind::Stacks => StackQuery { number, profile: asked.profile }.into(),
            StateKind::Actors
            | StateKind::Nodes
            | StateKind::Workers
            | StateKind::Jobs
            | StateKind::PlacementGroups
            | StateKind::RuntimeEnvs => {
                let answer = self.listed(&asked);
                return self.answer_state(asker, asked.request, answer, String::new());
            }
        };
        if self.figures.census.is_full() {
            let text = format!("{OPEN_MAX} such questions are open already: ask again in a moment");
            return self.refuse_state(asker, asked.request, text);
        }
        let awaited: BTreeSet<Key> = if asked.kind == StateKind::Stacks {
            match self.asked_for_stacks(&asked) {
                Ok(awaited) => awaited,
                Err(text) => return self.refuse_state(asker, asked.request, text),
            }
        } else {
            self.clients.by_key.keys().copied().collect()
        };
        for client in &awaited {
            self.send(*client, question.clone());
        }
        self.clock.alarm_at(self.clock.now + patience(&asked), Alarm::Census(number));
        self.figures.census.ask(number, asker, asked, awaited);
    }

    /// A process tells of its calls.
    pub(super) fn task_log(&mut self, from: Key, mut log: TaskLog) {
        clear_long_environment(&mut log.environment);
        for record in &mut log.records {
            for text in [&mut record.name, &mut record.label, &mut record.text] {
                *text = cut(std::mem::take(text));
            }
            record.resources.truncate(RESOURCES_MAX);
            for amount in &mut record.resources {
                amount.resource = cut(std::mem::take(&mut amount.resource));
            }
        }
        let Some(by) = self.clients.id_of(from) else { return };
        let pid = self.workers.pid_of(from).unwrap_or(0);
        for told in log.ended.drain(..).take(ENDED_MAX) {
            let EndedCalls { name, is_retry, has_failed, count } = told;
            let job = self.clients.job_of(from).filter(|job| self.jobs.known.get(*job).is_some());
            self.figures.ended_tasks.add(Alike { job, name: cut(name), is_retry, has_failed }, count);
        }
        if log.number == 0 {
            if let Some(worker) = self.workers.by_key.get_mut(&from) {
                worker.runs_retry = log.runs_retry;
            }
            if !log.records.is_empty() {
                self.figures.census.remember(&log, by, pid);
            }
            return;
        }
        let number = log.number;
        self.figures.census.hear(number, from, |_, heard| heard.calls.extend(reports(log, by, pid)));
    }

    /// Answers the questions of which everything was said that will be (CENSUS-1).
    pub(super) fn answer_census(&mut self) {
        for question in self.figures.census.take_due() {
            let Question { asker, asked, heard, awaited, .. } = question;
            if asked.kind == StateKind::Stacks {
                let answer = self.stacks_told(&asked, heard.stacks, &awaited);
                self.answer_state(asker, asked.request, answer, String::new());
                continue;
            }
            let missing = self.silence_of(&awaited);
            let answer = match asked.kind {
                StateKind::Objects => list(&asked, self.object_rows(&heard.objects)),
                StateKind::Explain => self.explanation(&asked, &self.all_calls(heard)).map(|explanation| StateReport {
                    request: asked.request,
                    version: STATE_VERSION,
                    explanation: Some(explanation),
                    ..StateReport::default()
                }),
                _ => self.task_list(&asked, self.task_rows(self.all_calls(heard))),
            };
            self.answer_state(asker, asked.request, answer, missing);
        }
    }

    /// The rows of a kind that needs nobody else's word.
    fn listed(&self, asked: &StateQuery) -> Result<StateReport, String> {
        match asked.kind {
            StateKind::Actors => list(asked, self.actor_list(ROWS_MAX)),
            StateKind::Nodes => Ok(self.with_measured(asked, list(asked, self.all_nodes())?)),
            StateKind::Workers => list(asked, self.worker_rows()),
            StateKind::Jobs => list(asked, self.job_rows()),
            StateKind::RuntimeEnvs => list(asked, self.environment_rows()),
            StateKind::PlacementGroups => list(asked, self.group_list(ROWS_MAX)),
            other => Err(format!("there is no list of `{}` in this version of the head", other.name())),
        }
    }

    /// The calls that are remembered, and what processes told of those under way.
    fn all_calls(&self, heard: Heard) -> Vec<CallReport> {
        self.figures.census.remembered().chain(heard.calls).collect()
    }

    /// Tasks, or counts of them; where those are asked for by job, with those that ended and that no row tells of any more.
    fn task_list(&self, asked: &StateQuery, rows: Vec<TaskRow>) -> Result<StateReport, String> {
        if !asked.by_job {
            return list(asked, rows);
        }
        if !asked.filters.is_empty() {
            return Err("counts by job are of all tasks: leave the filters out, or ask for rows".to_owned());
        }
        let attempts = self.figures.ended_tasks.with_under_way(&rows);
        let report = list(asked, rows)?;
        Ok(StateReport { summary: report.summary.map(|summary| Summary { attempts, ..summary }), ..report })
    }

    /// Who has not answered in time, in words.
    fn silence_of(&self, awaited: &BTreeSet<Key>) -> String {
        if awaited.is_empty() {
            return String::new();
        }
        let name = |key: &Key| {
            let of_job = || self.clients.job_of(*key).map_or_else(String::new, |job| job.hex());
            let pid = self.workers.pid_of(*key).map(|pid| format!("pid {pid}"));
            pid.unwrap_or_else(|| format!("a process of job {}", of_job()))
        };
        let mut names: Vec<String> = awaited.iter().take(NAMED_MAX).map(name).collect();
        if awaited.len() > NAMED_MAX {
            names.push("…".to_owned());
        }
        format!(
            "{} of the processes did not answer within {} s, and what they alone know is missing: {}. They may be stopped, or \
             the machine overloaded: ask again",
            awaited.len(),
            PATIENCE.as_secs(),
            names.join(", ")
        )
    }

    fn task_rows(&self, told: Vec<CallReport>) -> Vec<TaskRow> {
        let mut by_attempt: BTreeMap<(TaskId, u32), CallReport> = BTreeMap::new();
        for one in told {
            let name = (one.record.task, one.record.attempt);
            // CENSUS-2.
            let is_older = by_attempt.get(&name).is_some_and(|known| known.record.stage >= one.record.stage);
            if !is_older {
                by_attempt.insert(name, one);
            }
        }
        let constructors = self.actors.known.iter().map(|actor| {
            let told = by_attempt.remove(&(actor.description.id.creation_task(), actor.restarts));
            self.constructor_row(actor, told.as_ref())
        });
        let constructors: Vec<TaskRow> = constructors.collect();
        constructors.into_iter().chain(by_attempt.values().map(|told| self.task_row(told))).collect()
    }

    fn task_row(&self, CallReport { record, by, pid, environment }: &CallReport) -> TaskRow {
        let class = self.actors.known.get(record.task.actor()).map(|actor| &actor.description.class_name);
        let function = class.map_or_else(|| record.name.clone(), |class| format!("{class}.{}", record.name));
        let name = if record.label.is_empty() { function.clone() } else { record.label.clone() };
        let ran_here = record.started_us > 0;
        let (node_id, worker_id, pid) = match record.sent_to {
            _ if ran_here => (Some(self.node_of_worker(*by)), Some(*by), Some(*pid)),
            Some(worker) => self.where_was(worker),
            None => (None, None, None),
        };
        TaskRow {
            task_id: record.task,
            attempt: record.attempt,
            stage: record.stage,
            node_id,
            worker_id,
            pid,
            error: record.error.filter(|_| record.stage == TaskStage::Failed).map(error_name),
            message: error_message(&name, record),
            name,
            started_us: record.started_us,
            ended_us: record.ended_us,
            resources: Some(amounts_by_name(&record.resources)),
            function,
            origin: record.origin,
            surroundings: Some(TaskSurroundings {
                group: record.group,
                environment: ran_here.then(|| if environment.is_empty() { "{}" } else { environment }.to_owned()),
            }),
        }
    }

    /// Where a worker is or was, and its process, as far as that is known.
    fn where_was(&self, worker: WorkerId) -> (Option<NodeId>, Option<WorkerId>, Option<u32>) {
        if let Some(key) = self.clients.key_of(worker) {
            return (Some(self.members.node_of(key)), Some(worker), self.workers.pid_of(key));
        }
        let row = self.figures.ends.row_of(worker);
        (row.and_then(|row| row.node), Some(worker), row.and_then(|row| row.pid))
    }

    /// The making of an actor, which Ray lists as a task: as far as it is by what the head knows of the actor, and the rest
    /// by what the actor's process told.
    fn constructor_row(&self, actor: &Actor<Failure>, told: Option<&CallReport>) -> TaskRow {
        let description = &actor.description;
        let (stage, error) = constructor_stage(&actor.state);
        let making = self.actors.making.get(&description.id);
        let row = told.map_or_else(
            || {
                let (node_id, worker_id, pid) = match actor.worker() {
                    Some(worker) => self.where_was(worker),
                    None => died_at(&actor.state),
                };
                TaskRow {
                    node_id,
                    worker_id,
                    pid,
                    surroundings: making
                        .and_then(Making::home)
                        .map(|home| TaskSurroundings { group: Some(home.group), ..TaskSurroundings::default() }),
                    ..TaskRow::default()
                }
            },
            |told| self.task_row(told),
        );
        let name = format!("{}.__init__", description.class_name);
        TaskRow {
            task_id: description.id.creation_task(),
            attempt: actor.restarts,
            // What another head knew of that is not known.
            origin: Some(actor.origin).filter(|origin| origin.called_us > 0),
            name: name.clone(),
            function: name,
            stage: stage.max(row.stage),
            error: error.map(|error| match error.actor_death() {
                Some(death) if !death.raised.is_empty() => error_name(CallError::Raised),
                _ => error_name(CallError::Failed(error.code)),
            }),
            message: row.message.clone().or_else(|| error.map(|error| error.text.clone())),
            resources: self.actor_resources(description.id).or_else(|| row.resources.clone()),
            ..row
        }
    }
}

/// How far the making of an actor is, and why it failed where it did.
fn constructor_stage(state: &ActorState<Failure>) -> (TaskStage, Option<&Failure>) {
    match state {
        ActorState::Waiting | ActorState::Restarting => (TaskStage::WaitsForWorker, None),
        ActorState::Starting(_) => (TaskStage::Runs, None),
        ActorState::Alive(_) => (TaskStage::Finished, None),
        ActorState::Dead(failure) => match failure.actor_death() {
            Some(death) if death.raised.is_empty() && !death.never_ran => (TaskStage::Finished, None),
            _ => (TaskStage::Failed, Some(failure)),
        },
    }
}

/// Where an actor died, and its process.
fn died_at(state: &ActorState<Failure>) -> (Option<NodeId>, Option<WorkerId>, Option<u32>) {
    let ActorState::Dead(failure) = state else { return (None, None, None) };
    let death = failure.actor_death().filter(|death| death.pid > 0);
    (death.as_ref().and_then(|death| death.node), None, death.map(|death| death.pid))
}

/// What went wrong, in Ray's words for what a call's own code raised.
fn error_message(name: &str, record: &TaskRecord) -> Option<String> {
    let text = Some(&record.text).filter(|text| !text.is_empty())?;
    Some(if record.error == Some(CallError::Raised) {
        format!("User exception:\nray::{name}()\n{text}")
    } else {
        text.clone()
    })
}

fn amounts_by_name(amounts: &[Amount]) -> Amounts {
    let name = |resource: &str| {
        ResourceName::new(resource).map_or_else(|_| resource.to_owned(), |name| name.as_option().to_owned())
    };
    let one = |amount: &Amount| (name(&amount.resource), Quantity::from_units(amount.units).as_f64());
    Amounts { by_name: amounts.iter().map(one).collect() }
}

/// Ray's name for why a call failed.
fn error_name(error: CallError) -> String {
    match error {
        CallError::Raised => "TASK_EXECUTION_EXCEPTION".into(),
        CallError::Failed(FailureCode::WorkerCrashed) => "WORKER_DIED".into(),
        CallError::Failed(FailureCode::TaskUnschedulable) => "TASK_UNSCHEDULABLE_ERROR".into(),
        CallError::Failed(FailureCode::ActorUnschedulable) => "ACTOR_UNSCHEDULABLE_ERROR".into(),
        CallError::Failed(code) => code.name().to_uppercase(),
    }
}
