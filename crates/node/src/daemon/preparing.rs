//! What is found out and set up before a daemon can serve: the machine, the cluster to join, the session's door.

use crate::arrival::{Arrival, Return, arrive};
use crate::authority_file;
use crate::children::storage::storage;
use crate::config::{self, Bounds, Config};
use crate::device_client::DeviceClient;
use crate::entry::Entry;
use crate::join::{self, Joined, Way};
use crate::journal::OpenJournal;
use crate::machine_labels;
use crate::network::Network;
use crate::objects::StoreClient;
use crate::session::{self, Session};
use crate::site_certificate::SiteCertificates;
use crate::spill_place::SpillPlace;
use crate::start_error::{StartError, Step as _};
use oxiray_families::{XIDS_FATAL_VARIABLE, XIDS_IGNORE_VARIABLE, XidRules};
use oxiray_ids::NodeId;
use oxiray_journal::Store;
use oxiray_machine::Plan;
use oxiray_network::{Authority, Gateway, Limits, Options};
use oxiray_processes::Companions;
use oxiray_visitor::Description;
use oxiray_visitor::session::living;
use oxiray_wire::frame::protocol;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The port that addresses end with where nothing else is said, as Ray's do.
pub(super) const DEFAULT_PORT: u16 = 6379;

/// A machine that was looked at, and a session that can be entered.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) plan: Plan,
    pub(super) bounds: Bounds,
    pub(super) devices: DeviceClient,
    pub(super) address: String,
    pub(super) store: StoreClient,
    pub(super) description: Description,
    pub(super) listener: std::os::unix::net::UnixListener,
    pub(super) joined: Option<Joined>,
    pub(super) network: Option<Network>,
    pub(super) journal: Option<Box<dyn Store>>,
}

pub(super) fn prepare(
    config: &Config,
    home: &Path,
    session: &Session,
    private: bool,
    back: Option<&Return<'_>>,
    (stop, companions): (&OwnedFd, Companions),
) -> Result<Prepared, StartError> {
    session::sweep(home);
    // Before the head knows of the node: it may take a while.
    let (host, machine_labels) = machine_labels::look(stop)?;
    let node = NodeId::generate();
    let (joined, arrived) = enter(config, home, session, node, back)?;
    let mut config = config.clone();
    if let Some(joined) = &joined {
        config.machine.node_ip_address.get_or_insert_with(|| joined.admitted.ip.clone());
    }
    let config = &config;
    let (mut plan, bounds) = config::plan(config, &host)?;
    plan.rename(node);
    machine_labels.complete(&mut plan);
    if private {
        plan.rules.node = Duration::ZERO;
    }
    let port = port_for(config, home, session, private, joined.is_some())?;
    if let Some(store) = config.head.store.as_ref().filter(|_| config.head.standby) {
        // It may take a while, in which the session is found and can be ended.
        let described = description((store.address.clone(), &plan.ip), plan.node, true, false);
        session.describe(&described).step("describe its session")?;
    }
    let mut keeping = if config.head.keeps && !private && joined.is_none() {
        Some(OpenJournal::open(config, session, stop)?)
    } else {
        None
    };
    let known = keeping.as_ref().and_then(|keeping| keeping.identity.clone());
    if let Some(keeping) = &mut keeping {
        plan.epoch = keeping.epoch;
        plan.warnings.extend(keeping.warning.take());
    }
    // Another machine's address is none of this one's.
    let before = known.as_ref().filter(|_| session.is_resumed());
    let listens = config.head.listen.or_else(|| before?.listens.parse().ok()).filter(|_| joined.is_none());
    let mut authority = None;
    let network = match (arrived, listens) {
        (Some(network), _) => Some(network),
        (None, Some(address)) => {
            let before = keeping.as_ref().map(OpenJournal::authority).transpose()?.flatten();
            let made = authority_of(config, before)?;
            authority = Some(made.to_parts());
            let lifetime = config.certificate_lifetime();
            let store = keeping.as_mut().map(|keeping| &mut keeping.store);
            let mut entry = Entry::open(made, lifetime, store, session)?;
            entry.site = SiteCertificates::for_head(&entry.authority, &config.head, &plan.ip, session.directory())?;
            Some(listen(config, node, address, entry)?)
        }
        (None, None) => None,
    };
    let xids = [XIDS_FATAL_VARIABLE, XIDS_IGNORE_VARIABLE].map(|name| host.variable(name));
    let rules = XidRules::of(xids[0].as_deref(), xids[1].as_deref());
    let devices = DeviceClient::of(&host, &plan.offer, &rules?).step("prepare to ask about its devices")?;
    let address = joined.as_ref().map_or_else(|| format!("{}:{port}", plan.ip), |it| it.admitted.address.clone());
    let store = open_store(session, companions, &plan, &bounds)?;
    let mut description = description((address.clone(), &plan.ip), plan.node, joined.is_some(), private);
    description.listens = network.as_ref().filter(|_| joined.is_none()).map(|network| network.address().to_string());
    if let Some(keeping) = &mut keeping {
        if let Some(known) = known {
            description.token = known.token;
        }
        keeping.begin(&description.token, port, listens, authority.as_ref())?;
    }
    let listener = session.listen().step("listen in its session's directory")?;
    listener.set_nonblocking(true).step("listen in its session's directory")?;
    session.describe(&description).step("describe its session")?;
    if !private && joined.is_none() {
        session.make_current().step("make its session the current one")?;
    }
    let journal = keeping.map(|keeping| keeping.store);
    Ok(Prepared { plan, bounds, devices, address, store, description, listener, joined, network, journal })
}

/// The authority of a head that listens: the one that was given, that of the head before it, or a new one.
fn authority_of(config: &Config, before: Option<Authority>) -> Result<Authority, StartError> {
    match &config.head.authority_file {
        Some(file) => Ok(authority_file::read(file)?),
        None => Ok(before.map_or_else(Authority::make, Ok)?),
    }
}

/// The object store, which spills into the session's directory where nothing else is said.
fn open_store(
    session: &Session,
    companions: Companions,
    plan: &Plan,
    bounds: &Bounds,
) -> Result<StoreClient, StartError> {
    let own = session.directory().join("spill");
    let (spill, storage) = match bounds.spill_place.clone() {
        None => (own, None),
        Some(SpillPlace::Directory(directory)) => (directory, None),
        Some(SpillPlace::Storage(url)) => (own, Some(storage(companions, url, plan.node.hex(), session))),
    };
    StoreClient::open(plan.store_bytes, spill, bounds.spill_fullness_max, storage).step("open the object store")
}

/// The port that tells this session from others of the user.
fn port_for(
    config: &Config,
    home: &Path,
    session: &Session,
    private: bool,
    is_member: bool,
) -> Result<u16, StartError> {
    let port = match (config.port, private) {
        (Some(port), _) if port != 0 => port,
        (None, false) => DEFAULT_PORT,
        // Nothing listens on it; it only tells sessions apart.
        (Some(_), _) | (None, true) => 10_000 + (std::process::id() % 50_000) as u16,
    };
    let living = living(home).into_iter().filter(|other| !private && !is_member && !other.description.member);
    let own = std::fs::canonicalize(session.directory()).ok();
    let is_own = |directory: &Path| std::fs::canonicalize(directory).ok() == own;
    let mut others = living.filter(|other| other.description.port() == Some(port));
    match others.find(|other| !is_own(&other.directory)) {
        Some(other) => Err(StartError::PortTaken { port, directory: other.directory }),
        None => Ok(port),
    }
}

/// Joins the cluster that the configuration names, where it names one.
fn enter(
    config: &Config,
    home: &Path,
    session: &Session,
    node: NodeId,
    back: Option<&Return<'_>>,
) -> Result<(Option<Joined>, Option<Network>), StartError> {
    let Some(address) = config.member.join.as_deref() else { return Ok((None, None)) };
    if config.member.token_file.is_none() {
        return Ok((Some(join::join(home, address)?), None));
    }
    if back.is_some() {
        // It may take a while, in which the session is found and can be ended.
        let described = description((address.to_owned(), ""), node, true, false);
        session.describe(&described).step("describe its session")?;
    }
    let Arrival { network, connection, admitted } = arrive(config, node, back)?;
    let token_file = config.member.token_file.clone().unwrap_or_default();
    let way = Way::Far { address: address.to_owned(), token_file };
    Ok((Some(Joined { connection, admitted, way }), Some(network)))
}

/// Listens for nodes of other machines.
fn listen(config: &Config, node: NodeId, address: SocketAddr, entry: Entry) -> Result<Network, StartError> {
    let (protocol, (authority, tokens)) = (protocol(), entry.for_gateway());
    let credentials = authority.head_credentials(node, &protocol)?;
    let options = Options {
        credentials: credentials.clone(),
        authority: Some((authority, tokens)),
        listen: address,
        protocol,
        limits: Limits::default(),
    };
    let gateway = Gateway::start(options).map_err(|source| StartError::Listen { address, source })?;
    Ok(Network::of_head(gateway, credentials, entry, config.lease()))
}

fn description((address, ip): (String, &str), node: NodeId, member: bool, private: bool) -> Description {
    Description {
        address,
        token: hexadecimal(&oxiray_ids::random::<32>()),
        pid: std::process::id(),
        supervisor: oxiray_processes::supervisor(),
        pid_namespace: oxiray_processes::pid_namespace(),
        node: node.hex(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        private,
        member,
        ip: ip.to_owned(),
        listens: None,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
