//! A million requests of twenty kinds on clusters of 100, 1,000 and 10,000 machines: how many are placed in a second on
//! one core, how long one decision takes, and how much memory that needs; and how long a placement group of a thousand
//! bundles takes.
//!
//! `make bench-scheduler`, or `cargo bench -p oxiray-scheduler --bench cluster -- --write "$PWD/benches/SCHEDULER.md"`.
//! `--requests N` and `--machines N` measure less, with `--bytes` with memory of devices and priorities; `--groups N` measures
//! the groups alone.
//!
//! What is measured is the scheduler: the queue, the decision, what is booked on the view, and the word of a machine whose
//! ledger changed. What the machines' own ledgers do, which other computers would, is left out of the time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use oxiray_ids::NodeId;
use oxiray_resources::{Demand, Grant, Inventory, Ledger, Quantity, ResourceName};
use oxiray_scheduler::{
    Bundle, Claimant, Condition, Fleet, Found, Group, GroupStrategy, Near, NodeView, Operator, Place, ResourceRequest,
    Selector, Shares, Strategy, WaitQueue,
};

/// What machines there are: eight devices each, but for every tenth, which has none.
const MACHINES: [&str; 5] = [
    "CPU 64, memory 512, GPU 8, accelerator_type:H100 1",
    "CPU 64, memory 512, GPU 8, accelerator_type:A100 1",
    "CPU 96, memory 768, TPU 8, accelerator_type:TPU-V5P 1",
    "CPU 96, memory 768, neuron_cores 8, accelerator_type:aws-neuron-core 1",
    "CPU 64, memory 512, GPU 8, accelerator_type:H100 1",
];
const WITHOUT_DEVICES: &str = "CPU 128, memory 1024";

/// The kinds of requests: whole devices, shares, and none.
const DEMANDS: [&str; 20] = [
    "CPU 1",
    "CPU 2, memory 8",
    "CPU 4, memory 16",
    "CPU 0.5",
    "GPU 1, CPU 1",
    "GPU 2, CPU 4",
    "GPU 4, CPU 8, memory 64",
    "GPU 8, CPU 16, memory 128",
    "GPU 0.5, CPU 1",
    "GPU 0.25, CPU 1",
    "GPU 0.4",
    "GPU 0.1, CPU 0.5",
    "GPU 1, CPU 1, accelerator_type:H100 0.001",
    "GPU 0.3, CPU 1, accelerator_type:A100 0.001",
    "TPU 4, CPU 8",
    "TPU 8, CPU 16",
    "neuron_cores 1, CPU 1",
    "neuron_cores 2, CPU 2, memory 16",
    "GPU 0.2, CPU 1",
    "CPU 1, memory 4",
];
/// The same with memory of a GPU in place of most shares, by kind.
const IN_BYTES: [(usize, &str); 4] = [
    (9, "gpu_memory 21474836480, CPU 1"),
    (10, "gpu_memory 34359738368"),
    (11, "gpu_memory 8589934592, CPU 0.5"),
    (18, "gpu_memory 17179869184, CPU 1"),
];
/// What each GPU has then.
const GPU_BYTES: u64 = 80 << 30;
/// Whose requests they are then, and how urgent.
const CLAIMANTS: [(u32, i32); 6] = [(1, 0), (1, 50), (2, 0), (2, -10), (3, 0), (3, 100)];
/// Those that are spread, and those that want a zone.
const SPREAD: [usize; 2] = [2, 9];
const IN_ZONE: [usize; 2] = [5, 19];

/// The bundles of a group: these in turn.
const BUNDLES: [&str; 2] = ["GPU 1, CPU 4", "CPU 2, memory 8"];
const BUNDLES_OF_GROUP: usize = 1_000;

/// The job that all requests are of.
const ONE_JOB: u32 = 1;
/// How many may end before others are placed: what one turn of a daemon's loop hears.
const ENDS_PER_ROUND: usize = 32;

fn amounts(text: &str) -> Vec<(ResourceName, f64)> {
    let entries = text.split(", ").map(|entry| entry.split_once(' ').expect("`name amount`"));
    entries
        .map(|(name, amount)| {
            (ResourceName::new(ResourceName::of_option(name)).expect("a name"), amount.parse().expect("a number"))
        })
        .collect()
}

fn demand(text: &str) -> Demand {
    let amounts = amounts(text).into_iter();
    let amounts = amounts.map(|(name, number)| (name, Quantity::from_f64(number).expect("an amount")));
    Demand::new(amounts).expect("a demand")
}

/// What is asked for, and of what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Whole devices and shares, by one job.
    Shares,
    /// Bytes of memory besides, by several jobs with priorities.
    SharesAndBytes,
}

fn resource_request(kind: usize, load: Load) -> ResourceRequest {
    let in_bytes = IN_BYTES.iter().find(|(of, _)| load == Load::SharesAndBytes && *of == kind);
    let demand = demand(in_bytes.map_or(DEMANDS[kind], |(_, text)| text));
    let strategy = if SPREAD.contains(&kind) { Strategy::Spread } else { Strategy::Default };
    let condition = Condition { key: "zone".into(), operator: Operator::In(vec!["a".into(), "b".into()]) };
    let selectors = if IN_ZONE.contains(&kind) { vec![Selector(vec![condition])] } else { Vec::new() };
    ResourceRequest::new(demand, Place { strategy, selectors })
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

struct Machine {
    node: NodeId,
    ledger: Ledger,
    labels: BTreeMap<String, String>,
}

struct Figures {
    machines: usize,
    joined: Duration,
    placing: Duration,
    decisions: Vec<u32>,
    placed: usize,
    fleet_bytes: u64,
    queue_bytes: u64,
    plain_scan: Duration,
}

/// What this thread has used of its core: others on this machine do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn machines(count: usize, load: Load) -> Vec<Machine> {
    let machine = |number: usize| {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        let node = NodeId::new(bytes);
        let offer = if number % 10 == 9 { WITHOUT_DEVICES } else { MACHINES[number % MACHINES.len()] };
        let mark = format!("node:10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
        let mut offer = amounts(offer);
        offer.push((ResourceName::new(&mark).expect("a name"), 1.0));
        let zone = ["a", "b", "c", "d"][number / 16 % 4];
        let labels = [("ray.io/node-id".to_owned(), node.hex()), ("zone".to_owned(), zone.to_owned())];
        let mut inventory = Inventory::new(offer).expect("an inventory");
        let gpus = inventory.total(ResourceName::GPU.as_str()).wholes() as usize;
        if load == Load::SharesAndBytes && gpus > 0 {
            inventory = inventory.with_device_memory(ResourceName::GPU, vec![GPU_BYTES; gpus]);
        }
        Machine { node, ledger: Ledger::new(inventory), labels: labels.into() }
    };
    (0..count).map(machine).collect()
}

fn measure(count: usize, requests: usize, load: Load) -> Figures {
    let mut machines = machines(count, load);
    let before = resident();
    let begin = Instant::now();
    let mut fleet = Fleet::default();
    for machine in &machines {
        fleet.put(&NodeView::new(machine.node, &machine.ledger, machine.labels.clone()));
    }
    let joined = begin.elapsed();
    let resource_requests: Vec<ResourceRequest> = (0..DEMANDS.len()).map(|kind| resource_request(kind, load)).collect();
    let with_fleet = resident();
    let mut queue: WaitQueue<u32, u64, ResourceRequest> = WaitQueue::new();
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for ticket in 0..requests as u64 {
        let asked = resource_requests[dice.below(resource_requests.len())].clone();
        let claimant = match load {
            Load::Shares => ONE_JOB.into(),
            Load::SharesAndBytes => {
                let (job, priority) = CLAIMANTS[dice.below(CLAIMANTS.len())];
                Claimant::new(job, priority)
            }
        };
        queue.push(claimant, ticket, asked).expect("there is room");
    }
    let queue_bytes = resident().saturating_sub(with_fleet);
    let views = fleet.views();
    let begin = Instant::now();
    for resource_request in &resource_requests {
        let _ = std::hint::black_box(oxiray_scheduler::place(&views, resource_request, &Near::default(), 0));
    }
    let plain_scan = begin.elapsed() / resource_requests.len() as u32;

    let mut figures = Figures {
        machines: count,
        joined,
        placing: Duration::ZERO,
        decisions: Vec::with_capacity(requests * 2),
        placed: 0,
        fleet_bytes: 0,
        queue_bytes,
        plain_scan,
    };
    serve_all(&mut fleet, &mut machines, &mut queue, &mut dice, &mut figures);
    assert_eq!(figures.placed, requests, "everything that waited was placed");
    figures.fleet_bytes = with_fleet.saturating_sub(before);
    figures.decisions.sort_unstable();
    figures
}

/// Places everything that waits, while of what runs some ends after each round.
fn serve_all(
    fleet: &mut Fleet,
    machines: &mut [Machine],
    queue: &mut WaitQueue<u32, u64, ResourceRequest>,
    dice: &mut Dice,
    figures: &mut Figures,
) {
    let by_node: std::collections::HashMap<NodeId, usize> =
        machines.iter().enumerate().map(|(index, machine)| (machine.node, index)).collect();
    let mut running: Vec<(usize, Grant)> = Vec::new();
    let mut shares = Shares::default();
    while !queue.is_empty() {
        let begin = processor_time();
        let decisions = &mut figures.decisions;
        let served = queue.serve(&mut shares, |_, resource_request, _| {
            let begin = Instant::now();
            let found = fleet.find(resource_request, &Near::default());
            decisions.push(begin.elapsed().as_nanos() as u32);
            match found {
                Found::On(node) => {
                    fleet.take(node, &resource_request.demand).then(|| (node, resource_request.demand.clone()))
                }
                Found::Busy | Found::Never => None,
            }
        });
        figures.placing += processor_time().saturating_sub(begin);
        figures.placed += served.len();
        for (_, (node, demand)) in served {
            let index = by_node[&node];
            let grant = machines[index].ledger.grant(&demand).expect("the ledger has what the view had");
            running.push((index, grant));
        }
        let mut changed = Vec::with_capacity(ENDS_PER_ROUND);
        for _ in 0..ENDS_PER_ROUND.min(running.len()) {
            let (index, grant) = running.swap_remove(dice.below(running.len()));
            machines[index].ledger.release(grant);
            changed.push(index);
        }
        let view = |index: usize| {
            let machine = &machines[index];
            NodeView::new(machine.node, &machine.ledger, machine.labels.clone())
        };
        let views: Vec<NodeView> = changed.into_iter().map(view).collect();
        let begin = processor_time();
        for view in &views {
            fleet.put(view);
        }
        figures.placing += processor_time().saturating_sub(begin);
    }
}

/// How long a look for a group takes, in milliseconds: the first on this fleet, and another after a machine changed. What
/// is found is booked, and given back in between.
fn group_cells(machines: &[Machine], strategy: GroupStrategy) -> String {
    let bundle =
        |index: usize| Bundle { demand: demand(BUNDLES[index % BUNDLES.len()]), selector: Selector::default() };
    let group = Group { strategy, bundles: (0..BUNDLES_OF_GROUP).map(bundle).collect(), preferred: None, domain: None };
    let mut fleet = Fleet::default();
    let view = |machine: &Machine| NodeView::new(machine.node, &machine.ledger, machine.labels.clone());
    let mut cells = String::new();
    for _ in 0..2 {
        for machine in machines {
            fleet.put(&view(machine));
        }
        let begin = processor_time();
        let found = fleet.find_group(&group, &[]);
        let looked = processor_time().saturating_sub(begin);
        let outcome = if found.is_some() { "" } else { ": no room, ever" };
        assert!(found.is_some() || !fleet.could_ever_place(&group), "nothing runs: what is not placed never is");
        for (node, bundle) in found.into_iter().flatten().zip(&group.bundles) {
            assert!(fleet.take(node, &bundle.demand), "what was found has room");
        }
        let _ = write!(cells, " {:.2}{outcome} |", looked.as_secs_f64() * 1e3);
    }
    cells
}

fn group_row(count: usize) -> String {
    let machines = machines(count, Load::Shares);
    let cells = [GroupStrategy::StrictSpread, GroupStrategy::Pack].map(|strategy| group_cells(&machines, strategy));
    format!("| {count} |{}", cells.concat())
}

fn group_heading() -> String {
    format!(
        "\n# Placement groups\n\nA group of {BUNDLES_OF_GROUP} bundles, {{{}}} and {{{}}} in turn, on the same machines with \
         nothing running: how long it takes to find all its machines or to rule that out, in ms of the processor's time; first \
         on a fleet that never saw such bundles, then again when all machines told how they are now.\n\n\
         | machines | STRICT_SPREAD: first | again | PACK: first | again |\n|---:|---:|---:|---:|---:|\n",
        BUNDLES[0], BUNDLES[1]
    )
}

fn row(figures: &Figures) -> String {
    let at = |part: f64| f64::from(figures.decisions[(figures.decisions.len() as f64 * part) as usize]) / 1e3;
    let per_second = figures.placed as f64 / figures.placing.as_secs_f64();
    format!(
        "| {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.1} | {:.0} |",
        figures.machines,
        per_second,
        at(0.5),
        at(0.99),
        at(0.999),
        f64::from(*figures.decisions.last().expect("there were decisions")) / 1e3,
        figures.plain_scan.as_secs_f64() * 1e6,
        figures.joined.as_secs_f64() * 1e6 / figures.machines as f64,
        figures.fleet_bytes as f64 / 1e6,
        figures.queue_bytes as f64 / 1e6,
    )
}

fn environment() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("an unknown processor");
    let level = if cfg!(debug_assertions) { "a debug build" } else { "a release build" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!(
        "{}, {cores} cores, load {load}; {level} of oxiray {}",
        model.trim_start_matches(['\t', ' ', ':']),
        env!("CARGO_PKG_VERSION")
    )
}

const COLUMNS: &str = "| machines | placed per s | decision: median | 99 % | 99.9 % | longest | a look at every machine instead | \
    a machine joins | machines, MB | requests, MB |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";

fn bytes_heading() -> String {
    format!(
        "\n# Memory of devices, and priorities\n\nThe same, where each GPU has 80 GiB and {} of the 20 kinds ask for bytes of one in \
         place of a share, so that shares and bytes are counted together; the requests are of {} pairs of a job and a \
         priority.\n\n{COLUMNS}",
        IN_BYTES.len(),
        CLAIMANTS.len()
    )
}

fn heading(requests: usize) -> String {
    format!(
        "# The scheduler at scale\n\n`make bench-scheduler`: {requests} requests of {} kinds, whole devices, shares and \
         none, wait on machines of 8 devices (GPU, TPU and Neuron mixed; every tenth has none). All that fit are placed; \
         then {ENDS_PER_ROUND} that run end at a time, and what fits is placed, until nobody waits. One thread, a process \
         for each row: `placed per s` counts the processor's time, decisions the clock's, in µs (what else this machine \
         did comes in); memory is what the process grew by.\n\nMeasured on {}.\n\n{COLUMNS}",
        DEMANDS.len(),
        environment()
    )
}

/// One size in a process of its own, so that its memory is its own.
fn measured_apart(machines: usize, requests: usize, load: Load) -> String {
    let own = std::env::current_exe().expect("the path of this program");
    let sizes = [("--machines", machines), ("--requests", requests)];
    let done = sizes
        .iter()
        .fold(std::process::Command::new(own), |mut command, (name, number)| {
            command.arg(name).arg(number.to_string());
            command
        })
        .args((load == Load::SharesAndBytes).then_some("--bytes"))
        .output()
        .expect("this program runs again");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn print(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("somebody reads it");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let position = arguments.iter().position(|argument| argument == name)?;
        arguments.get(position + 1)
    };
    let number = |name: &str| option(name).map(|text| text.parse::<usize>().expect("a number"));
    let requests = number("--requests").unwrap_or(1_000_000);
    if let Some(machines) = number("--machines") {
        let in_bytes = arguments.iter().any(|argument| argument == "--bytes");
        let load = if in_bytes { Load::SharesAndBytes } else { Load::Shares };
        return print(&row(&measure(machines, requests, load)));
    }
    if let Some(machines) = number("--groups") {
        return print(&group_row(machines));
    }
    let mut text = heading(requests);
    for machines in [100, 1_000, 10_000] {
        let row = measured_apart(machines, requests, Load::Shares);
        print(&row);
        let _ = writeln!(text, "{row}");
    }
    text.push_str(&bytes_heading());
    for machines in [100, 1_000, 10_000] {
        let row = measured_apart(machines, requests, Load::SharesAndBytes);
        print(&row);
        let _ = writeln!(text, "{row}");
    }
    text.push_str(&group_heading());
    for machines in [100, 1_000, 10_000] {
        let row = group_row(machines);
        print(&row);
        let _ = writeln!(text, "{row}");
    }
    if let Some(path) = option("--write") {
        std::fs::write(path, text).expect("the results can be written");
    }
}
