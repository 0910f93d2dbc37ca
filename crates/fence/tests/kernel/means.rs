//! What probing says of this machine.

use crate::attempts::{unique_name, versions};
use oxiray_fence::{CgroupVersion, DaemonCgroup, Means, Mechanism};
use std::fs;

#[test]
fn probing_leaves_nothing() {
    for version in versions() {
        let own = DaemonCgroup::make(version, &unique_name()).expect("made");
        let name = unique_name();
        let mechanism = if version == CgroupVersion::Two { Mechanism::Cgroup } else { Mechanism::Cgroup1 };
        assert_eq!(mechanism.probe(&name), Ok(()));
        let beside = fs::read_dir(own.path().parent().expect("it has one")).expect("it is there");
        let left: Vec<_> = beside.flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|entry| !entry.to_string_lossy().contains(&name)), "{left:?}");
        own.remove().expect("nobody is in it");
    }
}

#[test]
fn without_privileges_each_mechanism_says_what_it_lacks() {
    if !rustix::process::getuid().is_root() {
        return println!("skipped: to give up privileges takes them");
    }
    let probed = std::thread::spawn(|| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        Means::probe(&unique_name())
    });
    let means = probed.join().expect("it returns");
    for mechanism in [Mechanism::Cgroup, Mechanism::Cgroup1] {
        let said = means.of(mechanism).as_ref().expect_err("that takes root").to_string();
        let is_explained =
            ["no cgroup", "not visible", "read-only", "that takes root"].iter().any(|word| said.contains(word));
        assert!(is_explained, "{said}");
    }
}

#[test]
fn a_process_without_capabilities_is_told_which_it_lacks() {
    if !versions().contains(&CgroupVersion::Two) {
        return;
    }
    let probed = std::thread::spawn(|| {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).expect("a thread has some");
        for set in [&mut sets.effective, &mut sets.permitted] {
            *set &= CapabilitySet::DAC_OVERRIDE | CapabilitySet::BPF;
        }
        set_capabilities(None, sets).expect("fewer than before");
        [Mechanism::Cgroup, Mechanism::Cgroup1].map(|mechanism| mechanism.probe(&unique_name()))
    });
    let [second, first] = probed.join().expect("it returns");
    assert_eq!(
        second.expect_err("CAP_NET_ADMIN is missing").to_string(),
        "loading a device program takes CAP_BPF and CAP_NET_ADMIN, and this process lacks CAP_NET_ADMIN: start as root, or in \
         a systemd unit with `Delegate=yes` and `AmbientCapabilities=CAP_BPF CAP_NET_ADMIN`"
    );
    if versions().contains(&CgroupVersion::One) {
        let said = first.expect_err("CAP_SYS_ADMIN is missing").to_string();
        assert!(said.contains("lacks CAP_SYS_ADMIN"), "{said}");
    }
}
