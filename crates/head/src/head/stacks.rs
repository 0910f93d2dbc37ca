//! Who is asked for the stacks of its threads, and what is made of what it says.

use super::HeadCore;
use crate::census::StacksHeard;
use oxiray_machine::{Key, cut};
use oxiray_state::list;
use oxiray_wire::message::{Profile, Stack, StackReport, StateQuery, StateReport};
use oxiray_wire::state::{ProcessStacks, WorkerDuty, WorkerRow};
use std::collections::BTreeSet;

/// Processes that are looked at for a question.
const ROWS_MAX: usize = 10_000;
/// Processes that one question asks, at most; one is profiled.
const PROCESSES_MAX: usize = 1000;
/// Stacks of one process that are kept, and the bytes of all their frames together.
const BOUNDS: (usize, usize) = (200, 64 << 10);
const PROFILE_BOUNDS: (usize, usize) = (Profile::STACKS_MAX, StackReport::PROFILE_BYTES_MAX);
/// Frames of one stack that are kept.
const FRAMES_MAX: usize = 100;

impl HeadCore {
    /// The processes that a question is about.
    ///
    /// # Errors
    /// Where the question is wrong, or about too many.
    pub(super) fn asked_for_stacks(&self, asked: &StateQuery) -> Result<BTreeSet<Key>, String> {
        let everybody = self.clients.by_key.keys().filter_map(|key| self.process_with(*key));
        let everybody: Vec<ProcessStacks> = everybody.take(ROWS_MAX).collect();
        let all = StateQuery { limit: ROWS_MAX as u32, ..asked.clone() };
        let fitting = list(&all, everybody)?.tables.unwrap_or_default().stacks;
        if let Some(profile) = &asked.profile {
            profile.check()?;
        }
        let count = fitting.len();
        if asked.profile.is_some() && count > 1 {
            return Err(format!(
                "{count} processes are meant, and a profile is of one: add filters, or name it by its identifier, which \
                 `oxiray list workers` shows"
            ));
        }
        if count > PROCESSES_MAX {
            return Err(format!(
                "{count} processes were asked for, and at most {PROCESSES_MAX} are at once: add filters"
            ));
        }
        Ok(fitting.iter().filter_map(|row| self.clients.key_of(row.worker_id)).collect())
    }

    /// A process tells where its threads are.
    pub(super) fn stack_report(&mut self, from: Key, told: StackReport) {
        let number = told.number;
        let note = cut(told.note);
        self.figures.census.hear(number, from, |asked, heard| {
            let bounds = if asked.profile.is_some() { PROFILE_BOUNDS } else { BOUNDS };
            heard.stacks.push(StacksHeard { by: from, stacks: within_bounds(told.stacks, bounds), note });
        });
    }

    /// What was told, and who told nothing.
    pub(super) fn stacks_told(
        &self,
        asked: &StateQuery,
        heard: Vec<StacksHeard>,
        silent: &BTreeSet<Key>,
    ) -> Result<StateReport, String> {
        let told = heard
            .into_iter()
            .filter_map(|one| Some(ProcessStacks { stacks: one.stacks, note: one.note, ..self.process_with(one.by)? }));
        let note = "it did not answer: it is stopped, or its machine has too much to do";
        let untold =
            silent.iter().filter_map(|key| Some(ProcessStacks { note: note.into(), ..self.process_with(*key)? }));
        list(asked, told.chain(untold).collect())
    }

    /// A process of which nothing is told yet.
    fn process_with(&self, key: Key) -> Option<ProcessStacks> {
        let row = if let Some(worker) = self.workers.by_key.get(&key) {
            self.worker_row(key, worker)
        } else {
            let job = self.clients.job_of(key)?;
            let detail = self.jobs.details.get(&job).filter(|detail| detail.driver == key && !detail.is_over)?;
            self.row_of_driver(job, detail)
        };
        let WorkerRow { worker_id, pid, duty, name, job_id, node, ip, .. } = row;
        let is_driver = duty == WorkerDuty::Driver;
        let actor_id = self.workers.actor_on(key);
        Some(ProcessStacks { worker_id, pid, is_driver, name, job_id, actor_id, node, ip, ..ProcessStacks::default() })
    }
}

/// The first stacks, and of each the innermost calls.
fn within_bounds(mut stacks: Vec<Stack>, (most, mut room): (usize, usize)) -> Vec<Stack> {
    stacks.truncate(most);
    for stack in &mut stacks {
        stack.name = cut(std::mem::take(&mut stack.name));
        stack.frames.truncate(FRAMES_MAX);
        stack.frames.retain_mut(|frame| {
            frame.function = cut(std::mem::take(&mut frame.function));
            frame.file = cut(std::mem::take(&mut frame.file));
            let bytes = frame.bytes();
            let fits = bytes <= room;
            room = if fits { room - bytes } else { 0 };
            fits
        });
    }
    stacks
}
