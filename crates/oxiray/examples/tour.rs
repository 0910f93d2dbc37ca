//! Functions, actors, references and errors, from one end to the other.

#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use oxiray::{ActorOptions, Array, Blob, Error, ObjectRef, Result};
use std::time::Duration;

/// Adds.
#[oxiray::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[oxiray::remote(num_cpus = 0)]
async fn total(parts: Vec<ObjectRef<i64>>) -> Result<i64> {
    let mut total = 0;
    for part in parts {
        total += part.await?;
    }
    Ok(total)
}

#[oxiray::remote]
fn fails(with: String) -> std::result::Result<(), String> {
    Err(with)
}

#[oxiray::remote(max_retries = 0)]
fn panics() {
    panic!("as it was told to");
}

#[oxiray::remote]
fn checksum(bytes: Blob) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[oxiray::remote]
fn doubled(numbers: Array<f64>) -> Array<f64> {
    Array::new(numbers.shape(), numbers.as_slice().iter().map(|number| number * 2.0).collect()).expect("the same shape")
}

struct Counter {
    value: i64,
}

#[oxiray::remote(max_restarts = 1)]
impl Counter {
    pub fn new(start: i64) -> Self {
        Self { value: start }
    }

    /// Adds to the value.
    pub fn add(&mut self, by: i64) -> i64 {
        self.value += by;
        self.value
    }

    pub fn pid(&self) -> u32 {
        std::process::id()
    }

    pub async fn later(&self, other: ObjectRef<i64>) -> std::result::Result<i64, Error> {
        Ok(self.value + other.await?)
    }
}

#[oxiray::remote]
fn bump(counter: CounterHandle) -> Result<i64> {
    counter.add(100)?.get()
}

fn main() -> Result<()> {
    let _cluster = oxiray::init()?;
    let three = add::remote(1, 2)?;
    let six = add::remote(&three, 3)?;
    println!("six: {}", six.get()?);
    println!("here: {}", add(20, 22));

    let parts = (0..10).map(|n| add::remote(n, n)).collect::<Result<Vec<_>>>()?;
    println!("total: {}", oxiray::block_on(async { total::remote(parts)?.await })?);

    match fails::remote("no luck")?.get() {
        Err(Error::Task(error)) => println!("error: {} in {}", error.message, error.function),
        other => println!("unexpected: {other:?}"),
    }
    match panics::remote()?.get() {
        Err(Error::Task(error)) => println!("panic: {}", error.message),
        other => println!("unexpected: {other:?}"),
    }

    let blob = oxiray::put(&Blob::from(vec![1_u8; 10 << 20]))?;
    println!("checksum: {}", checksum::remote(&blob)?.get()?);
    let numbers = doubled::remote(Array::from(vec![1.5; 1 << 20]))?.get()?;
    println!("doubled: {} {:?}", numbers.as_slice()[7], numbers.shape());

    let counter = Counter::remote_with(ActorOptions::new().name("counter"), 10)?;
    counter.add(1)?;
    println!("counter: {}", counter.add(1)?.get()?);
    println!("later: {}", counter.later(oxiray::put(&30)?)?.get()?);
    println!("bumped: {}", bump::remote(counter.clone())?.get()?);
    let found = oxiray::get_actor::<Counter>("counter")?;
    println!("found: {}", found.pid()?.get()? == counter.pid()?.get()?);
    let pid = counter.pid()?.get()?;
    oxiray::kill(&counter, true);
    println!("again: {}", counter.add(1)?.get_timeout(Duration::from_secs(60))?);
    println!("another: {}", counter.pid()?.get()? != pid);
    oxiray::kill(&counter, false);
    match counter.add(1)?.get() {
        Err(Error::ActorDied(_)) => println!("dead"),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}
