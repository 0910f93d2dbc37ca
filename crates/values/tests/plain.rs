//! Pieces of Python's built-in values come back as they went, and damaged ones are refused.

use oxiray_values::ValueError;
use oxiray_values::plain::{Piece, Pieces, write};
use proptest::prelude::*;

fn written(pieces: &[(Piece<'_>, bool)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (piece, is_shared) in pieces {
        write(&mut body, *piece, *is_shared);
    }
    body
}

#[test]
fn every_piece_comes_back() {
    let pieces = [
        (Piece::Dict(2), true),
        (Piece::Text("naïve".as_bytes()), true),
        (Piece::Tuple(3), true),
        (Piece::Int(i64::MIN), false),
        (Piece::Int(i64::MAX), false),
        (Piece::Int(-1), false),
        (Piece::List(2), false),
        (Piece::Float(-0.0), false),
        (Piece::LongInt(b"-0x1ffffffffffffffff"), false),
        (Piece::Set(1), true),
        (Piece::Bytes(b""), false),
        (Piece::FrozenSet(0), false),
        (Piece::ByteArray(&[7; 300]), true),
        (Piece::BytesBeside(200), true),
        (Piece::ByteArrayBeside(0), false),
        (Piece::Again(3), false),
        (Piece::Bool(true), false),
        (Piece::Bool(false), false),
        (Piece::Null, false),
    ];
    let body = written(&pieces);
    let mut read = Pieces::new(&body);
    for piece in pieces {
        assert_eq!(read.take().expect("it was written"), piece);
    }
    assert!(read.is_empty());
    assert_eq!(read.take(), Err(ValueError::Malformed));
}

#[test]
fn no_length_is_trusted() {
    for body in [&[12, 200, 1, 0][..], &[13, 1, 0], &[6, 5, b'a'], &[5, 0, 0], &[3, 0xff], &[17], &[3, 0x80]] {
        assert_eq!(Pieces::new(body).take(), Err(ValueError::Malformed), "{body:?}");
    }
    let endless = [&[6][..], &[0xff; 11]].concat();
    assert_eq!(Pieces::new(&endless).take(), Err(ValueError::Malformed));
}

proptest! {
    #[test]
    fn random_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut pieces = Pieces::new(&bytes);
        let read = std::iter::from_fn(|| pieces.take().ok()).count();
        prop_assert!(read <= bytes.len());
    }

    #[test]
    fn whole_numbers_come_back(int in any::<i64>()) {
        let body = written(&[(Piece::Int(int), false)]);
        prop_assert_eq!(Pieces::new(&body).take(), Ok((Piece::Int(int), false)));
    }
}
