//! What the families other than NVIDIA's tell of their devices while a node runs, on recorded machines whose files change.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use oxiray_accelerators::{DeviceProcesses, Host, Usage, detect, offer};
use oxiray_families::{DriverWord, Holders, ProcessMemory};
use tempfile::TempDir;

/// A copy of a recorded machine.
struct Machine(TempDir);

impl Machine {
    fn copy_of(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(&common::machine(name), folder.path());
        Self(folder)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn remove(&self, folder: &str) {
        fs::remove_dir_all(self.path(folder)).unwrap();
    }

    /// A process with one open file.
    fn opens(&self, pid: u32, node: &str) {
        let folder = self.path(&format!("proc/{pid}/fd"));
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(node, folder.join("7")).unwrap();
    }

    /// Its devices' monitor, as a node that offers all of them has it.
    fn monitor(&self) -> DeviceProcesses {
        let host = Host::recorded(self.0.path()).unwrap();
        let offered = offer(&detect(&host), &|_| None, &BTreeMap::new()).unwrap();
        let mut all = DeviceProcesses::of(&host, &offered);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn usage(&self, slot: u32) -> Option<Usage> {
        self.monitor().uses().into_iter().find(|used| used.slot == slot).map(|used| used.usage)
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

const KFD: &str = "sys/class/kfd/kfd";
const SECOND: &str = "sys/bus/pci/devices/0000:22:00.0";

/// Eight MI300X that KFD calls 100, 101 and so on.
fn mi300x() -> Machine {
    let machine = Machine::copy_of("amd-mi300x8");
    for gpu in 0..8 {
        machine.write(&format!("{KFD}/topology/nodes/{}/gpu_id", gpu + 2), &format!("{}", 100 + gpu));
    }
    machine
}

#[test]
fn amd_lists_who_has_memory_or_a_queue() {
    let machine = mi300x();
    assert_eq!(machine.monitor().in_slot(1), None, "an old KFD has no list of processes");
    machine.write(&format!("{KFD}/proc/71/vram_100"), "0");
    machine.write(&format!("{KFD}/proc/71/vram_101"), "4096");
    machine.write(&format!("{KFD}/proc/72/vram_101"), "0");
    machine.write(&format!("{KFD}/proc/72/queues/0/gpuid"), "101");
    let monitor = machine.monitor();
    assert_eq!(monitor.in_slot(0), Some(Holders::default()), "every GPU is named with each process");
    assert_eq!(monitor.in_slot(1), Some(Holders::together(vec![71, 72])));
    machine.remove(&format!("{KFD}/proc/71"));
    assert_eq!(monitor.in_slot(1), Some(Holders::together(vec![72])), "as things are now");
}

#[test]
fn amd_tells_how_much_a_gpu_is_used_and_what_could_not_be_corrected() {
    let machine = mi300x();
    assert_eq!(machine.usage(1), None, "nothing is told, and it is not called well");
    machine.write(&format!("{SECOND}/mem_info_vram_used"), "1024");
    machine.write(&format!("{SECOND}/mem_info_vram_total"), "4096");
    machine.write(&format!("{SECOND}/gpu_busy_percent"), "37");
    machine.write(&format!("{KFD}/proc/71/vram_101"), "512");
    let used = machine.usage(1).unwrap();
    assert_eq!((used.used_bytes, used.total_bytes, used.busy_percent), (Some(1024), Some(4096), Some(37)));
    assert_eq!(used.processes, [ProcessMemory { pid: 71, bytes: 512, ..ProcessMemory::default() }]);
    assert!(!used.health.is_told());
    machine.write(&format!("{SECOND}/ras/umc_err_count"), "ue: 2\nce: 400\n");
    machine.write(&format!("{SECOND}/ras/sdma_err_count"), "ue: 0\nce: 1\n");
    machine.write(&format!("{SECOND}/ras/features"), "feature mask: 0x3");
    let health = machine.usage(1).unwrap().health;
    assert_eq!(health.uncorrected, Some(BTreeMap::from([("sdma".to_owned(), 0), ("umc".to_owned(), 2)])));
    let monitor = machine.monitor();
    assert!(!monitor.uses()[0].usage.is_lost);
    machine.remove(SECOND);
    assert!(monitor.uses().iter().any(|used| used.slot == 1 && used.usage.is_lost), "it is not on the bus any more");
}

#[test]
fn amd_tells_what_is_in_use_by_nobody_where_everybody_can_be_looked_at() {
    let machine = mi300x();
    let unlisted = || machine.monitor().unlisted_bytes(1);
    machine.write(&format!("{SECOND}/mem_info_vram_used"), &(5_u64 << 30).to_string());
    machine.write(&format!("{KFD}/proc/71/vram_101"), &(1_u64 << 30).to_string());
    machine.write(&format!("{KFD}/proc/71/vram_100"), &(7_u64 << 30).to_string());
    machine.opens(71, "/dev/dri/renderD136");
    machine.opens(72, "/dev/dri/renderD136");
    assert_eq!(unlisted(), None, "who draws may be somebody whose files are not seen");
    machine.write("proc/1/fdinfo/0", "pos:\t0\n");
    assert_eq!(unlisted(), Some(4 << 30), "what computes on another GPU is not of this one");
    let client =
        |id: u32, size: &str| format!("drm-driver:\tamdgpu\ndrm-client-id:\t{id}\ndrm-pdev:\t0000:22:00.0\n{size}\n");
    // It draws, and is in no list of those who compute.
    machine.write("proc/72/fdinfo/7", &client(5, "drm-memory-vram:\t1024 MiB\ndrm-memory-gtt:\t9 KiB"));
    machine.write("proc/72/fdinfo/8", &client(6, "drm-memory-vram:\t9 MiB\ndrm-resident-vram:\t1024 MiB"));
    // What computes has its memory in both lists, and is counted once.
    machine.write("proc/71/fdinfo/7", &client(7, "drm-memory-vram:\t1024 MiB"));
    assert_eq!(unlisted(), Some(2 << 30));
    machine.remove(&format!("{KFD}/proc/71"));
    machine.remove("proc/71");
    machine.remove("proc/72");
    assert_eq!(unlisted(), Some(5 << 30), "a context outlives its process");
}

#[test]
fn gaudi_says_by_its_status_how_it_is_and_whether_it_is_ready() {
    let machine = Machine::copy_of("gaudi2");
    assert_eq!(machine.monitor().in_slot(0), None, "nothing is told");
    let status = "sys/class/accel/accel0/device/status";
    machine.write(status, "operational\n");
    let alone = |processes: &[u32], is_busy| Holders { processes: processes.to_vec(), is_exclusive: true, is_busy };
    assert_eq!(machine.monitor().in_slot(0), Some(alone(&[], false)));
    machine.opens(71, "/dev/accel/accel_controlD0");
    machine.opens(72, "/dev/accel/accel1");
    assert_eq!(machine.monitor().in_slot(0), Some(alone(&[], false)), "who only asks it something keeps nobody away");
    assert_eq!(machine.monitor().in_slot(1), Some(alone(&[72], false)));
    machine.write(status, "in reset after device release\n");
    assert_eq!(machine.monitor().in_slot(0), Some(alone(&[], true)));
    assert_eq!(machine.usage(0).unwrap().health.condition, Some(DriverWord::Works), "that is in the order of things");
    machine.write(status, "disabled\n");
    let Some(DriverWord::Fails(words)) = machine.usage(0).unwrap().health.condition else { panic!("it fails") };
    assert_eq!(words, "its driver calls it `disabled`");
    assert_eq!(machine.usage(1), None, "of the others nothing is told");
}

#[test]
fn a_tpu_is_held_by_whoever_has_its_node_open() {
    for (name, node) in [("tpu-v4", "/dev/accel2"), ("tpu-v5e", "/dev/vfio/2")] {
        let machine = Machine::copy_of(name);
        assert_eq!(machine.monitor().in_slot(2), None, "no process can be seen");
        machine.opens(71, node);
        machine.opens(72, "/dev/vfio/vfio");
        let monitor = machine.monitor();
        assert_eq!(monitor.in_slot(2).unwrap(), Holders { processes: vec![71], is_exclusive: true, is_busy: false });
        assert_eq!(monitor.in_slot(1).unwrap().processes, [0; 0]);
        assert_eq!(monitor.uses(), [], "whether it is well, nobody tells");
    }
}

#[test]
fn neuron_lists_processes_and_counts_errors_by_device_and_each_core_is_of_its_own() {
    let machine = Machine::copy_of("neuron-trn1");
    let list = fs::read_to_string(machine.path("neuron-ls.json")).unwrap();
    let processes = "\"neuron_processes\": []";
    let with_one = list.replacen(processes, "\"neuron_processes\": [{\"pid\": 71, \"command\": \"train\"}]", 1);
    assert_ne!(with_one, list);
    machine.write("neuron-ls.json", &with_one);
    machine.opens(72, "/dev/neuron1");
    let monitor = machine.monitor();
    let held = |slot| monitor.in_slot(slot).map(|holders| holders.processes);
    // Of two cores each.
    assert_eq!(
        [0, 1, 2, 3, 4].map(held),
        [Some(vec![71]), Some(vec![71]), Some(vec![72]), Some(vec![72]), Some(vec![])]
    );
    assert_eq!(held(31), Some(vec![]), "the last core of the sixteenth device");
    assert_eq!(monitor.uses(), [], "nothing is counted");
    let folder = "sys/devices/virtual/neuron_device/neuron1/stats/hardware";
    machine.write(&format!("{folder}/mem_ecc_uncorrected"), "3");
    machine.write(&format!("{folder}/sram_ecc_uncorrected/total"), "0");
    let counted = Some(BTreeMap::from([("SRAM".to_owned(), 0), ("memory".to_owned(), 3)]));
    let told: Vec<_> = monitor.uses().into_iter().map(|used| (used.slot, used.usage.health.uncorrected)).collect();
    assert_eq!(told, [(2, counted.clone()), (3, counted)]);
}

#[test]
fn ascend_says_by_its_command_how_it_is_and_how_much_it_is_used() {
    let machine = Machine::copy_of("ascend-910b");
    let table = fs::read_to_string(machine.path("npu-smi.txt")).unwrap();
    let alarming = table.replacen("| 2     910B4               | OK   ", "| 2     910B4               | Alarm", 1);
    assert_ne!(alarming, table);
    machine.write("npu-smi.txt", &alarming);
    machine.opens(71, "/dev/davinci2");
    let used = machine.usage(2).unwrap();
    assert_eq!((used.used_bytes, used.busy_percent), (Some(3391 << 20), Some(0)));
    assert_eq!(used.health.condition, Some(DriverWord::Fails("`npu-smi` calls its condition `Alarm`".to_owned())));
    assert_eq!(machine.usage(1).unwrap().health.condition, Some(DriverWord::Works));
    assert_eq!(machine.monitor().in_slot(2), Some(Holders::together(vec![71])), "several may use it");
}

#[test]
fn intel_tells_by_open_files_who_has_how_much() {
    let machine = Machine::copy_of("intel-max");
    let (open, client) = ("drm-driver:\txe\ndrm-client-id:\t5\ndrm-pdev:\t", "\ndrm-total-system:\t4 GiB\n");
    machine.opens(71, "/dev/dri/renderD128");
    machine.opens(72, "/dev/dri/renderD129");
    for number in [7, 8] {
        // A duplicate of a descriptor is the same client.
        let text = format!("{open}0000:29:00.0{client}drm-total-vram0:\t512 MiB\n");
        machine.write(&format!("proc/71/fdinfo/{number}"), &text);
    }
    let monitor = machine.monitor();
    let address = detect(&Host::recorded(machine.0.path()).unwrap()).families[0].devices[0].pci_address.clone();
    assert_eq!(address.as_deref(), Some("0000:29:00.0"), "the recorded card");
    let used = monitor.uses();
    assert_eq!(used.iter().map(|used| used.slot).collect::<Vec<_>>(), [0, 1], "both tiles of the card");
    assert_eq!(used[0].usage.processes, [ProcessMemory { pid: 71, bytes: 512 << 20, ..ProcessMemory::default() }]);
    assert!(!used[0].usage.health.is_told(), "whether it is well, nobody tells");
    assert_eq!([0, 2].map(|slot| monitor.in_slot(slot).unwrap().processes), [vec![71], vec![72]]);
}
