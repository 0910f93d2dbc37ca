//! Copying into the store what is larger than caches are.
//!
//! An ordinary copy first reads the lines that it is about to overwrite, and pushes out of the caches what programs there
//! work with. What is larger than the caches is written past them instead, which is half as fast again; the C library does
//! the same, but from a size that it takes from the whole processor, of which a machine may have but a few cores. What is
//! larger still is shared among threads, as far as there are cores: one does not keep the memory busy.

use std::sync::{Mutex, OnceLock, PoisonError};

/// Buffers from this size on are written past the caches.
const PAST_CACHES_FROM: usize = 16 << 20;
/// Buffers from this size on are written by several threads.
const SHARED_FROM: usize = 32 << 20;
/// What a thread takes on at a time: on a busy machine, whoever runs does more.
const PIECE: usize = 4 << 20;
/// The most threads for one copy, with the one that asks.
const THREADS_MAX: usize = 4;

/// Copies `source` to `target`, which are of one length.
///
/// # Panics
/// Where they are not.
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "what is copied has the length of its place");
    if source.len() < PAST_CACHES_FROM {
        target.copy_from_slice(source);
    } else if source.len() < SHARED_FROM {
        copy_past_caches(target, source);
    } else {
        copy_together(target, source, threads());
    }
}

fn threads() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    THREADS_MAX.min(*cores)
}

fn copy_together(target: &mut [u8], source: &[u8], threads: usize) {
    let pieces = Mutex::new(target.chunks_mut(PIECE).zip(source.chunks(PIECE)));
    let take = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((target, source)) = take() {
            copy_past_caches(target, source);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where there is no thread to be had, the others do its part.
            let _ = oxiray_threads::spawn_scoped(scope, oxiray_threads::COPY, work);
        }
        work();
    });
}

#[cfg(target_arch = "x86_64")]
fn copy_past_caches(target: &mut [u8], source: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    /// Bytes of a cache line.
    const LINE: usize = 64;
    let head = target.as_ptr().align_offset(LINE).min(target.len());
    let (target_head, target) = target.split_at_mut(head);
    let (source_head, source) = source.split_at(head);
    target_head.copy_from_slice(source_head);
    let (target_lines, target_rest) = target.as_chunks_mut::<LINE>();
    let (source_lines, source_rest) = source.as_chunks::<LINE>();
    for (to, from) in target_lines.iter_mut().zip(source_lines) {
        #[expect(clippy::cast_ptr_alignment, reason = "`to` begins a line, and `from` may begin anywhere")]
        let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        // SAFETY: both are 64 bytes long, so four times 16, and `to` is aligned. Every x86-64 has SSE2.
        unsafe {
            let parts = [0, 1, 2, 3].map(|part| _mm_loadu_si128(from.add(part)));
            for (part, bytes) in parts.into_iter().enumerate() {
                _mm_stream_si128(to.add(part), bytes);
            }
        }
    }
    // SAFETY: every x86-64 has SSE. Without it others might see the seal before the bytes.
    unsafe { _mm_sfence() };
    target_rest.copy_from_slice(source_rest);
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_past_caches(target: &mut [u8], source: &[u8]) {
    target.copy_from_slice(source);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_the_two_begin() {
        let source: Vec<u8> = (0..1000_u32).map(|number| (number * 7 % 251) as u8).collect();
        for (from, to, length) in
            [(0, 0, 900), (1, 0, 900), (0, 1, 900), (3, 7, 129), (5, 63, 64), (9, 2, 3), (0, 0, 0)]
        {
            let mut target = vec![0; 1000];
            copy_past_caches(&mut target[to..to + length], &source[from..from + length]);
            assert_eq!(target[to..to + length], source[from..from + length], "{from} {to} {length}");
            assert!(target[..to].iter().chain(&target[to + length..]).all(|byte| *byte == 0), "{from} {to} {length}");
        }
    }

    #[test]
    fn large_and_small_are_copied_alike() {
        for length in [1, PAST_CACHES_FROM - 1, PAST_CACHES_FROM + 1, SHARED_FROM + PIECE + 1] {
            let source: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
            let mut target = vec![0; length];
            copy(&mut target, &source);
            assert!(target == source, "{length}");
            target.fill(0);
            copy_together(&mut target, &source, 3);
            assert!(target == source, "{length}, together");
        }
    }
}
