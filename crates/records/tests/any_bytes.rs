//! Whatever bytes come: a record that nobody sealed is refused, and a packet is what it says or none.

use oxiray_records::{Cipher, Handover, Kind, Opener, RECORD_MAX, Sealer, Secret};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

fn keys() -> (Sealer, Opener) {
    let secret = Secret::new(Cipher::ChaCha20Poly1305, &[7; 32], &[9; 12], 0).expect("a key");
    (Sealer::new(&secret).expect("keys"), Opener::new(&secret).expect("keys"))
}

/// Bytes that begin as a packet may: a cipher that there is, and lengths that may be.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let secret =
        (1_u8..4, prop::collection::vec(any::<u8>(), 20..=20), any::<bool>()).prop_map(|(cipher, head, short)| {
            let key = if cipher == 1 { 16 } else { 32 };
            [&[cipher][..], &head, &vec![5; key - usize::from(short && head[0] == 0)]].concat()
        });
    let rest = (0_u32..40, prop::collection::vec(any::<u8>(), 0..60));
    (secret.clone(), secret, rest)
        .prop_map(|(sealing, opening, (early, rest))| [&sealing[..], &opening, &early.to_le_bytes(), &rest].concat())
}

proptest! {
    #[test]
    fn a_record_that_nobody_sealed_is_refused(
        mut place in prop::collection::vec(any::<u8>(), 0..200), from in 0_usize..220, is_header in any::<bool>(),
    ) {
        if let (true, Some(header)) = (is_header, place.get_mut(from..).and_then(|rest| rest.first_chunk_mut::<3>())) {
            *header = [23, 3, 3];
        }
        if let Ok(Some(length)) = Opener::length(&place) {
            prop_assert!(length <= RECORD_MAX);
        }
        prop_assert!(keys().1.open(&mut place, from).is_err());
    }

    #[test]
    fn what_was_sealed_is_opened_whatever_lies_before_it(
        content in prop::collection::vec(any::<u8>(), 1..300), before in 0_usize..300,
    ) {
        let ((mut sealer, mut opener), mut place) = (keys(), vec![0; before]);
        sealer.seal(Kind::Data, &content, &[], &mut place).expect("sealed");
        prop_assert_eq!(opener.open(&mut place, before).ok(), Some((Kind::Data, content.len())));
        prop_assert_eq!(&place[..content.len()], &content[..]);
    }

    /// RECORDS-2 leaves no place for a second reading of the same packet.
    #[test]
    fn a_packet_is_what_was_made_or_none(bytes in prop_oneof![packet(), prop::collection::vec(any::<u8>(), 0..200)]) {
        if let Ok(handover) = Handover::parse(&bytes) {
            prop_assert_eq!(&handover.to_bytes()[..], &bytes[..]);
        }
    }
}

#[test]
fn packets_that_may_be_are_among_those_that_are_tried() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let parsed = (0..100).filter(|_| {
        let bytes = packet().new_tree(&mut runner).expect("a packet").current();
        Handover::parse(&bytes).is_ok()
    });
    assert!(parsed.count() > 20);
}
