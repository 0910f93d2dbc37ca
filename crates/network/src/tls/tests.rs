//! The records that the product seals and opens, with an unmodified rustls at the other end.

use super::*;
use crate::authority::Authority;
use oxiray_records::{CONTENT_MAX, Kind, Opener, RECORD_MAX, Sealer};
use rustls::Connection;
use std::io::{Read as _, Write as _};

const PROTOCOL: &[u8] = b"oxiray/test";
const SUITES: [(CipherSuite, &str); 3] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "Aes128Gcm"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "Aes256Gcm"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "ChaCha20Poly1305"),
];
/// Lengths of what is said at once: of less than a record, of one, and of several.
const LENGTHS: [usize; 8] = [1, 2, 17, 255, CONTENT_MAX - 1, CONTENT_MAX, CONTENT_MAX + 1, 100_000];
/// A key update that asks for none in return (RFC 8446, 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// What `from` has to say is heard by `to`.
fn carry(from: &mut Connection, to: &mut Connection) {
    let said = written(from);
    assert!(hear(to, &said).is_empty(), "a handshake has no content");
}

/// Lets rustls open records; what their content is.
fn hear(by: &mut Connection, mut bytes: &[u8]) -> Vec<u8> {
    let mut heard = Vec::new();
    while !bytes.is_empty() {
        by.read_tls(&mut bytes).expect("there is room");
        by.process_new_packets().expect("the peer has sealed it");
        let mut piece = [0; CONTENT_MAX];
        while let Ok(count @ 1..) = by.reader().read(&mut piece) {
            heard.extend_from_slice(&piece[..count]);
        }
    }
    heard
}

fn written(by: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while by.wants_write() {
        by.write_tls(&mut bytes).expect("there is room");
    }
    bytes
}

/// One end as the product has it, once its handshake is over, and the other as rustls has it.
struct Ends {
    sealer: Sealer,
    opener: Opener,
    peer: Connection,
}

impl Ends {
    /// With the product as who dials, or as who is dialled.
    fn agreed(suite: (CipherSuite, &str), dials: bool) -> Self {
        let authority = Authority::make().expect("an authority");
        let node = NodeId::generate();
        let credentials = authority.head_credentials(node, PROTOCOL).expect("credentials");
        let Identity { authority, certificate, key } = &*credentials.identity;
        let chain = vec![certificate.clone(), authority.clone()];
        let mut client = ClientConfig::builder_with_provider(preferring(suite.0))
            .with_protocol_versions(&[&TLS13])
            .expect("it is spoken")
            .with_root_certificates(roots_of(authority).expect("a root"))
            .with_client_auth_cert(chain, key.clone_key().into())
            .expect("a key");
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.enable_secret_extraction = true;
        let name = server_name(name_of(node)).expect("a name");
        let mut client: Connection = rustls::ClientConnection::new(Arc::new(client), name).expect("a client").into();
        client.set_buffer_limit(None);
        let mut server = credentials.accepting().expect("a server");
        while client.wants_write() || server.wants_write() {
            carry(&mut client, &mut server);
            carry(&mut server, &mut client);
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        let (ours, peer) = if dials { (client, server) } else { (server, client) };
        let secrets = ours.dangerous_extract_secrets().expect("they may be had");
        let (sealing, opening) = (secret_of(secrets.tx).expect("known"), secret_of(secrets.rx).expect("known"));
        assert!(format!("{sealing:?}").contains(suite.1), "{sealing:?}");
        let (sealer, opener) = (Sealer::new(&sealing).expect("keys"), Opener::new(&opening).expect("keys"));
        Self { sealer, opener, peer }
    }

    /// With every suite, and as either end.
    fn all() -> impl Iterator<Item = Self> {
        SUITES.into_iter().flat_map(|suite| [true, false].map(|dials| Self::agreed(suite, dials)))
    }

    fn seal(&mut self, kind: Kind, head: &[u8], body: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        self.sealer.seal(kind, head, body, &mut sealed).expect("sealed");
        sealed
    }

    /// The records of these bytes, opened.
    fn open(&mut self, mut bytes: &[u8]) -> Vec<(Kind, Vec<u8>)> {
        let mut opened = Vec::new();
        while let Some(length) = Opener::length(bytes).expect("a record") {
            assert!(length <= RECORD_MAX);
            let mut record = bytes[..length].to_vec();
            let (kind, count) = self.opener.open(&mut record, 0).expect("the peer has sealed it");
            opened.push((kind, record[..count].to_vec()));
            bytes = &bytes[length..];
        }
        assert!(bytes.is_empty(), "rustls ends with a whole record");
        opened
    }
}

fn text(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 + seed) as u8).collect()
}

#[test]
fn rustls_opens_what_is_sealed_here() {
    for mut ends in Ends::all() {
        for (number, length) in LENGTHS.into_iter().enumerate() {
            let words = text(length, number);
            for head in [0, length / 3, length] {
                let sealed = ends.seal(Kind::Data, &words[..head], &words[head..]);
                assert!(hear(&mut ends.peer, &sealed) == words, "{length} bytes, {head} of them as a head");
            }
        }
        // Far more records than one byte of the sequence number counts.
        for number in 0..1000 {
            let sealed = ends.seal(Kind::Data, &text(number % 50 + 1, number), &[]);
            assert_eq!(hear(&mut ends.peer, &sealed), text(number % 50 + 1, number));
        }
    }
}

#[test]
fn what_rustls_seals_is_opened_here() {
    for mut ends in Ends::all() {
        for (number, length) in LENGTHS.into_iter().chain((0..1000).map(|number| number % 50 + 1)).enumerate() {
            ends.peer.writer().write_all(&text(length, number)).expect("there is room");
            let sealed = written(&mut ends.peer);
            let opened = ends.open(&sealed);
            assert_eq!(opened.len(), length.div_ceil(CONTENT_MAX));
            assert!(opened.iter().all(|(kind, _)| *kind == Kind::Data));
            assert!(opened.into_iter().flat_map(|(_, content)| content).eq(text(length, number)));
        }
    }
}

#[test]
fn an_end_is_known_from_a_cut_at_both_ends() {
    for mut ends in Ends::all() {
        let mut nothing = [0; 1];
        let sealed = ends.seal(Kind::Data, b"last", &[]);
        assert_eq!(hear(&mut ends.peer, &sealed), b"last");
        ends.peer.read_tls(&mut &[][..]).expect("the connection ended");
        ends.peer.process_new_packets().expect("nothing came");
        let cut = ends.peer.reader().read(&mut nothing).expect_err("nobody said that it ends");
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof);
        let closed = ends.seal(Kind::Alert, &[1, 0], &[]);
        assert!(hear(&mut ends.peer, &closed).is_empty());
        assert_eq!(ends.peer.reader().read(&mut nothing).expect("it ends"), 0);
        ends.peer.send_close_notify();
        let sealed = written(&mut ends.peer);
        assert_eq!(ends.open(&sealed), [(Kind::Alert, vec![1, 0])]);
    }
}

#[test]
fn rustls_refuses_what_is_not_sealed_for_it() {
    for mut ends in Ends::all() {
        let first = ends.seal(Kind::Data, b"first", &[]);
        let second = ends.seal(Kind::Data, b"second", &[]);
        ends.peer.read_tls(&mut &second[..]).expect("there is room");
        assert!(ends.peer.process_new_packets().is_err(), "a record was left out");
        assert_ne!(first, second);
    }
}

/// What the product does with it is tested where records are read: it ends the stream.
#[test]
fn a_key_update_of_rustls_is_seen_as_what_tls_says_itself() {
    for mut ends in Ends::all() {
        ends.peer.refresh_traffic_keys().expect("it may");
        ends.peer.writer().write_all(b"under the next keys").expect("there is room");
        let sealed = written(&mut ends.peer);
        let length = Opener::length(&sealed).expect("a record").expect("whole");
        let opened = ends.open(&sealed[..length]);
        assert_eq!(opened, [(Kind::Handshake, [&KEY_UPDATE[..4], &[1]].concat())]);
        let mut next = sealed[length..].to_vec();
        assert!(ends.opener.open(&mut next, 0).is_err(), "it is sealed with other keys");
    }
}
