//! The autoscaler of every cluster that asks for one: a thread of the operator, a visitor of the cluster's head.
//!
//! It sees what the operator's looks found, and changes nothing but the cluster's `replicas` and `workersToDelete`: pods are
//! made and deleted by the looks alone, so that there is one place that does.

mod head;
mod provider;

use crate::api::Api;
use crate::say;
use head::PodHead;
use kube::runtime::events::Recorder;
use oxiray_autoscaler::{Limits, Options, Waker};
use oxiray_kubernetes::{ObservedPod, RayCluster, Refusals, Settings};
use provider::Pods;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;

/// How long one request to the API may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// How long one that the head did not let in waits before it comes again.
const REFUSED_PAUSE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// What one look found, as far as an autoscaler has to know it.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) cluster: RayCluster,
    pub(crate) pods: Vec<ObservedPod>,
    pub(crate) settings: Settings,
    pub(crate) refusals: Refusals,
}

/// What the looks hand to an autoscaler.
#[derive(Debug)]
struct Shared {
    wake: Waker,
    view: Mutex<View>,
}

#[derive(Debug, Default)]
struct View {
    head: Option<SocketAddr>,
    sight: Option<Sight>,
    /// Why the last look came to nothing; empty where it did not.
    blind: String,
    /// Why the head is not reached, where that lasts.
    lonely: Option<String>,
}

impl Shared {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's side of an autoscaler: what it does is done on the operator's one runtime.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) api: Api,
    pub(crate) recorder: Recorder,
    pub(crate) runtime: Handle,
}

impl Line {
    /// The answer, in time or not at all.
    fn wait<T>(&self, answer: impl Future<Output = Result<T, kube::Error>>) -> Option<Result<T, kube::Error>> {
        self.runtime.block_on(async { tokio::time::timeout(REQUEST_LIMIT, answer).await.ok() })
    }
}

/// All autoscalers of this operator.
pub(crate) struct Autoscalers {
    line: Line,
    /// For how long a pod may be without a machine.
    placing_limit: Duration,
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    shared: Arc<Shared>,
    stop: Waker,
    thread: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.ring();
    }
}

impl Autoscalers {
    pub(crate) fn new(line: Line, placing_limit: Duration) -> Self {
        Self { line, placing_limit, running: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of where a cluster's head is; its autoscaler runs from here on where it is to.
    pub(crate) fn attend(&self, cluster: &RayCluster, pods: &[ObservedPod]) {
        let uid = &cluster.metadata.uid;
        let mut running = self.running();
        if !cluster.spec.enable_in_tree_autoscaling || cluster.spec.suspend {
            running.remove(uid);
            return;
        }
        running.retain(|_, one| !one.thread.is_finished());
        if !running.contains_key(uid) {
            match self.start(cluster) {
                Ok(one) => drop(running.insert(uid.clone(), one)),
                Err(error) => {
                    return say(&format!("the autoscaler of {} does not start: {error}", cluster.metadata.name));
                }
            }
        }
        let head = pods.iter().find(|pod| pod.is_head() && !pod.is_deleting);
        let ip = head.and_then(|head| head.address.as_ref()?.parse::<IpAddr>().ok());
        running[uid].shared.view().head = ip.map(|ip| SocketAddr::new(ip, cluster.head_port()));
    }

    /// Hands a look to the cluster's autoscaler.
    pub(crate) fn show(&self, sight: Sight) {
        if let Some(one) = self.running().get(&sight.cluster.metadata.uid) {
            {
                let mut view = one.shared.view();
                (view.sight, view.blind) = (Some(sight), String::new());
            }
            one.shared.wake.ring();
        }
    }

    /// A look at the cluster came to nothing: what the last one found may not be so any more.
    pub(crate) fn blind(&self, uid: &str, why: &str) {
        if let Some(one) = self.running().get(uid) {
            why.clone_into(&mut one.shared.view().blind);
        }
    }

    /// Why the cluster's autoscaler does not reach the head, where that lasts.
    pub(crate) fn lonely(&self, uid: &str) -> Option<String> {
        self.running().get(uid)?.shared.view().lonely.clone()
    }

    /// The cluster is not looked after any more.
    pub(crate) fn forget(&self, uid: &str) {
        self.running().remove(uid);
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        self.running().clear();
    }

    fn start(&self, cluster: &RayCluster) -> std::io::Result<Running> {
        let (wake, stop) = (Waker::new()?, Waker::new()?);
        let shared = Arc::new(Shared { wake, view: Mutex::default() });
        let work = Work {
            shared: Arc::clone(&shared),
            stop: stop.clone(),
            line: self.line.clone(),
            placing_limit: self.placing_limit,
            namespace: cluster.metadata.namespace.clone(),
            name: cluster.metadata.name.clone(),
            uid: cluster.metadata.uid.clone(),
            secret: cluster.secret(),
        };
        let thread = oxiray_threads::spawn(oxiray_threads::AUTOSCALER, move || work.run())?;
        Ok(Running { shared, stop, thread })
    }
}

/// One autoscaler.
struct Work {
    shared: Arc<Shared>,
    stop: Waker,
    line: Line,
    placing_limit: Duration,
    namespace: String,
    name: String,
    uid: String,
    secret: String,
}

impl Work {
    /// Until it is to end, or its cluster has.
    fn run(&self) {
        self.say("it begins");
        loop {
            let mut head = PodHead::new(self);
            let mut pods = Pods::new(self);
            let options = Options {
                limits: Limits::default(),
                salt: "request".to_owned(),
                wake: self.shared.wake.clone(),
                stop: self.stop.as_fd(),
            };
            let result = oxiray_autoscaler::run(&options, &mut head, &mut pods, &mut |line: &str| self.say(line));
            let Err(error) = result else { return self.say("it ends") };
            self.say(&error.to_string());
            let stopped = poll(&mut [PollFd::new(&self.stop, PollFlags::IN)], Some(&REFUSED_PAUSE));
            if stopped.is_ok_and(|ready| ready > 0) {
                return;
            }
        }
    }

    fn say(&self, line: &str) {
        say(&format!("autoscaler of {}/{}: {line}", self.namespace, self.name));
    }
}
