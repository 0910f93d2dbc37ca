//! Functions and actors that Python programs call, and calls of Python's; `tests/rust` runs both sides.
//!
//! ```text
//! languages python   calls what the Python module `partner` has
//! languages share    shares the actor `tally` with whoever else is on the running cluster; adds one for each line it reads
//! languages join     the same with the actor `ledger`, which a Python program made
//! languages stay     waits for a call that never ends, on a cluster of its own
//! languages elsewhere FOLDER   runs on another node of the running cluster, and reads the folder there
//! ```

#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use oxiray::{ActorOptions, Array, Blob, Builder, Error, Items, ObjectRef, Result, TaskOptions, python};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::BufRead as _;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
    y: f64,
    name: Option<String>,
}

#[oxiray::remote]
fn add(a: i64, b: i64) -> i64 {
    a + b
}

#[oxiray::remote]
fn mirrored(point: Point) -> Point {
    Point { x: point.y, y: point.x, ..point }
}

/// Everything that crosses, there and back.
type Everything = (Option<i64>, bool, i64, f64, String, Blob, Vec<i64>, BTreeMap<String, f64>, Array<f64>);

#[oxiray::remote]
fn everything(value: Everything) -> Everything {
    value
}

#[oxiray::remote]
fn total(parts: Vec<ObjectRef<i64>>) -> Result<i64> {
    Ok(oxiray::get(&parts)?.into_iter().sum())
}

#[oxiray::remote]
fn sum(numbers: Array<f64>) -> f64 {
    numbers.as_slice().iter().sum()
}

#[oxiray::remote]
fn squares(count: u32) -> impl Iterator<Item = std::result::Result<u32, String>> {
    (0..count).map(|number| number.checked_mul(number).ok_or_else(|| format!("{number} squared is too large")))
}

#[oxiray::remote(num_returns = 2)]
fn divided(number: i64, by: i64) -> (i64, i64) {
    (number / by, number % by)
}

#[oxiray::remote]
fn refuse(why: String) -> std::result::Result<(), String> {
    Err(why)
}

#[oxiray::remote]
fn break_down() {
    panic!("it broke down");
}

struct Tally {
    value: i64,
}

#[oxiray::remote]
impl Tally {
    pub fn new(start: i64) -> std::result::Result<Self, String> {
        if start < 0 { Err(format!("a tally starts at 0 or above, not at {start}")) } else { Ok(Self { value: start }) }
    }

    pub fn add(&mut self, by: i64) -> i64 {
        self.value += by;
        self.value
    }

    pub fn steps(&mut self, by: i64, count: usize) -> impl Iterator<Item = Blob> {
        std::iter::repeat_with(move || {
            self.value += by;
            Blob::from(self.value.to_string().into_bytes())
        })
        .take(count)
    }

    /// One step up, which is enough only at the top.
    pub fn climb(&mut self, top: i64) -> std::result::Result<i64, String> {
        self.value += 1;
        if self.value < top { Err(format!("{} is not {top}", self.value)) } else { Ok(self.value) }
    }

    pub fn both(&self) -> (i64, bool) {
        (self.value, self.value > 0)
    }
}

/// Has an actor of whichever language add.
#[oxiray::remote]
fn add_with(actor: python::Actor, by: i64) -> Result<i64> {
    actor.call("add", (by,))?.get()
}

/// Has a tally take one step up, which is enough only at the top.
#[oxiray::remote]
fn climbed(tally: TallyHandle, top: i64) -> Result<i64> {
    tally.climb(top)?.get()
}

/// What a file says that was shipped.
#[oxiray::remote]
fn words(path: String) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

/// A tally that was made here, and what it came to before.
#[oxiray::remote]
fn tally_of(numbers: Vec<i64>) -> Result<(TallyHandle, i64)> {
    let tally = Tally::remote(0)?;
    for number in &numbers {
        tally.add(*number)?;
    }
    let sum = tally.add(0)?.get()?;
    Ok((tally, sum))
}

#[oxiray::remote]
fn double_of(tally: TallyHandle) -> Result<i64> {
    let sum = tally.add(0)?.get()?;
    tally.add(sum)?.get()
}

fn call_python() -> Result<()> {
    let _cluster = Builder::new().address("local").num_cpus(2.0).init()?;
    let joined: String = python::function("partner", "joined").call((1, "two", 3.5, true, ()))?.get()?;
    println!("joined: {joined}");
    let numbers = oxiray::put_common(&Array::new([2, 2], vec![1.0, 2.0, 3.0, 4.0]).expect("four numbers"))?;
    let scaled: Array<f64> = python::function("partner", "scaled").call((&numbers, 10.0))?.get()?;
    println!("scaled: {:?} {:?}", scaled.shape(), scaled.as_slice());
    let point = Point { x: 1.0, y: 2.0, name: Some("corner".into()) };
    let moved: Point = python::function("partner", "moved").call((&point, 5))?.get()?;
    println!("moved: {moved:?}");
    // A result of a Rust function is one that only Rust reads, unless Python was meant to.
    match python::function("partner", "joined").call::<String>((add::remote(1, 2)?,))?.get() {
        Err(Error::Task(error)) => println!("unread: {}", error.message.contains("put_common")),
        other => println!("unexpected: {other:?}"),
    }
    match python::function("partner", "raises").call::<()>(("no luck",))?.get() {
        Err(Error::Task(error)) => {
            println!("raised: {}: {} in {} ({})", error.kind, error.message, error.function, error.language);
            println!("traced: {}", error.trace.contains("partner.py"));
        }
        other => println!("unexpected: {other:?}"),
    }
    let basket = python::class("partner", "Basket").create((vec!["apple"],))?;
    basket.call::<()>("put", ("pear",))?;
    println!("basket: {:?}", basket.call::<Vec<String>>("content", ())?.get()?);
    one_by_one(&basket)?;
    let tally = Tally::remote(5)?;
    println!("added there: {}", python::function("partner", "adds").call::<i64>((&tally, 2))?.get()?);
    let retried = TaskOptions::new().retry_exceptions(true);
    let climbed = python::function("partner", "climbs").options(retried).call::<i64>((&tally, 10))?;
    println!("climbed there: {}", climbed.get()?);
    let another: python::Actor = python::function("partner", "makes_basket").call(("plum",))?.get()?;
    println!("made there: {:?}", another.call::<Vec<String>>("content", ())?.get()?);
    Ok(())
}

/// What Python's generators yield, and its tuples taken apart.
fn one_by_one(basket: &python::Actor) -> Result<()> {
    let items: Items<Array<f64>> = python::function("partner", "rows").call_for((3, 100_000))?;
    let sums = items.map(|row| Ok(row?.get()?.as_slice().iter().sum::<f64>()));
    println!("rows: {:?}", sums.collect::<Result<Vec<_>>>()?);
    let items: Items<String> = basket.call_for("one_by_one", ())?;
    println!("yielded: {:?}", items.map(|one| one?.get()).collect::<Result<Vec<_>>>()?);
    let (first, rest): (ObjectRef<i64>, ObjectRef<Vec<i64>>) =
        python::function("partner", "parted").call_for((vec![1, 2, 3],))?;
    println!("parted: {} {:?}", first.get()?, rest.get()?);
    let mut items: Items<i64> = python::function("partner", "breaks_off").call_for(())?;
    let one = items.next().map(|item| item?.get()).transpose()?;
    match items.next().map(|item| item?.get()) {
        Some(Err(Error::Task(error))) => println!("broke off: after {one:?}, {}: {}", error.kind, error.message),
        other => println!("unexpected: {other:?}"),
    }
    Ok(())
}

fn share() -> Result<()> {
    let _cluster = Builder::new().address("auto").namespace("shared").init()?;
    let options = ActorOptions::new().name("tally").detached(true).get_if_exists(true);
    let tally = Tally::remote_with(options, 0)?;
    println!("rust: {}", tally.add(1)?.get()?);
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        println!("rust: {}", tally.add(1)?.get()?);
    }
    Ok(())
}

fn join() -> Result<()> {
    let _cluster = Builder::new().address("auto").namespace("shared").init()?;
    let ledger = python::get_actor("ledger")?;
    let add = || ledger.call::<i64>("add", (1,))?.get();
    println!("rust: {}", add()?);
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            break;
        }
        println!("rust: {}", add()?);
    }
    Ok(())
}

#[oxiray::remote]
fn whereabouts() -> Result<String> {
    Ok(oxiray::runtime_context()?.node_id())
}

fn elsewhere() -> Result<()> {
    let _cluster = Builder::new().address("auto").init()?;
    println!("elsewhere: {}", whereabouts::remote()?.get()? != oxiray::runtime_context()?.node_id());
    let numbers = oxiray::put(&Array::from(vec![1.0; 1 << 20]))?;
    println!("sum: {}", sum::remote(&numbers)?.get()?);
    // The folder comes from this machine: that of the other is elsewhere.
    if let Some(folder) = std::env::args().nth(2) {
        let options = || TaskOptions::new().working_dir(&folder);
        println!("words: {}", words::remote_with(options(), "words.txt")?.get()?.trim());
        let python = python::function("shipped", "words").options(options());
        println!("in python: {}", python.call::<String>(("words.txt",))?.get()?.trim());
    }
    Ok(())
}

/// Never ends by itself; its process says that it has begun.
#[oxiray::remote(num_cpus = 0, max_retries = 1)]
fn staying() {
    println!("staying");
    loop {
        std::thread::park();
    }
}

fn stay() -> Result<()> {
    let _cluster = Builder::new().address("local").num_cpus(1.0).init()?;
    let kept = oxiray::put(&Blob::from(vec![1; 8 << 20]))?;
    println!("ended: {:?}", staying::remote()?.get());
    drop(kept);
    Ok(())
}

#[oxiray::main]
fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("python") => call_python(),
        Some("share") => share(),
        Some("join") => join(),
        Some("elsewhere") => elsewhere(),
        Some("stay") => stay(),
        _ => Err(Error::Invalid("say `python`, `share`, `join`, `elsewhere` or `stay`".into())),
    }
}
