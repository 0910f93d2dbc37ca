//! The records of RFC 8448, section 3, "Simple 1-RTT Handshake", and records that the standard allows and the product's
//! sealer never makes.
//!
//! Keys are derived here, from the traffic secrets, by the key schedule of RFC 8446, section 7.3, so that the vectors
//! check what the crate does with them and nothing that it says of itself.

use oxiray_records::{CONTENT_MAX, Cipher, Kind, OVERHEAD, Opener, RECORD_MAX, Sealer, Secret};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};

/// A traffic secret with what follows from it, and the records under it from a sequence number on.
struct Direction {
    traffic_secret: &'static str,
    key: &'static str,
    iv: &'static str,
    /// The server's first record is a session ticket, which says nothing here.
    sequence: u64,
    data: &'static str,
    alert: &'static str,
}

const CLIENT: Direction = Direction {
    traffic_secret: "9e 40 64 6c e7 9a 7f 9d c0 5a f8 88 9b ce 65 52 87 5a fa 0b 06 df 00 87 f7 92 eb b7 c1 75 04 a5",
    key: "17 42 2d da 59 6e d5 d9 ac d8 90 e3 c6 3f 50 51",
    iv: "5b 78 92 3d ee 08 57 90 33 e5 23 d9",
    sequence: 0,
    data: "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc ab 3f 2b 98 19 a8
           a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd 1e 3d ea e6 3a ee bb 21 69 49 15 e4",
    alert: "17 03 03 00 13 c9 87 27 60 65 56 66 b7 4d 7f f1 15 3e fd 6d b6 d0 b0 e3",
};

const SERVER: Direction = Direction {
    traffic_secret: "a1 1a f9 f0 55 31 f8 56 ad 47 11 6b 45 a9 50 32 82 04 b4 f4 4b fb 6b 3a 4b 4f 1f 3f cb 63 16 43",
    key: "9f 02 28 3b 6c 9c 07 ef c2 6b b9 f2 ac 92 e3 56",
    iv: "cf 78 2b 88 dd 83 54 9a ad f1 e9 84",
    sequence: 1,
    data: "17 03 03 00 43 2e 93 7e 11 ef 4a c7 40 e5 38 ad 36 00 5f c4 a4 69 32 fc 32 25 d0 5f 82 aa 1b 36 e3 0e fa f9
           7d 90 e6 df fc 60 2d cb 50 1a 59 a8 fc c4 9c 4b f2 e5 f0 a2 1c 00 47 c2 ab f3 32 54 0d d0 32 e1 67 c2 95 5d",
    alert: "17 03 03 00 13 b5 8f d6 71 66 eb f5 99 d2 47 20 cf be 7e fa 7a 88 64 a9",
};

/// `close_notify`, a warning.
const CLOSE: [u8; 2] = [1, 0];

fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two digits")).collect()
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of RFC 8446 without a context.
fn expand_label(secret: &[u8], label: &str, length: usize) -> Vec<u8> {
    let label = [b"tls13 ", label.as_bytes()].concat();
    let info = [&(length as u16).to_be_bytes()[..], &[label.len() as u8], &label, &[0]].concat();
    let mut expanded = vec![0; length];
    let key = Prk::new_less_safe(HKDF_SHA256, secret);
    key.expand(&[&info], Length(length)).expect("a length").fill(&mut expanded).expect("it fits");
    expanded
}

impl Direction {
    fn secret(&self) -> Secret {
        let traffic_secret = hex(self.traffic_secret);
        let (key, iv) = (expand_label(&traffic_secret, "key", 16), expand_label(&traffic_secret, "iv", 12));
        assert_eq!((&key, &iv), (&hex(self.key), &hex(self.iv)), "as the RFC expands them");
        Secret::new(Cipher::Aes128Gcm, &key, &iv, self.sequence).expect("a key")
    }
}

#[test]
fn the_traces_records_are_sealed_byte_for_byte() {
    let payload: Vec<u8> = (0..50).collect();
    for direction in [CLIENT, SERVER] {
        // In one piece, and as a head with a body.
        for head in [0, 20, 50] {
            let mut sealer = Sealer::new(&direction.secret()).expect("keys");
            let mut out = Vec::new();
            sealer.seal(Kind::Data, &payload[..head], &payload[head..], &mut out).expect("sealed");
            assert_eq!(out, hex(direction.data));
            out.clear();
            sealer.seal(Kind::Alert, &CLOSE, &[], &mut out).expect("sealed");
            assert_eq!(out, hex(direction.alert));
        }
    }
}

#[test]
fn the_traces_records_are_opened() {
    for direction in [CLIENT, SERVER] {
        let mut opener = Opener::new(&direction.secret()).expect("keys");
        let (mut data, mut alert) = (hex(direction.data), hex(direction.alert));
        assert_eq!(Opener::length(&data).expect("a record"), Some(data.len()));
        assert_eq!(opener.open(&mut data, 0).expect("as sealed"), (Kind::Data, 50));
        assert!(data[..50].iter().copied().eq(0..50));
        assert_eq!(opener.open(&mut alert, 0).expect("as sealed"), (Kind::Alert, 2));
        assert_eq!(alert[..2], CLOSE);
    }
}

#[test]
fn a_record_of_the_trace_with_any_bit_changed_is_refused() {
    let sealed = hex(CLIENT.data);
    for bit in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let mut opener = Opener::new(&CLIENT.secret()).expect("keys");
        assert!(opener.open(&mut changed, 0).is_err(), "bit {bit}");
    }
}

/// A record under the client's key, made without the crate: what is in it is sealed as it is.
fn record_of(inner: &[u8]) -> Vec<u8> {
    let length = ((inner.len() + AES_128_GCM.tag_len()) as u16).to_be_bytes();
    let header = [23, 3, 3, length[0], length[1]];
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &hex(CLIENT.key)).expect("a key"));
    // Its sequence number is 0, which leaves the vector as it is.
    let nonce = Nonce::try_assume_unique_for_key(&hex(CLIENT.iv)).expect("twelve bytes");
    let mut sealed = inner.to_vec();
    key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).expect("it fits");
    [&header[..], &sealed].concat()
}

fn opened(mut record: Vec<u8>) -> Option<(Kind, Vec<u8>)> {
    if Opener::length(&record).ok()? != Some(record.len()) {
        return None;
    }
    let mut opener = Opener::new(&CLIENT.secret()).expect("keys");
    let (kind, count) = opener.open(&mut record, 0).ok()?;
    Some((kind, record[..count].to_vec()))
}

#[test]
fn padding_is_no_content_and_a_record_may_have_none() {
    let of = |content: &[u8], kind: u8, padding: usize| [content, &[kind], &vec![0; padding]].concat();
    assert_eq!(opened(record_of(&of(b"", 23, 0))), Some((Kind::Data, Vec::new())));
    assert_eq!(opened(record_of(&of(b"", 23, 200))), Some((Kind::Data, Vec::new())));
    assert_eq!(opened(record_of(&of(&[7, 0, 0], 23, 99))), Some((Kind::Data, vec![7, 0, 0])));
    assert_eq!(opened(record_of(&of(&[24, 0, 0, 1, 0], 22, 3))), Some((Kind::Handshake, vec![24, 0, 0, 1, 0])));
    let largest = vec![9; CONTENT_MAX];
    assert_eq!(opened(record_of(&of(&largest, 23, 0))), Some((Kind::Data, largest)));
    assert_eq!(opened(record_of(&of(&[5], 23, CONTENT_MAX - 1))), Some((Kind::Data, vec![5])));
}

#[test]
fn what_the_standard_forbids_within_a_record_is_refused() {
    assert_eq!(opened(record_of(&[0; 40])), None, "it is of no kind");
    assert_eq!(opened(record_of(&[1, 2, 3, 20])), None, "a change of ciphers is never sealed");
    let too_much = [&vec![9; CONTENT_MAX + 1][..], &[23]].concat();
    assert!(too_much.len() + OVERHEAD <= RECORD_MAX, "its length alone may be");
    assert_eq!(opened(record_of(&too_much)), None, "RFC 8446, 5.4: 2^14 bytes and the kind, padding included");
}

#[test]
fn nothing_is_no_record() {
    let mut out = Vec::new();
    Sealer::new(&CLIENT.secret()).expect("keys").seal(Kind::Data, &[], &[], &mut out).expect("sealed");
    assert!(out.is_empty());
}
