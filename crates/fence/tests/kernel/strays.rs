//! Descriptors of refused devices that are open already.

use crate::attempts::{GIVEN, give, shell};
use oxiray_fence::{DenyList, DenyRule, Node, close_strays, strays_of};
use std::fs::File;
use std::os::fd::{AsFd as _, IntoRawFd as _};
use std::path::Path;
use std::process::Stdio;

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
    // No other test opens this node.
    let (node, denied) = list("/dev/urandom");
    let [read, named] = [File::open("/dev/urandom"), {
        let flags = rustix::fs::OFlags::PATH;
        rustix::fs::open("/dev/urandom", flags, rustix::fs::Mode::empty()).map(File::from).map_err(Into::into)
    }];
    let numbers = [read, named].map(|file| file.expect("anybody may").into_raw_fd());
    let beside = File::open("/dev/zero").expect("anybody may");
    let mut closed = close_strays(&denied).expect("it is ours");
    closed.retain(|stray| numbers.contains(&stray.descriptor));
    assert_eq!(closed.iter().map(|stray| stray.node).collect::<Vec<_>>(), [node, node]);
    assert_eq!(close_strays(&denied), Ok(Vec::new()));
    rustix::io::fcntl_getfd(beside.as_fd()).expect("it is no stray");
}
