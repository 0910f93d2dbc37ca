//! Looks which device nodes the processes of workers have open, on a thread of its own: `/proc` may be long, and what is
//! asked of it may wait for a process that is in the kernel.
//!
//! - WATCH-1: looking takes a part of [`COST_PART`] of one processor at most: where a look took long, the next ones that are
//!   asked for are left out.

use oxiray_accelerators::{DeviceOffer, NodeNumber, Offer};
use oxiray_fence::{DenyList, DenyRule, Node, NodeKind, strays_of};
use oxiray_machine::{OpenNode, OpenNodes};
use oxiray_processes::descendants_of;
use oxiray_threads::{DEVICE_WATCH, spawn};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// A look that takes one millisecond of a processor is followed by none for this many: 0.2 %.
const COST_PART: u32 = 500;

/// Takes what a look found.
pub(crate) type Found = Arc<dyn Fn(OpenNodes) + Send + Sync>;

/// Where open nodes are looked for. Its thread starts with the first look, and ends with it.
pub(crate) enum DeviceWatch {
    /// Nobody has looked yet.
    Unasked(DenyList, Found),
    /// Takes the processes of the workers that are to be looked at.
    Asked(SyncSender<Vec<u32>>),
    /// Nobody can look, for this reason.
    Unable(String, Found),
}

impl DeviceWatch {
    /// For the nodes of the devices that a machine offers; `None` where none are known.
    pub(crate) fn of(offer: &Offer, found: Found) -> Option<Self> {
        let numbers: Vec<NodeNumber> = offer.devices.iter().flat_map(DeviceOffer::numbers).collect();
        let nodes =
            numbers.iter().map(|number| Node { kind: NodeKind::Char, major: number.major, minor: number.minor });
        (!numbers.is_empty()).then(|| match DenyList::new(nodes.map(DenyRule::from)) {
            Ok(listed) => Self::Unasked(listed, found),
            Err(error) => Self::Unable(error.to_string(), found),
        })
    }

    /// Asks for a look, unless one is under way.
    pub(crate) fn look(&mut self, workers: Vec<u32>) {
        if let Self::Unasked(listed, found) = self {
            let (sender, asked) = sync_channel(1);
            let (listed, found) = (listed.clone(), Arc::clone(found));
            let told = Arc::clone(&found);
            *self = match spawn(DEVICE_WATCH, move || serve(&asked, &listed, &found)) {
                Ok(_) => Self::Asked(sender),
                Err(error) => Self::Unable(format!("no thread can be started that looks: {error}"), told),
            };
        }
        match self {
            // A full line is a look under way, a broken one a thread that has ended: what was found last stands.
            Self::Asked(sender) => drop(sender.try_send(workers)),
            Self::Unable(why, found) => {
                let unseen = workers.into_iter().map(|worker| (worker, why.clone())).collect();
                found(OpenNodes { unseen, ..OpenNodes::default() });
            }
            Self::Unasked(..) => {}
        }
    }
}

fn serve(asked: &Receiver<Vec<u32>>, listed: &DenyList, found: &Found) {
    let mut due = Instant::now();
    for workers in asked {
        if Instant::now() < due {
            // WATCH-1.
            continue;
        }
        let before = processor_time();
        let seen = open_nodes(&workers, listed);
        let pause = (processor_time().saturating_sub(before)) * COST_PART;
        due = Instant::now() + pause;
        found(OpenNodes { pause: Some(pause), ..seen });
    }
}

/// What this thread has taken of a processor.
fn processor_time() -> Duration {
    let taken = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(taken.tv_sec.unsigned_abs(), taken.tv_nsec as u32)
}

/// The listed nodes that the workers' process trees have open. What ends meanwhile has none.
fn open_nodes(workers: &[u32], listed: &DenyList) -> OpenNodes {
    let mut found = OpenNodes::default();
    for worker in workers {
        for pid in std::iter::once(*worker).chain(descendants_of(*worker)) {
            let strays = strays_of(pid, listed).unwrap_or_else(|error| {
                if !error.is_of_nothing() {
                    found.unseen.insert(*worker, error.to_string());
                }
                Vec::new()
            });
            for stray in strays {
                let number = NodeNumber { major: stray.node.major, minor: stray.node.minor };
                let path = stray.path.to_string_lossy().into_owned();
                found.open.push(OpenNode { worker: *worker, pid, number, path });
            }
        }
    }
    found
}

impl fmt::Debug for DeviceWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DeviceWatch").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// `/dev/full` and 63 nodes that nobody has open.
    fn listed() -> DenyList {
        let others = (0..63).map(|minor| Node { kind: NodeKind::Char, major: 195, minor });
        let full = Node { kind: NodeKind::Char, major: 1, minor: 7 };
        DenyList::new(others.chain([full]).map(DenyRule::from)).expect("64 rules")
    }

    /// A shell that opens a node, has a child which inherits it, and waits for its input to end.
    fn shell() -> Child {
        let script = "exec 7</dev/full; sleep 60 & echo; cat >/dev/null; kill $!";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell")
    }

    #[test]
    fn a_whole_tree_is_looked_at() {
        let mut shell = shell();
        let (worker, own) = (shell.id(), std::process::id());
        let mut byte = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().expect("a pipe"), &mut byte).expect("it says that it is ready");
        let OpenNodes { open: found, unseen, .. } = open_nodes(&[worker], &listed());
        assert!(unseen.is_empty(), "{unseen:?}");
        let number = NodeNumber { major: 1, minor: 7 };
        let node = |pid| OpenNode { worker, pid, number, path: "/dev/full".to_owned() };
        assert_eq!(found[0], node(worker));
        assert!(found.len() > 1 && found[1..].iter().all(|open| *open == node(open.pid)), "{found:?}");
        assert!(open_nodes(&[own], &listed()).open.iter().all(|open| open.worker == own && open.pid != own));
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        assert_eq!(open_nodes(&[worker], &listed()), OpenNodes::default(), "it is gone");
    }

    #[test]
    fn looks_are_left_out_after_one_that_took_long() {
        let (sender, asked) = sync_channel(2);
        let (post, found) = std::sync::mpsc::channel();
        let worker = std::process::id();
        sender.send(vec![worker; 100]).expect("it is there");
        sender.send(vec![worker]).expect("it is there");
        drop(sender);
        let post = std::sync::Mutex::new(post);
        let told: Found = Arc::new(move |open| drop(post.lock().expect("one thread").send(open)));
        serve(&asked, &listed(), &told);
        drop(told);
        let told: Vec<OpenNodes> = found.into_iter().collect();
        assert_eq!(told.len(), 1, "WATCH-1");
        assert!(told[0].pause.is_some_and(|pause| pause > Duration::ZERO), "it is told when the next look can come");
    }

    #[test]
    fn who_cannot_look_says_so_of_every_worker() {
        let (post, found) = std::sync::mpsc::channel();
        let post = std::sync::Mutex::new(post);
        let told: Found = Arc::new(move |open| drop(post.lock().expect("one thread").send(open)));
        DeviceWatch::Unable("too many nodes".to_owned(), told).look(vec![4, 5]);
        let OpenNodes { open, unseen, pause } = found.recv().expect("it is told");
        assert!(open.is_empty() && pause.is_none(), "nobody looks");
        assert_eq!(unseen.into_keys().collect::<Vec<_>>(), [4, 5]);
    }
}
