//! How a newcomer comes to a cluster on another machine: the one connection that is made by hand, before there is a
//! gateway.

use crate::authority::PUBLIC_KEY_BYTES;
use crate::greeting::{ADMITTED, CERTIFICATE_BYTES_LIMIT, EXPORTER, JoinGreeting};
use crate::tls::{self, Credentials};
use crate::token::{JoinToken, PART_BYTES};
use oxiray_ids::NodeId;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
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
    let mut connection = tls::joining(newcomer.token.fingerprint, newcomer.protocol).map_err(other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut tcp).map_err(judged)?;
    }
    if connection.alpn_protocol() != Some(newcomer.protocol) {
        return Err(JoinFailure::Version);
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(other)?;
    let public_key: [u8; PUBLIC_KEY_BYTES] = key.public_key_raw().try_into().map_err(other)?;
    let exported = connection.export_keying_material([0; PART_BYTES], EXPORTER, None).map_err(other)?;
    let predecessor = newcomer.predecessor.unwrap_or(NodeId::NIL);
    let greeting = JoinGreeting::new(newcomer.node, predecessor, public_key, newcomer.token, &exported);
    let certificate = exchange(&mut connection, &mut tcp, &greeting.to_bytes())?;
    let chain = connection.peer_certificates().unwrap_or_default();
    let authority = chain.iter().find(|shown| crate::authority::fingerprint(shown) == newcomer.token.fingerprint);
    let authority = authority.ok_or(JoinFailure::Foreign)?.clone().into_owned();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let credentials = Credentials::new(&authority, certificate, &key, newcomer.protocol).map_err(other)?;
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
fn exchange(
    connection: &mut ClientConnection,
    tcp: &mut TcpStream,
    greeting: &[u8],
) -> Result<CertificateDer<'static>, JoinFailure> {
    // A head that knows no such secret may close before it has read everything.
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => JoinFailure::Refused,
        _ => judged(error),
    };
    let mut stream = rustls::Stream::new(connection, tcp);
    stream.write_all(greeting).and_then(|()| stream.flush()).map_err(ended)?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer[..1]).map_err(ended)?;
    if answer[0] != ADMITTED {
        return Err(JoinFailure::Refused);
    }
    stream.read_exact(&mut answer[1..]).map_err(judged)?;
    let length = usize::from(u16::from_le_bytes([answer[1], answer[2]]));
    if length > CERTIFICATE_BYTES_LIMIT {
        return Err(JoinFailure::Broken(io::Error::new(ErrorKind::InvalidData, "it sent too large a certificate")));
    }
    let mut certificate = vec![0; length];
    stream.read_exact(&mut certificate).map_err(judged)?;
    Ok(CertificateDer::from(certificate))
}

fn other<E: std::fmt::Debug>(error: E) -> JoinFailure {
    JoinFailure::Broken(io::Error::other(format!("{error:?}")))
}

fn judged(error: io::Error) -> JoinFailure {
    match error.get_ref().and_then(|source| source.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            JoinFailure::Foreign
        }
        Some(TlsError::AlertReceived(AlertDescription::NoApplicationProtocol)) => JoinFailure::Version,
        _ => JoinFailure::Broken(error),
    }
}
