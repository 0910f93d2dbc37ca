//! Any order of events, against a model that scans lists and keeps sums.

use proptest::prelude::*;

use super::{demand, ledger, share_of, shares};
use crate::{DeviceShare, Grant, Ledger, Quantity, ResourceName, Shortage};

const CPUS: u32 = 4;
const GPUS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Event {
    Grant {
        cpu_units: u64,
        gpu_units: u64,
    },
    /// A task ends, or its worker is killed: the ledger cannot tell them apart.
    Release(prop::sample::Index),
    Lend(prop::sample::Index),
    Restore(prop::sample::Index),
    Quarantine(usize),
    RestoreDevice(usize),
    /// Whether it is granted only by itself.
    Single(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    let share = prop_oneof![Just(0), 1..=10_u64, Just(2_500), Just(3_000), Just(4_000), Just(6_000), 0..=9_999_u64];
    let whole = (1..=4_u64).prop_map(|count| count * 10_000);
    let gpu_units = prop_oneof![3 => share, 1 => whole];
    let cpu_units = prop_oneof![Just(0), Just(5_000), Just(10_000), Just(20_000), 0..=50_000_u64];
    prop_oneof![
        6 => (cpu_units, gpu_units).prop_map(|(cpu_units, gpu_units)| Event::Grant { cpu_units, gpu_units }),
        4 => any::<prop::sample::Index>().prop_map(Event::Release),
        2 => any::<prop::sample::Index>().prop_map(Event::Lend),
        2 => any::<prop::sample::Index>().prop_map(Event::Restore),
        1 => (0..GPUS).prop_map(Event::Quarantine),
        1 => (0..GPUS).prop_map(Event::RestoreDevice),
        1 => (0..GPUS, any::<bool>()).prop_map(|(device, is_single)| Event::Single(device, is_single)),
    ]
}

/// The slowest ledger that is right.
struct Model {
    cpu_free: i64,
    gpu_free: [u64; GPUS],
    in_service: [bool; GPUS],
    is_single: [bool; GPUS],
}

impl Model {
    fn choose(&self, cpu: u64, gpu: u64) -> Option<Vec<usize>> {
        if cpu > 0 && cpu.cast_signed() > self.cpu_free {
            return None;
        }
        let fits = |device: &usize| self.in_service[*device] && self.gpu_free[*device] >= gpu.min(10_000);
        match gpu {
            0 => Some(Vec::new()),
            1..10_000 => {
                let fullest = (0..GPUS).filter(fits).min_by_key(|device| self.gpu_free[*device]);
                fullest.map(|device| vec![device])
            }
            _ => {
                let wanted = (gpu / 10_000) as usize;
                let may_be = |device: &usize| wanted < 2 || !self.is_single[*device];
                let chosen: Vec<_> = (0..GPUS).filter(fits).filter(may_be).take(wanted).collect();
                (chosen.len() == wanted).then_some(chosen)
            }
        }
    }
}

struct Run {
    ledger: Ledger,
    model: Model,
    grants: Vec<Grant>,
}

impl Run {
    fn new() -> Self {
        let model =
            Model { cpu_free: 40_000, gpu_free: [10_000; GPUS], in_service: [true; GPUS], is_single: [false; GPUS] };
        Self { ledger: ledger(&format!("CPU {CPUS}, GPU {GPUS}")), model, grants: Vec::new() }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Grant { cpu_units, gpu_units } => self.grant(cpu_units, gpu_units),
            Event::Quarantine(device) => {
                self.ledger.quarantine("GPU", device as u32, "test").unwrap();
                self.model.in_service[device] = false;
            }
            Event::RestoreDevice(device) => {
                self.ledger.restore_device("GPU", device as u32).unwrap();
                self.model.in_service[device] = true;
            }
            Event::Single(device, is_single) => {
                self.ledger.set_single("GPU", device as u32, is_single).unwrap();
                self.model.is_single[device] = is_single;
            }
            _ if self.grants.is_empty() => {}
            Event::Release(index) => self.release(index.index(self.grants.len())),
            Event::Lend(index) => {
                let grant = index.get_mut(&mut self.grants);
                if !grant.cpu_is_lent() {
                    self.model.cpu_free += cpus(grant);
                }
                self.ledger.lend_cpu(grant);
            }
            Event::Restore(index) => {
                let grant = index.get_mut(&mut self.grants);
                if grant.cpu_is_lent() {
                    self.model.cpu_free -= cpus(grant);
                }
                self.ledger.restore_cpu(grant);
            }
        }
    }

    fn grant(&mut self, cpu: u64, gpu: u64) {
        let amount = Quantity::from_units;
        let asked = demand("").with(ResourceName::CPU, amount(cpu)).unwrap();
        let asked = asked.with(ResourceName::GPU, amount(gpu)).unwrap();
        let result = self.ledger.grant(&asked);
        let Some(chosen) = self.model.choose(cpu, gpu) else {
            let could_never = cpu > u64::from(CPUS) * 10_000 || gpu > GPUS as u64 * 10_000;
            let shortage = result.expect_err("the model grants nothing");
            assert_eq!(matches!(shortage, Shortage::Never(_)), could_never);
            return;
        };
        let grant = result.expect("the model grants it");
        let share = gpu.min(10_000);
        let expected: Vec<_> = chosen.iter().map(|device| share_of(*device as u32, amount(share))).collect();
        assert_eq!(grant.devices_of("GPU"), expected);
        for device in chosen {
            self.model.gpu_free[device] -= share;
        }
        self.model.cpu_free -= cpu.cast_signed();
        self.grants.push(grant);
    }

    fn release(&mut self, position: usize) {
        let grant = self.grants.swap_remove(position);
        if !grant.cpu_is_lent() {
            self.model.cpu_free += cpus(&grant);
        }
        for DeviceShare { device, share, .. } in grant.devices_of("GPU") {
            self.model.gpu_free[*device as usize] += share.units();
        }
        self.ledger.release(grant);
    }

    /// LEDGER-1, LEDGER-3 and LEDGER-5 as seen from outside.
    fn compare(&self) {
        self.ledger.audit();
        let free: Vec<_> = (0..GPUS)
            .map(|device| self.model.in_service[device].then(|| Quantity::from_units(self.model.gpu_free[device])))
            .collect();
        assert_eq!(shares(&self.ledger), free);
        for (device, free) in self.model.gpu_free.iter().enumerate() {
            let held: u64 = self.ledger.holders("GPU", device as u32).iter().map(|(_, share)| share.units()).sum();
            assert_eq!(held + free, 10_000, "free and granted make one whole");
        }
        let available = self.ledger.available();
        let units = |name: &str| available.get(name).map_or(0, |quantity| quantity.units());
        assert_eq!(units("CPU"), self.model.cpu_free.max(0) as u64);
        assert_eq!(units("GPU"), free.iter().flatten().map(|free| free.units()).sum::<u64>());
        assert_eq!(self.ledger.open().count(), self.grants.len());
    }
}

fn cpus(grant: &Grant) -> i64 {
    grant.demand().get("CPU").units().cast_signed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_ends_where_the_model_does(events in prop::collection::vec(event(), 1..120)) {
        let mut run = Run::new();
        for event in events {
            run.step(event);
            run.compare();
        }
        while !run.grants.is_empty() {
            run.release(0);
            run.compare();
        }
        for device in 0..GPUS {
            run.step(Event::RestoreDevice(device));
        }
        prop_assert_eq!(run.ledger.available(), ledger(&format!("CPU {CPUS}, GPU {GPUS}")).totals());
    }
}
