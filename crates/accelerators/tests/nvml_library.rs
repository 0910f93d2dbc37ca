//! NVIDIA detection through a real library: `oxiray-nvml-fixture`, loaded as NVML is.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use oxiray_accelerators::{Detection, DeviceProcesses, DeviceUse, Host, Usage, detect, offer, report, to_json};
use oxiray_families::{DeviceError, DeviceFault, Health, PeerFault, Recovery, Slowdown};
use oxiray_nvml_fixture::FIXTURE_VARIABLE;

/// Cargo puts the libraries of dependencies beside the test's own executable.
fn library() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let path = executable.parent().unwrap().join("liboxiray_nvml_fixture.so");
    assert!(path.exists(), "{} is built as a dependency of this test", path.display());
    path
}

fn machine_with_library(name: &str) -> Detection {
    detect(&Host::recorded(common::machine(name)).unwrap().with_nvml_library(library()))
}

fn pids(of: &DeviceProcesses, slot: u32) -> Option<Vec<u32>> {
    of.in_slot(slot).map(|holders| holders.processes)
}

// One test, for the library's file is named by a variable of the process, which threads share.
#[test]
fn nvml_answers_through_its_library() {
    let folder = tempfile::tempdir().unwrap();
    let answers = folder.path().join("answers.txt");
    // SAFETY: this is the only test of its process, and no thread reads the environment yet.
    unsafe { std::env::set_var(FIXTURE_VARIABLE, &answers) };

    the_library_and_the_recording_agree(&answers);
    what_a_driver_needs_is_told_with_its_device(&answers);
    uses_of_a_device_are_seen(&answers);
    a_lost_device_is_left_out_loudly(&answers);
    a_partitioned_device_is_pointed_out(&answers);
    instances_are_asked_about_by_themselves(&answers);
    an_error_of_a_gpu_is_one_of_its_instances(&answers);
    an_error_of_an_instance_is_elsewhere_for_the_others(&answers);
    devices_that_say_little_still_count(&answers);
    a_library_that_refuses_falls_back_with_its_reason(&answers);
    a_missing_library_falls_back_with_its_reason();
    who_holds_memory_is_told_by_slot(&answers);
    what_the_library_does_not_tell_is_not_guessed(&answers);
    how_much_devices_are_used_is_told(&answers);
    what_a_driver_says_of_a_devices_health_is_told(&answers);
    errors_of_devices_are_heard(&answers);
    how_devices_are_connected_is_told(&answers);
}

fn the_library_and_the_recording_agree(answers: &Path) {
    for name in [
        "nvidia-h100x8",
        "nvidia-container",
        "blackwell-with-accel",
        "mixed",
        "nvidia-a100-mig",
        "nvidia-h100-mig",
        "nvidia-gb200",
    ] {
        let folder = common::machine(name);
        std::fs::copy(folder.join("nvml.txt"), answers).unwrap();
        assert_eq!(machine_with_library(name), detect(&Host::recorded(folder).unwrap()), "{name}");
    }
}

fn what_a_driver_needs_is_told_with_its_device(answers: &Path) {
    let folder = common::machine("nvidia-h100x8");
    let text = std::fs::read_to_string(folder.join("nvml.txt")).unwrap();
    std::fs::write(answers, format!("{text}\nrecovery=0:0\nrecovery=2:3\nrecovery=3:5\n")).unwrap();
    let detection = machine_with_library("nvidia-h100x8");
    let host = Host::recorded(folder).unwrap();
    let lines = report(&detection, &host);
    let line = |of: &str| lines.lines().find(|line| line.trim_start().starts_with(of)).unwrap().to_owned();
    assert!(!line("[0]").contains("needs"), "{lines}");
    assert!(line("[2]").ends_with(", its driver needs its links to other devices drained"), "{lines}");
    assert!(line("[3]").ends_with(", its driver needs its domain of shared memory (IMEX) recovered"), "{lines}");
    let kept = format!("{text}\npersistence=0:1\npersistence=1:0\nfield=1:29:1\nfield=1:30:2\n");
    std::fs::write(answers, &kept).unwrap();
    let kept = machine_with_library("nvidia-h100x8");
    let facts: Vec<_> =
        kept.families[0].devices.iter().map(|device| (device.is_persistent, device.retired_pages)).collect();
    assert_eq!(facts[..3], [(Some(true), None), (Some(false), Some(3)), (None, None)]);
    let lines = report(&kept, &host);
    let retired = ", persistence mode off, 3 pages of its memory are out of use for their errors";
    assert!(lines.contains(retired) && lines.contains(", persistence mode on\n"), "{lines}");
    let told = &to_json(&detection, &host)["accelerators"][0]["devices"];
    assert_eq!(told[2]["needs"], "its links to other devices drained");
    assert!(told[0].get("needs").is_none(), "{told}");
}

fn uses_of_a_device_are_seen(answers: &Path) {
    std::fs::copy(common::machine("nvidia-h100x8").join("nvml.txt"), answers).unwrap();
    let nvml = Nvml::builder().lib_path(library().as_os_str()).init().unwrap();
    let device = nvml.device_by_index(0).unwrap();
    assert_eq!(device.memory_info().unwrap().used, 524_288_000);
    let processes = device.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].pid, 4242);
    assert!(matches!(processes[0].used_gpu_memory, UsedGpuMemory::Used(524_288_000)));
    assert!(nvml.device_by_index(1).unwrap().running_compute_processes().unwrap().is_empty());
    assert_eq!(nvml.device_by_uuid(device.uuid().unwrap()).unwrap().minor_number().unwrap(), 0);
    assert!(nvml.device_by_index(8).is_err());
    assert!(nvml.device_by_uuid("GPU-unknown").is_err());
}

fn a_lost_device_is_left_out_loudly(answers: &Path) {
    let text = std::fs::read_to_string(common::machine("nvidia-h100x8").join("nvml.txt")).unwrap();
    std::fs::write(answers, format!("{text}\nlost=3\n")).unwrap();
    let detection = machine_with_library("nvidia-h100x8");
    assert_eq!(detection.families[0].count, 7);
    assert!(detection.warnings[0].contains("GPU 3"), "{:?}", detection.warnings);
    assert_eq!(detection.ruled_out[0].what, "NVIDIA device 0000:5d:00.0");
}

fn a_partitioned_device_is_pointed_out(answers: &Path) {
    let text = std::fs::read_to_string(common::machine("mixed").join("nvml.txt")).unwrap();
    std::fs::write(answers, format!("{text}\nmig=1\n")).unwrap();
    let detection = machine_with_library("mixed");
    let cut: Vec<bool> = detection.families[0].devices.iter().map(|device| device.instances.is_some()).collect();
    assert_eq!(cut, [false, true]);
    let offered = offer(&detection, &|_| None, &std::collections::BTreeMap::new()).unwrap();
    assert_eq!(offered.of("GPU").unwrap().count, 1);
    assert!(offered.warnings[0].contains("GPU 1") && offered.warnings[0].contains("MIG"), "{:?}", offered.warnings);
}

/// The instances of the profile `1g.5gb` of a machine, and what is said of them.
fn instances(answers: &Path, more: &str) -> DeviceProcesses {
    let text = std::fs::read_to_string(common::machine("nvidia-a100-mig").join("nvml.txt")).unwrap();
    std::fs::write(answers, text + more).unwrap();
    let host = Host::recorded(common::machine("nvidia-a100-mig")).unwrap().with_nvml_library(library());
    let offered = offer(&detect(&host), &|_| None, &std::collections::BTreeMap::new()).unwrap();
    let mut all = DeviceProcesses::of(&host, &offered);
    all.swap_remove(all.iter().position(|processes| processes.resource() == "mig-1g.5gb").unwrap())
}

fn instances_are_asked_about_by_themselves(answers: &Path) {
    let processes = instances(answers, "uses=MIG-a0e:31:70,32:5\nrecovery=0:1\n");
    assert_eq!([pids(&processes, 0), pids(&processes, 1)], [Some(vec![]), Some(vec![31, 32])]);
    let told: Vec<_> = processes.uses().into_iter().map(|told| (told.id, told.usage)).collect();
    let [(first, of_first), (second, of_second)] = &told[..] else { panic!("both are told of: {told:?}") };
    assert_eq!((first.as_str(), of_first.used_bytes), ("MIG-a0d", Some(0)));
    assert_eq!((second.as_str(), of_second.used_bytes, of_second.total_bytes), ("MIG-a0e", Some(75), Some(5 << 30)));
    assert_eq!(of_second.health.recovery, Some(Recovery::of(1)), "the GPU is ill, and so are its parts");
    let text = std::fs::read_to_string(answers).unwrap().replace("MIG-a0d", "MIG-new");
    std::fs::write(answers, text).unwrap();
    let lost: Vec<bool> = processes.uses().iter().map(|told| told.usage.is_lost).collect();
    assert_eq!(lost, [true, false], "the instance was made anew, under another id");
}

fn an_error_of_a_gpu_is_one_of_its_instances(answers: &Path) {
    let processes = instances(answers, "");
    let mut heard = Vec::new();
    let text = std::fs::read_to_string(answers).unwrap() + "xid=2:31\nxid=0:95\n";
    let draft = answers.with_extension("draft");
    processes.hear_errors(&mut |error| {
        match error {
            Some(error) => heard.push((error.place, error.fault)),
            None => std::fs::write(&draft, &text).and_then(|()| std::fs::rename(&draft, answers)).unwrap(),
        }
        heard.len() < 2
    });
    assert_eq!(heard, [(0, DeviceFault::Xid(95)), (1, DeviceFault::Xid(95))], "and one of another GPU is none");
}

/// The errors of the instances of profile `1g.5gb`, which have the numbers 9:0 and 10:0, and whether each was elsewhere.
fn an_error_of_an_instance_is_elsewhere_for_the_others(answers: &Path) {
    let processes = instances(answers, "");
    let numbers: Vec<[u32; 2]> = std::fs::read_to_string(answers)
        .unwrap()
        .lines()
        .filter(|line| line.starts_with("mig=0:") && line.contains(":1g.5gb:"))
        .map(|line| {
            let parts: Vec<&str> = line.split(':').collect();
            [parts[1].parse().unwrap(), parts[2].parse().unwrap()]
        })
        .collect();
    let [[first, first_compute], [second, _]] = numbers[..] else { panic!("{numbers:?}") };
    let nobody = 77;
    let text = std::fs::read_to_string(answers).unwrap()
        + &format!("xid=0:31:{first}:{first_compute}\nxid=0:94:{second}\nxid=0:13:{nobody}\nxid=0:95\n");
    let (draft, mut heard) = (answers.with_extension("draft"), Vec::new());
    processes.hear_errors(&mut |error| {
        match error {
            Some(DeviceError { place, fault: DeviceFault::Xid(xid), is_elsewhere }) => {
                heard.push((xid, place, is_elsewhere));
            }
            Some(other) => panic!("{other:?}"),
            None => std::fs::write(&draft, &text).and_then(|()| std::fs::rename(&draft, answers)).unwrap(),
        }
        heard.len() < 8
    });
    let of_first = [(31, 0, false), (31, 1, true)];
    let of_second = [(94, 0, true), (94, 1, false)];
    let of_nobody = [(13, 0, true), (13, 1, true)];
    assert_eq!(heard, [of_first, of_second, of_nobody, [(95, 0, false), (95, 1, false)]].concat());
}

fn devices_that_say_little_still_count(answers: &Path) {
    std::fs::write(answers, "|||||\nNVIDIA L4|||||\n").unwrap();
    let detection = machine_with_library("plain");
    assert_eq!((detection.families[0].count, detection.families[0].type_name.as_deref()), (2, None));
    assert_eq!(detection.families[0].devices[0].name, None);
}

fn a_library_that_refuses_falls_back_with_its_reason(answers: &Path) {
    std::fs::write(answers, "init=18\n").unwrap();
    let detection = machine_with_library("nvidia-no-nvml");
    assert_eq!(detection.families[0].count, 2);
    assert!(detection.warnings[0].contains("driver/library version mismatch"), "{:?}", detection.warnings);
    assert_eq!(machine_with_library("plain").warnings, Vec::<String>::new(), "no device is there to miss");
}

fn a_missing_library_falls_back_with_its_reason() {
    let host = Host::recorded(common::machine("nvidia-no-nvml")).unwrap().with_nvml_library("/no/such/library.so");
    let detection = detect(&host);
    assert_eq!(detection.families[0].type_name.as_deref(), Some("H100"));
    assert!(detection.warnings[0].contains("/no/such/library.so"), "{:?}", detection.warnings);
}

/// What a machine of three GPUs that is started with these settings is asked.
fn processes(visible: Option<&str>, gpus: Option<f64>) -> Option<DeviceProcesses> {
    let host = Host::recorded(common::machine("plain")).unwrap().with_nvml_library(library());
    let requested = gpus.map(|gpus| ("GPU".to_owned(), gpus)).into_iter().collect();
    let environment = |name: &str| visible.filter(|_| name == "CUDA_VISIBLE_DEVICES").map(str::to_owned);
    DeviceProcesses::of(&host, &offer(&detect(&host), &environment, &requested).unwrap()).pop()
}

fn who_holds_memory_is_told_by_slot(answers: &Path) {
    let gpu = |uuid: &str, computing: &str, drawing: &str| format!("NVIDIA L4|{uuid}||24000|0|{computing}|{drawing}\n");
    let third = gpu("MIG-77", "31:1", "");
    std::fs::write(answers, gpu("GPU-aa1", "11:1,12:1", "13:1") + &gpu("GPU-ab2", "", "21:1") + &third).unwrap();
    let all = processes(None, None).unwrap();
    assert_eq!([pids(&all, 0), pids(&all, 1)], [Some(vec![11, 12, 13]), Some(vec![21])]);
    let with_client = gpu("GPU-aa1", "14:1", "") + &gpu("GPU-ab2", "", "") + &third + "mps=0:15:1,16:1\n";
    std::fs::write(answers, with_client).unwrap();
    assert_eq!([pids(&all, 0), pids(&all, 1)], [Some(vec![14, 15, 16]), Some(vec![])], "clients of an MPS server too");
    std::fs::write(answers, gpu("GPU-aa1", "", "") + &gpu("GPU-ab2", "22:1", "") + &third).unwrap();
    assert_eq!([pids(&all, 0), pids(&all, 1)], [Some(vec![]), Some(vec![22])], "as things are now");
    let restricted = processes(Some(" 1,MIG-77,GPU-aa"), None).unwrap();
    assert_eq!(
        (0..3).map(|slot| pids(&restricted, slot)).collect::<Vec<_>>(),
        [Some(vec![22]), Some(vec![31]), Some(vec![])]
    );
}

fn what_the_library_does_not_tell_is_not_guessed(answers: &Path) {
    std::fs::write(answers, "NVIDIA L4|GPU-aa1||24000|0|11:1\nNVIDIA L4|GPU-ab2||24000|0|\n").unwrap();
    let named = processes(Some("GPU-a,GPU-c,7,GPU-ab2"), Some(4.0)).unwrap();
    assert_eq!([pids(&named, 0), pids(&named, 1), pids(&named, 2)], [None, None, None], "two, none, none");
    assert_eq!(pids(&named, 3), Some(vec![]));
    let logical = processes(None, Some(8.0)).unwrap();
    assert_eq!([pids(&logical, 0), pids(&logical, 2), pids(&logical, 8)], [Some(vec![11]), None, None]);
    std::fs::write(answers, "driver=1\n").unwrap();
    assert_eq!(pids(&logical, 0), None, "the device is gone");
    assert!(processes(None, Some(8.0)).is_none(), "a machine without devices");
    let recorded = Host::recorded(common::machine("nvidia-h100x8")).unwrap();
    let offered = offer(&detect(&recorded), &|_| None, &std::collections::BTreeMap::new()).unwrap();
    assert!(DeviceProcesses::of(&recorded, &offered).is_empty(), "a recording tells of the past");
    let broken = DeviceProcesses::of(&recorded.with_nvml_library("/no/such/library.so"), &offered).pop().unwrap();
    assert_eq!(pids(&broken, 0), None);
}

fn how_much_devices_are_used_is_told(answers: &Path) {
    let two = |busy: &str| format!("NVIDIA L4|GPU-a||24000|6000|||{busy}\nNVIDIA L4|GPU-b|||||||\n");
    std::fs::write(answers, two("87")).unwrap();
    let used = |slot, id: &str, busy_percent, (used, total)| {
        // Nobody is listed who has it.
        let unlisted_bytes = Some(used);
        let usage = Usage {
            busy_percent,
            used_bytes: Some(used),
            total_bytes: Some(total),
            unlisted_bytes,
            ..Usage::default()
        };
        DeviceUse { resource: "GPU", slot, id: id.to_owned(), usage }
    };
    let numbered = processes(None, None).unwrap();
    assert_eq!(numbered.uses(), [used(0, "0", Some(87), (6000, 24000))], "nothing is known of the other");
    std::fs::write(answers, format!("{}warm=0:61500:47\n", two("87"))).unwrap();
    let warm = &numbered.uses()[0].usage;
    assert_eq!((warm.power_mw, warm.temperature_c), (Some(61_500), Some(47)));
    std::fs::write(answers, two("")).unwrap();
    assert_eq!(numbered.uses(), [used(0, "0", None, (6000, 24000))], "as things are now");
    std::fs::write(answers, two("3")).unwrap();
    assert_eq!(processes(Some("GPU-b,GPU-a"), None).unwrap().uses(), [used(1, "GPU-a", Some(3), (6000, 24000))]);
    std::fs::write(answers, "NVIDIA L4|GPU-a||24000|6000|11:70,12:5|11:80|3\n").unwrap();
    let processes: Vec<(u32, u64)> =
        numbered.uses()[0].usage.processes.iter().map(|process| (process.pid, process.bytes)).collect();
    assert_eq!(processes, [(11, 80), (12, 5)], "one that computes and draws is counted once");
    assert!(numbered.uses()[0].usage.processes.iter().all(|process| process.busy_percent.is_none()), "not told");
    std::fs::write(answers, "NVIDIA L4|GPU-a||24000|6000|11:70,12:5||3\nsm=0:11:35\nsm=0:77:60\n").unwrap();
    let busy: Vec<(u32, Option<u32>)> =
        numbered.uses()[0].usage.processes.iter().map(|process| (process.pid, process.busy_percent)).collect();
    assert_eq!(busy, [(11, Some(35)), (12, Some(0))], "who has memory and computes nothing is told of");
    std::fs::write(answers, format!("lost=1\n{}", two("3"))).unwrap();
    let usage = Usage { is_lost: true, ..Usage::default() };
    let lost = DeviceUse { resource: "GPU", slot: 1, id: "1".to_owned(), usage };
    assert_eq!(numbered.uses(), [used(0, "0", Some(3), (6000, 24000)), lost], "the driver has lost the other");
}

fn what_a_driver_says_of_a_devices_health_is_told(answers: &Path) {
    let gpus = "NVIDIA L4|GPU-a||24000|6000|||\nNVIDIA L4|GPU-b||24000|6000|||\n";
    std::fs::write(answers, format!("{gpus}recovery=0:2\nremap=1:pending\n")).unwrap();
    let healths: Vec<Health> =
        processes(None, None).unwrap().uses().into_iter().map(|used| used.usage.health).collect();
    let rebooted = Health { recovery: Some(Recovery::Reboot), ..Health::default() };
    assert_eq!(healths, [rebooted, Health { is_remap_pending: true, ..Health::default() }]);
    std::fs::write(answers, format!("{gpus}recovery=0:0\nremap=1:failed\n")).unwrap();
    let healths: Vec<Health> =
        processes(None, None).unwrap().uses().into_iter().map(|used| used.usage.health).collect();
    let healthy = Health { recovery: Some(Recovery::Nothing), ..Health::default() };
    assert_eq!(healths, [healthy, Health { has_remap_failed: true, ..Health::default() }]);
    what_older_drivers_say_of_a_devices_health_is_told(answers, gpus);
}

/// Those that know pages in place of rows, and no recovery actions.
fn what_older_drivers_say_of_a_devices_health_is_told(answers: &Path, gpus: &str) {
    let told = |lines: &str| -> [Health; 2] {
        std::fs::write(answers, format!("{gpus}{lines}")).unwrap();
        let healths: Vec<Health> =
            processes(None, None).unwrap().uses().into_iter().map(|used| used.usage.health).collect();
        healths.try_into().unwrap()
    };
    let [first, second] = told("field=0:31:1\nfield=0:3:25\nfield=0:4:3\nslowed=0:72\nfield=1:226:1\nslowed=1:4\n");
    let old = Health {
        is_retirement_pending: true,
        double_bit_errors: Some(3),
        single_bit_errors: Some(25),
        slowed: Some(Slowdown::Heat),
        ..Health::default()
    };
    assert_eq!(first, old);
    assert_eq!(second, Health { recovery: Some(Recovery::Reset), ..Health::default() }, "a limit of power is none");
    let [first, second] = told("field=0:226:1\nfield=0:227:1\nslowed=0:136\nfield=1:226:0\nslowed=1:8\n");
    let reset =
        Health { recovery: Some(Recovery::DrainAndReset), slowed: Some(Slowdown::PowerBrake), ..Health::default() };
    assert_eq!(first, reset);
    let slow = Health { slowed: Some(Slowdown::Hardware), ..Health::default() };
    assert_eq!(second, slow, "that no reset is needed does not say that nothing is");
    let [first, _] = told("recovery=0:0\nfield=0:226:1\n");
    assert_eq!(first.recovery, Some(Recovery::Nothing), "who knows recovery actions has told");
}

fn errors_of_devices_are_heard(answers: &Path) {
    let gpus = "NVIDIA L4|GPU-a||24000|6000|||\nNVIDIA L4|GPU-b||24000|6000|||\n";
    std::fs::write(answers, format!("{gpus}xid=0:13\n")).unwrap();
    let draft = answers.with_extension("draft");
    let report = |text: &str| std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, answers)).unwrap();
    let mut heard = Vec::new();
    processes(Some("GPU-b,GPU-a"), None).unwrap().hear_errors(&mut |error| {
        match error {
            Some(error) => heard.push((error.place, error.fault)),
            // It listens: what was there before is none of its.
            None => report(&format!("{gpus}xid=0:13\nxid=1:31\nxid=0:95\n")),
        }
        heard.len() < 2
    });
    assert_eq!(heard, [(0, DeviceFault::Xid(31)), (1, DeviceFault::Xid(95))], "by their places in the list");
    let mut heard = Vec::new();
    std::fs::write(answers, gpus).unwrap();
    processes(Some("GPU-b,GPU-a"), None).unwrap().hear_errors(&mut |error| {
        match error {
            Some(error) => heard.push((error.place, error.fault)),
            None => report(&format!(
                "{gpus}event=0:1\nevent=1:2\nevent=0:4\nevent=1:8192\nevent=1:16384\nevent=0:32768\nxid=0:79\n"
            )),
        }
        heard.len() < 5
    });
    let others = [(0, DeviceFault::DoubleBit), (0, DeviceFault::Poison), (0, DeviceFault::Unavailable)];
    let all = [&others[..], &[(1, DeviceFault::OtherRecovery), (1, DeviceFault::Xid(79))]].concat();
    assert_eq!(heard, all, "and no other events, such as another state of power");
    let deaf = Host::recorded(common::machine("nvidia-h100x8")).unwrap().with_nvml_library("/no/such/library.so");
    let offered = offer(&detect(&deaf), &|_| None, &std::collections::BTreeMap::new()).unwrap();
    for processes in DeviceProcesses::of(&deaf, &offered) {
        processes.hear_errors(&mut |error| panic!("{error:?} is heard of a library that is not there"));
    }
}

fn how_devices_are_connected_is_told(answers: &Path) {
    let gpu = |bus: u32| format!("NVIDIA A100|GPU-{bus}|00000000:{bus:02X}:00.0|40000|0|||\n");
    let gpus: String = (1..=3).map(gpu).collect();
    std::fs::write(answers, format!("{gpus}pair=0:1:NODE,NV4\npair=0:2:SYS\npair=1:2:SYS,NV1\n")).unwrap();
    let detection = machine_with_library("nvidia-h100x8");
    let shown: Vec<String> = detection.families[0].pairs.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["NV4", "SYS", "NV1"]);
    let offered =
        offer(&detection, &|name| (name == "CUDA_VISIBLE_DEVICES").then(|| "2,0".to_owned()), &no_request()).unwrap();
    assert_eq!(offered.of("GPU").unwrap().nearness(), [((1, 0), 10)], "by the slots that are offered");
    links_that_are_of_no_use_are_told(answers, &gpus);
    std::fs::write(answers, gpus).unwrap();
    assert!(machine_with_library("nvidia-h100x8").families[0].pairs.is_empty(), "NVML does not tell");
}

fn links_that_are_of_no_use_are_told(answers: &Path, gpus: &str) {
    let text = format!("{gpus}pair=0:1:NODE,NV4\npair=0:2:SYS\npair=1:2:SYS,NV1\np2p=0:1:1\np2p=0:2:5\n");
    std::fs::write(answers, &text).unwrap();
    let pairs = machine_with_library("nvidia-h100x8").families[0].pairs.clone();
    let told: Vec<_> = pairs.iter().map(|pair| (pair.to_string(), pair.nearness(), pair.fault)).collect();
    let known = [("NV4", 10, Some(PeerFault::Chipset)), ("SYS", 10, None), ("NV1", 110, None)];
    assert_eq!(
        told,
        known.map(|(word, near, fault)| (word.to_owned(), near, fault)),
        "where there are none, none is missing"
    );
    assert_eq!(oxiray_families::NvmlAnswers::parse(&text).pairs, pairs, "a recording tells the same");
}

fn no_request() -> std::collections::BTreeMap<String, f64> {
    std::collections::BTreeMap::new()
}
