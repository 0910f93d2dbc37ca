//! What a seed stands for: how large the cluster is, and what goes wrong in it.

use crate::agenda::{MILLISECOND, Micros, SECOND};
use crate::chance::Chance;
use crate::gpus::{GPU_BYTES, Gpu};
use oxiray_fence::{Isolation, Mechanism};
use oxiray_wire::message::AskedIsolation;

/// What GPUs are cut into, where they are.
const PROFILES: [&[&str]; 5] =
    [&["1g.10gb", "1g.10gb"], &["1g.10gb", "1g.10gb"], &["1g.10gb", "2g.20gb"], &["2g.20gb"], &[]];

/// How a run goes. Everything follows from the seed; each seed has only some of the faults, so that each is seen alone
/// and with others.
#[derive(Debug, Clone)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    pub(crate) members: usize,
    pub(crate) drivers: u64,
    /// When faults and new work end.
    pub(crate) calm_at: Micros,
    pub(crate) between_faults: Micros,
    /// How long a message between nodes usually takes.
    pub(crate) network: Micros,
    pub(crate) clocks_drift: bool,
    pub(crate) workers_die: bool,
    pub(crate) drivers_die: bool,
    pub(crate) drivers_leave: bool,
    pub(crate) nodes_die: bool,
    /// The head keeps a journal, dies and comes again; its disk is full at times.
    pub(crate) heads_die: bool,
    /// Members and drivers wait for the next head, and tell it where they stand.
    pub(crate) heads_are_awaited: bool,
    pub(crate) nodes_freeze: bool,
    pub(crate) templates_die: bool,
    pub(crate) forks_fail: bool,
    pub(crate) network_stalls: bool,
    pub(crate) messages_get_lost: bool,
    /// Streams break, and what was under way on them is lost.
    pub(crate) streams_break: bool,
    /// The members are on machines of their own: they have leases instead of a process that the head could watch.
    pub(crate) has_leases: bool,
    /// Processes die late, or leave behind what does.
    pub(crate) is_stuck: bool,
    pub(crate) devices_remember: bool,
    pub(crate) tasks_crash: bool,
    pub(crate) tasks_nest: bool,
    pub(crate) has_strategies: bool,
    /// Nodes are emptied ahead of their end.
    pub(crate) nodes_drain: bool,
    /// Tasks are cancelled, before they begin and while they run.
    pub(crate) tasks_are_cancelled: bool,
    /// Some tasks need an environment that is made first, or cannot be.
    pub(crate) has_environments: bool,
    pub(crate) has_actors: bool,
    pub(crate) has_groups: bool,
    pub(crate) has_objects: bool,
    /// Some objects lie in stores.
    pub(crate) has_stores: bool,
    /// How long a demand that no node can meet waits for one that can.
    pub(crate) node_wait_s: u64,
}

impl Options {
    /// Whether what is preemptible ends early for what is more urgent.
    pub(crate) fn preempts(&self) -> bool {
        !self.seed.is_multiple_of(2)
    }

    /// What the seed stands for.
    pub fn of_seed(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x5eed);
        Self {
            seed,
            members: chance.between(0, 4) as usize,
            drivers: chance.between(1, 4),
            calm_at: chance.between(5, 20) * SECOND,
            between_faults: chance.between(50, 2_000) * MILLISECOND,
            network: chance.one_of(&[50, 500, 5 * MILLISECOND]),
            clocks_drift: chance.odds(500),
            workers_die: chance.odds(500),
            drivers_die: chance.odds(300),
            drivers_leave: chance.odds(500),
            nodes_die: chance.odds(500),
            heads_die: chance.odds(300),
            nodes_freeze: chance.odds(400),
            templates_die: chance.odds(300),
            forks_fail: chance.odds(200),
            network_stalls: chance.odds(500),
            messages_get_lost: chance.odds(500),
            streams_break: chance.odds(400),
            has_leases: chance.odds(500),
            is_stuck: chance.odds(200),
            devices_remember: chance.odds(500),
            tasks_crash: chance.odds(400),
            tasks_nest: chance.odds(500),
            has_strategies: chance.odds(500),
            has_actors: chance.odds(600),
            has_groups: chance.odds(400),
            has_objects: chance.odds(500),
            has_stores: chance.odds(600),
            node_wait_s: chance.one_of(&[0, 3, 30]),
            nodes_drain: chance.odds(300),
            tasks_are_cancelled: chance.odds(400),
            has_environments: chance.odds(300),
            heads_are_awaited: chance.odds(700),
        }
    }

    /// Drivers report errors of devices, and need something at times. That is drawn apart, so that each seed stands for what
    /// it stood for before there was this.
    pub(crate) fn devices_fail(&self) -> bool {
        self.devices_remember && Chance::new(self.seed ^ 0xdec1).odds(500)
    }

    /// Children of tasks need devices at times, which their parents hold. Drawn apart, too.
    pub(crate) fn children_need_devices(&self) -> bool {
        self.tasks_nest && Chance::new(self.seed ^ 0xc41d).odds(500)
    }

    /// Some GPUs are cut into instances (MIG), and tasks ask for those. Drawn apart, too.
    pub(crate) fn cuts_gpus(&self) -> bool {
        Chance::new(self.seed ^ 0xc07).odds(300)
    }

    /// GPUs differ in their memory, and so does what is asked of it. Drawn apart, too.
    pub(crate) fn varies_memory(&self) -> bool {
        Chance::new(self.seed ^ 0x3e3).odds(500)
    }

    /// What so many GPUs of a machine are.
    pub(crate) fn gpus(&self, machine: usize, count: u64) -> Vec<Gpu> {
        let mut chance = Chance::new(self.seed ^ (machine as u64 + 1).wrapping_mul(0x69b5_e69b_5e69));
        let is_cut = self.cuts_gpus() && chance.odds(500);
        let are_all_cut = chance.odds(500);
        let of_number = |number| {
            let bytes = chance.one_of(&[GPU_BYTES, (8 << 30) + 1, 24 << 30]);
            let profiles = chance.one_of(&PROFILES);
            let instances = (is_cut && (number == 0 || are_all_cut)).then_some(profiles);
            Gpu { bytes: if self.varies_memory() { bytes } else { GPU_BYTES }, instances }
        };
        (0..count).map(of_number).collect()
    }

    /// How far a node keeps its workers from devices, and by what; drawn apart, too.
    pub(crate) fn isolation(&self, node: usize) -> (Isolation, Vec<Mechanism>) {
        let mut chance = Chance::new(self.seed ^ (node as u64 + 1).wrapping_mul(0xfe9c_e5fe_9ce5));
        let asked = chance.one_of(&[Isolation::Variable, Isolation::Watch, Isolation::Fence, Isolation::Require]);
        let mechanisms = match chance.between(0, 3) {
            0 => vec![Mechanism::Landlock],
            1 => vec![Mechanism::Cgroup1, Mechanism::Landlock],
            2 if asked != Isolation::Require => Vec::new(),
            _ => vec![Mechanism::Cgroup],
        };
        (asked, mechanisms)
    }

    /// What a call asks for besides.
    pub(crate) fn isolation_asked(&self, call: u64) -> AskedIsolation {
        let mut chance = Chance::new(self.seed ^ call.wrapping_mul(0xca_11fe_9ce5));
        match chance.between(0, 19) {
            0 => AskedIsolation::Watch,
            1..=2 => AskedIsolation::Fence,
            3 => AskedIsolation::Require,
            _ => AskedIsolation::Unsaid,
        }
    }

    /// The same cluster where nothing goes wrong.
    pub(crate) fn without_faults(seed: u64) -> Self {
        Self {
            members: Chance::new(seed).between(0, 2) as usize,
            clocks_drift: false,
            workers_die: false,
            drivers_die: false,
            drivers_leave: false,
            nodes_die: false,
            heads_die: false,
            heads_are_awaited: false,
            nodes_freeze: false,
            templates_die: false,
            forks_fail: false,
            network_stalls: false,
            messages_get_lost: false,
            streams_break: false,
            is_stuck: false,
            devices_remember: false,
            tasks_crash: false,
            nodes_drain: false,
            has_environments: false,
            ..Self::of_seed(seed)
        }
    }
}
