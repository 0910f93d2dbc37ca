//! How a node comes to a cluster on another machine, the first time and again.

use crate::config::Config;
use crate::head_link::HeadLink;
use crate::join::{JoinError, first_answer};
use crate::lifetime::Predecessor;
use crate::network::Network;
use crate::token_file::{self, TokenFault};
use oxiray_ids::NodeId;
use oxiray_network::{Gateway, JoinFailure, JoinToken, Joined, LastCertificate, Limits, Newcomer, join};
use oxiray_processes::since_boot;
use oxiray_wire::Connection;
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{HeadToNewcomer, NodeAdmitted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long each step of joining may take.
const STEP_LIMIT: Duration = Duration::from_secs(5);
/// For how long a node that lost the head tries to join anew.
const RETURN_LIMIT: Duration = Duration::from_secs(600);
/// How long it waits between two tries.
const RETURN_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// A node that was let in by a head on another machine.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) network: Network,
    pub(crate) connection: Connection,
    pub(crate) admitted: NodeAdmitted,
}

/// What a node that tries to join again and again has to watch meanwhile.
pub(crate) struct Return<'a> {
    /// Who it was, where it had joined before.
    pub(crate) predecessor: Option<Predecessor>,
    /// For how long it tries.
    limit: Duration,
    /// Readable when it is to end.
    stop: &'a OwnedFd,
    /// Whoever started it, where it is to end with that process.
    starter: Option<OwnedFd>,
}

impl<'a> Return<'a> {
    /// Where a node is to try again: one that had joined before, or that may be earlier than its head.
    pub(crate) fn of(
        before: Option<Predecessor>,
        config: &Config,
        stop: &'a OwnedFd,
        starter: Option<OwnedFd>,
    ) -> Option<Self> {
        let limit = match before {
            Some(_) => Some(RETURN_LIMIT),
            None => {
                config.member.join_wait_ms.filter(|_| config.member.token_file.is_some()).map(Duration::from_millis)
            }
        };
        Some(Self { predecessor: before, limit: limit?, stop, starter })
    }
}

/// Joins as `config` says: once, or again and again where `back` says so.
pub(crate) fn arrive(config: &Config, node: NodeId, back: Option<&Return<'_>>) -> Result<Arrival, JoinError> {
    let address = config.member.join.clone().unwrap_or_default();
    let path = config.member.token_file.clone().unwrap_or_default();
    let token = token_file::read(&path).map_err(|source| token_error(&path, source))?;
    let until = Instant::now() + back.map_or(Duration::ZERO, |back| back.limit);
    // The head's, and those of its standbys.
    let mut addresses = address.split(',').cycle();
    let mut others = address.split(',').count() - 1;
    loop {
        let address = addresses.next().expect("there is always one more");
        let error = match attempt(config, address, &token, node, back) {
            Ok(arrival) => return Ok(arrival),
            Err(JoinError::Network { .. }) if others > 0 => {
                others -= 1;
                continue;
            }
            Err(error) => error,
        };
        let JoinError::Network { source, .. } = &error else { return Err(error) };
        let Some(back) = back.filter(|back| may_change(source, back) && Instant::now() < until) else {
            return Err(error);
        };
        if is_to_end(back) {
            return Err(error);
        }
    }
}

/// Whether another try may find the head. An address that refuses has no head, whatever lies between.
fn may_change(failure: &JoinFailure, back: &Return<'_>) -> bool {
    match failure {
        JoinFailure::Unreachable(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            back.predecessor.as_ref().is_none_or(|before| before.head_may_come_back)
        }
        JoinFailure::Unreachable(_)
        | JoinFailure::Unresolved(_)
        | JoinFailure::Broken(_)
        | JoinFailure::Barred
        | JoinFailure::Clock
        // An earlier try may have been heard, and its answer lost: the head gives that up.
        | JoinFailure::Taken
        | JoinFailure::Unwritten => true,
        JoinFailure::Foreign
        | JoinFailure::Refused
        | JoinFailure::Ended
        | JoinFailure::Revoked
        | JoinFailure::Version => false,
    }
}

fn token_error(path: &Path, source: TokenFault) -> JoinError {
    JoinError::Token { path: path.to_owned(), source }
}

/// Waits a moment; whether the node is to end meanwhile.
fn is_to_end(back: &Return<'_>) -> bool {
    let mut watched = vec![PollFd::new(back.stop, PollFlags::IN)];
    watched.extend(back.starter.iter().map(|starter| PollFd::new(starter, PollFlags::IN)));
    matches!(poll(&mut watched, Some(&RETURN_PERIOD)), Ok(ready) if ready > 0)
}

/// Goes to a head that came back, as the node that the last one had let in. It blocks.
pub(crate) fn rejoin(
    address: &str,
    token_file: &Path,
    node: NodeId,
    before: Option<&LastCertificate>,
) -> Result<Joined, JoinFailure> {
    let unread = |fault: TokenFault| JoinFailure::Broken(io::Error::other(fault.to_string()));
    let (token, protocol) = (token_file::read(token_file).map_err(unread)?, protocol());
    let at = |address| {
        let newcomer = Newcomer {
            address,
            token: &token,
            node,
            predecessor: None,
            before,
            protocol: &protocol,
            limit: STEP_LIMIT,
        };
        join(&newcomer)
    };
    let mut failed = JoinFailure::Broken(io::ErrorKind::AddrNotAvailable.into());
    for address in address.split(',') {
        match at(address) {
            Ok(joined) => return Ok(joined),
            Err(failure) => failed = failure,
        }
    }
    Err(failed)
}

fn attempt(
    config: &Config,
    address: &str,
    token: &JoinToken,
    node: NodeId,
    back: Option<&Return<'_>>,
) -> Result<Arrival, JoinError> {
    let silent = |source| JoinError::Silent { address: address.to_owned(), source };
    let (asked, protocol) = (since_boot(), protocol());
    let before = back.and_then(|back| back.predecessor.as_ref());
    let newcomer = Newcomer {
        address,
        token,
        node,
        predecessor: before.map(|before| before.node),
        before: before.and_then(|before| before.certificate.as_ref()),
        protocol: &protocol,
        limit: STEP_LIMIT,
    };
    let joined = join(&newcomer).map_err(|source| JoinError::Network { address: address.to_owned(), source })?;
    let (head, credentials) = (joined.head, joined.credentials.clone());
    let own = own_address(config, joined.own_ip)?;
    let listen = SocketAddr::new(own, config.member.node_manager_port.unwrap_or(0));
    let started = Gateway::start_joined(joined, listen, protocol.clone(), Limits::default());
    let (gateway, control) = started.map_err(|source| JoinError::Listen { address: listen, source })?;
    let mut connection = Connection::new(control).map_err(|error| silent(error.into()))?;
    let refused = |text| JoinError::Refused { address: address.to_owned(), text };
    let mut admitted = match first_answer(&mut connection).map_err(silent)? {
        Some(HeadToNewcomer::NodeAdmitted(admitted)) => admitted,
        Some(HeadToNewcomer::Refused(said)) => return Err(refused(said.text)),
        None => return Err(refused("it is of another build".to_owned())),
    };
    admitted.ip = own.to_string();
    let lease = Duration::from_millis(admitted.lease_ms);
    let link = HeadLink::new(head, lease, asked).map_err(|error| silent(error.into()))?;
    let network = Network::of_member(gateway, credentials, lease, link);
    Ok(Arrival { network, connection, admitted: *admitted })
}

/// Where others reach this node: what was said, or what the head sees.
pub(crate) fn own_address(config: &Config, seen: IpAddr) -> Result<IpAddr, JoinError> {
    match &config.machine.node_ip_address {
        None => Ok(seen),
        Some(text) => text.parse().map_err(|_| JoinError::Address { text: text.clone() }),
    }
}
