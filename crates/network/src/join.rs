//! How a newcomer comes to a cluster on another machine: the one connection that is made by hand, before there is a
//! gateway.

use crate::authority::Certified;
use crate::greeting::{ADMITTED, ANSWER_BYTES, CERTIFICATE_BYTES_LIMIT, EXPORTER, JoinGreeting, Refusal};
use crate::renewal::Renewal;
use crate::tls::{self, Credentials, LastCertificate};
use crate::token::{JoinToken, PART_BYTES};
use oxiray_ids::NodeId;
use rustls::{AlertDescription, CertificateError, ClientConnection, Error as TlsError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// Who comes, and where to.
#[derive(Debug, Clone)]
pub struct Newcomer<'a> {
    /// `HOST:PORT` of the head.
    pub address: &'a str,
    /// What the head's machine gave.
    pub token: &'a JoinToken,
    /// Who it is.
    pub node: NodeId,
    /// Who it was before it lost the head, where it comes again.
    pub predecessor: Option<NodeId>,
    /// What it had then: by this the head knows it, whatever has become of the token.
    pub before: Option<&'a LastCertificate>,
    /// Names the version of what it speaks.
    pub protocol: &'a [u8],
    /// How long each step may take.
    pub limit: Duration,
}

/// A newcomer that was let in.
#[derive(Debug)]
pub struct Joined {
    pub(crate) tls: rustls::Connection,
    pub(crate) tcp: TcpStream,
    /// By what it is known to the other nodes from here on.
    pub credentials: Credentials,
    /// The address of this machine that the head sees.
    pub own_ip: IpAddr,
    /// The address of the head that answered.
    pub head: SocketAddr,
}

/// Why a newcomer was not let in.
#[derive(Debug, thiserror::Error)]
pub enum JoinFailure {
    /// The name means no address.
    #[error("the name cannot be resolved: {0}")]
    Unresolved(#[source] io::Error),
    /// Nobody answers there.
    #[error(
        "nothing answers there: {0}. Check the address, that the head was started with --port and --node-ip-address, and what lies between"
    )]
    Unreachable(#[source] io::Error),
    /// What answers is not the head of the token's cluster (NETWORK-3).
    #[error(
        "what answers is not the cluster of this token: the token is another cluster's, or of an earlier start of this one. Copy the file that `oxiray start --head` names again"
    )]
    Foreign,
    /// The secret is not the cluster's.
    #[error("it does not know this token: its secret is wrong. Copy the file that `oxiray start --head` names again")]
    Refused,
    /// The token was one of the cluster's, and is not any more.
    #[error(
        "this token holds no longer: its time is over, its uses are spent, or it was revoked. Make another on the head's machine with `oxiray token create`"
    )]
    Ended,
    /// The identity is in use, or was.
    #[error("this node's identity is that of another node, and it has not shown that node's key: start it again")]
    Taken,
    /// The machine was shut out.
    #[error(
        "this node was drained, or its certificate was revoked: start it again with a token that holds, where it is to come back"
    )]
    Revoked,
    /// The head could not write down that the newcomer was let in.
    #[error("it lets nobody in for now, since it cannot write it down: its daemon.log says why")]
    Unwritten,
    /// Others at this machine's address have shown wrong secrets.
    #[error(
        "too many wrong secrets came from this machine's address within the last 10 s, so that it looks at none for now: try again after that"
    )]
    Barred,
    /// The head's certificate is not valid by this machine's clock.
    #[error(
        "its certificate is not valid at this machine's time: set the clocks of both machines, an hour's difference is too much"
    )]
    Clock,
    /// The versions do not fit.
    #[error("it speaks another version than this one: install the same oxiray on both machines")]
    Version,
    /// The connection broke, or what came was no answer.
    #[error("it does not answer as a head does: {0}")]
    Broken(#[source] io::Error),
}

/// Goes to the head, proves the token's secret, and comes back with a certificate. It blocks.
///
/// # Errors
/// See [`JoinFailure`].
pub fn join(newcomer: &Newcomer<'_>) -> Result<Joined, JoinFailure> {
    let mut tcp = reach(newcomer)?;
    let broken = JoinFailure::Broken;
    tcp.set_nodelay(true).map_err(broken)?;
    tcp.set_read_timeout(Some(newcomer.limit)).map_err(broken)?;
    tcp.set_write_timeout(Some(newcomer.limit)).map_err(broken)?;
    let mut connection = tls::joining(newcomer.token.fingerprint, newcomer.protocol, newcomer.before).map_err(other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut tcp).map_err(judged)?;
    }
    if connection.alpn_protocol() != Some(newcomer.protocol) {
        return Err(JoinFailure::Version);
    }
    let key = Renewal::begin().map_err(other)?;
    let public_key = key.whole_public_key().ok_or_else(|| other("a key of another length"))?;
    let exported = connection.export_keying_material([0; PART_BYTES], EXPORTER, None).map_err(other)?;
    let predecessor = newcomer.predecessor.unwrap_or(NodeId::NIL);
    let greeting = JoinGreeting::new(newcomer.node, predecessor, public_key, newcomer.token, &exported);
    let certified = exchange(&mut connection, &mut tcp, &greeting.to_bytes())?;
    let chain = connection.peer_certificates().unwrap_or_default();
    let authority = chain.iter().find(|shown| crate::authority::fingerprint(shown) == newcomer.token.fingerprint);
    let authority = authority.ok_or(JoinFailure::Foreign)?.clone().into_owned();
    let credentials = key.credentials(authority, certified, newcomer.protocol).map_err(other)?;
    let (own, head) = (tcp.local_addr().map_err(broken)?, tcp.peer_addr().map_err(broken)?);
    Ok(Joined { tls: connection.into(), tcp, credentials, own_ip: own.ip(), head })
}

fn reach(newcomer: &Newcomer<'_>) -> Result<TcpStream, JoinFailure> {
    let addresses = newcomer.address.to_socket_addrs().map_err(JoinFailure::Unresolved)?;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, newcomer.limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(JoinFailure::Unreachable(last))
}

/// Says the greeting and reads the certificate that answers it.
fn exchange(connection: &mut ClientConnection, tcp: &mut TcpStream, greeting: &[u8]) -> Result<Certified, JoinFailure> {
    // A head that knows no such secret may close before it has read everything.
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => JoinFailure::Refused,
        _ => judged(error),
    };
    let mut stream = rustls::Stream::new(connection, tcp);
    stream.write_all(greeting).and_then(|()| stream.flush()).map_err(ended)?;
    let mut verdict = [0];
    stream.read_exact(&mut verdict).map_err(ended)?;
    if verdict[0] != ADMITTED {
        return Err(Refusal::of(verdict[0]).into());
    }
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer).map_err(judged)?;
    let (now, rest) = answer.split_at(8);
    let (lifetime, length) = rest.split_at(4);
    let length = usize::from(u16::from_le_bytes(length.try_into().expect("two bytes are left")));
    if length > CERTIFICATE_BYTES_LIMIT {
        return Err(JoinFailure::Broken(io::Error::new(ErrorKind::InvalidData, "it sent too large a certificate")));
    }
    let mut certificate = vec![0; length];
    stream.read_exact(&mut certificate).map_err(judged)?;
    let now_s = u64::from_le_bytes(now.try_into().expect("there are eight bytes"));
    let lifetime_s = u32::from_le_bytes(lifetime.try_into().expect("there are four bytes"));
    Ok(Certified { certificate, now_s, lifetime_s })
}

impl From<Refusal> for JoinFailure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Secret => Self::Refused,
            Refusal::Barred => Self::Barred,
            Refusal::Ended => Self::Ended,
            Refusal::Taken => Self::Taken,
            Refusal::Revoked => Self::Revoked,
            Refusal::Unwritten => Self::Unwritten,
        }
    }
}

fn other<E: std::fmt::Debug>(error: E) -> JoinFailure {
    JoinFailure::Broken(io::Error::other(format!("{error:?}")))
}

fn judged(error: io::Error) -> JoinFailure {
    match error.get_ref().and_then(|source| source.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            JoinFailure::Foreign
        }
        Some(TlsError::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => JoinFailure::Clock,
        Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol)) => JoinFailure::Version,
        _ => JoinFailure::Broken(error),
    }
}
