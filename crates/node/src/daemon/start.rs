//! How a daemon comes to life.

use super::join::{self, JoinError, Joined};
use super::journal::Journal;
use super::poller::{Poller, Token};
use super::store_desk::StoreDesk;
use super::streams::{Role, Stream};
use super::{Daemon, Plan, TemplateProcess};
use crate::config::{Config, PlanError};
use crate::core::{Core, Origin};
use crate::device_check::{self, DeviceCheck};
use crate::session::{self, Description, Session};
use oxiray_accelerators::Host;
use oxiray_processes::{Brood, BroodError, stop_signals};
use oxiray_wire::Connection;
use oxiray_wire::message::Refused;
use rustix::process::{Resource, Rlimit};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The port that addresses end with where nothing else is said, as Ray's do.
const DEFAULT_PORT: u16 = 6379;

/// Whom the daemon lives for.
#[derive(Debug)]
pub enum Mode {
    /// The driver at the other end of this stream.
    Private(OwnedFd),
    /// Whoever comes, until it is stopped.
    Shared {
        /// Whether it stays in its terminal's session, and what it prints stays where it is. Otherwise
        /// that goes to daemon.log once `ready` was called.
        keeps_output: bool,
    },
}

/// A daemon that serves.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ready {
    /// Address that `init(address=…)` takes.
    pub address: String,
    /// The session's directory.
    pub session: String,
    /// What its user should know.
    pub warnings: Vec<String>,
}

/// Why a daemon did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What was asked for does not fit the machine.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Child processes cannot be watched.
    #[error(transparent)]
    Brood(#[from] BroodError),
    /// The cluster to join does not let this node in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Another session has the port.
    #[error("a session of this user has port {port} already ({}): stop it with `oxiray stop`, or choose another --port", directory.display())]
    PortTaken {
        /// The port.
        port: u16,
        /// The session that has it.
        directory: PathBuf,
    },
    /// The operating system refused.
    #[error("the daemon cannot {step}: {source}")]
    System {
        /// What for.
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
}

trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, StartError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, StartError> {
        self.map_err(|error| StartError::System { step, source: error.into() })
    }
}

/// Runs a daemon until it is to end. `ready` is called once it serves. The process must have one thread.
pub fn run(config: &Config, mode: Mode, ready: impl FnOnce(&Ready)) -> Result<(), StartError> {
    let driver = match mode {
        Mode::Private(driver) => Some(driver),
        Mode::Shared { keeps_output } => {
            if !keeps_output {
                // It fails where this process leads a session already, which is as good.
                let _ = rustix::process::setsid();
            }
            let foundation = Foundation::lay(config, true)?;
            let log = foundation.log.handle().step("open daemon.log")?;
            let daemon = foundation.build(config, None, ready)?;
            if !keeps_output {
                redirect(&log).step("redirect its output to daemon.log")?;
            }
            return daemon.serve().step("wait for events");
        }
    };
    let mut driver = Connection::new(driver.expect("a private daemon has a driver")).step("use its driver's stream")?;
    let built = Foundation::lay(config, false).and_then(|foundation| {
        let only = rustix::io::fcntl_dupfd_cloexec(&driver, 0).step("keep its driver's stream")?;
        foundation.build(config, Some(only), ready)
    });
    match built {
        Ok(daemon) => {
            drop(driver);
            daemon.serve().step("wait for events")
        }
        Err(error) => {
            driver.send(&Refused { text: error.to_string() }.into());
            // A driver that is gone needs no reason.
            let _ = driver.flush();
            Err(error)
        }
    }
}

/// What comes before the machine is looked at: the sooner the template starts, the sooner the first task runs.
struct Foundation {
    /// Where the sessions of the user are, and links to those that lie elsewhere.
    home: PathBuf,
    session: Session,
    log: Journal,
    brood: Brood,
    stop_signals: OwnedFd,
    template: Option<TemplateProcess>,
}

impl Foundation {
    fn lay(config: &Config, keeps_output: bool) -> Result<Self, StartError> {
        let home = root(&Config::default()).step("make the directory of its user's sessions")?;
        let root = root(config).step("make the directory of its session")?;
        let mut session = Session::make(&root).step("make the directory of its session")?;
        if root != home
            && let Err(source) = session.show_in(&home)
        {
            session.remove();
            return Err(StartError::System { step: "show its session among its user's", source });
        }
        let built = Self::lay_in(config, keeps_output, &session);
        match built {
            Ok((log, brood, stop_signals, template)) => Ok(Self { home, session, log, brood, stop_signals, template }),
            Err(error) => {
                session.remove();
                Err(error)
            }
        }
    }

    fn lay_in(
        config: &Config,
        keeps_output: bool,
        session: &Session,
    ) -> Result<(Journal, Brood, OwnedFd, Option<TemplateProcess>), StartError> {
        let log = Journal::open(&session.directory().join("daemon.log")).step("open daemon.log")?;
        let mut brood = Brood::new()?;
        let stop_signals = stop_signals().step("listen to signals")?;
        raise_open_files();
        let mut template = None;
        if let Some(interpreter) = &config.interpreter {
            let output = log.handle().step("open daemon.log")?;
            // Where it fails, the driver's own wish for it fails again, and is told.
            template = TemplateProcess::start(&Origin::plain(interpreter), session.directory(), output).ok();
            if let Some(template) = &template {
                brood.register(template.pid);
            }
        }
        if !keeps_output {
            redirect(&log.handle().step("open daemon.log")?).step("redirect its output to daemon.log")?;
        }
        Ok((log, brood, stop_signals, template))
    }

    fn build(self, config: &Config, driver: Option<OwnedFd>, ready: impl FnOnce(&Ready)) -> Result<Daemon, StartError> {
        let Self { home, session, mut log, mut brood, stop_signals, template } = self;
        let prepared = prepare(config, &home, &session, driver.is_some());
        let Prepared { plan, device_check, address, store, description, listener, joined } = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                drop(template);
                while !brood.is_empty() {
                    brood.kill_all();
                    let _ = rustix::event::poll(
                        &mut [rustix::event::PollFd::from_borrowed_fd(brood.watch_fd(), rustix::event::PollFlags::IN)],
                        None,
                    );
                    brood.reap();
                }
                session.remove();
                return Err(error);
            }
        };
        plan.warnings.iter().for_each(|warning| log.line(warning));
        let text = session.directory().display().to_string();
        let told = Ready { address: address.clone(), session: text.clone(), warnings: plan.warnings.clone() };
        let now = Instant::now();
        let mut daemon = Daemon {
            core: Core::new(plan, text, address.clone(), device_check, now),
            poller: Poller::new().step("make an epoll")?,
            brood,
            stop_signals,
            listener,
            token: description.token,
            address,
            transfer: super::transfer::Transfer::default(),
            members_admitted: 0,
            starter: config.starter.and_then(|pid| oxiray_processes::pidfd_of(pid).ok()),
            streams: BTreeMap::new(),
            dirty: BTreeSet::new(),
            templates: BTreeMap::new(),
            early_template: template,
            preparations: BTreeMap::new(),
            processes: BTreeMap::new(),
            by_pid: BTreeMap::new(),
            store,
            log,
            worker_log: Journal::open(&session.directory().join("worker.log")).step("open worker.log")?,
            session,
            only_driver: None,
            is_stopping: false,
            scratch: vec![0; super::output::READ_BYTES].into(),
            now,
        };
        daemon.watch_all().step("watch its descriptors")?;
        if let Some(interpreter) = &config.interpreter {
            daemon.core.prepare(interpreter);
        }
        if let Some(Joined { connection, .. }) = joined {
            let key = daemon.core.new_key();
            daemon.add_stream(key, Stream::new(connection, Role::Head, 0));
            daemon.core.serve_head(key);
        }
        if let Some(driver) = driver {
            let key = daemon.core.new_key();
            let connection = Connection::new(driver).step("use its driver's stream")?;
            daemon.add_stream(key, Stream::new(connection, Role::Expected, 0));
            daemon.only_driver = Some(key);
        }
        ready(&told);
        Ok(daemon)
    }
}

struct Prepared {
    plan: Plan,
    device_check: Box<dyn DeviceCheck>,
    address: String,
    store: StoreDesk,
    description: Description,
    listener: std::os::unix::net::UnixListener,
    joined: Option<Joined>,
}

fn prepare(config: &Config, home: &Path, session: &Session, private: bool) -> Result<Prepared, StartError> {
    session::sweep(home);
    let host = Host::from_environment().map_err(PlanError::from)?;
    let joined = config.join.as_deref().map(|address| join::join(home, address)).transpose()?;
    let mut config = config.clone();
    if let Some(joined) = &joined {
        config.node_ip_address.get_or_insert_with(|| joined.admitted.ip.clone());
    }
    let config = &config;
    let mut plan = Plan::make(config, &host)?;
    if private {
        plan.node_wait = Duration::ZERO;
    }
    let device_check = device_check::of(&host, &plan.offer);
    let port = match (config.port, private) {
        (Some(port), _) if port != 0 => port,
        (None, false) => DEFAULT_PORT,
        // Nothing listens on it; it only tells sessions apart.
        (Some(_), _) | (None, true) => 10_000 + (std::process::id() % 50_000) as u16,
    };
    if !private && joined.is_none() {
        let taken = session::living(home)
            .into_iter()
            .filter(|(_, other)| !other.member)
            .find(|(_, other)| port_of(&other.address) == Some(port));
        if let Some((directory, _)) = taken {
            return Err(StartError::PortTaken { port, directory });
        }
    }
    let address = joined.as_ref().map_or_else(|| format!("{}:{port}", plan.ip), |it| it.admitted.address.clone());
    let spill = config.spill_directory.clone().unwrap_or_else(|| session.directory().join("spill"));
    let store = StoreDesk::open(plan.store_bytes, spill, plan.spill_fullness_max).step("open the object store")?;
    let description = Description {
        address: address.clone(),
        token: hexadecimal(&oxiray_ids::random::<32>()),
        pid: std::process::id(),
        node: plan.node.hex(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        private,
        member: joined.is_some(),
    };
    let listener = session.listen().step("listen in its session's directory")?;
    listener.set_nonblocking(true).step("listen in its session's directory")?;
    session.describe(&description).step("describe its session")?;
    if !private && joined.is_none() {
        session.make_current().step("make its session the current one")?;
    }
    Ok(Prepared { plan, device_check, address, store, description, listener, joined })
}

impl Daemon {
    fn watch_all(&self) -> io::Result<()> {
        self.poller.watch(&self.listener, Token::Listener)?;
        self.poller.watch(&self.stop_signals, Token::Stop)?;
        self.poller.watch(self.brood.watch_fd(), Token::Children)?;
        if let Some(starter) = &self.starter {
            self.poller.watch(starter, Token::Starter)?;
        }
        if let Some(wake) = self.store.wake_fd() {
            self.poller.watch(wake, Token::Store)?;
        }
        Ok(())
    }
}

/// The directory of all sessions of this user.
pub fn root(config: &Config) -> io::Result<PathBuf> {
    let chosen = config.temp_dir.as_ref().map(|directory| directory.display().to_string());
    oxiray_wire::session::root(|name| match (&chosen, name) {
        (Some(directory), "OXIRAY_TMPDIR") => Some(directory.clone()),
        _ => std::env::var(name).ok(),
    })
}

fn port_of(address: &str) -> Option<u16> {
    address.rsplit_once(':')?.1.parse().ok()
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Each worker takes a handful of descriptors, and each large object one.
fn raise_open_files() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    // Where it is refused, the limit stays as it is, and errors name it.
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn redirect(log: &std::fs::File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(log)?;
    rustix::stdio::dup2_stderr(log)?;
    let nothing = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    Ok(())
}
