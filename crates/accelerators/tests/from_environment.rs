//! Which machine the environment names.

mod common;

use oxiray_accelerators::{HOST_ROOT_VARIABLE, Host, NVML_LIBRARY_VARIABLE, detect};

// One test, for threads share the environment.
#[test]
fn the_environment_names_the_machine() {
    let set = |name: &str, value: &str| {
        // SAFETY: this is the only test of its process, and no other thread reads the environment.
        unsafe { std::env::set_var(name, value) };
    };
    set("CUDA_VISIBLE_DEVICES", "1,3");
    set("TPU_NAME", "of this process");

    set(HOST_ROOT_VARIABLE, "");
    assert_eq!(Host::from_environment().unwrap().description(), "this machine");

    set(HOST_ROOT_VARIABLE, common::machine("tpu-v4").to_str().unwrap());
    let host = Host::from_environment().unwrap();
    assert_eq!(detect(&host).families[0].count, 4);
    assert_eq!(host.variable("CUDA_VISIBLE_DEVICES").as_deref(), Some("1,3"), "the process's");
    assert_eq!(host.variable("TPU_NAME").as_deref(), Some("my-slice"), "the recording's, which comes first");
    let recorded = Host::recorded(common::machine("tpu-v4")).unwrap();
    assert_eq!(recorded.variable("CUDA_VISIBLE_DEVICES"), None, "a recording alone sees only itself");

    set(HOST_ROOT_VARIABLE, "/no/such/machine");
    assert!(Host::from_environment().is_err());

    set(HOST_ROOT_VARIABLE, common::machine("nvidia-h100x8").to_str().unwrap());
    set(NVML_LIBRARY_VARIABLE, "/no/such/library.so");
    let detection = detect(&Host::from_environment().unwrap());
    assert!(detection.warnings[0].contains("/no/such/library.so"), "{:?}", detection.warnings);
}
