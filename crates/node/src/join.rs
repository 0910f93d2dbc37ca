//! How a node comes to a cluster that runs already.

use crate::token_file::TokenFault;
use oxiray_network::JoinFailure;
use oxiray_visitor::{Description, session};
use oxiray_wire::Connection;
use oxiray_wire::message::{Direction as _, HeadToNewcomer, Hello, Newcomer, NodeAdmitted};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a head may take to let a node in.
const ADMISSION_LIMIT: Duration = Duration::from_secs(30);

/// A node that was let in.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) connection: Connection,
    pub(crate) admitted: NodeAdmitted,
    pub(crate) way: Way,
}

/// Where the head is found again.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// On this machine, by its session's directory.
    Near(PathBuf),
    /// On another machine.
    Far {
        /// Its address.
        address: String,
        /// The file with the cluster's token.
        token_file: PathBuf,
    },
}

/// Why a node was not let in.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Nobody has the address.
    #[error("no cluster answers at {address}: {}", running(.there))]
    Nobody {
        /// The address.
        address: String,
        /// The addresses that clusters of this user have on this machine.
        there: Vec<String>,
    },
    /// The head said no.
    #[error("the cluster at {address} refuses this node: {text}")]
    Refused {
        /// The address.
        address: String,
        /// What it said.
        text: String,
    },
    /// The head is gone, or does not answer.
    #[error("the cluster at {address} does not answer: {source}")]
    Silent {
        /// The address.
        address: String,
        /// What happened.
        source: io::Error,
    },
    /// The head of another machine does not let this node in.
    #[error("the cluster at {address} cannot be joined: {source}")]
    Network {
        /// The address.
        address: String,
        /// Why not.
        source: JoinFailure,
    },
    /// The token's file is of no use.
    #[error("the token in {} cannot be used: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: TokenFault,
    },
    /// Other nodes could not reach this one.
    #[error(
        "this node cannot listen at {address} for other nodes: {source}. Name one of its addresses with --node-ip-address"
    )]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What happened.
        source: io::Error,
    },
    /// What is to be this node's address is none.
    #[error("`{text}` is no IP address: --node-ip-address takes one of this machine's, such as 10.0.0.5")]
    Address {
        /// What was given.
        text: String,
    },
}

fn running(there: &[String]) -> String {
    if there.is_empty() {
        return "none of this user runs on this machine; start one with `oxiray start --head`".to_owned();
    }
    format!("on this machine run {}", there.join(", "))
}

/// Greets the head at `address`, which is found by its session under `root`.
pub(crate) fn join(root: &Path, address: &str) -> Result<Joined, JoinError> {
    let heads: Vec<_> = session::living(root).into_iter().filter(|found| !found.description.member).collect();
    let Some(found) = heads.iter().find(|found| found.description.answers_to(address)) else {
        let there = heads.into_iter().map(|found| found.description.address).collect();
        return Err(JoinError::Nobody { address: address.to_owned(), there });
    };
    greet(&found.directory, &found.description)
        .map_err(|source| JoinError::Silent { address: address.to_owned(), source })?
        .map_err(|text| JoinError::Refused { address: address.to_owned(), text })
}

fn greet(directory: &Path, description: &Description) -> io::Result<Result<Joined, String>> {
    let mut connection = Connection::new(session::connect(directory)?.into())?;
    let node = Some(Newcomer { pid: std::process::id() });
    connection.send(&Hello { token: description.token.clone(), node, ..Hello::default() });
    connection.flush().map_err(io::Error::other)?;
    match first_answer(&mut connection)? {
        Some(HeadToNewcomer::NodeAdmitted(admitted)) => {
            Ok(Ok(Joined { connection, admitted: *admitted, way: Way::Near(directory.to_owned()) }))
        }
        Some(HeadToNewcomer::Refused(refused)) => Ok(Err(refused.text)),
        None => Ok(Err("it is of another build".to_owned())),
    }
}

/// What the head says to a node that comes; nothing where it is of another build. Nothing else is said to the node before it
/// has described itself.
pub(crate) fn first_answer(connection: &mut Connection) -> io::Result<Option<HeadToNewcomer>> {
    let first = connection.first_message(Some(Instant::now() + ADMISSION_LIMIT)).map_err(io::Error::other)?;
    let (received, _) = first.ok_or(io::ErrorKind::TimedOut)?;
    Ok(HeadToNewcomer::sort(received.message).ok())
}
