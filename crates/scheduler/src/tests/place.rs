//! Placement on several machines, as a script of what happens and what comes of it.
//!
//! ```text
//! node a: CPU 4, GPU 2    a machine
//! out a: GPU 0            takes a device out of service
//! run: GPU 0.5 -> a       placed on `a`, and granted by its ledger
//! ask: GPU 8 -> …         not placed; the message follows the arrow
//! ```

use std::collections::BTreeMap;

use oxiray_resources::Ledger;

use super::{demand, ledger, node};
use crate::{Near, NodeView, Placement, place};

#[derive(Default)]
struct Cluster {
    machines: Vec<(String, Ledger)>,
}

impl Cluster {
    fn line(&mut self, line: &str) {
        let (head, rest) = line.split_once(": ").unwrap_or_else(|| panic!("`{line}` has no `: `"));
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            ["node", name] => self.machines.push((name.to_owned(), ledger(rest))),
            ["out", name] => {
                let (resource, device) = rest.split_once(' ').unwrap();
                self.ledger(name).quarantine(resource, device.parse().unwrap(), "test").unwrap();
            }
            ["run" | "ask"] => {
                let (asked, expected) = rest.split_once(" -> ").unwrap();
                assert_eq!(self.outcome(asked), expected, "in `{line}`");
            }
            _ => panic!("`{head}` is no word of the script"),
        }
    }

    fn ledger(&mut self, name: &str) -> &mut Ledger {
        self.machines.iter_mut().find(|(machine, _)| machine == name).map(|(_, ledger)| ledger).unwrap()
    }

    fn outcome(&mut self, asked: &str) -> String {
        let asked = demand(asked);
        let views: Vec<_> = self
            .machines
            .iter()
            .zip(0..)
            .map(|((_, ledger), number)| NodeView::new(node(number), ledger, BTreeMap::new()))
            .collect();
        match place(&views, &asked.clone().into(), &Near::default(), 0) {
            Placement::On(id) => {
                let (name, ledger) = &mut self.machines[usize::from(id.as_bytes()[0])];
                // What is granted here is held to the end of the script.
                let _held = ledger.grant(&asked).expect("a fresh view and its ledger agree");
                name.clone()
            }
            Placement::Wait(reason) => format!("wait: {}", reason.message("task `f`")),
            Placement::Never(reason) => format!("never: {}", reason.message("task `f`")),
        }
    }
}

fn check(script: &str) {
    let mut cluster = Cluster::default();
    script.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| cluster.line(line));
}

#[test]
fn machines_are_taken_in_order_while_they_have_room() {
    check(
        "
        node a: CPU 1
        node b: CPU 2
        run: CPU 1 -> a
        run: CPU 1 -> b
        run: CPU 1 -> b
        run: CPU 0 -> a
        ask: CPU 1 -> wait: task `f` waits for {CPU: 1}: 1 CPU asked for, 0 of 1 free
        ask: CPU 2 -> wait: task `f` waits for {CPU: 2}: 2 CPU asked for, 0 of 2 free
        ",
    );
}

/// Ray adds up what is free on a machine, so half of these never start there.
#[test]
fn shares_are_placed_by_device_and_not_by_sum() {
    check(
        "
        node a: GPU 2
        node b: GPU 2
        run: GPU 0.4 -> a
        run: GPU 0.4 -> a
        run: GPU 0.4 -> a
        run: GPU 0.4 -> a
        run: GPU 0.4 -> b
        run: GPU 0.4 -> b
        run: GPU 0.4 -> b
        run: GPU 0.4 -> b
        ask: GPU 0.4 -> wait: task `f` waits for {GPU: 0.4}: 0.4 of one GPU asked for, the freest of 2 has 0.2 left
        ",
    );
}

#[test]
fn whole_devices_need_wholly_free_ones_on_one_machine() {
    check(
        "
        node a: GPU 2
        node b: GPU 2
        run: GPU 0.1 -> a
        run: GPU 2 -> b
        run: GPU 1 -> a
        ask: GPU 1 -> wait: task `f` waits for {GPU: 1}: 1 GPU asked for, 0 of 2 wholly free
        ask: GPU 3 -> never: task `f` asks for {GPU: 3}, but the largest machine has 2 GPU; lower num_gpus, or start the cluster with more: init(num_gpus=3) or `oxiray start --num-gpus=3`
        ",
    );
}

#[test]
fn a_device_out_of_service_is_waited_for() {
    check(
        "
        node a: GPU 2
        out a: GPU 1
        run: GPU 1 -> a
        ask: GPU 2 -> wait: task `f` waits for {GPU: 2}: 2 GPU asked for, 0 of 2 wholly free, 1 out of service
        ",
    );
}

#[test]
fn what_can_never_be_placed_is_told_with_what_to_change() {
    check(
        "
        ask: CPU 1 -> never: task `f` asks for {CPU: 1}, but the cluster has no machines; start one with `oxiray start`
        node a: CPU 4, licence 2, accelerator_type:H100 1, memory 1000
        ask: GPU 0.5 -> never: task `f` asks for {GPU: 0.5}, but no machine has any GPU; lower num_gpus, or start the cluster with more: init(num_gpus=1) or `oxiray start --num-gpus=1`
        ask: CPU 4.5 -> never: task `f` asks for {CPU: 4.5}, but the largest machine has 4 CPU; lower num_cpus, or start the cluster with more: init(num_cpus=5) or `oxiray start --num-cpus=5`
        ask: CPU 1, TPU 4 -> never: task `f` asks for {CPU: 1, TPU: 4}, but no machine has any TPU; lower it in resources, or start the cluster with more: init(resources={\"TPU\": 4}) or `oxiray start --resources='{\"TPU\": 4}'`
        ask: licence 3 -> never: task `f` asks for {licence: 3}, but the largest machine has 2 licence; lower it in resources, or start the cluster with more: init(resources={\"licence\": 3}) or `oxiray start --resources='{\"licence\": 3}'`
        ask: disk 1 -> never: task `f` asks for {disk: 1}, but no machine offers `disk`; the custom resources there are: `licence`; lower it in resources, or start the cluster with more: init(resources={\"disk\": 1}) or `oxiray start --resources='{\"disk\": 1}'`
        ask: memory 2000 -> never: task `f` asks for {memory: 2000}, but the largest machine has 1000 memory; lower memory, or add a machine that has as much
        ask: accelerator_type:A100 0.001 -> never: task `f` asks for {accelerator_type:A100: 0.001}, but no machine has accelerators of type `A100`; the types there are: `H100`; change accelerator_type, or add a machine that has them
        node b: GPU 8
        ask: CPU 1, GPU 1 -> never: task `f` asks for {CPU: 1, GPU: 1}; each is on some machine, but no machine has all of it; ask for less at once, or add a machine that has all of it
        ",
    );
    check(
        "
        node a: CPU 4
        ask: disk 1 -> never: task `f` asks for {disk: 1}, but no machine offers `disk`; there are no custom resources; lower it in resources, or start the cluster with more: init(resources={\"disk\": 1}) or `oxiray start --resources='{\"disk\": 1}'`
        ask: accelerator_type:A100 0.001 -> never: task `f` asks for {accelerator_type:A100: 0.001}, but no machine has accelerators of type `A100`; no machine names the type of its accelerators; change accelerator_type, or add a machine that has them
        ",
    );
}

#[test]
fn long_lists_are_cut() {
    let offers: Vec<String> = (10..40).map(|number| format!("r{number} 1")).collect();
    let views = [NodeView::new(node(0), &ledger(&offers.join(", ")), BTreeMap::new())];
    let Placement::Never(reason) = place(&views, &demand("disk 1").into(), &Near::default(), 0) else {
        panic!("no machine has disks")
    };
    assert!(reason.to_string().contains("`r29` and 10 more;"), "{reason}");
}
