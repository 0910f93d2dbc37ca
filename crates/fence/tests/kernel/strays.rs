//! Descriptors of refused devices that are open already.

use crate::attempts::{GIVEN, give, shell};
use oxiray_fence::{DenyList, DenyRule, Node, close_strays, strays_of};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::fd::{AsFd as _, IntoRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

fn list(path: &str) -> (Node, DenyList) {
    let node = Node::at(Path::new(path)).expect("it is there").expect("a device");
    (node, DenyList::new([DenyRule::from(node)]).expect("one rule"))
}

#[test]
fn a_stray_is_found_in_another_process() {
    let (node, denied) = list("/dev/full");
    let kept = File::open("/dev/full").expect("anybody may");
    let take = move || give(&kept);
    let mut process = shell("exec cat", &[""; 0], take).stdin(Stdio::piped()).spawn().expect("cat");
    let found = strays_of(process.id(), &denied).expect("it is ours");
    assert!(found.iter().any(|stray| stray.descriptor == GIVEN && stray.node == node), "{found:?}");
    assert!(found.iter().all(|stray| stray.path == Path::new("/dev/full")), "{found:?}");
    assert_eq!(strays_of(process.id(), &DenyList::default()), Ok(Vec::new()));
    drop(process.stdin.take());
    process.wait().expect("it ends");
    strays_of(process.id(), &denied).expect_err("it is gone");
}

#[test]
fn this_process_closes_what_it_inherited() {
    const ALONE: &str = "OXIRAY_FENCE_TEST_ALONE";
    // Nobody else may open or close anything meanwhile: the other tests run in this process.
    if std::env::var_os(ALONE).is_none() {
        let name = "strays::this_process_closes_what_it_inherited";
        let mut alone = Command::new(std::env::current_exe().expect("it runs"));
        let done = alone.args(["--exact", name, "--test-threads=1"]).env(ALONE, "1").output().expect("it runs again");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        return;
    }
    let (node, denied) = list("/dev/urandom");
    let beside = File::open("/dev/zero").expect("anybody may");
    let named = || rustix::fs::open("/dev/urandom", OFlags::PATH, Mode::empty()).expect("anybody may");
    let high = || {
        let low = File::open("/dev/urandom").expect("anybody may");
        rustix::io::fcntl_dupfd_cloexec(low, 1_000).expect("there is room")
    };
    let low = || OwnedFd::from(File::open("/dev/urandom").expect("anybody may"));
    let ways: [(&str, &dyn Fn() -> OwnedFd); 3] = [("low", &low), ("only named", &named), ("high", &high)];
    for (way, open) in ways {
        // One more of them, which the quick way would find.
        let numbers = [low().into_raw_fd(), open().into_raw_fd()];
        let closed = close_strays(&denied).expect("it is ours");
        let found: Vec<(i32, Node)> = closed.iter().map(|stray| (stray.descriptor, stray.node)).collect();
        assert_eq!(found, numbers.map(|number| (number, node)), "{way}");
        assert!(closed.iter().all(|stray| stray.path == Path::new("/dev/urandom")), "{closed:?}");
        assert_eq!(close_strays(&denied), Ok(Vec::new()), "{way}");
    }
    rustix::io::fcntl_getfd(beside.as_fd()).expect("it is no stray");
}
