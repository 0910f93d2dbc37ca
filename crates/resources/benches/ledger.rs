//! Grants and releases per second, on a machine of eight devices and on one of ten thousand.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use oxiray_resources::{Demand, Grant, Inventory, Ledger, Quantity, ResourceName};

fn main() {
    divan::main();
}

const DEVICES: [u32; 2] = [8, 10_000];

/// One step gives back the oldest grant and takes a new one, of shares and wholes in turn.
#[divan::bench(args = DEVICES)]
fn grant_and_release_devices(bencher: Bencher, devices: u32) {
    let shares = [2_500, 10_000, 5_000, 20_000, 7_000, 3_000, 10_000, 100];
    let demands = shares.map(|units| demand(10_000, units));
    cycle(bencher, devices, &demands);
}

#[divan::bench(args = DEVICES)]
fn grant_and_release_cpus(bencher: Bencher, devices: u32) {
    cycle(bencher, devices, &[demand(10_000, 0)]);
}

#[divan::bench(args = DEVICES)]
fn refuse_a_busy_machine(bencher: Bencher, devices: u32) {
    let mut ledger = ledger(devices);
    let _held: Vec<Grant> = (0..devices).map_while(|_| ledger.grant(&demand(0, 5_001)).ok()).collect();
    let whole = demand(10_000, 10_000);
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| ledger.grant(black_box(&whole)).is_err());
}

fn cycle(bencher: Bencher, devices: u32, demands: &[Demand]) {
    let mut ledger = ledger(devices);
    let mut held: std::collections::VecDeque<Grant> =
        demands.iter().cycle().take(devices as usize / 2).map_while(|demand| ledger.grant(demand).ok()).collect();
    let mut next = demands.iter().cycle();
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        let demand = next.next().expect("a cycle does not end");
        match ledger.grant(black_box(demand)) {
            Ok(grant) => held.push_back(grant),
            Err(shortage) => drop(black_box(shortage)),
        }
        if held.len() > devices as usize / 2 {
            ledger.release(held.pop_front().expect("more than none are held"));
        }
    });
}

fn ledger(devices: u32) -> Ledger {
    let offers = [(ResourceName::CPU, f64::from(devices) * 4.0), (ResourceName::GPU, f64::from(devices))];
    Ledger::new(Inventory::new(offers).expect("whole numbers are an inventory"))
}

fn demand(cpu_units: u64, gpu_units: u64) -> Demand {
    let amounts = [(ResourceName::CPU, cpu_units), (ResourceName::GPU, gpu_units)];
    Demand::new(amounts.map(|(name, units)| (name, Quantity::from_units(units)))).expect("the amounts are valid")
}
