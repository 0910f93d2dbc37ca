//! What the ledger says and refuses, one case each; any order of events is in `model`.

use super::{demand, ledger, quantity, shares, show};
use crate::{Busy, Grant, KeptBack, Ledger, Never, NoSuchDevice, Quantity, ResourceName, Shortage};

fn available(ledger: &Ledger) -> String {
    show(ledger.available().iter().map(|(name, quantity)| (name, *quantity)))
}

fn totals(ledger: &Ledger) -> String {
    show(ledger.totals().iter().map(|(name, quantity)| (name, *quantity)))
}

#[test]
fn what_is_free_is_seen_by_sum_and_by_device() {
    let mut ledger = ledger("CPU 4, GPU 3, memory 1000");
    let grant = ledger.grant(&demand("CPU 1, GPU 0.4, memory 1000")).unwrap();
    assert_eq!(available(&ledger), "CPU 3, GPU 2.6");
    assert_eq!(totals(&ledger), "CPU 4, GPU 3, memory 1000");
    assert_eq!(shares(&ledger), [Some(quantity(0.6)), Some(Quantity::ONE), Some(Quantity::ONE)]);
    assert_eq!(ledger.holders("GPU", 0), [(grant.id(), quantity(0.4))]);
    assert!(ledger.holders("GPU", 1).is_empty() && ledger.holders("GPU", 9).is_empty());
    assert_eq!(ledger.free_per_device("TPU").iter().count(), 0);
    assert_eq!(ledger.open().map(|(id, _)| id).collect::<Vec<_>>(), [grant.id()]);
    ledger.release(grant);
    assert_eq!((available(&ledger), ledger.open().count()), (totals(&ledger), 0));
}

#[test]
fn never_and_busy_are_told_apart() {
    let mut ledger = ledger("CPU 2, GPU 2");
    assert_eq!(
        ledger.grant(&demand("CPU 3, GPU 3")),
        Err(Shortage::Never(Never { resource: ResourceName::CPU, asked: quantity(3.0), total: quantity(2.0) }))
    );
    let sentence = "100000000000000 GPU asked for, the machine has 2: lower the request or offer more";
    assert_eq!(ledger.grant(&demand("GPU 1e14")).unwrap_err().to_string(), sentence);
    assert_eq!(ledger.could_ever(&demand("licence 1")).unwrap_err().total, Quantity::ZERO);

    let _half = ledger.grant(&demand("CPU 1, GPU 0.5")).unwrap();
    let _most = ledger.grant(&demand("GPU 0.7")).unwrap();
    assert_eq!(
        ledger.grant(&demand("CPU 1, GPU 1")),
        Err(Shortage::Busy(Busy {
            resource: ResourceName::GPU,
            asked: Quantity::ONE,
            free: Quantity::ZERO,
            total: quantity(2.0),
            kept: KeptBack::default()
        }))
    );
    let mut sentence = |text: &str| ledger.grant(&demand(text)).unwrap_err().to_string();
    assert_eq!(sentence("GPU 2"), "2 GPU asked for, 0 of 2 wholly free");
    assert_eq!(sentence("GPU 0.6"), "0.6 of one GPU asked for, the freest of 2 has 0.5 left");
    assert_eq!(sentence("CPU 2"), "2 CPU asked for, 1 of 2 free");
    assert_eq!(available(&ledger), "CPU 1, GPU 0.8", "a refused demand takes nothing");
}

#[test]
fn every_machine_has_one_of_each_implicit_resource() {
    let mut ledger = ledger("CPU 4");
    let half = "node:__internal_implicit_resource_a 0.5";
    assert_eq!(available(&ledger), "CPU 4", "what nobody uses is not listed");
    let sentence =
        "1.5 node:__internal_implicit_resource_a asked for, the machine has 1: lower the request or offer more";
    assert_eq!(ledger.grant(&demand("node:__internal_implicit_resource_a 1.5")).unwrap_err().to_string(), sentence);
    let first = ledger.grant(&demand(half)).unwrap();
    let second = ledger.grant(&demand(half)).unwrap();
    assert!(matches!(ledger.grant(&demand(half)), Err(Shortage::Busy(_))));
    assert_eq!(available(&ledger), "CPU 4, node:__internal_implicit_resource_a 0", "used up is not unused");
    let of_other = ledger.grant(&demand("node:__internal_implicit_resource_b 1")).unwrap();
    ledger.audit();
    for grant in [first, second, of_other] {
        ledger.release(grant);
    }
    assert_eq!((available(&ledger), totals(&ledger)), ("CPU 4".to_owned(), "CPU 4".to_owned()));

    let bundle = ledger.reserve(&[demand("CPU 1")]).unwrap().remove(0);
    assert!(ledger.grant_within(&[(bundle, demand(half))]).is_none(), "a bundle has what was reserved");
}

#[test]
fn lent_cpus_are_granted_to_others_and_only_cpus_are_overdrawn() {
    let mut ledger = ledger("CPU 2, GPU 1, licence 1");
    let mut parent = ledger.grant(&demand("CPU 2, GPU 1, licence 1")).unwrap();
    ledger.lend_cpu(&mut parent);
    ledger.lend_cpu(&mut parent);
    assert_eq!((available(&ledger).as_str(), parent.cpu_is_lent()), ("CPU 2", true));
    let child = ledger.grant(&demand("CPU 1")).unwrap();
    assert!(matches!(ledger.grant(&demand("GPU 1")), Err(Shortage::Busy(_))), "devices are not lent");

    ledger.restore_cpu(&mut parent);
    ledger.restore_cpu(&mut parent);
    assert_eq!(available(&ledger), "", "3 of 2 CPUs are in use");
    ledger.release(child);
    assert_eq!(available(&ledger), "", "what is given back pays the overdraft first");
    ledger.lend_cpu(&mut parent);
    ledger.release(parent);
    assert_eq!(available(&ledger), "CPU 2, GPU 1, licence 1");
    ledger.audit();
}

#[test]
fn a_grant_without_cpus_lends_none() {
    let mut ledger = ledger("GPU 1");
    let mut grant = ledger.grant(&demand("GPU 1")).unwrap();
    ledger.lend_cpu(&mut grant);
    ledger.restore_cpu(&mut grant);
    ledger.lend_cpu(&mut grant);
    ledger.release(grant);
    assert_eq!(available(&ledger), "GPU 1");
}

#[test]
fn the_largest_totals_do_not_overflow_when_lent() {
    let mut ledger = ledger("CPU 1e14");
    let everything = demand("CPU 1e14");
    let mut grants: Vec<_> = (0..40)
        .map(|_| {
            let mut grant = ledger.grant(&everything).unwrap();
            ledger.lend_cpu(&mut grant);
            grant
        })
        .collect();
    for grant in &mut grants {
        ledger.restore_cpu(grant);
    }
    ledger.audit();
    for grant in grants {
        ledger.release(grant);
    }
    assert_eq!(available(&ledger), "CPU 100000000000000");
}

#[test]
fn a_device_out_of_service_is_kept_by_its_holder_and_granted_to_nobody() {
    let mut ledger = ledger("GPU 2");
    let held = ledger.grant(&demand("GPU 0.5")).unwrap();
    ledger.quarantine("GPU", 0, "process 7 does not die").unwrap();
    assert_eq!((totals(&ledger).as_str(), available(&ledger).as_str()), ("GPU 1", "GPU 1"));
    let out: Vec<_> = ledger.out_of_service().map(|out| (out.resource.as_str(), out.device, out.reason)).collect();
    assert_eq!(out, [("GPU", 0, "process 7 does not die")]);
    assert_eq!(ledger.grant(&demand("GPU 0.5")).unwrap().devices_of("GPU")[0].device, 1);
    let busy = ledger.grant(&demand("GPU 2")).unwrap_err();
    assert_eq!(busy.to_string(), "2 GPU asked for, 0 of 2 wholly free, 1 out of service");
    assert!(matches!(busy, Shortage::Busy(_)), "the device may return");

    ledger.release(held);
    ledger.quarantine("GPU", 0, "still there").unwrap();
    assert_eq!(shares(&ledger), [None, Some(quantity(0.5))]);
    ledger.audit();
    ledger.restore_device("GPU", 0).unwrap();
    ledger.restore_device("GPU", 0).unwrap();
    assert_eq!((available(&ledger).as_str(), ledger.out_of_service().count()), ("GPU 1.5", 0));
    ledger.audit();
    for (resource, device, count) in [("GPU", 2, 2), ("TPU", 0, 0)] {
        let error = NoSuchDevice { resource: resource.to_owned(), device, count };
        assert_eq!(ledger.quarantine(resource, device, "gone"), Err(error.clone()));
        assert_eq!(ledger.restore_device(resource, device), Err(error));
    }
}

#[test]
fn a_device_whose_links_are_not_to_be_used_is_granted_by_itself_alone() {
    let mut ledger = ledger("GPU 4");
    ledger.set_single("GPU", 0, true).unwrap();
    let devices = |grant: &Grant| -> Vec<u32> { grant.devices_of("GPU").iter().map(|share| share.device).collect() };
    let three = ledger.grant(&demand("GPU 3")).unwrap();
    assert_eq!(devices(&three), [1, 2, 3], "PACKING-4");
    ledger.release(three);
    let all = ledger.grant(&demand("GPU 4")).unwrap_err();
    assert!(matches!(all, Shortage::Busy(_)), "its links may be used again");
    let why = "4 GPU asked for, 3 of 4 wholly free, 1 granted only one at a time while the driver has links to other \
               devices drained";
    assert_eq!(all.to_string(), why);
    let one = ledger.grant(&demand("GPU 1")).unwrap();
    assert_eq!(devices(&one), [0]);
    let part = ledger.grant(&demand("GPU 2")).unwrap();
    let busy = ledger.grant(&demand("GPU 2")).unwrap_err().to_string();
    assert!(busy.starts_with("2 GPU asked for, 1 of 4 wholly free, 1 granted only"), "{busy}");
    for grant in [one, part] {
        ledger.release(grant);
    }
    ledger.audit();
    // Within bundles it is the same, out of however many of them the devices come.
    let bundles = ledger.reserve(&[demand("GPU 1"), demand("GPU 1"), demand("GPU 2")]).unwrap();
    let parts = |one: usize, other: usize| [(bundles[one], demand("GPU 1")), (bundles[other], demand("GPU 1"))];
    assert!(ledger.grant_within(&parts(0, 1)).is_none(), "the first has device 0");
    let joint = ledger.grant_within(&parts(1, 2)).unwrap();
    assert_eq!(devices(&joint), [1, 2]);
    ledger.release(joint);
    ledger.set_single("GPU", 2, true).unwrap();
    assert!(ledger.grant_within(&[(bundles[2], demand("GPU 2"))]).is_none());
    let one = ledger.grant_within(&[(bundles[2], demand("GPU 1"))]).unwrap();
    assert_eq!(devices(&one), [2]);
    ledger.release(one);
    for device in [0, 2] {
        ledger.set_single("GPU", device, false).unwrap();
        assert!(!ledger.is_single("GPU", device));
    }
    let whole = ledger.grant_within(&[(bundles[2], demand("GPU 2"))]).unwrap();
    ledger.audit();
    ledger.release(whole);
    assert!(ledger.set_single("GPU", 4, true).is_err() && ledger.set_single("TPU", 0, true).is_err());
}

#[test]
fn a_grant_of_another_ledger_is_refused() {
    let returns = |mut owner: Ledger, mut other: Ledger, text: &str| {
        let grant = owner.grant(&demand(text)).unwrap();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.release(grant)))
    };
    let message = |result: std::thread::Result<()>| *result.unwrap_err().downcast::<String>().unwrap();
    assert!(message(returns(ledger("GPU 1"), ledger("GPU 1"), "GPU 1")).starts_with("LEDGER-2"));
    let mut other = ledger("GPU 1");
    let _open = other.grant(&demand("GPU 0.5")).unwrap();
    assert!(message(returns(ledger("GPU 1"), other, "GPU 1")).contains("LEDGER-2"));
}
