//! Values come back as they went, in Rust's own encoding and in the common one.

use bytes::Bytes;
use oxiray_values::{Array, Blob, Common, Decoded, Encoded, OUTSIDE_BYTES, ValueError};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Shape {
    Nothing,
    Circle(f64),
    Box { width: u32, height: u32 },
    Line(i8, i8),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    truth: bool,
    whole: i64,
    number: f64,
    text: String,
    perhaps: Option<u16>,
    shapes: Vec<Shape>,
    named: BTreeMap<String, Vec<u8>>,
    small: Blob,
    large: Blob,
    array: Array<f32>,
    unit: (),
    pair: (char, i32),
}

fn everything() -> Everything {
    Everything {
        truth: true,
        whole: i64::MIN,
        number: -0.5,
        text: "naïve".into(),
        perhaps: Some(7),
        shapes: vec![Shape::Nothing, Shape::Circle(1.5), Shape::Box { width: 3, height: 4 }, Shape::Line(-1, 1)],
        named: BTreeMap::from([("a".into(), vec![1, 2]), (String::new(), vec![])]),
        small: Blob::from(&b"few"[..]),
        large: Blob::from(vec![9; OUTSIDE_BYTES * 3 + 1]),
        array: Array::new([2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("six numbers"),
        unit: (),
        pair: ('é', -1),
    }
}

fn native<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let blob = Encoded::native(value).expect("it can be written").into_bytes();
    Decoded::new(&blob).and_then(Decoded::value).expect("it can be read")
}

fn common<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let common = Common::of(value).expect("it can be written");
    let blob = Encoded::common(&common).expect("a common value can be written").into_bytes();
    assert_eq!(Decoded::new(&blob).and_then(Decoded::common).expect("it is one"), common);
    Decoded::new(&blob).and_then(Decoded::value).expect("it can be read")
}

#[test]
fn a_value_of_everything_comes_back() {
    assert_eq!(native(&everything()), everything());
    assert_eq!(common(&everything()), everything());
}

#[test]
fn large_memory_is_read_in_place() {
    let blob = Encoded::native(&everything()).expect("it can be written").into_bytes();
    let read: Everything = Decoded::new(&blob).and_then(Decoded::value).expect("it can be read");
    let within = |memory: &[u8]| blob.as_ptr_range().contains(&memory.as_ptr());
    assert!(within(&read.large));
    assert!(!within(&read.small), "small memory stands in the body, and a copy of it costs less than a reference");
}

#[test]
fn a_common_value_is_what_other_languages_have() {
    let Common::Map(fields) = Common::of(&everything()).expect("it can be written") else {
        panic!("a struct is a map")
    };
    let field = |name: &str| {
        let found = fields.iter().find(|(key, _)| *key == Common::Text(name.into()));
        found.map(|(_, value)| value.clone()).expect("every field is there")
    };
    assert_eq!(field("perhaps"), Common::Int(7));
    assert_eq!(field("unit"), Common::Null);
    assert_eq!(field("pair"), Common::List(vec![Common::Text("é".into()), Common::Int(-1)]));
    assert!(matches!(field("array"), Common::Array(array) if array.kind == "<f4" && array.shape == [2, 3]));
    assert!(matches!(field("large"), Common::Bytes(blob) if blob.len() == OUTSIDE_BYTES * 3 + 1));
    let Common::List(shapes) = field("shapes") else { panic!("a vector is a list") };
    assert_eq!(shapes[0], Common::Text("Nothing".into()));
    assert_eq!(shapes[1], Common::record([("Circle", Common::Float(1.5))]));
}

#[test]
fn what_does_not_fit_says_so() {
    let read = Common::Text("seven".into()).read::<i64>().expect_err("a text is no number");
    assert!(read.to_string().contains("i64") && read.to_string().contains("seven"), "{read}");
    let read = Common::of(&Array::from(vec![1_i64])).expect("it can be written").read::<Array<f64>>();
    assert!(read.expect_err("another kind").to_string().contains("<i8"));
    assert!(Common::of(&u64::MAX).expect_err("too large").to_string().contains("64 bits"));
    for tag in [0, 1, 7, 8] {
        let blob = Bytes::from(vec![tag, 1, 2]);
        assert_eq!(Decoded::new(&blob).expect_err("Python's"), ValueError::OnlyPython);
    }
    assert!(Array::new([2, 2], vec![1.0]).is_err());
    assert_eq!(Common::Int(3).read::<f64>(), Ok(3.0));
}

#[test]
fn pythons_none_is_nothing() {
    assert_eq!(Decoded::new(&Bytes::from_static(&[2])).and_then(Decoded::value::<Option<i64>>), Ok(None));
}

proptest! {
    /// VALUES-2.
    #[test]
    fn no_bytes_are_trusted(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..9) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let _ = Decoded::new(&bytes.into()).and_then(Decoded::value::<Everything>);
    }

    #[test]
    fn a_damaged_value_is_an_error_or_another_value(at in 0_usize..2000, to in any::<u8>()) {
        let mut bytes = Encoded::native(&everything()).expect("it can be written").into_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = to;
        let _ = Decoded::new(&bytes.into()).and_then(Decoded::value::<Everything>);
    }
}
