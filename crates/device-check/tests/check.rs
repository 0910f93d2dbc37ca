//! The check through a real library: `oxiray-nvml-fixture`, which is CUDA's driver library as well, in the machine's own
//! memory.

use oxiray_device_check::{CheckError, check};
use oxiray_nvml_fixture::FIXTURE_VARIABLE;
use std::path::Path;

// One test, for the library's file is named by a variable of the process, which threads share.
#[test]
fn a_device_that_remembers_passes_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let answers = folder.path().join("answers.txt");
    let says = |cuda: &str| std::fs::write(&answers, cuda).expect("written");
    // SAFETY: this is the only test of its process, and no other thread reads the environment yet.
    unsafe { std::env::set_var(FIXTURE_VARIABLE, &answers) };
    let executable = std::env::current_exe().expect("a path");
    let library = executable.parent().expect("its folder").join("liboxiray_nvml_fixture.so");

    says("cuda=sound");
    assert_eq!(check(&library), Ok(()));
    says("cuda=forgets");
    let Err(CheckError::Failed(how)) = check(&library) else { panic!("a word differs") };
    assert_eq!(how, "1 words of memory are not what was written to them, the first at byte 40 of 134217728");
    says("");
    let Err(CheckError::Failed(how)) = check(&library) else { panic!("there is no device") };
    assert_eq!(how, "CUDA does not find the device (cuInit)");
    let Err(CheckError::NotMade(why)) = check(Path::new("/no/such/library.so")) else { panic!("there is no library") };
    assert!(why.contains("/no/such/library.so"), "{why}");
}
