//! What docs/rust.md shows, as a program: `tests/rust/test_page.py` runs it, and
//! `tests/docs/test_rust_blocks.py` compares the blocks of the page with it.
//!
//! It is run where the folders lie that it ships, with the Python module `partner` to be found (`OXIRAY_PYTHON`, `PYTHONPATH`).

#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use oxiray::Builder;

/// The first program of the page, as a whole.
mod first {
    #[oxiray::remote]
    fn add(a: i64, b: i64) -> i64 {
        a + b
    }

    pub(super) fn main() -> oxiray::Result<()> {
        let _cluster = oxiray::init()?;
        let three = add::remote(1, 2)?;
        let six = add::remote(&three, 3)?;
        assert_eq!(six.get()?, 6);
        assert_eq!(add(20, 22), 42);
        Ok(())
    }
}

mod functions {
    use std::fs::File;
    use std::io::{BufRead as _, BufReader};

    #[derive(Debug, thiserror::Error)]
    #[error("there is no text")]
    struct EmbedError;

    #[oxiray::remote(num_gpus = 0.5, max_retries = 3)]
    async fn embed(texts: Vec<String>) -> Result<Vec<f32>, EmbedError> {
        let lengths = oxiray::put(&texts.iter().map(|text| text.len() as f32).collect::<Vec<_>>());
        let lengths = lengths.map_err(|_| EmbedError)?.await.map_err(|_| EmbedError)?;
        if lengths.is_empty() { Err(EmbedError) } else { Ok(lengths) }
    }

    #[oxiray::remote]
    fn lines(path: String) -> std::io::Result<impl Iterator<Item = std::io::Result<String>>> {
        Ok(BufReader::new(File::open(path)?).lines())
    }

    #[oxiray::remote(num_returns = 2)]
    fn split(numbers: Vec<f64>) -> (Vec<f64>, Vec<f64>) {
        numbers.into_iter().partition(|number| *number < 0.5)
    }

    pub(super) fn show() -> oxiray::Result<()> {
        println!("embed: {:?}", embed::remote(vec!["a".to_owned(), "text".to_owned()])?.get()?);
        match embed::remote(Vec::<String>::new())?.get() {
            Err(oxiray::Error::Task(error)) => println!("embed: {}", error.message),
            other => println!("unexpected: {other:?}"),
        }

        for line in lines::remote("/etc/hosts")? {
            println!("{}", line?.get()?);
        }

        let numbers = vec![0.25, 0.75, 0.125];
        let (low, high) = split::remote(numbers)?;
        println!("split: {:?} {:?}", low.get()?, high.get()?);
        Ok(())
    }
}

mod actors {
    use oxiray::{ActorOptions, Array, Blob};

    struct Counter {
        value: i64,
    }

    #[oxiray::remote(num_gpus = 1)]
    impl Counter {
        pub fn new(start: i64) -> Self {
            Self { value: start }
        }
        pub fn add(&mut self, by: i64) -> i64 {
            self.value += by;
            self.value
        }
    }

    struct Loader {
        loaded: f32,
    }

    #[oxiray::remote(concurrency_groups(io = 2))]
    impl Loader {
        pub fn new() -> Self {
            Self { loaded: 0.0 }
        }
        #[remote(concurrency_group = "io")]
        pub fn fetch(&self, url: String) -> Blob {
            Blob::from(url.into_bytes())
        }
        #[remote(max_unread = 4)]
        pub fn batches(&mut self) -> impl Iterator<Item = Array<f32>> {
            (0..6).map(|_| {
                self.loaded += 1.0;
                Array::from(vec![self.loaded; 3])
            })
        }
    }

    pub(super) fn show() -> oxiray::Result<()> {
        let counter = Counter::remote_with(ActorOptions::new().name("counter"), 10)?;
        assert_eq!(counter.add(1)?.get()?, 11);
        let found = oxiray::get_actor::<Counter>("counter")?;
        assert_eq!(found.add(1)?.get()?, 12);
        oxiray::kill(&counter, false);

        let loader = Loader::remote()?;
        println!("fetch: {} bytes", loader.fetch("s3://bucket/file")?.get()?.len());
        let batches = loader.batches()?.map(|batch| batch?.get()).collect::<oxiray::Result<Vec<_>>>()?;
        println!("batches: {}, the last {:?}", batches.len(), batches[5].as_slice());
        Ok(())
    }
}

/// Folders that lie beside the one that the program is run in.
mod shipping {
    use oxiray::{Builder, TaskOptions, python};

    #[oxiray::remote]
    fn score(texts: Vec<String>) -> std::io::Result<String> {
        let weights = std::fs::read_to_string("weights.txt")?;
        Ok(format!("{} texts by {}, {}", texts.len(), weights.trim(), std::env::var("MODE").unwrap_or_default()))
    }

    pub(super) fn show() -> oxiray::Result<()> {
        let _cluster = Builder::new().working_dir("data").env_var("MODE", "fast").init()?;
        let texts = vec!["one".to_owned()];
        let scored = score::remote_with(TaskOptions::new().working_dir("models/small"), texts)?;
        let path = "raw.txt";
        let cleaner = python::function("clean", "lines").options(TaskOptions::new().working_dir("scripts"));
        let cleaned = cleaner.call::<Vec<String>>((path,))?;
        println!("scored: {}", scored.get()?);
        println!("cleaned: {:?}", cleaned.get()?);
        Ok(())
    }
}

mod values {
    use oxiray::Array;

    #[oxiray::remote]
    fn norm(weights: Array<f64>, part: usize) -> f64 {
        let rows = weights.as_slice().len() / 8;
        weights.as_slice()[part * rows..][..rows].iter().map(|weight| weight * weight).sum::<f64>().sqrt()
    }

    pub(super) fn show() -> oxiray::Result<()> {
        let numbers = vec![0.5; 1024 * 1024];
        let weights = Array::new([1024, 1024], numbers).expect("1024 times 1024 numbers");
        let weights = oxiray::put(&weights)?;
        let norms = (0..8).map(|part| norm::remote(&weights, part)).collect::<oxiray::Result<Vec<_>>>()?;
        println!("norms: {:.2}", oxiray::get(&norms)?.iter().sum::<f64>());
        Ok(())
    }
}

mod devices {
    struct GpuActor;

    #[oxiray::remote(num_gpus = 1)]
    impl GpuActor {
        pub fn new() -> Self {
            Self
        }
        pub fn ping(&self) -> oxiray::Result<()> {
            shown()
        }
    }

    #[oxiray::remote(num_gpus = 1)]
    fn gpu_task() -> oxiray::Result<()> {
        shown()
    }

    fn shown() -> oxiray::Result<()> {
        println!("GPU IDs: {:?}", oxiray::runtime_context()?.accelerator_ids("GPU"));
        println!("CUDA_VISIBLE_DEVICES: {}", std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default());
        Ok(())
    }

    pub(super) fn show() -> oxiray::Result<()> {
        let actor = GpuActor::remote()?;
        actor.ping()?.get()?;
        gpu_task::remote()?.get()?;
        Ok(())
    }
}

mod groups {
    use oxiray::{PlacementGroup, Spread, TaskOptions};
    use std::time::Duration;

    #[oxiray::remote(num_gpus = 0.5)]
    fn train(epochs: u32) -> u32 {
        epochs
    }

    pub(super) fn show() -> oxiray::Result<()> {
        let group = PlacementGroup::create(&[&[("CPU", 1.0), ("GPU", 0.5)], &[("CPU", 1.0)]], Spread::Pack)?;
        group.wait(Duration::from_secs(10))?;
        let trained = train::remote_with(TaskOptions::new().placement_group(&group, Some(0)), 1)?;
        println!("trained: {}", trained.get()?);
        Ok(())
    }
}

mod partners {
    use oxiray::{Array, Items};

    pub(super) fn show() -> oxiray::Result<()> {
        let root: f64 = oxiray::python::function("math", "sqrt").call((2.0,))?.get()?;
        let basket = oxiray::python::class("partner", "Basket").create((vec!["apple"],))?;
        let content: Vec<String> = basket.call("content", ())?.get()?;
        let rows: Items<Array<f64>> = oxiray::python::function("partner", "rows").call_for((3, 100))?;
        println!("root: {root}, content: {content:?}, rows: {}", rows.count());
        Ok(())
    }
}

#[oxiray::main]
fn main() -> oxiray::Result<()> {
    first::main()?;
    shipping::show()?;
    let _cluster = Builder::new().num_cpus(4.0).num_gpus(2.0).resource("TPU", 4.0).init()?;
    // First: a process that held a device keeps it for a moment.
    devices::show()?;
    functions::show()?;
    actors::show()?;
    values::show()?;
    groups::show()?;
    partners::show()
}
