//! `put` of large arrays: create, copy, seal, delete, with segments used again and with segments made anew.

use divan::Bencher;
use divan::counter::BytesCount;
use oxiray_ids::ObjectId;
use oxiray_store::{Access, ClientId, Event, Options, SegmentCache, Store, Ticket};

const SIZE: usize = 100 << 20;
const CLIENT: ClientId = ClientId(1);

struct Loop {
    store: Store,
    cache: SegmentCache,
    count: u64,
}

impl Loop {
    fn new(pool_limit_bytes: u64) -> Self {
        let options = Options { pool_limit_bytes, ..Options::new(1 << 30) };
        Self { store: Store::new(options).expect("a store"), cache: SegmentCache::new(), count: 0 }
    }

    fn object(&self) -> ObjectId {
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        ObjectId::new(bytes)
    }

    /// Puts an object, then drops the one put before, as `x = put(…)` in a loop does.
    fn put(&mut self, bytes: &[u8]) {
        let last = self.object();
        self.count += 1;
        let object = self.object();
        self.store.create(Ticket(self.count), CLIENT, object, bytes.len() as u64);
        for event in self.store.events() {
            match event {
                Event::Created { segment, .. } => {
                    let file = segment.file;
                    let sent = self.store.descriptor(file, CLIENT, Access::ReadWrite).expect("a descriptor");
                    if let Some((descriptor, extent)) = sent {
                        self.cache.insert(file, Access::ReadWrite, &descriptor, extent).expect("a mapping");
                    }
                    let writer = self.cache.writer(segment, bytes.len()).expect("a mapped segment");
                    writer.edit(|room| room.copy_from_slice(bytes));
                    self.store.seal(CLIENT, object).expect("its creator seals it");
                }
                Event::Retired { file, .. } => self.cache.retire(file),
                event => panic!("{event:?}"),
            }
        }
        self.store.delete(last);
    }
}

#[divan::bench]
fn reused(bencher: Bencher<'_, '_>) {
    let (bytes, mut puts) = (vec![1; SIZE], Loop::new(1 << 30));
    (0..3).for_each(|_| puts.put(&bytes));
    bencher.counter(BytesCount::new(SIZE)).bench_local(|| puts.put(&bytes));
}

#[divan::bench]
fn made_anew(bencher: Bencher<'_, '_>) {
    let (bytes, mut puts) = (vec![1; SIZE], Loop::new(0));
    bencher.counter(BytesCount::new(SIZE)).bench_local(|| puts.put(&bytes));
}

/// The book's part of a put: the smallest object, its page touched before.
#[divan::bench]
fn small(bencher: Bencher<'_, '_>) {
    let mut puts = Loop::new(1 << 30);
    bencher.bench_local(|| puts.put(b"small"));
}

fn main() {
    divan::main();
}
