//! A stranger: at the TCP ports of daemons and at the sockets of their sessions, with nothing that lets it in.
//!
//! It has an address of its own: who shows wrong secrets is not listened to for a while, and neither are others at the same
//! address that show one.

use super::speech::{self, Speech};
use super::{Pace, Report, is_readable, write_whole};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::Hello;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where it comes from.
const OWN_IP: Ipv4Addr = Ipv4Addr::new(127, 0, 66, 1);
/// What it does in a second at most; a crowd is one thing.
const ACTS_PER_SECOND: u32 = 100;
/// How many connections a crowd has: more than a daemon listens to at once.
const CROWD: std::ops::Range<usize> = 1..160;
/// How many silent connections it keeps in all.
const SILENT_MAX: usize = 400;
/// How long a daemon may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// Bytes of the greeting of a newcomer that shows a proof, and of one that shows a ticket.
const GREETINGS: [(u8, usize); 2] = [(1, 154), (2, 33)];

/// Whom it visits.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where daemons listen.
    pub addresses: Vec<SocketAddr>,
    /// Where daemons have their sessions: the directories that `OXIRAY_TMPDIR` names.
    pub roots: Vec<PathBuf>,
}

/// Interrupts at every door for that long.
pub fn run(options: &Options, seed: u64, lasts: Duration, report: &Path) -> io::Result<()> {
    let (until, mut report) = (Instant::now() + lasts, Report::open(report)?);
    let (mut speech, mut pace) = (Speech::new(seed), Pace::new(ACTS_PER_SECOND));
    let mut stranger = Stranger { tcp: Vec::new(), unix: Vec::new(), tls: unverifying()? };
    while Instant::now() < until {
        pace.keep(1);
        // A daemon that is not there, or hangs up, is what strangers have to expect.
        if speech.chance.bool() {
            let address = options.addresses[speech.chance.usize(..options.addresses.len())];
            let _ = stranger.knocks(address, &mut speech, &mut report);
        } else if let Some(socket) = a_socket(options, &mut speech) {
            let _ = stranger.enters(&socket, &mut speech, &mut report);
        }
        stranger.forget(&mut speech);
    }
    Ok(())
}

#[derive(Debug)]
struct Stranger {
    /// Connections that say nothing, or not enough.
    tcp: Vec<TcpStream>,
    unix: Vec<UnixStream>,
    tls: ClientConfig,
}

impl Stranger {
    /// At a port.
    fn knocks(&mut self, address: SocketAddr, speech: &mut Speech, report: &mut Report) -> io::Result<()> {
        let act = speech.chance.u8(..16);
        let count = if act == 0 { speech.chance.usize(CROWD) } else { 1 };
        let crowd: Vec<TcpStream> = (0..count).map_while(|_| dial(address).ok()).collect();
        report.count("connections to ports", crowd.len() as u64);
        let Some(stream) = crowd.first() else { return Ok(()) };
        match act {
            0..2 => self.tcp.extend(crowd),
            2 => (&*stream).write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?,
            3..5 => (&*stream).write_all(&noise(speech, 2000))?,
            5..7 => {
                let mut hello = self.client_hello()?;
                let place = speech.chance.usize(..hello.len());
                hello[place] = speech.chance.u8(..);
                (&*stream).write_all(&hello)?;
            }
            7 => {
                let hello = self.client_hello()?;
                (&*stream).write_all(&hello[..speech.chance.usize(..hello.len())])?;
                self.tcp.extend(crowd);
            }
            8..10 => (&*stream).write_all(&speech.next(|_| false, speech::any_frame))?,
            _ => self.greets(stream, speech, report)?,
        }
        Ok(())
    }

    /// Within TLS, as if it were somebody.
    fn greets(&self, stream: &TcpStream, speech: &mut Speech, report: &mut Report) -> io::Result<()> {
        let mut config = self.tls.clone();
        config.alpn_protocols = match speech.chance.u8(..8) {
            0 => Vec::new(),
            1 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            2 => vec![b"oxiray/0".to_vec()],
            _ => vec![protocol()],
        };
        let name = ServerName::try_from("head.oxiray").map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut stream = stream;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        report.count("handshakes", 1);
        let (first, length) = GREETINGS[speech.chance.usize(..GREETINGS.len())];
        let mut greeting = noise(speech, length);
        greeting.resize(length, 0);
        greeting[0] = if speech.chance.u8(..) < 24 { speech.chance.u8(..) } else { first };
        if speech.chance.u8(..) < 64 {
            greeting.truncate(speech.chance.usize(..length));
        }
        let mut within = rustls::Stream::new(&mut tls, &mut stream);
        within.write_all(&greeting)?;
        within.flush()?;
        let mut answer = [0];
        if within.read_exact(&mut answer).is_ok() {
            // Whatever is not a refusal would be a stranger that was let in.
            report.count(if answer[0] == 0 { "let in" } else { "refused secrets" }, 1);
        }
        Ok(())
    }

    fn client_hello(&self) -> io::Result<Vec<u8>> {
        let name = ServerName::try_from("head.oxiray").map_err(io::Error::other)?;
        let mut config = self.tls.clone();
        config.alpn_protocols = vec![protocol()];
        let mut hello = Vec::new();
        ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?.write_tls(&mut hello)?;
        Ok(hello)
    }

    /// At a session's socket.
    fn enters(&mut self, socket: &Path, speech: &mut Speech, report: &mut Report) -> io::Result<()> {
        let act = speech.chance.u8(..12);
        let count = if act < 2 { speech.chance.usize(CROWD) } else { 1 };
        let crowd: Vec<UnixStream> = (0..count).map_while(|_| connect(socket).ok()).collect();
        report.count("connections to sockets", crowd.len() as u64);
        let Some(stream) = crowd.first() else { return Ok(()) };
        match act {
            // They go as they came.
            0 => {}
            1..3 => self.unix.extend(crowd),
            3..6 => {
                let token: String = (0..speech.chance.usize(..80)).map(|_| speech.chance.alphanumeric()).collect();
                write_whole(stream, &speech::frame_of(&Hello { token, ..Hello::default() }.into()))?;
                is_readable(stream, ANSWER_LIMIT);
            }
            6 => {
                let hello = speech::frame_of(&Hello::default().into());
                write_whole(stream, &hello[..speech.chance.usize(..hello.len())])?;
                self.unix.extend(crowd);
            }
            7 => write_whole(stream, &crate::frames::header(0, speech.chance.u16(..)))?,
            8 => write_whole(stream, &crate::frames::header(speech.chance.u32(..), 1))?,
            9 => write_whole(stream, &noise(speech, 2000))?,
            _ => {
                let frame = speech.next(|_| false, speech::any_frame);
                write_whole(stream, &frame)?;
            }
        }
        Ok(())
    }

    /// Lets some of the silent ones go.
    fn forget(&mut self, speech: &mut Speech) {
        while self.tcp.len() > SILENT_MAX {
            self.tcp.swap_remove(speech.chance.usize(..self.tcp.len()));
        }
        while self.unix.len() > SILENT_MAX {
            self.unix.swap_remove(speech.chance.usize(..self.unix.len()));
        }
    }
}

fn noise(speech: &mut Speech, bytes_max: usize) -> Vec<u8> {
    (0..speech.chance.usize(1..=bytes_max)).map(|_| speech.chance.u8(..)).collect()
}

fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((OWN_IP, 0)))?;
    rustix::net::connect(&socket, &address)?;
    let stream = TcpStream::from(socket);
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    Ok(stream)
}

/// Without waiting where the daemon's queue is full.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let made = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    rustix::net::connect(&made, &rustix::net::SocketAddrUnix::new(socket)?)?;
    Ok(made.into())
}

/// One of the sockets that daemons have now.
fn a_socket(options: &Options, speech: &mut Speech) -> Option<PathBuf> {
    let below = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let sessions = options.roots.iter().flat_map(|root| below(root.clone())).flat_map(below);
    let sockets: Vec<PathBuf> = sessions.map(|session| session.join("socket")).filter(|path| path.exists()).collect();
    (!sockets.is_empty()).then(|| sockets[speech.chance.usize(..sockets.len())].clone())
}

fn unverifying() -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?;
    let verifier = Arc::new(Unverifying { schemes: provider.signature_verification_algorithms.supported_schemes() });
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// A stranger does not mind who answers.
#[derive(Debug)]
struct Unverifying {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Unverifying {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
