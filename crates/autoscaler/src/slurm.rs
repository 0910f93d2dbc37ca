//! Machines that are jobs of Slurm, each of one node: `sbatch` brings them, `scancel` takes them away, `squeue` tells of them.
//!
//! - SLURM-1: Slurm's commands run in a thread of their own, one at a time, each for a bounded time; nobody waits for them.
//! - SLURM-2: what is known of jobs comes from Slurm alone, under names that have the cluster in them: an autoscaler that was
//!   killed leaves nothing behind that another one needs.
//! - SLURM-3: where the cluster has ended, its jobs are cancelled, those too whose numbers nobody was told.

mod book;
mod command;
mod queue;
mod script;
mod settings;

pub(crate) use settings::check_name;
pub use settings::{JobError, JobSettings, Jobs};

use crate::provider::{Failed, Instance, Provider, ProviderError};
use book::{Asked, Book, Ticket};
use command::{CommandError, run};
use oxiray_scheduler::NodeGroup;
use oxiray_threads::{SLURM, Waker, spawn};
use script::{Joins, script};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long `sbatch` may take: it tries again by itself where the controller has too much to do.
const SUBMIT_LIMIT: Duration = Duration::from_secs(60);
/// How long any other command may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long the jobs of a cluster that has ended may take to be gone.
const END_LIMIT: Duration = Duration::from_secs(60);
/// How often Slurm is asked meanwhile.
const END_PERIOD: Duration = Duration::from_millis(500);
/// The most jobs that one `scancel` is told.
const CANCELLED_MAX: usize = 500;
/// The most bytes that are told of what a job printed before it ended.
const PRINTED_BYTES_MAX: u64 = 1000;
/// How many digits of the fingerprint of a cluster's authority are in the names of its jobs.
const CLUSTER_DIGITS: usize = 16;

/// The cluster that jobs join.
#[derive(Clone, Debug)]
pub struct JoinedCluster {
    /// Where its head listens for other machines.
    pub address: String,
    /// The file with its join token.
    pub token_file: PathBuf,
    /// The program `oxiray`, where a group names no other.
    pub program: PathBuf,
}

/// Why no machine can come from Slurm.
#[derive(Debug, Error)]
pub enum SlurmError {
    /// Nobody knows which cluster it is, nor how it is joined.
    #[error("the join token of the cluster, in {}, cannot be read: {source}", token_file.display())]
    Token {
        /// The file.
        token_file: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The operating system refuses.
    #[error("the thread that asks Slurm cannot be started: {0}")]
    Thread(#[from] io::Error),
}

/// Brings jobs of Slurm.
#[derive(Debug)]
pub struct Slurm {
    groups: Vec<NodeGroup>,
    shared: Arc<Mutex<Shared>>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    book: Book,
    /// Why Slurm could not be asked; empty where it could.
    trouble: String,
    /// Whether nothing more is to be brought.
    is_over: bool,
}

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Submit(Ticket, Box<NodeGroup>),
    Cancel(Vec<u64>),
    EndAll,
}

impl Slurm {
    /// The provider of a cluster, with the jobs that it has.
    pub fn new(cluster: JoinedCluster, groups: Vec<NodeGroup>, jobs: Jobs, wake: Waker) -> Result<Self, SlurmError> {
        let token = fs::read_to_string(&cluster.token_file)
            .map_err(|source| SlurmError::Token { token_file: cluster.token_file.clone(), source })?;
        let limits = jobs.templates.iter().filter_map(|(group, template)| Some((group.clone(), template.queue_limit?)));
        let book = Book::new(identity(&token), limits.collect());
        let shared = Shared { book, trouble: String::new(), is_over: false };
        let shared = Arc::new(Mutex::new(shared));
        let (orders, taken) = channel();
        let desk = Desk { cluster, jobs, shared: shared.clone(), orders: taken, wake, begun: Instant::now() };
        // What is there already is known before anything is decided.
        desk.look();
        let thread = spawn(SLURM, move || desk.work())?;
        Ok(Self { groups, shared, orders, thread: Some(thread) })
    }

    /// Cancels all jobs, since their cluster has ended, and waits until they are gone (SLURM-3).
    pub fn end_all(&mut self) {
        locked(&self.shared).is_over = true;
        self.order(Order::EndAll);
        if let Some(thread) = self.thread.take() {
            // It fails where the thread has panicked, and there is nobody to do it.
            let _ = thread.join();
        }
    }

    fn order(&self, order: Order) {
        // The thread ends after the last order only.
        let _ = self.orders.send(order);
    }
}

impl Provider for Slurm {
    fn groups(&mut self) -> Result<Vec<NodeGroup>, ProviderError> {
        Ok(self.groups.clone())
    }

    fn instances(&mut self) -> Result<Vec<Instance>, ProviderError> {
        let mut shared = locked(&self.shared);
        if !shared.trouble.is_empty() {
            return Err(ProviderError { text: shared.trouble.clone(), is_passing: true });
        }
        Ok(shared.book.take_instances())
    }

    fn launch(&mut self, group: &NodeGroup, replicas: u32, request: &str) -> Result<(), ProviderError> {
        let missing = locked(&self.shared).book.missing(&group.name, replicas, request);
        for ticket in missing {
            self.order(Order::Submit(ticket, Box::new(group.clone())));
        }
        Ok(())
    }

    fn terminate(&mut self, replicas: &[String], _request: &str) -> Result<(), ProviderError> {
        let numbers = locked(&self.shared).book.cancel(replicas);
        if !numbers.is_empty() {
            self.order(Order::Cancel(numbers));
        }
        Ok(())
    }

    fn errors(&mut self) -> Vec<Failed> {
        locked(&self.shared).book.take_failed()
    }
}

/// The thread's side.
struct Desk {
    cluster: JoinedCluster,
    jobs: Jobs,
    shared: Arc<Mutex<Shared>>,
    orders: Receiver<Order>,
    wake: Waker,
    begun: Instant,
}

impl Desk {
    fn work(self) {
        let mut due = Instant::now() + self.jobs.interval;
        loop {
            let is_watching = {
                let shared = locked(&self.shared);
                shared.book.is_moving() || !shared.trouble.is_empty()
            };
            let order = if is_watching {
                self.orders.recv_timeout(due.saturating_duration_since(Instant::now()))
            } else {
                self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match order {
                Ok(Order::Submit(ticket, group)) => self.submit(ticket, &group),
                Ok(Order::Cancel(numbers)) => self.cancel(&numbers),
                Ok(Order::EndAll) => return self.end_all(),
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    due = Instant::now() + self.jobs.interval;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // What came of it is looked at when nothing else is to be done.
            due = Instant::now();
        }
    }

    fn submit(&self, ticket: Ticket, group: &NodeGroup) {
        if locked(&self.shared).is_over {
            return;
        }
        let name = locked(&self.shared).book.name(&ticket);
        let asked = self.ask(&name, group).unwrap_or_else(Asked::Refused);
        locked(&self.shared).book.asked(self.begun.elapsed(), ticket, asked);
        self.wake.ring();
    }

    /// Has Slurm start a job of that name; says why where it cannot.
    fn ask(&self, name: &str, group: &NodeGroup) -> Result<Asked, String> {
        let template = self.jobs.templates.get(&group.name).ok_or("the file of groups does not say how")?;
        let JoinedCluster { address, token_file, program } = &self.cluster;
        // A head that came back may have another one.
        let token = fs::read_to_string(token_file)
            .map_err(|error| format!("the join token in {} cannot be read: {error}", token_file.display()))?;
        let script = script(group, template, &Joins { address, token: &token, program });
        let mut arguments = vec![format!("--job-name={name}")];
        arguments.extend(template.options.iter().cloned());
        Ok(match run("sbatch", &arguments, &script, SUBMIT_LIMIT) {
            // `NUMBER`, or `NUMBER;CLUSTER`.
            Ok(printed) => match printed.trim().split(';').next().and_then(|number| number.parse().ok()) {
                Some(number) => Asked::Taken(number),
                None => Asked::Unknown(format!("`sbatch --parsable` printed `{}`, which is no number", printed.trim())),
            },
            Err(error @ (CommandError::Late { .. } | CommandError::System { .. })) => Asked::Unknown(error.to_string()),
            Err(error) => Asked::Refused(error.to_string()),
        })
    }

    fn cancel(&self, numbers: &[u64]) {
        for some in numbers.chunks(CANCELLED_MAX) {
            let arguments: Vec<String> =
                std::iter::once("--quiet".to_owned()).chain(some.iter().map(u64::to_string)).collect();
            if let Err(error) = run("scancel", &arguments, "", ANSWER_LIMIT) {
                locked(&self.shared).book.not_cancelled(some, &error.to_string());
            }
        }
    }

    /// Asks Slurm about the jobs of this user; wakes the autoscaler where something has changed.
    fn look(&self) {
        let user = rustix::process::geteuid().as_raw();
        let arguments = ["--noheader".to_owned(), "--states=all".to_owned(), format!("--user={user}")];
        let arguments = [&arguments[..], &[format!("--format={}", queue::FORMAT)]].concat();
        let rows = run("squeue", &arguments, "", ANSWER_LIMIT).map_err(|error| error.to_string());
        let rows = rows.and_then(|printed| queue::rows(&printed).map_err(|error| error.to_string()));
        let mut shared = locked(&self.shared);
        let before = (shared.book.instances(), shared.trouble.clone());
        let ended = match rows {
            Ok(rows) => {
                shared.trouble.clear();
                shared.book.look(self.begun.elapsed(), &rows)
            }
            Err(trouble) => {
                shared.trouble = trouble;
                Vec::new()
            }
        };
        drop(shared);
        for number in ended {
            if let Some(output) = output_of(number) {
                locked(&self.shared).book.add_output(number, &output);
            }
        }
        let shared = locked(&self.shared);
        if before != (shared.book.instances(), shared.trouble.clone()) || shared.book.has_failed() {
            self.wake.ring();
        }
    }

    /// SLURM-3.
    fn end_all(&self) {
        let until = Instant::now() + END_LIMIT;
        loop {
            self.look();
            let active = locked(&self.shared).book.active();
            let is_known = locked(&self.shared).trouble.is_empty();
            if is_known && active.is_empty() || Instant::now() > until {
                return;
            }
            self.cancel(&active);
            // Nothing else comes: this is the pause before the next look.
            let _ = self.orders.recv_timeout(END_PERIOD);
        }
    }
}

/// The end of what a job printed, or where that lies; nothing where nobody knows.
fn output_of(number: u64) -> Option<String> {
    let told = run("scontrol", &["show".to_owned(), "job".to_owned(), number.to_string()], "", ANSWER_LIMIT).ok()?;
    let path = told.lines().find_map(|line| line.trim().strip_prefix("StdOut="))?;
    match end_of(Path::new(path)) {
        Ok(Some(text)) => Some(text),
        Ok(None) => None,
        Err(_) => Some(format!("its output is in {path} on its node")),
    }
}

/// The end of a file; nothing where it is empty, or none that keeps what was written.
fn end_of(path: &Path) -> io::Result<Option<String>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(size.saturating_sub(PRINTED_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(PRINTED_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    Ok((!text.is_empty()).then_some(text))
}

/// What tells a cluster from others in the names of jobs: the fingerprint of its authority, which is no secret and stays the
/// same when its head comes back.
fn identity(token: &str) -> &str {
    let fingerprint = token.trim().split('.').nth(1).unwrap_or_default();
    fingerprint.get(..CLUSTER_DIGITS).unwrap_or(fingerprint)
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_told_by_the_fingerprint_of_its_authority() {
        let token = format!("oxr1.{}.{}\n", "ab".repeat(32), "cd".repeat(32));
        assert_eq!(identity(&token), "abababababababab");
        assert_eq!(identity("oxr1"), "");
    }

    #[test]
    fn the_end_of_what_was_printed_is_told() {
        let folder = std::env::temp_dir().join(format!("oxiray-printed-{}", std::process::id()));
        fs::write(&folder, format!("{}end\n", "x".repeat(5000))).expect("a file");
        let told = end_of(&folder).expect("it is there").expect("it is not empty");
        fs::remove_file(&folder).expect("removed");
        assert!(told.ends_with("xend") && told.len() < 1001, "{told}");
        assert!(end_of(&folder).is_err());
        assert_eq!(end_of(Path::new("/dev/null")).expect("it is there"), None);
    }
}
