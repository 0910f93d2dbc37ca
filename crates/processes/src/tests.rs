//! A child reaper is per process, so each scenario runs in its own: the test binary starts itself again with
//! the scenario's name.

use crate::{ChildReaper, DeadMansSwitch, Departed, children_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::time::Duration;

const SCENARIO: &str = "OXIRAY_PROCESSES_SCENARIO";

fn in_own_process(name: &str, scenario: fn()) {
    if std::env::var(SCENARIO).is_ok_and(|wanted| wanted == name) {
        return scenario();
    }
    let binary = std::env::current_exe().expect("the test binary has a path");
    let mut command = Command::new(binary);
    command.args(["--exact", &format!("tests::{name}"), "--nocapture"]).env(SCENARIO, name);
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        // A child reaper's process blocks SIGCHLD before its second thread, and the test harness is that thread.
        command.pre_exec(|| {
            crate::call::signals_as_descriptor(&[libc::SIGCHLD])?;
            Ok(())
        });
    }
    let output = command.output().expect("the test binary starts again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn shell(script: &str) -> u32 {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("sh").id()
}

fn next_departed(reaper: &mut ChildReaper) -> Departed {
    loop {
        if let Some(departed) = reaper.reap().pop() {
            return departed;
        }
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready =
            poll(&mut [PollFd::from_borrowed_fd(reaper.watch_fd(), PollFlags::IN)], Some(&limit)).expect("poll");
        assert!(ready > 0, "nobody departed within 60 s");
    }
}

/// The nice value of this thread, that of a child of it, and that of the process's first thread.
fn nice_values() -> (i32, String, String) {
    let child = Command::new("nice").output().expect("coreutils");
    let stat = std::fs::read_to_string("/proc/self/stat").expect("it is there");
    let own = rustix::process::getpriority_process(None).expect("it is there");
    let first = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(16)).expect("a number");
    (own, String::from_utf8_lossy(&child.stdout).trim().to_owned(), first.to_owned())
}

#[test]
fn who_goes_first_where_processors_are_short_takes_nobody_along() {
    in_own_process("who_goes_first_where_processors_are_short_takes_nobody_along", || {
        crate::go_first_where_processors_are_short();
        // Where this may not be, all stays as it was.
        let own = if rustix::process::geteuid().is_root() { -10 } else { 0 };
        assert_eq!(nice_values(), (own, "0".to_owned(), "0".to_owned()));
    });
}

#[test]
fn who_was_given_a_nice_value_keeps_it() {
    in_own_process("who_was_given_a_nice_value_keeps_it", || {
        rustix::process::setpriority_process(None, 5).expect("everybody may go last");
        crate::go_first_where_processors_are_short();
        assert_eq!(nice_values(), (5, "5".to_owned(), "0".to_owned()));
    });
}

#[test]
fn a_child_departs_with_its_status() {
    in_own_process("a_child_departs_with_its_status", || {
        let mut reaper = ChildReaper::new().expect("a child reaper");
        let pid = shell("exit 3");
        reaper.register(pid);
        assert_eq!(next_departed(&mut reaper), Departed { pid, status: 3 << 8, stragglers: 0 });
        assert!(reaper.is_empty());
    });
}

#[test]
fn orphans_in_sessions_of_their_own_are_ended_before_the_child_departs() {
    in_own_process("orphans_in_sessions_of_their_own_are_ended_before_the_child_departs", || {
        let mut reaper = ChildReaper::new().expect("a child reaper");
        let bystander = shell("sleep 1000");
        reaper.register(bystander);
        let directory = tempfile::tempdir().expect("a directory");
        let told = directory.path().join("told").display().to_string();
        // Whoever is a sleeper waits for no child of its own: a shell might reap the other one before it is ended itself.
        let orphans = format!("setsid sh -c 'sleep 1000 & echo up > {told}; exec sleep 1000'");
        let pid = shell(&format!("mkfifo {told}; {orphans} & read up < {told}; kill -9 $$"));
        reaper.register(pid);
        let departed = next_departed(&mut reaper);
        assert_eq!((departed.pid, departed.status), (pid, 9));
        assert_eq!(departed.stragglers, 2, "the sleeper that leads the session, and its child");
        assert_eq!(children_of(std::process::id()), [bystander], "only the other child is left (CHILD_REAPER-1)");
        reaper.kill(bystander);
        assert_eq!(next_departed(&mut reaper).pid, bystander);
    });
}

#[test]
fn a_child_is_safe_until_one_dies() {
    in_own_process("a_child_is_safe_until_one_dies", || {
        let mut reaper = ChildReaper::new().expect("a child reaper");
        let pid = shell("sleep 1000");
        assert!(reaper.reap().is_empty());
        assert_eq!(children_of(std::process::id()), [pid], "not registered yet, and not killed (CHILD_REAPER-2)");
        reaper.register(pid);
        reaper.kill(pid);
        assert_eq!(next_departed(&mut reaper).pid, pid);
    });
}

#[test]
fn killing_all_leaves_nothing() {
    in_own_process("killing_all_leaves_nothing", || {
        let mut reaper = ChildReaper::new().expect("a child reaper");
        for _ in 0..3 {
            reaper.register(shell("sleep 1000 & sleep 1000"));
        }
        reaper.kill_all();
        while !reaper.is_empty() {
            next_departed(&mut reaper);
        }
        assert!(children_of(std::process::id()).is_empty());
    });
}

#[test]
fn a_companion_is_ended_by_who_started_it_alone() {
    in_own_process("a_companion_is_ended_by_who_started_it_alone", || {
        let mut reaper = ChildReaper::new().expect("a child reaper");
        let companions = reaper.companions();
        let pid = companions.start(Command::new("sleep").arg("1000")).expect("it starts");
        reaper.register(shell("exit 0"));
        next_departed(&mut reaper);
        reaper.register(shell("sleep 1000"));
        reaper.kill_all();
        next_departed(&mut reaper);
        assert_eq!(children_of(std::process::id()), [pid], "it is no orphan (CHILD_REAPER-3)");
        companions.kill(pid);
        while !children_of(std::process::id()).is_empty() {
            assert!(reaper.reap().is_empty(), "and no child");
        }
        companions.kill(pid);
    });
}

#[test]
#[expect(clippy::zombie_processes, reason = "the reaper is to wait for it, which is what this is about")]
fn a_child_that_cannot_be_killed_holds_nothing_up_and_is_reaped_when_it_ends() {
    in_own_process("a_child_that_cannot_be_killed_holds_nothing_up_and_is_reaped_when_it_ends", || {
        let mut reaper = ChildReaper::new().expect("a child reaper");
        // This one ends when its input does.
        let mut left = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
        reaper.companions().adopt(left.id());
        reaper.register(shell("exit 0"));
        next_departed(&mut reaper);
        assert_eq!(children_of(std::process::id()), [left.id()], "it lives on");
        drop(left.stdin.take());
        while !children_of(std::process::id()).is_empty() {
            assert!(reaper.reap().is_empty(), "it is nobody's");
        }
    });
}

#[test]
fn a_switch_kills_a_process_that_is_stopped() {
    const NAME: &str = "a_switch_kills_a_process_that_is_stopped";
    if std::env::var(SCENARIO).is_ok_and(|wanted| wanted == NAME) {
        let switch = DeadMansSwitch::new().expect("a timer");
        switch.set(Duration::from_secs(600)).expect("it is set");
        switch.set(Duration::from_millis(100)).expect("it is set anew");
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::STOP).expect("this process may be stopped");
        // Another thread may take the signal, and this one must not go on to drop the switch before all are stopped.
        loop {
            std::thread::park();
        }
    }
    let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
    command.args(["--exact", &format!("tests::{NAME}")]).env(SCENARIO, NAME).stdout(Stdio::null());
    assert_eq!(command.status().expect("it ends").signal(), Some(libc::SIGKILL));
}

/// What a process does that has a supervisor: the test binary, started again.
const PART: &str = "OXIRAY_PROCESSES_PART";
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);

/// Begins this test's part of that name in a process of its own, where it has a supervisor.
fn part(test: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
    command.args(["--exact", &format!("tests::{test}"), "--nocapture"]).env(PART, name).stdout(Stdio::piped());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        // As in `in_own_process`; who supervises, listens to the others as well.
        command.pre_exec(|| {
            crate::call::signals_as_descriptor(&[libc::SIGCHLD, libc::SIGTERM])?;
            Ok(())
        });
    }
    command
}

/// Acts as the part that was asked for; does nothing in the test itself.
fn act_as_part() {
    let Ok(name) = std::env::var(PART) else { return };
    let note = crate::supervise(true).expect("a supervisor");
    let stop = || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
    let switch = DeadMansSwitch::new().expect("a timer");
    let status = match (name.as_str(), note.as_deref()) {
        ("is stopped", None) => {
            crate::leave_note(b"a note").expect("it is short");
            switch.set(Duration::from_secs(2)).expect("it is set");
            stop().expect("this process may be stopped");
            97
        }
        ("is stopped", Some(note)) => i32::from(note != b"a note"),
        ("is killed", None) => {
            switch.set(LONG).expect("it is set");
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).expect("it may be");
            97
        }
        ("ends", None) => 3,
        ("serves", None) => {
            switch.set(LONG).expect("it is set");
            let asked = crate::stop_signals().expect("a descriptor");
            println!("\n{} {:?}", std::process::id(), crate::supervisor());
            poll(&mut [PollFd::new(&asked, PollFlags::IN)], None).expect("poll");
            5
        }
        (name, note) => panic!("{name} is not to be started again, with {note:?}"),
    };
    leave(status);
}

#[expect(clippy::exit, reason = "the process that acts as a part is not the harness")]
fn leave(status: i32) -> ! {
    std::process::exit(status)
}

#[test]
fn another_process_begins_where_the_switch_has_ended_one_and_has_its_note() {
    act_as_part();
    let mut command = part("another_process_begins_where_the_switch_has_ended_one_and_has_its_note", "is stopped");
    assert_eq!(command.status().expect("it ends").code(), Some(0));
}

#[test]
fn any_other_end_of_a_process_is_its_supervisors() {
    act_as_part();
    let ended = |name: &str| part("any_other_end_of_a_process_is_its_supervisors", name).status().expect("it ends");
    assert_eq!(ended("is killed").signal(), Some(libc::SIGKILL));
    assert_eq!(ended("ends").code(), Some(3));
}

#[test]
fn a_process_ends_with_its_supervisor_and_hears_what_that_is_asked() {
    use std::io::{BufRead as _, BufReader};
    act_as_part();
    let begin = || {
        let name = "a_process_ends_with_its_supervisor_and_hears_what_that_is_asked";
        let mut supervisor = part(name, "serves").spawn().expect("it starts");
        let output = BufReader::new(supervisor.stdout.take().expect("a pipe"));
        let wanted = format!(" Some({})", supervisor.id());
        let line = output.lines().map_while(Result::ok).find(|line| line.ends_with(&wanted)).expect("it serves");
        let pid: u32 = line.trim_end_matches(&wanted).parse().expect("a number");
        (supervisor, crate::pidfd_of(pid).expect("it lives"))
    };
    let gone = |process: &std::os::fd::OwnedFd| {
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)), Ok(1), "it is still there");
    };
    let (mut supervisor, process) = begin();
    supervisor.kill().expect("it may be killed");
    gone(&process);
    assert_eq!(supervisor.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    let (mut supervisor, process) = begin();
    let pid = rustix::process::Pid::from_child(&supervisor);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it may be told");
    gone(&process);
    assert_eq!(supervisor.wait().expect("it ends").code(), Some(5));
}
