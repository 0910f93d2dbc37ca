//! Results that come one by one, several results of one call, and groups of methods.

use crate::{GateHandle, LIMIT, gate};
use oxiray::{Array, Error, Items, ObjectRef, Result, TaskOptions, block_on};

#[oxiray::remote]
fn squares(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| number * number)
}

/// Its second item is made when somebody opens the gate.
#[oxiray::remote(num_cpus = 0)]
fn with_a_gate(gate: GateHandle) -> impl Iterator<Item = Result<u64>> {
    (0..2).map(move |number| {
        if number == 1 {
            gate.pass()?.get()?;
        }
        Ok(number)
    })
}

#[oxiray::remote]
fn until_the_third(count: u64) -> std::result::Result<impl Iterator<Item = std::result::Result<u64, String>>, String> {
    if count == 0 {
        return Err("nothing to count".into());
    }
    Ok((0..count).map(|number| if number == 2 { Err("no third one".into()) } else { Ok(number) }))
}

#[oxiray::remote]
async fn large(count: usize) -> impl Iterator<Item = Array<f64>> {
    (0..count).map(|number| Array::from(vec![number as f64; 1 << 16]))
}

/// Without an end, and one item ahead of its reader.
#[oxiray::remote(max_unread = 1, num_cpus = 0)]
fn endless(counter: CounterHandle) -> impl Iterator<Item = Result<u64>> {
    (0..).map(move |_| counter.count()?.get())
}

/// Tells when it is dropped, by coming to the gate.
struct Telling(GateHandle);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.pass().unwrap().get().unwrap();
    }
}

#[oxiray::remote(max_unread = 1, num_cpus = 0)]
fn telling(gate: GateHandle) -> impl Iterator<Item = u64> {
    let telling = Telling(gate);
    (0..).inspect(move |_| {
        let _ = &telling;
    })
}

#[derive(Default)]
struct Counter {
    count: u64,
}

#[oxiray::remote(num_cpus = 0)]
impl Counter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Counts as it is read.
    #[remote(max_unread = 2)]
    pub fn counts(&mut self, by: u64, times: usize) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            self.count += by;
            self.count
        })
        .take(times)
    }

    #[remote(num_returns = 2)]
    pub fn state(&self) -> (u64, bool) {
        (self.count, self.count.is_multiple_of(2))
    }
}

/// Its process ends once, before the third item.
#[oxiray::remote(num_cpus = 0)]
fn mortal(counter: CounterHandle) -> impl Iterator<Item = Result<u64>> {
    (0..4).map(move |number| {
        if number == 2 && counter.count()?.get()? == 1 {
            std::process::abort();
        }
        Ok(number)
    })
}

/// A counter that is there: calls from elsewhere find it.
fn counter() -> CounterHandle {
    let counter = Counter::remote().unwrap();
    counter.state().unwrap().0.get_timeout(LIMIT).unwrap();
    counter
}

fn values<T: serde::de::DeserializeOwned>(items: &mut Items<T>) -> Result<Vec<T>> {
    let mut values = Vec::new();
    while let Some(item) = items.next_timeout(LIMIT) {
        values.push(item?.get_timeout(LIMIT)?);
    }
    Ok(values)
}

pub(crate) fn items_come_one_by_one() {
    let mut items = squares::remote(5).unwrap();
    assert_eq!(values(&mut items).unwrap(), [0, 1, 4, 9, 16]);
    assert!(items.is_finished() && items.next().is_none());
    items.completed().get_timeout(LIMIT).unwrap();
    // The first is there while the second is not made yet.
    let gate = gate();
    let mut items = with_a_gate::remote(gate.clone()).unwrap();
    assert_eq!(items.next_timeout(LIMIT).unwrap().unwrap().get_timeout(LIMIT).unwrap(), 0);
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    assert!(matches!(items.next_timeout(crate::MOMENT), Some(Err(Error::TimedOut))));
    gate.open().unwrap();
    assert_eq!(values(&mut items).unwrap(), [1]);
    // Large ones lie in the store; awaited ones are the same.
    let sum = block_on(async {
        let (mut items, mut sum) = (large::remote(3_usize)?, 0.0);
        while let Some(item) = items.next_item().await {
            sum += item?.await?.as_slice()[7];
        }
        Ok::<f64, Error>(sum)
    });
    assert_eq!(sum.unwrap().to_string(), "3");
    // An item is an object like any other, and may be passed on.
    let third = squares::remote(4).unwrap().nth(3).unwrap().unwrap();
    assert_eq!(values(&mut squares::remote(&third).unwrap()).unwrap().len(), 9);
}

pub(crate) fn an_error_is_the_last_item() {
    let mut items = until_the_third::remote(9).unwrap();
    let mut item = || items.next_timeout(LIMIT).map(|item| item.unwrap().get_timeout(LIMIT));
    assert_eq!((item().unwrap().unwrap(), item().unwrap().unwrap()), (0, 1));
    let failed = item().unwrap();
    assert!(matches!(&failed, Err(Error::Task(error)) if error.message == "no third one"), "{failed:?}");
    assert!(item().is_none());
    let mut items = until_the_third::remote(0).unwrap();
    let failed = values(&mut items);
    assert!(matches!(&failed, Err(Error::Task(error)) if error.message == "nothing to count"), "{failed:?}");
}

pub(crate) fn a_generator_that_is_run_again_yields_each_item_once() {
    let counter = counter();
    assert_eq!(values(&mut mortal::remote(counter.clone()).unwrap()).unwrap(), [0, 1, 2, 3]);
    assert_eq!(counter.count().unwrap().get_timeout(LIMIT).unwrap(), 3);
}

pub(crate) fn a_generator_waits_for_its_reader_and_ends_with_it() {
    let counter = counter();
    let mut items = endless::remote(counter.clone()).unwrap();
    for expected in 1..4 {
        assert_eq!(items.next_timeout(LIMIT).unwrap().unwrap().get_timeout(LIMIT).unwrap(), expected);
    }
    // It is at most one item ahead.
    assert!(counter.count().unwrap().get_timeout(LIMIT).unwrap() <= 5);
    let completed = items.completed();
    oxiray::cancel(&completed, false).unwrap();
    let ended = items.find_map(|item| item.unwrap().get_timeout(LIMIT).err());
    assert!(matches!(ended, Some(Error::Cancelled(_))), "{ended:?}");
    let completed = completed.get_timeout(LIMIT);
    assert!(matches!(completed, Err(Error::Cancelled(_))), "{completed:?}");
    // One that nobody reads any more is dropped where it runs.
    let gate = gate();
    let mut items = telling::remote(gate.clone()).unwrap();
    assert_eq!(items.next_timeout(LIMIT).unwrap().unwrap().get_timeout(LIMIT).unwrap(), 0);
    drop(items);
    gate.come(1).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
    // One that is read as it likes is limited by its option.
    let options = TaskOptions::new().max_unread(1);
    assert_eq!(values(&mut squares::remote_with(options, 3).unwrap()).unwrap(), [0, 1, 4]);
}

pub(crate) fn methods_yield_and_have_several_results() {
    let counter = Counter::remote().unwrap();
    let mut items = counter.counts(10, 5_usize).unwrap();
    assert_eq!(values(&mut items).unwrap(), [10, 20, 30, 40, 50]);
    let (count, is_even): (ObjectRef<u64>, ObjectRef<bool>) = counter.state().unwrap();
    assert_eq!((count.get_timeout(LIMIT).unwrap(), is_even.get_timeout(LIMIT).unwrap()), (50, true));
}

#[oxiray::remote(num_returns = 3)]
fn taken_apart(text: String) -> std::result::Result<(String, Array<u8>, ObjectRef<usize>), String> {
    if text.is_empty() {
        return Err("nothing to take apart".into());
    }
    let length = oxiray::put(&text.len()).map_err(|error| error.to_string())?;
    Ok((text.to_uppercase(), Array::from(vec![1; 200 << 10]), length))
}

pub(crate) fn several_results_are_references_of_their_own() {
    let (upper, bytes, length) = taken_apart::remote("abc").unwrap();
    assert_eq!(upper.get_timeout(LIMIT).unwrap(), "ABC");
    drop(upper);
    assert_eq!(bytes.get_timeout(LIMIT).unwrap().as_slice(), vec![1; 200 << 10]);
    assert_eq!(length.get_timeout(LIMIT).unwrap().get_timeout(LIMIT).unwrap(), 3);
    assert_eq!(taken_apart("abc".into()).map(|(upper, ..)| upper).unwrap(), "ABC");
    let (upper, _, length) = taken_apart::remote("").unwrap();
    let failed = (upper.get_timeout(LIMIT).map(drop), length.get_timeout(LIMIT).map(drop));
    for failed in [failed.0, failed.1] {
        assert!(matches!(&failed, Err(Error::Task(error)) if error.message == "nothing to take apart"), "{failed:?}");
    }
}

struct Desk;

#[oxiray::remote(num_cpus = 0, concurrency_groups(side = 2))]
impl Desk {
    pub fn new() -> Self {
        Self
    }

    /// Takes the one thread of no group for as long as the gate is shut.
    pub fn busy(&self, gate: GateHandle) -> Result<()> {
        gate.pass()?.get()
    }

    #[remote(concurrency_group = "side")]
    pub fn aside(&self, gate: GateHandle) -> Result<()> {
        gate.pass()?.get()
    }

    #[remote(concurrency_group = "back")]
    pub fn behind(&self) {}
}

pub(crate) fn a_concurrency_group_has_threads_of_its_own() {
    let gate = gate();
    let desk = Desk::remote().unwrap();
    let calls = [desk.busy(gate.clone()), desk.aside(gate.clone()), desk.aside(gate.clone())];
    let calls = calls.into_iter().collect::<Result<Vec<_>>>().unwrap();
    gate.come(3).unwrap().get_timeout(LIMIT).unwrap();
    gate.open().unwrap();
    assert_eq!(oxiray::get(&calls).unwrap().len(), 3);
    let refused = desk.behind().unwrap().get_timeout(LIMIT);
    assert!(
        matches!(&refused, Err(Error::Task(error)) if error.message.contains("`back`; it has: side")),
        "{refused:?}"
    );
}
