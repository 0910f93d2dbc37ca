//! Whatever happens and in whatever order: nothing is granted twice, and everything comes back.

use super::groups::{group, group_id, within};
use super::world::World;
use super::*;
use oxiray_wire::message::{GroupAwait, GroupCreate, GroupRemove};
use proptest::prelude::*;

const DEMANDS: [&[(&str, u64)]; 5] =
    [&[CPU], &[CPU, GPU], &[CPU, ("GPU", 5_000)], &[("GPU", 20_000)], &[("CPU", 5_000)]];

#[derive(Debug, Clone)]
enum Happening {
    DriverComes,
    DriverLeaves(usize),
    DriverSaysGoodbye(usize),
    Request { who: usize, demand: usize, fresh: bool },
    Cancel { who: usize, request: u64 },
    Return(usize),
    Crash(usize),
    Bury,
    Block(usize),
    Unblock(usize),
    Actor { who: usize, number: u8, demand: usize, detached: bool },
    Ready(usize),
    Kill(u8),
    Release(u8),
    TimePasses(u64),
    DevicesSay(Option<Residue>),
    Group { who: usize, number: u8, bundles: usize, detached: bool },
    Await { who: usize, number: u8 },
    Remove(u8),
    RequestWithin { who: usize, number: u8, bundle: u32, demand: usize },
    ActorWithin { who: usize, number: u8, group: u8, demand: usize, detached: bool },
}

const BUNDLES: [&[&[(&str, u64)]]; 4] = [
    &[&[CPU], &[CPU, GPU]],
    &[&[("GPU", 20_000), ("CPU", 20_000)]],
    &[&[CPU, ("GPU", 5_000)], &[CPU, ("GPU", 5_000)], &[CPU]],
    &[&[("CPU", 90_000)]],
];

fn happening() -> impl Strategy<Value = Happening> {
    let who = 0..8_usize;
    prop_oneof![
        2 => Just(Happening::DriverComes),
        1 => who.clone().prop_map(Happening::DriverLeaves),
        1 => who.clone().prop_map(Happening::DriverSaysGoodbye),
        8 => (who.clone(), 0..DEMANDS.len(), any::<bool>())
            .prop_map(|(who, demand, fresh)| Happening::Request { who, demand, fresh }),
        1 => (who.clone(), 0..200_u64).prop_map(|(who, request)| Happening::Cancel { who, request }),
        6 => who.clone().prop_map(Happening::Return),
        2 => who.clone().prop_map(Happening::Crash),
        6 => Just(Happening::Bury),
        1 => who.clone().prop_map(Happening::Block),
        1 => who.clone().prop_map(Happening::Unblock),
        3 => (who.clone(), 0..30_u8, 0..DEMANDS.len(), any::<bool>())
            .prop_map(|(who, number, demand, detached)| Happening::Actor { who, number, demand, detached }),
        3 => who.prop_map(Happening::Ready),
        1 => (0..30_u8).prop_map(Happening::Kill),
        1 => (0..30_u8).prop_map(Happening::Release),
        1 => (1..8_000_u64).prop_map(Happening::TimePasses),
        1 => prop_oneof![
            Just(Some(Residue::Gone)),
            Just(Some(Residue::Held)),
            Just(Some(Residue::Unknown)),
            Just(None)
        ]
        .prop_map(Happening::DevicesSay),
        2 => (0..8_usize, 0..6_u8, 0..BUNDLES.len(), any::<bool>())
            .prop_map(|(who, number, bundles, detached)| Happening::Group { who, number, bundles, detached }),
        1 => (0..8_usize, 0..6_u8).prop_map(|(who, number)| Happening::Await { who, number }),
        1 => (0..6_u8).prop_map(Happening::Remove),
        4 => (0..8_usize, 0..6_u8, 0..3_u32, 0..DEMANDS.len())
            .prop_map(|(who, number, bundle, demand)| Happening::RequestWithin { who, number, bundle, demand }),
        2 => (0..8_usize, 0..30_u8, 0..6_u8, 0..DEMANDS.len(), any::<bool>()).prop_map(
            |(who, number, group, demand, detached)| Happening::ActorWithin { who, number, group, demand, detached }
        ),
    ]
}

fn pick<T: Copy>(from: &[T], index: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[index % from.len()])
}

struct Story {
    world: World,
    drivers: Vec<Key>,
    requests: u64,
    /// Actors whose creator gave up its only hold.
    released: BTreeSet<u8>,
}

impl Story {
    fn clients(&self) -> Vec<Key> {
        self.world.core.as_head().clients.by_key.keys().copied().filter(|key| !self.world.is_killed(*key)).collect()
    }

    fn say(&mut self, among: &[Key], who: usize, message: impl Into<Message>) {
        if let Some(key) = pick(among, who) {
            self.world.say(key, message);
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each happening")]
    fn tell(&mut self, happening: &Happening) {
        let clients = self.clients();
        let workers: Vec<Key> = clients.iter().copied().filter(|key| self.world.running.contains(key)).collect();
        match *happening {
            Happening::DriverComes => {
                let driver = self.world.driver();
                self.drivers.push(driver);
            }
            Happening::DriverLeaves(who) => {
                if let Some(driver) = pick(&self.drivers, who) {
                    self.drivers.retain(|other| *other != driver);
                    self.world.core.driver_left(driver);
                    self.world.settle();
                }
            }
            Happening::DriverSaysGoodbye(who) => {
                if let Some(driver) = pick(&self.drivers, who) {
                    self.world.say(driver, Goodbye::default());
                }
            }
            Happening::Request { who, demand, fresh } => {
                self.requests += 1;
                let asked = LeaseRequest { fresh, ..request(self.requests, DEMANDS[demand]) };
                self.say(&clients, who, asked);
            }
            Happening::Cancel { who, request } => {
                self.say(&clients, who, LeaseCancel { request: LeaseRequestNumber(request) });
            }
            Happening::Return(which) => {
                let leases: Vec<(LeaseNumber, Key)> = self
                    .world
                    .core
                    .as_head()
                    .workers
                    .leases
                    .values()
                    .map(|lease| (lease.number, lease.owner))
                    .collect();
                if let Some((lease, owner)) = pick(&leases, which) {
                    self.world.say(owner, LeaseReturn { lease, retiring: false });
                }
            }
            Happening::Crash(who) => {
                if let Some(worker) = pick(&workers, who) {
                    self.world.core.worker_died(worker);
                    self.world.bury(worker, "killed by signal 11 (SIGSEGV)");
                }
            }
            Happening::Bury => {
                if let Some(worker) = self.world.ending().first().copied() {
                    self.world.bury(worker, "killed by signal 9 (SIGKILL)");
                }
            }
            Happening::Block(who) => {
                self.say(&workers, who, Blocked {});
            }
            Happening::Unblock(who) => {
                self.say(&workers, who, Unblocked {});
            }
            Happening::Actor { who, number, demand, detached } => {
                let max_restarts = i32::from(number % 4) - 1;
                let (unfinished, made) = (demand == 0, actor(number, DEMANDS[demand], &DEMANDS[demand][..1]));
                let asked = ActorCreate { detached, max_restarts, unfinished, ..made };
                self.say(&clients, who, asked);
            }
            Happening::Ready(who) => {
                self.say(&workers, who, ActorReady::default());
            }
            Happening::Kill(number) => {
                self.say(&clients, 0, ActorKill { actor: id(number), restart: number % 2 == 0 });
            }
            Happening::Release(number) => {
                let creator =
                    self.world.core.as_head().actors.known.get(actor_id(number)).map(|actor| actor.description.creator);
                let creator = creator.and_then(|creator| self.world.core.as_head().clients.keys.get(&creator).copied());
                if let Some(key) = creator.filter(|_| self.released.insert(number)) {
                    self.world.say(key, Unhold { objects: vec![anchor(number)] });
                }
            }
            Happening::Group { who, number, bundles, detached } => {
                self.requests += 1;
                let asked = GroupCreate { detached, request: self.requests, ..group(number, BUNDLES[bundles]) };
                self.say(&clients, who, asked);
            }
            Happening::Await { who, number } => {
                self.requests += 1;
                self.say(&clients, who, GroupAwait { request: self.requests, group: group_id(number) });
            }
            Happening::Remove(number) => self.say(&clients, 0, GroupRemove { group: group_id(number) }),
            Happening::RequestWithin { who, number, bundle, demand } => {
                self.requests += 1;
                let strategy = Some(within(number, bundle));
                self.say(&clients, who, LeaseRequest { strategy, ..request(self.requests, DEMANDS[demand]) });
            }
            Happening::ActorWithin { who, number, group, demand, detached } => {
                let strategy = Some(within(group, 0));
                let asked = actor(number, DEMANDS[demand], &DEMANDS[demand][..1]);
                self.say(&clients, who, ActorCreate { detached, strategy, ..asked });
            }
            Happening::DevicesSay(residue) => self.world.residue = residue,
            Happening::TimePasses(milliseconds) => self.world.pass(Duration::from_millis(milliseconds)),
        }
    }

    fn check(&self) {
        self.world.core.audit();
    }

    fn end(mut self) {
        for number in 0..30 {
            let killer = self.world.driver();
            self.world.say(killer, ActorKill { actor: id(number), restart: false });
            self.drivers.push(killer);
        }
        for number in 0..6 {
            let remover = self.world.driver();
            self.world.say(remover, GroupRemove { group: group_id(number) });
            self.drivers.push(remover);
        }
        for driver in std::mem::take(&mut self.drivers) {
            self.world.core.driver_left(driver);
            self.world.settle();
        }
        while let Some(worker) = self.world.ending().first().copied() {
            self.world.bury(worker, "killed by signal 9 (SIGKILL)");
            self.check();
        }
        self.world.residue = Some(Residue::Gone);
        self.world.pass(Duration::from_secs(11));
        let core = &self.world.core;
        let ledger = &core.node().ledger();
        assert_eq!(ledger.available(), ledger.totals(), "everything came back (CORE-1)");
        assert_eq!(core.node().leftovers().into_iter().filter(|(_, count)| *count > 0).count(), 0, "CORE-4");
        assert!(core.as_head().workers.by_key.is_empty(), "no process outlives its purpose");
        assert!(
            core.as_head().clients.by_key.is_empty()
                && core.as_head().workers.leases.is_empty()
                && core.as_head().pending.queue.is_empty()
        );
        assert!(
            core.as_head().jobs.details.is_empty()
                && core.as_head().actors.making.is_empty()
                && core.as_head().objects.known.is_empty()
                && core.as_head().clients.keys.is_empty()
        );
        assert!(core.as_head().groups.reservations.is_empty() && core.as_head().groups.known.waiting() == 0);
    }
}

proptest! {
    #[test]
    fn nothing_is_granted_twice_and_everything_comes_back(happenings in prop::collection::vec(happening(), 0..150)) {
        let mut story = Story { world: World::new(4, 2), drivers: Vec::new(), requests: 0, released: BTreeSet::new() };
        for happening in &happenings {
            story.tell(happening);
            story.check();
        }
        story.end();
    }
}
