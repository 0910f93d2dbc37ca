//! The private daemon of a driver: the program `oxiray`, started as this process's child, which ends with its connection.

use oxiray_processes::Start;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable that names the program.
const VARIABLE: &str = "OXIRAY_BINARY";
/// The program's name.
const NAME: &str = "oxiray";
/// Where the daemon has the stream to its driver.
const STREAM: i32 = 3;
/// How long a daemon may take to end its workers.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Why there is no program that a private cluster could be started with.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDaemonProgram {
    /// What was named is none.
    #[error(
        "no private cluster can be started: {named_by} names {}, which is no program. Name an `oxiray` that is installed \
         (`cargo install oxiray-cli`, or `pip install oxiray`), or join a cluster that runs", .program.display()
    )]
    Unfit {
        /// Who named it.
        named_by: &'static str,
        /// The file.
        program: PathBuf,
    },
    /// Nothing was named, and none was found.
    #[error(
        "no private cluster can be started: its daemon is the program `oxiray`, which is neither {}in a folder of PATH. \
         Install it with `cargo install oxiray-cli` or `pip install oxiray`, name it with {VARIABLE}, or join a cluster \
         that runs", .beside.as_ref().map(|beside| format!("at {}, beside this program, nor ", beside.display())).unwrap_or_default()
    )]
    Nowhere {
        /// Where it would be beside the program that runs.
        beside: Option<PathBuf>,
    },
}

/// The program that a private cluster is started with: the one named by the caller, or by `OXIRAY_BINARY`, or else one that
/// lies beside the program that runs, or in `PATH`.
///
/// # Errors
/// Where there is none.
pub fn program(named: Option<&Path>) -> Result<PathBuf, NoDaemonProgram> {
    let running = std::env::current_exe().ok();
    let variable = std::env::var_os(VARIABLE);
    choose(named, variable, running.as_deref(), || oxiray_processes::program(NAME).ok())
}

fn choose(
    named: Option<&Path>,
    variable: Option<OsString>,
    running: Option<&Path>,
    in_path: impl FnOnce() -> Option<PathBuf>,
) -> Result<PathBuf, NoDaemonProgram> {
    let by_caller = named.map(|program| ("the option for it", program.to_owned()));
    let by_variable = || variable.filter(|name| !name.is_empty()).map(|program| (VARIABLE, program.into()));
    if let Some((named_by, program)) = by_caller.or_else(by_variable) {
        return if is_program(&program) { Ok(program) } else { Err(NoDaemonProgram::Unfit { named_by, program }) };
    }
    // A program of this name may be the one that runs.
    let beside = running.map(|running| running.with_file_name(NAME)).filter(|beside| Some(beside.as_path()) != running);
    let found = beside.clone().filter(|beside| is_program(beside)).or_else(in_path);
    found.ok_or(NoDaemonProgram::Nowhere { beside })
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Starts a private daemon, in an environment of this process's variables and these; `config` is what `oxiray daemon
/// --config` takes. This end of its stream, and its process, which [`end`] waits for.
///
/// # Errors
/// Where the program cannot be run.
pub fn start(
    program: &Path,
    config: &str,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> io::Result<(OwnedFd, u32)> {
    let (near, far) = oxiray_wire::connection::socket_pair()?;
    let stream = STREAM.to_string();
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    all.extend(variables);
    let start = Start {
        program,
        arguments: &["daemon", "--private", "--driver-fd", &stream, "--config", config],
        variables: all.into_iter().collect(),
        descriptors: &[(far.as_fd(), STREAM)],
        in_own_session: true,
    };
    Ok((near, start.start()?))
}

/// Waits for a private daemon to end, as it does with its connection; one that hangs is ended.
pub fn end(pid: u32) {
    if let Ok(watched) = oxiray_processes::pidfd_of(pid) {
        let until = Instant::now() + END_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&limit)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(ended) if ended > 0 => break,
                Ok(_) | Err(_) => {
                    // One that has ended just now does not mind.
                    let _ = oxiray_processes::kill_by_pidfd(&watched);
                    break;
                }
            }
        }
    }
    // Whoever waits for all children of this process may have been faster.
    while matches!(waitpid(Pid::from_raw(pid as i32), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    /// A file in a folder, executable or not, that the shell runs.
    fn file(folder: &Path, name: &str, script: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
        path
    }

    #[test]
    fn what_is_named_goes_before_what_lies_beside_and_that_before_what_is_in_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let [named, variable, beside, in_path] =
            ["named", "variable", NAME, "in-path"].map(|name| file(folder.path(), name, "", 0o755));
        let running = folder.path().join("app");
        let find = |named: Option<&PathBuf>, variable: Option<&PathBuf>, running: Option<&Path>| {
            let variable = variable.map(|path| path.clone().into_os_string());
            choose(named.map(PathBuf::as_path), variable, running, || Some(in_path.clone()))
        };
        assert_eq!(find(Some(&named), Some(&variable), Some(&running)).as_ref(), Ok(&named));
        assert_eq!(find(None, Some(&variable), Some(&running)).as_ref(), Ok(&variable));
        assert_eq!(find(None, Some(&PathBuf::new()), Some(&running)).as_ref(), Ok(&beside));
        assert_eq!(find(None, None, Some(&running)).as_ref(), Ok(&beside));
        assert_eq!(find(None, None, None).as_ref(), Ok(&in_path));
        // The program that runs may have the daemon's name, and is not the daemon.
        assert_eq!(find(None, None, Some(&beside)).as_ref(), Ok(&in_path));
        fs::set_permissions(&beside, Permissions::from_mode(0o644)).expect("its mode");
        assert_eq!(find(None, None, Some(&running)).as_ref(), Ok(&in_path));
    }

    #[test]
    fn what_is_missing_is_told_with_where_it_was_looked_for_and_what_to_do() {
        let missing = PathBuf::from("/no/such/oxiray");
        let told = |result: Result<PathBuf, NoDaemonProgram>| result.expect_err("there is none").to_string();
        let by_caller = told(choose(Some(&missing), None, None, || None));
        assert!(by_caller.contains("the option for it names /no/such/oxiray, which is no program"), "{by_caller}");
        let by_variable = told(choose(None, Some(missing.into()), None, || Some("/bin/true".into())));
        assert!(by_variable.contains("OXIRAY_BINARY names /no/such/oxiray"), "{by_variable}");
        let nowhere = told(choose(None, None, Some(Path::new("/opt/app/bin/app")), || None));
        for said in ["at /opt/app/bin/oxiray, beside this program", "PATH", "cargo install oxiray-cli", "pip install"] {
            assert!(nowhere.contains(said), "{said}: {nowhere}");
        }
    }

    #[test]
    fn a_daemon_has_its_stream_its_configuration_and_its_variables_and_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let script = "printf '%s ' \"$@\" \"$WORD\" >&3; exec 3>&-; sleep 0.05";
        let program = file(folder.path(), NAME, script, 0o755);
        let (stream, pid) = start(&program, "{}", [("WORD".into(), "said".into())]).expect("it starts");
        let mut told = String::new();
        UnixStream::from(stream).read_to_string(&mut told).expect("text");
        assert_eq!(told, "daemon --private --driver-fd 3 --config {} said ");
        end(pid);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        // Somebody else may have waited for it.
        end(pid);
    }
}
