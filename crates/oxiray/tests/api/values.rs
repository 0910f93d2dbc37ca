//! Values that are read in place, references inside of values.

use crate::LIMIT;
use oxiray::{Array, Blob, ObjectRef, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether the memory is part of an object of the store that this process has mapped, and may not write to.
fn is_in_the_store(first: *const u8, length: usize) -> bool {
    let (begin, end) = (first as usize, first as usize + length);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapping = maps.lines().find(|line| {
        let (from, to) = line.split_whitespace().next().and_then(|range| range.split_once('-')).unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        number(from) <= begin && end <= number(to)
    });
    mapping.is_some_and(|line| line.contains("memfd:oxiray-object") && line.split_whitespace().nth(1) == Some("r--s"))
}

#[oxiray::remote]
fn blob_is_in_place(bytes: Blob) -> bool {
    bytes.len() == 1 << 20 && bytes.iter().all(|byte| *byte == 7) && is_in_the_store(bytes.as_ptr(), bytes.len())
}

#[oxiray::remote]
fn view_is_in_place(numbers: Array<f64>) -> bool {
    let view = numbers.view();
    let row = ndarray::Array1::from_elem(1024, 2.0).into_dyn();
    view.shape() == [512, 1024]
        && view.outer_iter().all(|part| part == row)
        && is_in_the_store(view.as_ptr().cast(), view.len() * 8)
}

#[oxiray::remote]
fn made(count: usize) -> Array<f64> {
    Array::from(ndarray::Array1::from_elem(count, 2.5))
}

/// Named as the code that the macro makes might name its own.
#[oxiray::remote]
fn named(named: i64, call: i64, answer: i64, outgoing: i64, r#type: i64) -> i64 {
    named + call + answer + outgoing + r#type
}

struct Named(i64);

#[oxiray::remote(num_cpus = 0)]
impl Named {
    pub fn new(call: i64, answer: i64, outgoing: i64, options: i64) -> Self {
        Self(call + answer + outgoing + options)
    }

    pub fn method(&mut self, method: i64, actor: i64, state: i64) -> i64 {
        self.0 += method + actor + state;
        self.0
    }
}

pub(crate) fn arguments_may_have_any_names() {
    assert_eq!(named::remote(1, 2, 3, 4, 5).unwrap().get_timeout(LIMIT).unwrap(), 15);
    let actor = Named::remote(1, 2, 3, 4).unwrap();
    assert_eq!(actor.method(5, 6, 7).unwrap().get_timeout(LIMIT).unwrap(), 28);
}

pub(crate) fn large_values_are_read_in_the_store() {
    let bytes = oxiray::put(&Blob::from(vec![7_u8; 1 << 20])).unwrap();
    assert!(blob_is_in_place::remote(&bytes).unwrap().get_timeout(LIMIT).unwrap());
    let own = bytes.get().unwrap();
    assert!(is_in_the_store(own.as_ptr(), own.len()));
    let numbers = ndarray::Array2::from_elem((512, 1024), 2.0);
    let numbers = oxiray::put(&Array::from(numbers)).unwrap();
    assert!(view_is_in_place::remote(&numbers).unwrap().get_timeout(LIMIT).unwrap());
    // An argument that is passed as it is goes into the store once, with the call's others.
    assert!(blob_is_in_place::remote(Blob::from(vec![7_u8; 1 << 20])).unwrap().get_timeout(LIMIT).unwrap());
    let result = made::remote(1_usize << 17).unwrap().get_timeout(LIMIT).unwrap();
    assert_eq!(result.as_slice(), vec![2.5; 1 << 17]);
    assert!(is_in_the_store(result.as_slice().as_ptr().cast(), result.as_slice().len() * 8));
}

#[derive(Debug, Serialize, Deserialize)]
struct Parcel {
    name: String,
    content: BTreeMap<String, ObjectRef<i64>>,
    spare: Option<ObjectRef<String>>,
}

#[oxiray::remote]
fn one_more(number: i64) -> i64 {
    number + 1
}

/// What it returns refers to what it made, and to what it was given.
#[oxiray::remote]
fn packed(given: Vec<ObjectRef<i64>>) -> Result<Parcel> {
    let made = one_more::remote(&given[0])?;
    let content = BTreeMap::from([("given".to_owned(), given[0].clone()), ("made".to_owned(), made)]);
    Ok(Parcel { name: "parcel".into(), content, spare: Some(oxiray::put(&"spare".to_owned())?) })
}

#[oxiray::remote]
fn opened(parcel: Parcel) -> Result<(i64, String)> {
    let sum = parcel.content.values().map(ObjectRef::get).sum::<Result<i64>>()?;
    Ok((sum, parcel.spare.map_or(Ok(String::new()), |spare| spare.get())? + &parcel.name))
}

#[oxiray::remote]
fn reference_to(number: i64) -> Result<ObjectRef<i64>> {
    oxiray::put(&number)
}

pub(crate) fn references_nest() {
    let first = oxiray::put(&20).unwrap();
    let parcel = packed::remote(vec![first.clone()]).unwrap();
    assert_eq!(opened::remote(&parcel).unwrap().get_timeout(LIMIT).unwrap(), (41, "spareparcel".to_owned()));
    // Here, too, and after everybody else has let go.
    drop(first);
    let parcel = parcel.get_timeout(LIMIT).unwrap();
    assert_eq!(parcel.content["made"].get_timeout(LIMIT).unwrap(), 21);
    assert_eq!(parcel.content["given"].get_timeout(LIMIT).unwrap(), 20);
    assert_eq!(parcel.spare.unwrap().get_timeout(LIMIT).unwrap(), "spare");
    let outer: ObjectRef<ObjectRef<i64>> = reference_to::remote(5).unwrap();
    assert_eq!(outer.get_timeout(LIMIT).unwrap().get_timeout(LIMIT).unwrap(), 5);
}
