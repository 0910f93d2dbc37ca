//! How a driver finds the cluster that is meant, and enters it.

use crate::process;
use oxiray_runtime::{Entry, Identity, Runtime};
use oxiray_visitor::FoundSession;
use oxiray_visitor::session::{self, heads_first};
use oxiray_wire::Body as _;
use oxiray_wire::Connection;
use oxiray_wire::connection::ConnectionError;
use oxiray_wire::frame::HELLO_BYTES_LIMIT;
use oxiray_wire::message::{DaemonToNewcomer, Direction as _, Driver, Hello};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a daemon may take to answer a greeting.
const GREETING_LIMIT: Duration = Duration::from_secs(60);
/// Characters of the command that started a program which its daemon is told.
const ENTRYPOINT_MAX: usize = 1000;

/// Why a driver is in no cluster.
#[derive(Debug, thiserror::Error)]
pub enum NotEntered {
    /// Whichever cluster runs was meant, and none does.
    #[error(
        "Could not find any running Ray instance: no cluster of this user runs on this machine{}. Start one with `oxiray \
         start --head`, name one by its address, or leave the address out to have a private one", .unfit.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
    )]
    NoneRuns {
        /// Why its directory of sessions is not looked into, where it is not.
        unfit: Option<String>,
    },
    /// No cluster has the address.
    #[error(
        "no cluster answers at `{address}`. Running on this machine: {known}. A program connects to a node on its own \
         machine: have this one join the cluster with `oxiray start --address=HOST:PORT --token-file=FILE`"
    )]
    Unknown {
        /// What was asked for.
        address: String,
        /// The addresses there are.
        known: String,
    },
    /// Its daemon is gone.
    #[error(
        "the cluster at {address} does not answer ({error}): it was killed. `oxiray start --head`, as it was started, goes \
         on with it where it kept a journal; `oxiray stop` clears what is left of it"
    )]
    Killed {
        /// Its address.
        address: String,
        /// What the operating system says.
        error: io::Error,
    },
    /// The daemon does not let the driver in, in the daemon's words.
    #[error("{0}")]
    Refused(String),
    /// What the driver tells of itself is too much.
    #[error(
        "what this program tells of itself, its import path and runtime environment above all, takes {0} bytes, and a \
         daemon reads at most {HELLO_BYTES_LIMIT} from a program it does not know yet: put large values into a file or \
         into put()"
    )]
    TooLarge(usize),
    /// The daemon said nothing.
    #[error("the daemon did not answer within {} s", GREETING_LIMIT.as_secs())]
    Silent,
    /// The stream ended.
    #[error("the daemon did not answer: {0}. Its daemon.log says more")]
    Ended(#[from] ConnectionError),
    /// The daemon says what is not understood.
    #[error("the daemon did not greet back: it is of another build")]
    Strange,
    /// The operating system refused.
    #[error("the runtime of this process cannot be started: {0}")]
    System(#[from] io::Error),
}

/// The cluster that is meant: at the address; whichever runs on this machine for `auto` and where nothing is said; none,
/// which stands for a private one, for `local` and where nothing is said and none runs. Of several nodes of one cluster on
/// this machine, `ip` names one.
///
/// A head that was killed is found too: whoever means its cluster is told how it goes on.
///
/// # Errors
/// Where there is no such cluster.
pub fn find(address: Option<&str>, ip: Option<&str>) -> Result<Option<FoundSession>, NotEntered> {
    // Whoever can write there could pose as a daemon.
    let (all, unfit) = match session::root() {
        Ok(root) => (heads_first(session::described(&root)), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    choose(all, unfit, address, ip)
}

fn choose(
    all: Vec<FoundSession>,
    unfit: Option<String>,
    address: Option<&str>,
    ip: Option<&str>,
) -> Result<Option<FoundSession>, NotEntered> {
    let is_meant = |found: &FoundSession| {
        let is_there = found.is_alive || !found.description.member;
        is_there && (address.is_none() || ip.is_none_or(|ip| found.description.ip == ip))
    };
    let mut running = all.into_iter().filter(is_meant);
    match address {
        Some("local") => Ok(None),
        None => Ok(running.find(is_for_all)),
        Some("auto") => running.find(is_for_all).map(Some).ok_or(NotEntered::NoneRuns { unfit }),
        Some(address) => {
            let mut known = Vec::new();
            for found in running {
                if found.description.answers_to(address) {
                    return Ok(Some(found));
                }
                known.push(found.description.address);
            }
            known.sort();
            known.dedup();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(NotEntered::Unknown { address: address.to_owned(), known })
        }
    }
}

/// Whether it is one that programs join which name none.
fn is_for_all(found: &FoundSession) -> bool {
    found.is_current || found.description.member
}

/// Connects to the daemon of the session in a directory, whose address is known.
///
/// # Errors
/// Where it does not listen.
pub fn connect(directory: &Path, address: &str) -> Result<OwnedFd, NotEntered> {
    let killed = |error| NotEntered::Killed { address: address.to_owned(), error };
    session::connect(directory).map(OwnedFd::from).map_err(killed)
}

/// Greets the daemon at the other end of the stream, with the session's secret, which is empty where the stream's maker has
/// proven itself; and starts the runtime of this process. What is to be said of the process itself is said here.
///
/// # Errors
/// Where the daemon does not let it in.
pub fn enter(stream: OwnedFd, token: String, driver: Driver) -> Result<Runtime, NotEntered> {
    let mut connection = Connection::new(stream).map_err(io::Error::from)?;
    let driver = Driver {
        pid: std::process::id(),
        entrypoint: driver.entrypoint.chars().take(ENTRYPOINT_MAX).collect(),
        started_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        ..driver
    };
    let hello = Hello { token: token.clone(), driver: Some(driver.clone()), ..Hello::default() };
    let told = hello.body_bytes();
    if told > HELLO_BYTES_LIMIT {
        return Err(NotEntered::TooLarge(told));
    }
    connection.send(&hello);
    let first = connection.first_message(Some(Instant::now() + GREETING_LIMIT))?;
    let (first, early) = first.ok_or(NotEntered::Silent)?;
    let welcome = match DaemonToNewcomer::of(first.message) {
        Ok(DaemonToNewcomer::Welcome(welcome)) => welcome,
        Ok(DaemonToNewcomer::Refused(refused)) => return Err(NotEntered::Refused(refused.text)),
        Err(_) => return Err(NotEntered::Strange),
    };
    let identity = Identity::from_welcome(&welcome);
    let entry = welcome.comes_back.then_some(Entry { token, driver });
    let runtime = Runtime::start(identity, connection, early, None, entry)?;
    process::set(Some(runtime.clone()));
    oxiray_runtime::begin_metrics(&runtime);
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_visitor::Description;
    use oxiray_wire::message::Refused;

    fn session(port: u16, member: bool, is_current: bool, is_alive: bool) -> FoundSession {
        let description = Description {
            address: format!("10.1.2.3:{port}"),
            token: String::new(),
            pid: 1,
            supervisor: None,
            pid_namespace: 0,
            node: String::new(),
            version: String::new(),
            private: false,
            member,
            ip: format!("127.0.0.{port}"),
            listens: None,
        };
        FoundSession { directory: format!("/sessions/{port}").into(), description, is_current, is_alive }
    }

    /// The port of the session that is found.
    fn found(all: &[FoundSession], address: Option<&str>, ip: Option<&str>) -> Option<u16> {
        let found = choose(all.to_vec(), None, address, ip).expect("it is there, or a private one is meant");
        found.and_then(|found| found.description.port())
    }

    #[test]
    fn whichever_runs_is_the_current_one_or_the_node_of_this_machine() {
        let [other, current, member] =
            [session(1, false, false, true), session(2, false, true, true), session(3, true, false, true)];
        let all = [other.clone(), current, member.clone()];
        assert_eq!(found(&all, Some("auto"), None), Some(2));
        assert_eq!(found(&all, None, None), Some(2));
        assert_eq!(found(&[other.clone(), member], None, None), Some(3));
        assert_eq!(found(std::slice::from_ref(&other), None, None), None);
        assert_eq!(found(&all, Some("local"), None), None);
        let told = choose(vec![other], None, Some("auto"), None).expect_err("none is current").to_string();
        assert!(told.contains("no cluster of this user runs on this machine. Start one"), "{told}");
        let told = choose(Vec::new(), Some("it is open to others".into()), Some("auto"), None);
        assert!(told.expect_err("it is not looked into").to_string().contains("(it is open to others)"));
    }

    #[test]
    fn a_killed_head_is_found_and_a_killed_member_is_not() {
        let (head, member) = (session(1, false, true, false), session(2, true, false, false));
        assert_eq!(found(&[member.clone(), head], Some("auto"), None), Some(1));
        assert_eq!(found(&[member], None, None), None);
    }

    #[test]
    fn an_address_means_one_session_and_an_ip_one_of_its_nodes() {
        let all = [session(1, false, true, true), session(2, false, false, true)];
        assert_eq!(found(&all, Some("10.1.2.3:2"), None), Some(2));
        assert_eq!(found(&all, Some("localhost:2"), None), Some(2));
        let nodes = [
            session(1, false, true, true),
            FoundSession { directory: "/member".into(), ..session(1, true, false, true) },
        ];
        let of_member = FoundSession {
            description: Description { ip: "127.0.0.9".into(), ..nodes[1].description.clone() },
            ..nodes[1].clone()
        };
        let meant = choose(vec![nodes[0].clone(), of_member], None, Some("10.1.2.3:1"), Some("127.0.0.9"));
        assert_eq!(meant.expect("it is there").expect("it is there").directory, Path::new("/member"));
        let told = choose(all.to_vec(), None, Some("10.9.9.9:1"), None).expect_err("there is none").to_string();
        assert!(told.contains("Running on this machine: 10.1.2.3:1, 10.1.2.3:2"), "{told}");
    }

    #[test]
    fn a_daemon_that_is_killed_says_nothing_or_refuses_is_told_of_as_such() {
        let folder = tempfile::tempdir().expect("a folder");
        let killed = connect(folder.path(), "10.1.2.3:1").expect_err("nobody listens").to_string();
        assert!(killed.starts_with("the cluster at 10.1.2.3:1 does not answer"), "{killed}");

        let (mut daemon, stream) = Connection::pair().expect("a pair");
        daemon.send(&Refused { text: "a wrong token".into() });
        assert!(daemon.flush().expect("sent"));
        let refused = enter(stream, "secret".into(), Driver::default()).expect_err("it is refused");
        assert!(matches!(&refused, NotEntered::Refused(text) if text == "a wrong token"), "{refused}");

        let (daemon, stream) = Connection::pair().expect("a pair");
        drop(daemon);
        let ended = enter(stream, String::new(), Driver::default()).expect_err("nobody is there");
        assert!(matches!(ended, NotEntered::Ended(_)), "{ended}");
    }

    #[test]
    fn who_tells_too_much_of_itself_is_told_so() {
        let (_daemon, stream) = Connection::pair().expect("a pair");
        let driver = Driver { namespace: "x".repeat(HELLO_BYTES_LIMIT), ..Driver::default() };
        let told = enter(stream, String::new(), driver).expect_err("it is too much");
        assert!(matches!(told, NotEntered::TooLarge(bytes) if bytes > HELLO_BYTES_LIMIT), "{told}");
    }
}
