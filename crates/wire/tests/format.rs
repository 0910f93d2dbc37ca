//! The format stays what it is: bodies that were written once are read, and written back byte by byte.

use bytes::{Bytes, BytesMut};
use oxiray_wire::message::{KeyValueAction, SubmissionAction, TokenAction};
use oxiray_wire::shape::{Field, Shape};
use oxiray_wire::{Body as _, FrameError, Message};
use prost::encoding::{DecodeContext, decode_key, decode_varint, encode_key, encode_varint, skip_field};

/// A body of every message with something in every field, one a line: kind, name, and the bytes in hexadecimal digits.
/// Lines are added, and none is changed: an encoder of another make wrote them from the schema of version 1. Where a field
/// stands for one of a closed set of alternatives, it says one of them.
const CORPUS: &str = include_str!("corpus/messages.txt");

/// Fields that say nothing any more, by the path of their numbers: they are read over. Their numbers are not used again.
const RETIRED: &[(&str, &[u32])] = &[("NodeJoin", &[10]), ("NodeResume", &[1, 10]), ("ClusterReport", &[6, 4, 6])];

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
        let paths = RETIRED.iter().filter(|(of, _)| *of == name).map(|(_, path)| *path);
        let body = paths.fold(body, without);
        let mut written = BytesMut::new();
        message.append_body(&mut written);
        assert_eq!((message.body_bytes(), written.freeze()), (body.len(), body), "{debugged}");
    }
}

/// A body without the field that this path of numbers leads to, which it has.
fn without(body: Bytes, path: &[u32]) -> Bytes {
    let (tag, within) = path.split_first().expect("a number");
    let (mut left, mut made, mut was_there) = (body, Vec::new(), false);
    while !left.is_empty() {
        let mut field = left.clone();
        let (number, wire_type) = decode_key(&mut left).expect("a field");
        let key_bytes = field.len() - left.len();
        skip_field(wire_type, number, &mut left, DecodeContext::default()).expect("its value");
        field.truncate(field.len() - left.len());
        if number != *tag {
            made.extend_from_slice(&field);
        } else if !within.is_empty() {
            let mut value = field.slice(key_bytes..);
            decode_varint(&mut value).expect("its length");
            let value = without(value, within);
            encode_key(number, wire_type, &mut made);
            encode_varint(value.len() as u64, &mut made);
            made.extend_from_slice(&value);
        }
        was_there |= number == *tag;
    }
    assert!(was_there, "no field {tag}");
    made.into()
}

#[test]
fn every_message_is_in_the_corpus() {
    let known: Vec<u16> = corpus().map(|(kind, ..)| kind).collect();
    let missing: Vec<_> = Message::KINDS.iter().filter(|kind| !known.contains(kind)).collect();
    assert!(missing.is_empty(), "add a line for each of these kinds to tests/corpus/messages.txt: {missing:?}");
    assert_eq!(known.len(), Message::KINDS.len(), "a kind is never used again, and its line stays");
}

/// What a field is given that must stand for one of a closed set of alternatives.
#[derive(Clone, Copy)]
enum Given {
    Number(u64),
    Word(&'static str),
}

/// Bodies of that shape with nothing in them but a field, at any depth, that stands for an alternative and says `given`.
fn bodies(shape: &Shape, given: Given) -> Vec<Vec<u8>> {
    let within = |tag: u32, value: &[u8]| {
        let mut body = Vec::new();
        encode_varint(u64::from(tag) << 3 | 2, &mut body);
        encode_varint(value.len() as u64, &mut body);
        body.extend_from_slice(value);
        body
    };
    let mut all = Vec::new();
    for (tag, field) in &shape.fields {
        match (field, given) {
            (Field::Alternative(_), Given::Number(number)) => {
                let mut body = Vec::new();
                encode_varint(u64::from(*tag) << 3, &mut body);
                encode_varint(number, &mut body);
                all.push(body);
            }
            (Field::Alternatives(_), Given::Number(number)) => {
                let mut numbers = Vec::new();
                encode_varint(number, &mut numbers);
                all.push(within(*tag, &numbers));
            }
            (Field::Word(_), Given::Word(word)) => all.push(within(*tag, word.as_bytes())),
            (Field::Message(inner), _) => all.extend(bodies(inner, given).iter().map(|body| within(*tag, body))),
            _ => {}
        }
    }
    all
}

#[test]
fn what_stands_for_no_alternative_is_refused_with_what_it_says() {
    // The second would be a number that is known, if 32 bits of it counted.
    let unknown = [
        (Given::Number(99), "99 is no "),
        (Given::Number(1 << 32 | 1), "4294967297 is no "),
        (Given::Word("worker-crashed\n"), "\"worker-crashed\\n\" is no "),
    ];
    for (given, words) in unknown {
        let mut count = 0;
        for kind in Message::KINDS {
            for body in bodies(Shape::of(*kind).expect("a kind"), given) {
                count += 1;
                match Message::decode(*kind, body.into()) {
                    Err(FrameError::Body { error, .. }) if error.to_string().contains(words) => {}
                    other => panic!("kind {kind}: {other:?}"),
                }
            }
        }
        assert!(count > 20, "only {count} fields");
    }
}

#[test]
fn an_unknown_alternative_is_told_of_with_its_field() {
    let refused =
        |kind, body: &'static [u8]| Message::decode(kind, Bytes::from_static(body)).expect_err("it is unknown");
    let field = refused(310, &[2 << 3, 9]).to_string();
    assert!(field.ends_with("TokenAsked.action: 9 is no TokenAction"), "{field}");
    let nested = refused(13, &[2 << 3 | 2, 6, 1 << 3 | 2, 4, b'l', b'o', b's', b't']).to_string();
    assert!(nested.ends_with("Failure.code: LeaseRefused.failure: \"lost\" is no FailureCode"), "{nested}");
}

#[test]
fn a_question_that_does_not_say_what_is_to_be_done_changes_nothing() {
    let asked = |kind| Message::decode(kind, Bytes::new()).expect("nothing must be there");
    assert!(matches!(asked(64), Some(Message::KeyValueRequest(asked)) if asked.action == KeyValueAction::Get));
    assert!(matches!(asked(233), Some(Message::SubmissionAsked(asked)) if asked.action == SubmissionAction::List));
    assert!(matches!(asked(310), Some(Message::TokenAsked(asked)) if asked.action == TokenAction::List));
}
