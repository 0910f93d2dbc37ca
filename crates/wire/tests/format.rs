//! The format stays what it is: bodies that were written once are read, and written back byte by byte.

use bytes::{Bytes, BytesMut};
use oxiray_wire::{Body as _, Message};

/// A body of every message with something in every field, one a line: kind, name, and the bytes in hexadecimal digits.
/// Lines are added, and none is changed: an encoder of another make wrote them from the schema of version 1.
const CORPUS: &str = include_str!("corpus/messages.txt");

fn corpus() -> impl Iterator<Item = (u16, &'static str, Bytes)> {
    CORPUS.lines().map(|line| {
        let mut parts = line.split(' ');
        let mut part = || parts.next().unwrap_or_default();
        let (kind, name, digits) = (part(), part(), part());
        let bytes = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("digits")
        });
        (kind.parse().expect("a kind"), name, bytes.collect())
    })
}

#[test]
fn what_was_written_is_read_and_written_the_same() {
    for (kind, name, body) in corpus() {
        let message = match Message::decode(kind, body.clone()) {
            Ok(Some(message)) => message,
            other => panic!("{name} is not read any more: {other:?}"),
        };
        let debugged = format!("{message:?}");
        assert!(debugged.starts_with(&format!("{name}(")), "kind {kind} was {name}, and is {debugged}");
        let mut written = BytesMut::new();
        message.append_body(&mut written);
        assert_eq!((message.body_bytes(), written.freeze()), (body.len(), body), "{debugged}");
    }
}

#[test]
fn every_message_is_in_the_corpus() {
    let known: Vec<u16> = corpus().map(|(kind, ..)| kind).collect();
    let missing: Vec<_> = Message::KINDS.iter().filter(|kind| !known.contains(kind)).collect();
    assert!(missing.is_empty(), "add a line for each of these kinds to tests/corpus/messages.txt: {missing:?}");
    assert_eq!(known.len(), Message::KINDS.len(), "a kind is never used again, and its line stays");
}
