//! How the devices of recorded machines are connected: over the bus, and by links of their own.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use oxiray_accelerators::{Detected, Host, detect, offer, to_json};

/// A machine with the properties of eight GPUs of AMD's in KFD, and a place on the bus for each.
struct Machine(tempfile::TempDir);

/// Four GPUs below two switches of one host bridge, and four below those of another, on the other NUMA node.
const PLACES: [(&str, &str); 8] = [
    ("0000:0c:00.0", "pci0000:07/0000:07:01.0/0000:08:00.0/0000:09:00.0"),
    ("0000:22:00.0", "pci0000:07/0000:07:01.0/0000:08:00.0/0000:09:01.0"),
    ("0000:38:00.0", "pci0000:07/0000:07:02.0/0000:30:00.0/0000:31:00.0"),
    ("0000:5c:00.0", "pci0000:50/0000:50:01.0/0000:58:00.0/0000:59:00.0"),
    ("0000:9f:00.0", "pci0000:90/0000:90:01.0"),
    ("0000:af:00.0", "pci0000:a0/0000:a0:01.0"),
    ("0000:bf:00.0", "pci0000:b0/0000:b0:01.0"),
    ("0000:df:00.0", "pci0000:d0/0000:d0:01.0"),
];

impl Machine {
    fn of_amd() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        copy(&common::machine("amd-mi300x8"), machine.0.path());
        machine
    }

    /// Has the kernel show where each GPU is.
    fn with_places(self) -> Self {
        let folder = self.0.path().join("sys/bus/pci/devices");
        for (address, above) in PLACES {
            let place = self.0.path().join("sys/devices").join(above).join(address);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::rename(folder.join(address), &place).unwrap();
            symlink(format!("../../../devices/{above}/{address}"), folder.join(address)).unwrap();
        }
        self
    }

    /// A link of AMD's between two GPUs, as both their nodes have it.
    fn link(&self, one: u32, other: u32, least: u64, most: u64) {
        // The first two nodes are processors.
        for (from, to) in [(one + 2, other + 2), (other + 2, one + 2)] {
            let folder = self.0.path().join(format!("sys/class/kfd/kfd/topology/nodes/{from}/io_links/{to}"));
            fs::create_dir_all(&folder).unwrap();
            let text = format!(
                "type 11\nnode_from {from}\nnode_to {to}\nweight 15\nmin_bandwidth {least}\nmax_bandwidth {most}\n"
            );
            fs::write(folder.join("properties"), text).unwrap();
        }
    }

    fn detected(&self) -> Detected {
        detect(&Host::recorded(self.0.path()).unwrap()).families.remove(0)
    }

    /// How the first GPU and another are connected, and how near that is.
    fn of_first(&self) -> Vec<(String, u32)> {
        let pairs = self.detected().pairs;
        let of_first = pairs.iter().filter(|pair| pair.one == 0);
        of_first.map(|pair| (pair.to_string(), pair.nearness())).collect()
    }

    /// Which of its GPUs, all free, a request for so many would take.
    fn taken(&self, count: usize) -> Vec<u32> {
        let detection = detect(&Host::recorded(self.0.path()).unwrap());
        let offered = offer(&detection, &|_| None, &BTreeMap::new()).unwrap();
        let gpus = offered.of("GPU").unwrap();
        let numa: Vec<_> = gpus.slots.iter().map(|slot| slot.as_ref().and_then(|slot| slot.numa_node)).collect();
        let topology = oxiray_resources::Topology::new(&numa, gpus.nearness()).unwrap();
        topology.choose(&(0..8).collect::<Vec<_>>(), count)
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn words(told: &[(&str, u32)]) -> Vec<(String, u32)> {
    told.iter().map(|(word, nearness)| ((*word).to_owned(), *nearness)).collect()
}

#[test]
fn where_the_kernel_shows_no_places_nothing_is_said_of_pairs() {
    assert_eq!(Machine::of_amd().of_first(), []);
}

#[test]
fn the_bus_tells_how_near_devices_are() {
    let machine = Machine::of_amd().with_places();
    let far = [("SYS", 10); 4];
    assert_eq!(machine.of_first(), words(&[&[("PIX", 50), ("PHB", 30), ("NODE", 20)][..], &far].concat()));
    assert_eq!(machine.detected().devices[4].numa_node, Some(1), "its folder is read through the link");
    assert_eq!(machine.taken(2), [0, 1]);
}

#[test]
fn links_of_amds_count_where_they_are_direct() {
    let machine = Machine::of_amd().with_places();
    machine.link(2, 3, 50_000, 200_000);
    machine.link(0, 2, 50_000, 50_000);
    machine.link(1, 3, 50_000, 0);
    machine.link(0, 4, 0, 0);
    let pairs = machine.detected().pairs;
    let of = |one, other| {
        let pair = pairs.iter().find(|pair| (pair.one, pair.other) == (one, other)).unwrap();
        (pair.to_string(), pair.nearness())
    };
    let told = [of(2, 3), of(0, 2), of(1, 3), of(0, 4)];
    let known = [("XGMI4", 420), ("XGMI1", 130), ("NODE", 20), ("XGMI1", 110)];
    assert_eq!(told.to_vec(), words(&known), "four, one, one that leads over another GPU, one of an older kernel");
    assert_eq!(machine.taken(2), [2, 3]);
    let host = Host::recorded(machine.0.path()).unwrap();
    let json = &to_json(&detect(&host), &host)["accelerators"][0]["pairs"];
    assert!(json.as_array().unwrap().iter().any(|pair| pair[4] == "XGMI4" && pair[5] == 420), "{json}");
}

#[test]
fn links_of_amds_are_known_without_places_on_the_bus() {
    let machine = Machine::of_amd();
    machine.link(0, 7, 50_000, 50_000);
    assert_eq!(machine.of_first(), words(&[("XGMI1", 110)]));
    assert_eq!(machine.taken(2), [0, 1], "one NUMA node comes first");
}
