//! Files that processes under a ruleset are refused, without privileges as well.

use crate::attempts::{DENIED, all_ways, has, make_node, tried};
use oxiray_fence::{FenceError, Mechanism, Node, Ruleset, restrict_self};
use rustix::process::{Gid, Uid};
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use tempfile::TempDir;

const NOBODY: u32 = 65_534;

/// Runs in a thread of a user without rights: the system calls hold for the thread alone.
fn as_nobody(work: impl FnOnce() + Send + 'static) {
    let run = move || {
        let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
        if rustix::process::getuid().is_root() {
            rustix::thread::set_thread_groups(&[]).expect("root may");
            rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
            rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
        }
        work();
    };
    thread::spawn(run).join().expect("it passes");
}

/// A folder that looks like a machine, open to all.
fn machine() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for directory in ["", "dev", "dev/dri", "dev/other", "home", "home/a", "home/b", "srv"] {
        let path = folder.path().join(directory);
        fs::create_dir_all(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
    }
    for file in
        ["dev/gpu0", "dev/gpu1", "dev/gpuctl", "dev/dri/card0", "dev/dri/card1", "dev/other/node", "home/a/file"]
    {
        let path = folder.path().join(file);
        fs::write(&path, "content\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
    }
    folder
}

fn all_but(folder: &Path, names: &[&str]) -> Arc<Ruleset> {
    let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    Arc::new(Ruleset::all_but(&paths).expect("it takes no privilege"))
}

/// One that is current for a moment: other tests make and remove folders beside this test's.
fn current(make: impl Fn() -> Arc<Ruleset>) -> Arc<Ruleset> {
    (0..1000).map(|_| make()).find(|ruleset| ruleset.is_current()).expect("a moment without a change")
}

/// What a process does that takes on a ruleset: it has one thread.
fn held(ruleset: &Arc<Ruleset>) -> impl FnMut() -> io::Result<()> + Send + Sync + Clone + 'static {
    let ruleset = ruleset.clone();
    move || restrict_self(ruleset.as_fd()).map_err(io::Error::other)
}

#[test]
fn nobody_is_refused_what_he_was_not_granted_and_nothing_else() {
    if !has(Mechanism::Landlock) {
        return;
    }
    let folder = machine();
    let root = folder.path().to_owned();
    as_nobody(move || {
        let ruleset = all_but(&root, &["dev/gpu1", "dev/dri/card1"]);
        for (way, said) in all_ways(&root.join("dev/gpu1"), held(&ruleset)) {
            assert!(said.contains(DENIED), "{way}: {said}");
        }
        for (way, said) in all_ways(&root.join("dev/gpu0"), held(&ruleset)) {
            assert!(!said.contains(DENIED), "own node, {way}: {said}");
        }
        let run = |script: &str| tried(&format!("cd \"$1\" && {{ {script}; }}"), &[&root], held(&ruleset));
        assert_eq!(run("id -u"), NOBODY.to_string());
        for refused in ["dev/dri/card1", "home/../dev/gpu1", "/proc/self/cwd/dev/gpu1", "/proc/self/root$1/dev/gpu1"] {
            assert!(run(&format!("cat {refused}")).contains(DENIED), "{refused}");
        }
        for allowed in ["dev/gpuctl", "dev/dri/card0", "dev/other/node", "home/a/file"] {
            assert_eq!(run(&format!("cat {allowed}")), "content", "{allowed}");
        }
        // Ordinary work goes on as before.
        assert_eq!(run("mv home/a/file home/b/ && mv home/b/file srv/ && mv srv home/c && cat home/c/file"), "content");
        let shared = "name=/dev/shm/oxiray-fence-$$ && echo shared > $name && cat $name && rm $name";
        assert_eq!(run(shared), "shared");
        assert_eq!(
            run("mkdir home/new && echo new > home/new/file && ln home/new/file home/a/ && cat home/a/file"),
            "new"
        );
        assert_eq!(run("stat -c %F dev/gpu1 && test -r dev/gpu1 && ls dev | wc -l"), "regular file\n5");
        // A refused file keeps its fence under the names that can be made.
        assert!(!run("ln dev/gpu1 home/a/second && cat home/a/second").contains("content"));
        assert!(!run("mv dev/gpu1 home/a/third && cat home/a/third").contains("content"));
        assert!(run("mv dev/gpu1 dev/gpu0 && cat dev/gpu0").contains(DENIED));
    });
}

#[test]
fn what_comes_later_under_a_refused_name_is_refused() {
    if !has(Mechanism::Landlock) {
        return;
    }
    let folder = machine();
    let ruleset = current(|| all_but(folder.path(), &["dev/gpu7", "dev/accel/accel0"]));
    fs::create_dir(folder.path().join("dev/accel")).expect("made");
    for name in ["dev/gpu7", "dev/accel/accel0"] {
        fs::write(folder.path().join(name), "content").expect("written");
        let said = tried("cat \"$1\"", &[folder.path().join(name)], held(&ruleset));
        assert!(said.contains(DENIED), "{name}: {said}");
    }
    assert!(!ruleset.is_current(), "the directory has changed");
    let anew = all_but(folder.path(), &["dev/gpu7"]);
    assert_eq!(tried("cat \"$1\"", &[folder.path().join("dev/accel/accel0")], held(&anew)), "content");
}

#[test]
fn no_thread_is_left_out() {
    if !has(Mechanism::Landlock) {
        return;
    }
    let folder = machine();
    let path = folder.path().to_owned();
    thread::spawn(move || {
        let ruleset = all_but(&path, &["dev/gpu1"]);
        let error = restrict_self(ruleset.as_fd()).expect_err("tests run in threads");
        assert!(matches!(error, FenceError::SeveralThreads(2..)), "{error}");
        assert_eq!(fs::read_to_string(path.join("dev/gpu1")).expect("nothing was taken on"), "content\n");
    })
    .join()
    .expect("it passes");
}

#[test]
fn root_makes_no_second_name() {
    if !has(Mechanism::Landlock) || !rustix::process::getuid().is_root() {
        return println!("skipped: this is about root");
    }
    let folder = machine();
    let ruleset = Arc::new(Ruleset::all_but(&[PathBuf::from("/dev/full")]).expect("made"));
    let run = |script: &str| tried(&format!("cd \"$1\" && {script}"), &[folder.path()], held(&ruleset));
    for refused in ["mknod second c 1 7", "mknod third b 7 0", "head -c 1 /dev/full", "head -c 1 /proc/1/root/dev/full"]
    {
        assert!(run(refused).contains(DENIED), "{refused}: {}", run(refused));
    }
    assert_eq!(run("mkfifo pipe && head -c 1 /dev/zero | wc -c"), "1");
}

#[test]
fn nodes_of_a_refused_number_are_refused_beside_it_and_in_dev() {
    if !has(Mechanism::Landlock) {
        return;
    }
    let folder = machine();
    let full = Node::at(Path::new("/dev/full")).expect("it is there").expect("a device");
    // As in a container: the node that is refused is on another file system than /dev.
    for name in ["dev/full", "dev/beside"] {
        if let Err(error) = make_node(&folder.path().join(name), full) {
            return println!("skipped: device nodes cannot be made here: {error}");
        }
    }
    let ruleset = all_but(folder.path(), &["dev/full"]);
    for name in ["dev/full", "dev/beside", "/dev/full"] {
        let (script, path) = ("head -c 1 \"$1\" | wc -c", [folder.path().join(name)]);
        assert_eq!(tried(script, &path, || Ok(())), "1", "{name}");
        assert!(tried(script, &path, held(&ruleset)).contains(DENIED), "{name}");
    }
}

#[test]
fn a_name_that_a_mount_gives_is_refused_too() {
    if !has(Mechanism::Landlock) {
        return;
    }
    let folder = machine();
    let root = folder.path().to_owned();
    // The mounts are this thread's alone.
    let work = move || {
        if let Err(error) = mount_elsewhere(&root) {
            return println!("skipped: nothing can be mounted here: {error}");
        }
        let paths = [root.join("dev/gpu1"), PathBuf::from("/dev/full")];
        let ruleset = current(|| Arc::new(Ruleset::all_but(&paths).expect("made")));
        let run = |path: &str| tried("head -c 1 \"$1\"", &[root.join(path)], held(&ruleset));
        for refused in ["dev/gpu1", "srv/gpu1", "home/b/full", "/dev/full"] {
            assert!(run(refused).contains(DENIED), "{refused}: {}", run(refused));
        }
        for allowed in ["dev/gpu0", "srv/gpu0", "srv/dri/card1", "home/b/zero", "home/a/file"] {
            assert!(!run(allowed).contains(DENIED), "{allowed}: {}", run(allowed));
        }
        // Whoever cannot enter a directory on the way to a name needs nothing in it.
        let closed = root.join("home");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("ours");
        as_nobody(move || drop(Ruleset::all_but(&paths).expect("made")));
        mount(Some(&root.join("srv")), &root.join("dev/other"), None, libc::MS_BIND).expect("as before");
        assert!(!ruleset.is_current(), "something was mounted");
    };
    thread::spawn(work).join().expect("it passes");
}

/// In a namespace of its own, has `srv` show `dev`, and `home/b` a devtmpfs.
fn mount_elsewhere(root: &Path) -> io::Result<()> {
    // SAFETY: the thread shares its directories with nobody from here on, which nothing in this test minds.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    mount(None, Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)?;
    mount(Some(&root.join("dev")), &root.join("srv"), None, libc::MS_BIND)?;
    mount(Some(Path::new("devtmpfs")), &root.join("home/b"), Some(c"devtmpfs"), 0)
}

fn mount(what: Option<&Path>, place: &Path, kind: Option<&std::ffi::CStr>, flags: libc::c_ulong) -> io::Result<()> {
    let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    let (what, place) = (what.map(text), text(place));
    let pointer = |text: Option<&std::ffi::CStr>| text.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    // SAFETY: all texts live until the call returns.
    let result =
        unsafe { libc::mount(pointer(what.as_deref()), place.as_ptr(), pointer(kind), flags, std::ptr::null()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn without_a_ruleset_all_of_it_can_be_opened() {
    // The refusals above are the rulesets'.
    let folder = machine();
    for (way, said) in all_ways(&folder.path().join("dev/gpu1"), || Ok(())) {
        assert!(!said.contains(DENIED), "{way}: {said}");
    }
}
