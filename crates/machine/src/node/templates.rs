//! Template processes, one for each origin, and the spare workers that they forked.

use super::NodeCore;
use crate::alarm::Alarm;
use crate::origin::Origin;
use crate::templates::{Bursts, Fitness, HALF_LIFE, QUIET, Template};
use crate::worker::{Duty, Worker};
use crate::{Effect, Key, TemplateKey, cut};
use oxiray_accelerators::NodeNumber;
use oxiray_ids::{JobId, WorkerId, WorkerNumber};
use oxiray_wire::message::{Environment, TemplateHolds, Variable, WorkerForked};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a template that is not a driver's own is kept without a worker in use.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// The most templates; beyond, those without a worker in use end at once.
const TEMPLATES_MAX: usize = 16;
/// Variables that act when a program starts, so that a forked worker would be told of them too late.
const START_PREFIXES: [&str; 5] = ["LD_", "PYTHON", "GLIBC_", "MALLOC_", "ASAN_"];

impl NodeCore {
    /// Starts the template of an interpreter ahead of the first job.
    pub fn prepare(&mut self, interpreter: &str) {
        let key = self.ensure_template(&Origin::plain(interpreter), None);
        self.templates.by_key.get_mut(&key).expect("it was just found or made").is_kept = true;
    }

    /// Which template makes workers of an environment that is prepared.
    pub(super) fn origin_of(&self, job: JobId, environment: &Environment) -> Origin {
        let interpreter = self.jobs.get(&job).map_or("", |job| &job.told.interpreter);
        let command = self
            .environments
            .command(interpreter, &environment.preparation)
            .unwrap_or_else(|| vec![interpreter.to_owned()]);
        // What is imported beforehand sees all of the variables; otherwise those count that act before any import.
        let acts = |variable: &&Variable| {
            !environment.preload.is_empty() || START_PREFIXES.iter().any(|prefix| variable.name.starts_with(prefix))
        };
        Origin {
            command,
            native: environment.native,
            variables: environment.variables.iter().filter(acts).cloned().collect(),
            preload: environment.preload.clone(),
            preload_path: environment.preload_path.clone(),
        }
    }

    fn template_of(&mut self, origin: &Origin) -> TemplateKey {
        let mut same = self.templates.by_key.iter().filter(|(_, template)| template.origin == *origin);
        let mut is_successor = false;
        let known = same.find(|(_, template)| {
            is_successor |= template.fitness == Fitness::Retired;
            template.fitness != Fitness::Retired
        });
        if let Some((key, _)) = known {
            return *key;
        }
        self.templates.last_key += 1;
        let key = self.templates.last_key;
        let template = Template {
            origin: origin.clone(),
            is_started: false,
            is_kept: false,
            idle_since: None,
            jobs: BTreeSet::new(),
            notice: String::new(),
            bursts: Bursts::default(),
            fitness: if is_successor { Fitness::Successor } else { Fitness::Fit },
        };
        self.templates.by_key.insert(key, template);
        if self.templates.by_key.len() > TEMPLATES_MAX {
            self.end_templates(Duration::ZERO, Some(key));
        }
        self.look_for_idle_templates(IDLE_LIMIT);
        key
    }

    /// Starts the template where it does not run, with its spare workers.
    pub(super) fn ensure_template(&mut self, origin: &Origin, job: Option<JobId>) -> TemplateKey {
        let key = self.template_of(origin);
        let template = self.templates.by_key.get_mut(&key).expect("it was just found or made");
        let is_new_to_job = job.is_some_and(|job| template.jobs.insert(job));
        template.idle_since = None;
        if !std::mem::replace(&mut template.is_started, true) {
            template.notice.clear();
            self.out.push(Effect::StartTemplate { template: key, origin: origin.clone() });
        } else if let Some(job) = job.filter(|_| is_new_to_job && !template.notice.is_empty()) {
            let text = template.notice.clone();
            self.notify(job, &text);
        }
        for _ in self.spares_of(key).count()..self.plan.spare_workers {
            self.fork(key, self.plan.isolation.births_fenced());
        }
        key
    }

    /// Forks the spare workers that are wanted, and ends those that are not wanted any more. A template that workers
    /// were just taken of is left for later: whoever takes them is not to wait for the forks of others.
    pub(super) fn adjust_spares(&mut self) {
        let is_in_use = |template: &Template| template.is_started && template.fitness != Fitness::Retired;
        let started = self.templates.by_key.iter().filter(|(_, template)| is_in_use(template));
        let plans: Vec<_> = started.map(|(key, template)| (*key, self.spares_wanted(&template.bursts))).collect();
        for (key, wanted) in plans {
            if self.templates.by_key[&key].bursts.goes_on(self.now) {
                self.adjust_later(QUIET);
                continue;
            }
            for _ in self.spares_of(key).count()..wanted {
                self.fork(key, self.plan.isolation.births_fenced());
            }
            let surplus: Vec<Key> = self.spares_of(key).map(|(spare, _)| spare).skip(wanted).collect();
            for spare in surplus {
                self.kill_worker(spare);
            }
            if wanted > self.plan.spare_workers {
                self.adjust_later(HALF_LIFE);
            }
        }
    }

    /// The workers of a template that are nobody's.
    fn spares_of(&self, template: TemplateKey) -> impl Iterator<Item = (Key, &Worker)> {
        let is_spare = move |worker: &Worker| worker.template == template && worker.duty == Duty::Spare;
        self.workers.iter().filter(move |(_, worker)| is_spare(worker)).map(|(key, worker)| (*key, worker))
    }

    /// What a template has to say to those who use it.
    pub fn template_says(&mut self, key: TemplateKey, text: &str) {
        let Some(template) = self.templates.by_key.get_mut(&key) else { return };
        text.clone_into(&mut template.notice);
        for job in template.jobs.clone() {
            self.notify(job, text);
        }
    }

    /// A template has a device open: nothing more is forked from it, and it ends when none of its workers is in use. A new one
    /// takes its place; where that has a device open as well, what opens it does so in each that starts.
    pub fn template_holds(&mut self, key: TemplateKey, told: &TemplateHolds) {
        let number = told.number.map(|of| NodeNumber { major: of.major, minor: of.minor });
        let devices = number.map(|number| self.devices_with(number)).unwrap_or_default();
        let device = devices.first().map_or("a device".to_owned(), |(resource, slot)| format!("{resource} {slot}"));
        let Some(template) = self.templates.by_key.get(&key) else { return };
        let (origin, jobs) = (template.origin.clone(), template.jobs.clone());
        let follows = match template.fitness {
            // It is said once, whatever a template says.
            Fitness::Retired | Fitness::Unfit => return,
            Fitness::Fit => "it is replaced by a new one",
            Fitness::Successor => "so had the one before: what opens it does so whenever such a process starts",
        };
        let path = cut(told.path.clone());
        let (command, node, ip) = (origin.command.join(" "), self.plan.node, &self.plan.ip);
        let text = format!(
            "the process that workers are forked from ({command}) has {device} open ({path}), and a process that uses a device \
             cannot be forked safely: {follows} (node {node}, {ip})"
        );
        self.log(text.clone());
        for job in jobs {
            self.notify(job, &text);
        }
        let template = self.templates.by_key.get_mut(&key).expect("it was just found");
        if template.fitness == Fitness::Fit {
            return self.replace_template(key, &origin);
        }
        template.fitness = Fitness::Unfit;
        // Those who come later are told, too.
        let before = std::mem::take(&mut template.notice);
        template.notice = if before.is_empty() { text } else { format!("{before}\n{text}") };
        self.look_for_idle_templates(IDLE_LIMIT / 4);
    }

    fn replace_template(&mut self, key: TemplateKey, origin: &Origin) {
        let template = self.templates.by_key.get_mut(&key).expect("it was just found");
        template.fitness = Fitness::Retired;
        let was_kept = std::mem::take(&mut template.is_kept);
        for spare in self.spares_of(key).map(|(spare, _)| spare).collect::<Vec<_>>() {
            self.kill_worker(spare);
        }
        let successor = self.ensure_template(origin, None);
        self.templates.by_key.get_mut(&successor).expect("it was just made").is_kept = was_kept;
        self.look_for_idle_templates(IDLE_LIMIT / 4);
    }

    fn look_for_idle_templates(&mut self, after: Duration) {
        if !std::mem::replace(&mut self.templates.is_armed, true) {
            self.alarm_at(self.now + after, Alarm::Templates);
        }
    }

    /// A template is gone, and with it every worker it had forked; those are reported on their own.
    pub fn template_gone(&mut self, key: TemplateKey) {
        if let Some(template) = self.templates.by_key.get_mut(&key) {
            template.is_started = false;
        }
    }

    fn fork(&mut self, template: TemplateKey, is_fenced: bool) -> Key {
        let key = self.names.numbers.next();
        let worker = Worker::new(WorkerId::new(self.names.chance.bytes()), template);
        self.workers.insert(key, worker);
        self.order_fork(key, template, is_fenced);
        key
    }

    fn order_fork(&mut self, worker: Key, template: TemplateKey, is_fenced: bool) {
        let fitness = self.templates.by_key.get(&template).map(|template| template.fitness);
        let even_with_devices = fitness.is_some_and(|fitness| fitness != Fitness::Fit);
        self.out.push(Effect::Fork { worker, template, is_fenced, even_with_devices });
    }

    /// A template that has a device open did not fork a worker, which its successor is to do. Whether that is in order: the
    /// template is one that was replaced, and the worker is wanted.
    pub fn fork_given_back(&mut self, template: TemplateKey, key: Key) -> bool {
        let is_wanted = |worker: &&Worker| worker.template == template && worker.pid.is_none() && !worker.is_doomed;
        let is_wanted = self.workers.get(&key).as_ref().is_some_and(is_wanted);
        let known = self.templates.by_key.get(&template).filter(|known| known.fitness == Fitness::Retired && is_wanted);
        let Some(origin) = known.map(|known| known.origin.clone()) else { return false };
        let successor = self.ensure_template(&origin, None);
        self.workers.get_mut(&key).expect("it was just found").template = successor;
        self.order_fork(key, successor, false);
        true
    }

    /// The worker has a process.
    pub fn forked(&mut self, key: Key, pid: u32) {
        let Some(worker) = self.workers.get_mut(&key) else { return };
        worker.pid = Some(pid);
        self.devices.holdings.is_due |= worker.grants().any(|grant| !grant.devices().is_empty());
        // The head knows of those that have served somebody.
        if worker.job.is_some() {
            self.report(WorkerForked { worker: WorkerNumber(key), pid });
        }
    }

    /// A worker for an order. Where a cgroup is to refuse it devices, and the spare ones are in none that could, it is a new one.
    pub(super) fn take_spare(&mut self, origin: &Origin, job: JobId, is_fenced: bool) -> Key {
        let template = self.ensure_template(origin, Some(job));
        let births_fenced = self.plan.isolation.births_fenced();
        if is_fenced && !births_fenced {
            let key = self.fork(template, true);
            self.workers.get_mut(&key).expect("it was just made").duty = Duty::Ending;
            return key;
        }
        self.note_taken(template);
        // One that has its process already, where there is one.
        let first = self.spares_of(template).min_by_key(|(key, worker)| (worker.pid.is_none(), *key));
        let first = first.map(|(key, _)| key);
        let key = first.unwrap_or_else(|| self.fork(template, births_fenced));
        self.workers.get_mut(&key).expect("it was just found or made").duty = Duty::Ending;
        self.ensure_template(origin, Some(job));
        key
    }

    fn note_taken(&mut self, key: TemplateKey) {
        let template = self.templates.by_key.get_mut(&key).expect("it was just found or made");
        template.bursts.take(self.now);
        let wanted = self.spares_wanted(&self.templates.by_key[&key].bursts);
        if wanted > self.plan.spare_workers {
            self.adjust_later(QUIET);
        }
    }

    pub(super) fn end_idle_templates(&mut self) {
        self.end_templates(IDLE_LIMIT, None);
        self.templates.is_armed = false;
        let may_end = |template: &Template| !template.is_kept || template.fitness == Fitness::Unfit;
        if self.templates.by_key.values().any(may_end) {
            self.look_for_idle_templates(IDLE_LIMIT / 4);
        }
    }

    /// Ends the templates of which nobody has used a worker for so long. Those of living drivers' own
    /// interpreters stay, and so does what a job just asked for.
    fn end_templates(&mut self, idle: Duration, except: Option<TemplateKey>) {
        let own: BTreeSet<&str> = self.jobs.values().map(|job| job.told.interpreter.as_str()).collect();
        let used: BTreeSet<TemplateKey> = self
            .workers
            .values()
            .filter(|worker| worker.duty != Duty::Spare)
            .map(|worker| worker.template)
            .chain(except)
            .collect();
        let mut over = Vec::new();
        for (key, template) in &mut self.templates.by_key {
            let is_own = template.origin.is_plain() && own.contains(template.origin.command[0].as_str());
            let stays = template.fitness != Fitness::Unfit && (is_own || template.is_kept);
            if template.fitness == Fitness::Retired && !used.contains(key) {
                over.push(*key);
            } else if used.contains(key) || stays {
                template.idle_since = None;
            } else if self.now >= *template.idle_since.get_or_insert(self.now) + idle {
                over.push(*key);
            }
        }
        for key in over {
            self.templates.by_key.remove(&key);
            let spares = self.workers.iter().filter(|(_, worker)| worker.template == key).map(|(worker, _)| *worker);
            for spare in spares.collect::<Vec<_>>() {
                self.kill_worker(spare);
            }
            self.out.push(Effect::EndTemplate { template: key });
        }
    }
}
