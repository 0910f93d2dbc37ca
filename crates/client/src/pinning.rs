//! Keeping a worker on the processors near its devices.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Has this process, and the threads that it starts, run on the processors of `list` (`0-3,8`) alone, as far as it may run on
/// them: where that leaves at least `least`. Otherwise nothing changes, as where the list is none.
pub(crate) fn pin(list: &str, least: usize) {
    let (Some(wanted), Ok(allowed)) = (parse(list), sched_getaffinity(None)) else { return };
    let mut near = CpuSet::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| wanted.is_set(*cpu) && allowed.is_set(*cpu)) {
        near.set(cpu);
    }
    if near.count() as usize >= least.max(1) {
        // Refused is as good as not asked for.
        let _ = sched_setaffinity(None, &near);
    }
}

/// A list of processors as the kernel writes it.
fn parse(list: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        for cpu in (first..=last).take_while(|cpu| *cpu < CpuSet::MAX_CPU) {
            set.set(cpu);
        }
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(list: &str) -> Option<Vec<usize>> {
        parse(list).map(|set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
    }

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        assert_eq!(numbers("0-3,8, 10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(numbers(""), Some(Vec::new()));
        assert_eq!(numbers("1000-9000000"), Some((1000..CpuSet::MAX_CPU).collect()), "no more than there can be");
        assert_eq!([numbers("a-b"), numbers("-3"), numbers("3-")], [None, None, None]);
    }

    #[test]
    fn a_process_is_pinned_where_enough_is_left() {
        // In a thread of its own, which alone is kept.
        #[expect(clippy::disallowed_methods, reason = "a thread of this test alone")]
        let kept = std::thread::spawn(|| {
            let before = sched_getaffinity(None).expect("every thread has some");
            let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).expect("at least one");
            pin(&first.to_string(), 2);
            let untouched = sched_getaffinity(None).expect("as before").count() == before.count();
            pin("nonsense", 1);
            pin(&first.to_string(), 1);
            let after = sched_getaffinity(None).expect("one");
            (untouched, after.count(), after.is_set(first))
        });
        assert_eq!(kept.join().expect("it ends"), (true, 1, true));
    }
}
