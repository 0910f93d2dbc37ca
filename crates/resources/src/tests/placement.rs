//! Which devices a demand gets: the sequences observed on Ray 2.60, and some of our own.

use super::{demand, ledger};
use crate::{Grant, Ledger};

/// `GPUs: asked → devices`. Devices of one grant are joined by `+`; `-` marks a demand that waits.
const SEQUENCES: &str = "
    3: .5 .5 .5       -> 0 0 1
    3: .3 .3 .3 .3    -> 0 0 0 1
    3: .5 .7 .3 .5    -> 0 1 1 0
    3: .5 1 .5 1      -> 0 1 0 2
    3: .4 .4 .4 1 1   -> 0 0 1 2 -
    3: .6 .6 .6 .4 .2 -> 0 1 2 0 1
    3: .2 .9 .8 .1    -> 0 1 0 1
    3: .4 2 .6        -> 0 1+2 0
    3: .4 2 1         -> 0 1+2 -
    3: .4 3           -> 0 -
    1: .5 .5 .0001    -> 0 0 -
    2: .6 .6 .5       -> 0 1 -
    2: 2 .0001        -> 0+1 -
    4: .1 .5 .6 .3 1  -> 0 0 1 0 2
    2: .0001 .9999 1  -> 0 0 1
";

#[test]
fn devices_are_picked_as_ray_picks_them() {
    for line in SEQUENCES.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (machine, rest) = line.split_once(": ").unwrap();
        let (asked, expected) = rest.split_once("->").unwrap();
        let mut ledger = ledger(&format!("GPU {machine}"));
        let picked: Vec<String> = asked.split_whitespace().map(|share| pick(&mut ledger, share)).collect();
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(picked, expected, "in `{line}`");
        ledger.audit();
    }
}

fn pick(ledger: &mut Ledger, share: &str) -> String {
    ledger.grant(&demand(&format!("GPU {share}"))).map_or_else(|_| "-".to_owned(), |grant| devices(&grant))
}

fn devices(grant: &Grant) -> String {
    let shares = grant.devices_of("GPU").iter();
    shares.map(|share| share.device.to_string()).collect::<Vec<_>>().join("+")
}

#[test]
fn a_freed_device_in_the_middle_is_used_again() {
    let mut ledger = ledger("GPU 3");
    let mut grants: Vec<_> = (0..3).map(|_| ledger.grant(&demand("GPU 1")).unwrap()).collect();
    ledger.release(grants.remove(1));
    assert_eq!(pick(&mut ledger, "1"), "1");
}

#[test]
fn devices_of_different_resources_are_counted_apart() {
    let mut ledger = ledger("GPU 2, TPU 4, neuron_cores 2");
    let grant = ledger.grant(&demand("GPU 0.5, TPU 2, neuron_cores 1")).unwrap();
    let next = ledger.grant(&demand("GPU 1, TPU 2")).unwrap();
    let numbers = |grant: &Grant, resource: &str| -> Vec<u32> {
        grant.devices_of(resource).iter().map(|share| share.device).collect()
    };
    assert_eq!(
        [numbers(&grant, "GPU"), numbers(&grant, "TPU"), numbers(&grant, "neuron_cores")],
        [vec![0], vec![0, 1], vec![0]]
    );
    assert_eq!([numbers(&next, "GPU"), numbers(&next, "TPU"), numbers(&next, "HPU")], [vec![1], vec![2, 3], vec![]]);
}
