//! The pages that every process forked from the same parent writes before it is of use.
//!
//! A fork shares its parent's memory until either writes to it: the kernel copies a page at the first write, which costs a
//! fault each time, half of what the start of a forked Python process takes. The first child notes which pages it has
//! written by the time it has done something, in memory that all of them share; the kernel copies these for later children
//! in one go, before anybody waits for them.
//!
//! - PAGES-1: what is noted is advice. Whatever stands there, and any child can write there, it changes no memory, and no more
//!   than [`PAGES_MAX`] pages are asked for. A kernel that was told to use huge ones may copy more for each.
//! - PAGES-2: only memory that a child had from its parent is noted: what the program of one child mapped is no other's.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What may be copied ahead for one process: 4 MiB. What Python needs is half of that.
const PAGES_MAX: u64 = 1024;
/// Runs of pages that are noted at most, and a word before them.
const WORDS: usize = 1024;
/// So much memory of the parent's is looked through, and none where there is more: the child's first caller waits for that.
const RANGES_BYTES_MAX: u64 = 1 << 30;
/// How many entries of `pagemap` are read at once.
const ENTRIES: usize = 512;
/// A run is the number of its first page, and in so many bits below how many there are.
const COUNT_BITS: u32 = 16;
/// Who is to note the pages: nobody did yet, somebody is at it, they are noted.
const UNKNOWN: u64 = 0;
const BEING_NOTED: u64 = 1;
const NOTED: u64 = 2;
/// Of an entry in `pagemap`: the page is in memory, and no other process has it.
const PRESENT: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;

/// What this process is to note, where it is the first child.
static TO_NOTE: Mutex<Option<(WorkingSet, Vec<Range<u64>>)>> = Mutex::new(None);
/// Whether there is something in it, for those that ask often.
static IS_TO_NOTE: AtomicBool = AtomicBool::new(false);

/// The pages that children write, in memory that they and their parent share.
#[derive(Debug, Clone, Copy)]
pub struct WorkingSet {
    words: &'static [AtomicU64],
}

impl WorkingSet {
    /// Made by the parent before it forks.
    ///
    /// # Errors
    /// Where the kernel has no memory for it.
    pub fn new() -> io::Result<Self> {
        let bytes = WORDS * size_of::<AtomicU64>();
        // SAFETY: the mapping is new, and nothing but what this returns refers to it. It is never unmapped.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)? };
        // SAFETY: the kernel's mappings are aligned, zeroed, and so long; all who have it use it through atomics.
        let words = unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), WORDS) };
        Ok(Self { words })
    }

    /// In a new child: has what was noted copied, or sees to it that this child notes it.
    pub fn begin(self) {
        match self.words[0].load(Ordering::Acquire) {
            NOTED => self.copy_ahead(),
            UNKNOWN => {
                let own = private_ranges(&fs::read_to_string("/proc/self/maps").unwrap_or_default());
                if own.iter().map(|range| range.end - range.start).sum::<u64>() > RANGES_BYTES_MAX {
                    return;
                }
                *TO_NOTE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((self, own));
                IS_TO_NOTE.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn runs(self) -> Vec<Range<u64>> {
        let (mut left, mut runs) = (PAGES_MAX, Vec::new());
        for word in &self.words[1..] {
            let word = word.load(Ordering::Relaxed);
            let (first, count) = (word >> COUNT_BITS, (word & ((1 << COUNT_BITS) - 1)).min(left));
            if count == 0 {
                break;
            }
            left -= count;
            runs.push(first..first + count);
        }
        runs
    }

    /// PAGES-1.
    fn copy_ahead(self) {
        for run in self.runs() {
            let (start, bytes) = (run.start.saturating_mul(page_bytes()), (run.end - run.start) * page_bytes());
            if let Some(start) = NonNull::new(start as *mut u8) {
                // SAFETY: the advice changes no memory that a program sees, and the kernel refuses it for what is not mapped.
                let _ = unsafe { madvise(start.as_ptr().cast(), bytes as usize, Advice::LinuxPopulateWrite) };
            }
        }
    }

    /// PAGES-2: notes which of the pages in these ranges this process has to itself.
    fn note(self, ranges: &[Range<u64>]) -> io::Result<()> {
        let first = self.words[0].compare_exchange(UNKNOWN, BEING_NOTED, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_err() {
            return Ok(());
        }
        let written = written_pages(&File::open("/proc/self/pagemap")?, ranges)?;
        for (word, run) in self.words[1..].iter().zip(&written) {
            word.store(run.start << COUNT_BITS | (run.end - run.start), Ordering::Relaxed);
        }
        // Where the program of the first has written more than any start takes, nothing is copied ahead.
        let is_usual = written.iter().map(|run| run.end - run.start).sum::<u64>() <= PAGES_MAX;
        self.words[0].store(if is_usual { NOTED } else { BEING_NOTED }, Ordering::Release);
        Ok(())
    }
}

/// Called where a process has done something for the first time, and as often as one likes after that.
pub fn note_working_set() {
    if !IS_TO_NOTE.load(Ordering::Relaxed) {
        return;
    }
    IS_TO_NOTE.store(false, Ordering::Relaxed);
    let due = TO_NOTE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    if let Some((working_set, ranges)) = due {
        // A kernel that does not tell leaves everything as it is without this.
        let _ = working_set.note(&ranges);
    }
}

/// The addresses that a process may write to and does not share, from its `maps`.
fn private_ranges(maps: &str) -> Vec<Range<u64>> {
    let range_of = |line: &str| {
        let mut fields = line.split(' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let is_private = fields.next()?.starts_with("rw-p");
        let number = |text| u64::from_str_radix(text, 16).ok();
        is_private.then_some(number(start)?..number(end)?)
    };
    maps.lines().filter_map(range_of).collect()
}

/// Runs of pages in these ranges that are this process's alone: it wrote to them.
fn written_pages(pagemap: &File, ranges: &[Range<u64>]) -> io::Result<Vec<Range<u64>>> {
    let (mut runs, mut entries) = (Vec::<Range<u64>>::new(), [0; ENTRIES * size_of::<u64>()]);
    for range in ranges {
        let end = range.end / page_bytes();
        for first in (range.start / page_bytes()..end).step_by(ENTRIES) {
            let bytes = &mut entries[..ENTRIES.min((end - first) as usize) * size_of::<u64>()];
            pagemap.read_exact_at(bytes, first * size_of::<u64>() as u64)?;
            for (page, entry) in (first..).zip(bytes.as_chunks().0) {
                if u64::from_ne_bytes(*entry) & (PRESENT | EXCLUSIVE) != PRESENT | EXCLUSIVE {
                    continue;
                }
                match runs.last_mut().filter(|last| last.end == page && last.end - last.start < PAGES_MAX) {
                    Some(last) => last.end += 1,
                    None => runs.push(page..page + 1),
                }
            }
        }
    }
    Ok(runs)
}

/// How large the kernel's pages are.
fn page_bytes() -> u64 {
    // SAFETY: it only says what is so.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 16;

    /// New memory that nobody has written to.
    fn untouched() -> (*mut u8, Range<u64>) {
        let bytes = (PAGES * page_bytes()) as usize;
        // SAFETY: it is new, and stays until the process ends.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let start = start.expect("memory").cast::<u8>();
        // SAFETY: it is about the new memory alone. A kernel that knows no huge pages refuses.
        let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxNoHugepage) };
        (start, start as u64..start as u64 + PAGES * page_bytes())
    }

    fn write(start: *mut u8, page: u64) {
        // SAFETY: the page is within what `untouched` mapped.
        unsafe { start.add((page * page_bytes()) as usize).write_volatile(1) };
    }

    fn written(range: &Range<u64>) -> Vec<Range<u64>> {
        let pagemap = File::open("/proc/self/pagemap").expect("the kernel tells");
        let first = range.start / page_bytes();
        let runs = written_pages(&pagemap, std::slice::from_ref(range)).expect("it is read");
        runs.into_iter().map(|run| run.start - first..run.end - first).collect()
    }

    #[test]
    fn what_one_process_wrote_is_had_ahead_by_another_with_the_same_memory() {
        let working_set = WorkingSet::new().expect("memory");
        let (start, range) = untouched();
        for page in [2, 3, 7] {
            write(start, page);
        }
        assert_eq!(written(&range), [2..4, 7..8]);
        working_set.note(std::slice::from_ref(&range)).expect("noted");
        // The same addresses as after a fork: none of it is this process's own any more.
        // SAFETY: nothing refers to what is in there.
        unsafe { madvise(start.cast(), (PAGES * page_bytes()) as usize, Advice::LinuxDontNeed) }.expect("given up");
        assert_eq!(written(&range), []);
        working_set.begin();
        assert_eq!(written(&range), [2..4, 7..8]);
    }

    #[test]
    fn the_first_that_notes_is_the_only_one() {
        let working_set = WorkingSet::new().expect("memory");
        let (start, range) = untouched();
        write(start, 1);
        working_set.note(std::slice::from_ref(&range)).expect("noted");
        let runs = working_set.runs();
        write(start, 5);
        working_set.note(&[range]).expect("nothing to do");
        assert_eq!(working_set.runs(), runs);
    }

    #[test]
    fn whatever_stands_there_is_bounded_and_changes_no_memory() {
        let working_set = WorkingSet::new().expect("memory");
        for (number, word) in working_set.words[1..].iter().enumerate() {
            word.store(u64::MAX >> (number % 40), Ordering::Relaxed);
        }
        working_set.words[0].store(NOTED, Ordering::Relaxed);
        assert!(working_set.runs().iter().map(|run| run.end - run.start).sum::<u64>() <= PAGES_MAX);
        working_set.begin();
        let (start, range) = untouched();
        write(start, 3);
        working_set.words[1].store((range.start / page_bytes()) << COUNT_BITS | PAGES, Ordering::Relaxed);
        working_set.begin();
        // SAFETY: both pages are within what `untouched` mapped.
        let values = [3, 4].map(|page| unsafe { start.add((page * page_bytes()) as usize).read_volatile() });
        let all = 0..PAGES;
        assert_eq!((written(&range).as_slice(), values), (std::slice::from_ref(&all), [1, 0]));
    }

    #[test]
    fn only_private_memory_that_is_written_to_counts() {
        let maps = "55d0-55e0 rw-p 00000000 00:00 0   [heap]\n7f00-7f10 r--p 0 08:01 5 /lib\n7f20-7f30 rw-s 0 00:01 9 /memfd\n\
                    7f40-7f50 rwxp 0 0:0 0\nnonsense\nzz-1 rw-p\n";
        let heap = 0x55d0..0x55e0;
        assert_eq!(private_ranges(maps), std::slice::from_ref(&heap));
        let own = private_ranges(&fs::read_to_string("/proc/self/maps").expect("maps"));
        let here = &raw const own as u64;
        assert!(own.iter().any(|range| range.contains(&here)), "the stack of this thread is among them");
    }
}
