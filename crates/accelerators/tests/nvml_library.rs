//! NVIDIA detection through a real library: `oxiray-nvml-fixture`, loaded as NVML is.

#![expect(clippy::unwrap_used, reason = "a test stops where its preparation fails")]

mod common;

use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use oxiray_accelerators::{Detection, Host, detect};
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

// One test, for the library's file is named by a variable of the process, which threads share.
#[test]
fn nvml_answers_through_its_library() {
    let folder = tempfile::tempdir().unwrap();
    let answers = folder.path().join("answers.txt");
    // SAFETY: this is the only test of its process, and no thread reads the environment yet.
    unsafe { std::env::set_var(FIXTURE_VARIABLE, &answers) };

    the_library_and_the_recording_agree(&answers);
    uses_of_a_device_are_seen(&answers);
    a_lost_device_is_left_out_loudly(&answers);
    a_partitioned_device_is_pointed_out(&answers);
    devices_that_say_little_still_count(&answers);
    a_library_that_refuses_falls_back_with_its_reason(&answers);
    a_missing_library_falls_back_with_its_reason();
}

fn the_library_and_the_recording_agree(answers: &Path) {
    for name in ["nvidia-h100x8", "nvidia-container", "blackwell-with-accel", "mixed"] {
        let folder = common::machine(name);
        std::fs::copy(folder.join("nvml.txt"), answers).unwrap();
        assert_eq!(machine_with_library(name), detect(&Host::recorded(folder).unwrap()), "{name}");
    }
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
    assert_eq!(detection.families[0].count, 2);
    assert!(
        detection.warnings[0].contains("GPU 1") && detection.warnings[0].contains("MIG"),
        "{:?}",
        detection.warnings
    );
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
