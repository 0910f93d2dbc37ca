use super::*;
use crate::direct_transfer::Load;
use crate::direct_transfer::tests::Bytes;
use oxiray_records::{Cipher, Secret};
use proptest::prelude::*;

/// A connection that gives what it has in reads of at most so many bytes.
struct Wire<'bytes> {
    bytes: &'bytes [u8],
    read_max: usize,
}

impl Read for Wire<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.read_max.min(room.len()).min(self.bytes.len());
        let (now, later) = self.bytes.split_at(count);
        room[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

/// A connection that gives what it has, and ends with that.
struct Cut<'bytes>(Wire<'bytes>);

impl Read for Cut<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.0.bytes.is_empty() { Ok(0) } else { self.0.read(room) }
    }
}

fn pair() -> (Sealer, Opener) {
    let secret = Secret::new(Cipher::ChaCha20Poly1305, &[7; 32], &[9; 12], 0).expect("a key");
    (Sealer::new(&secret).expect("keys"), Opener::new(&secret).expect("keys"))
}

/// Two ends: what the first seals the second opens.
fn ends() -> ((Arc<DirectTransfer>, ObjectStream), (Arc<DirectTransfer>, ObjectStream)) {
    let end = |sealer, opener| {
        let direct_transfer = Arc::new(DirectTransfer::default());
        (direct_transfer.clone(), ObjectStream::with(direct_transfer, sealer, opener, Vec::new()))
    };
    let ((there, here), (back, forth)) = (pair(), pair());
    (end(there, forth), end(back, here))
}

/// All that goes out where the local socket gives `local` in reads of `read` bytes.
fn sent(object_stream: &mut ObjectStream, local: &[u8], read: usize) -> Vec<u8> {
    let (mut wire, mut local) = (Vec::new(), local.chunks(read));
    loop {
        while object_stream.has_unsent() {
            object_stream.send(&mut wire).expect("it has room");
        }
        if object_stream.pack_due().expect("it can be read") {
            continue;
        }
        let Some(bytes) = local.next() else { return wire };
        object_stream.pack(bytes).expect("it can be sealed");
    }
}

#[test]
fn a_large_load_lands_where_it_belongs_and_what_follows_it_is_heard() {
    let ((giving, mut near), (taking, mut far)) = ends();
    let size = PARCEL_BYTES as usize + 3 * CONTENT_MAX + 77;
    let source: Vec<u8> = (0..size).map(|place| (place % 251) as u8).collect();
    let target = Bytes::new(&vec![255; size + 1]);
    giving.load(3, Load { tag: 1, memory: Bytes::new(&source), offset: 0, bytes: size as u64 });
    taking.open(1, target.clone(), size as u64);
    let wire = sent(&mut near, b"onetwo", 6);
    let (mut wire, mut heard) = (Wire { bytes: &wire, read_max: usize::MAX }, Vec::new());
    while !wire.bytes.is_empty() {
        far.receive(&mut wire, &mut heard).expect("it is well formed");
    }
    assert_eq!(heard, b"onetwo");
    let written = target.contents();
    assert!(written[..size] == source && written[size] == 255);
}

#[test]
fn a_hold_that_closes_in_the_middle_is_written_no_more_and_the_stream_goes_on() {
    let ((giving, mut near), (taking, mut far)) = ends();
    let size = 20 * CONTENT_MAX;
    let target = Bytes::new(&vec![9; size]);
    giving.load(0, Load { tag: 1, memory: Bytes::new(&vec![1; size]), offset: 0, bytes: size as u64 });
    taking.open(1, target.clone(), size as u64);
    let wire = sent(&mut near, b"behind", 6);
    let (mut wire, mut heard) = (Wire { bytes: &wire, read_max: 7 * CONTENT_MAX / 2 }, Vec::new());
    far.receive(&mut wire, &mut heard).expect("it is well formed");
    far.receive(&mut wire, &mut heard).expect("it is well formed");
    taking.close(1);
    let written = target.contents();
    assert!(written[0] == 1 && written[size - 1] == 9, "it was closed in the middle");
    while !wire.bytes.is_empty() {
        far.receive(&mut wire, &mut heard).expect("it is well formed");
    }
    assert_eq!(heard, b"behind");
    assert!(target.contents() == written);
}

#[test]
fn an_end_is_told_behind_what_was_said() {
    let ((_, mut near), (_, mut far)) = ends();
    near.pack(b"last").expect("it can be sealed");
    near.close().expect("it can be sealed");
    let wire = sent(&mut near, b"", 1);
    let (mut wire, mut heard) = (Wire { bytes: &wire, read_max: usize::MAX }, Vec::new());
    assert_eq!(far.receive(&mut wire, &mut heard).expect("it is well formed"), Came::Ended);
    assert_eq!(heard, b"last");
}

/// RECORDS-3: messages of a known length are told apart by who reads the local socket; here it hears only of what was sent
/// before the cut, and of nothing behind a load that is not all there.
#[test]
fn a_stream_that_is_cut_at_any_byte_ends_and_gives_nothing_behind_the_cut() {
    let ((giving, mut near), _) = ends();
    let (size, before, after) = (2 * CONTENT_MAX + 1000, &b"before the load"[..], &b"behind it"[..]);
    let source: Vec<u8> = (0..size).map(|place| (place % 251) as u8).collect();
    giving.load(before.len() as u64, Load { tag: 1, memory: Bytes::new(&source), offset: 0, bytes: size as u64 });
    let wire = sent(&mut near, &[before, after].concat(), 100);
    let whole = [before, after].concat();
    // At each byte near where records and parcels begin and end, and here and there within their content.
    let ends_of_records: Vec<usize> = std::iter::successors(Some(0), |from| {
        let length = Opener::length(&wire[*from..]).expect("a record")?;
        Some(from + length)
    })
    .collect();
    let is_near = |at: &usize| ends_of_records.iter().any(|end| end.abs_diff(*at) < 40) || at.is_multiple_of(499);
    assert_eq!(ends_of_records.last(), Some(&wire.len()));
    for end in (0..wire.len()).filter(is_near) {
        let (_, (taking, mut far)) = ends();
        let target = Bytes::new(&vec![255; size]);
        taking.open(1, target.clone(), size as u64);
        let (mut cut, mut heard) = (Cut(Wire { bytes: &wire[..end], read_max: 5000 }), Vec::new());
        // As many calls as there are reads: it must come to an end.
        let ended = (0..wire.len()).any(|_| far.receive(&mut cut, &mut heard).expect("well formed") == Came::Ended);
        assert!(ended && whole.starts_with(&heard) && heard.len() < whole.len(), "{end} bytes");
        if heard.len() > before.len() {
            assert!(target.contents() == source, "DIRECT_TRANSFER-1, {end} bytes");
        }
        let opened: usize = ends_of_records.iter().filter(|at| **at <= end).count() - 1;
        assert_eq!(opened == 0, heard.is_empty(), "what was whole is heard, {end} bytes");
    }
}

#[test]
fn a_key_update_ends_the_stream_and_a_ticket_does_not() {
    let ((_, mut near), (_, mut far)) = ends();
    near.sealer.seal(Kind::Handshake, &[NEW_SESSION_TICKET, 0, 0, 0], &[], &mut near.out).expect("sealed");
    near.pack(b"heard").expect("sealed");
    near.sealer.seal(Kind::Handshake, &[24, 0, 0, 1, 0], &[], &mut near.out).expect("sealed");
    let wire = sent(&mut near, b"", 1);
    let (mut wire, mut heard) = (Wire { bytes: &wire, read_max: usize::MAX }, Vec::new());
    let refused = far.receive(&mut wire, &mut heard).expect_err("no other keys are agreed on");
    assert_eq!((refused.kind(), &heard[..]), (ErrorKind::InvalidData, &b"heard"[..]));
}

proptest! {
    #[test]
    fn loads_arrive_in_their_place_however_all_is_cut(
        local in proptest::collection::vec(any::<u8>(), 0..200),
        mut loads in proptest::collection::vec((0_usize..200, 0_usize..40_000, 0_usize..80_000), 0..4),
        (read, read_max) in (1_usize..50, 1_usize..40_000),
    ) {
        const SIZE: usize = 120_000;
        loads.sort_unstable();
        let source: Vec<u8> = (0..SIZE).map(|place| (place % 251) as u8).collect();
        let ((giving, mut near), (taking, mut far)) = ends();
        let mut targets = Vec::new();
        for (tag, (position, offset, bytes)) in (1..).zip(&loads).filter(|(_, (_, _, bytes))| *bytes > 0) {
            let position = (*position).min(local.len());
            let load = Load { tag, memory: Bytes::new(&source), offset: *offset as u64, bytes: *bytes as u64 };
            giving.load(position as u64, load);
            let target = Bytes::new(&vec![255; SIZE]);
            taking.open(tag, target.clone(), SIZE as u64);
            targets.push((tag, position, *offset..offset + bytes, target));
        }
        let wire = sent(&mut near, &local, read);
        let (mut wire, mut heard) = (Wire { bytes: &wire, read_max }, Vec::new());
        while !wire.bytes.is_empty() {
            let heard_before = heard.len();
            far.receive(&mut wire, &mut heard).expect("it is well formed");
            for (_, position, range, target) in targets.iter().filter(|_| heard.len() > heard_before) {
                // DIRECT_TRANSFER-1: whoever hears what follows a load finds it written.
                if heard.len() > *position {
                    prop_assert!(target.contents()[range.clone()] == source[range.clone()]);
                }
            }
        }
        prop_assert_eq!(heard, local);
        for (tag, _, range, target) in &targets {
            prop_assert!(taking.is_open(*tag));
            let written = target.contents();
            prop_assert!(written[range.clone()] == source[range.clone()]);
            prop_assert_eq!(written.iter().filter(|byte| **byte != 255).count(), range.len());
        }
    }

    #[test]
    fn no_content_of_a_peer_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let ((_, mut near), (taking, mut far)) = ends();
        taking.open(0x0101_0101_0101_0101, Bytes::new(&[9; 8]), 8);
        near.sealer.seal(Kind::Data, &bytes, &[], &mut near.out).expect("it can be sealed");
        let wire = sent(&mut near, &[], 1);
        let (mut wire, mut heard) = (Wire { bytes: &wire, read_max: usize::MAX }, Vec::new());
        while !wire.bytes.is_empty() {
            far.receive(&mut wire, &mut heard).expect("every header is one");
        }
        prop_assert!(heard.len() <= bytes.len());
    }

    #[test]
    fn no_bytes_of_a_peer_do_harm(bytes in proptest::collection::vec(any::<u8>(), 1..200)) {
        let (_, (taking, mut far)) = ends();
        let target = Bytes::new(&[9; 8]);
        taking.open(1, target.clone(), 8);
        let (mut wire, mut heard) = (Wire { bytes: &bytes, read_max: usize::MAX }, Vec::new());
        let _ = far.receive(&mut wire, &mut heard);
        prop_assert!(heard.is_empty());
        prop_assert_eq!(target.contents(), [9; 8]);
    }
}
