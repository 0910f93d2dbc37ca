//! Checks that a GPU computes and remembers: the first CUDA device that this process can see is given a pattern that covers
//! a part of its memory, which is copied within the device and read back. Nothing but the driver's library is needed.
//!
//! A driver may hang, so the check belongs into a process of its own, which nobody waits for without a limit.

mod cuda;

use cuda::{Cuda, Memory};
use std::path::Path;

/// The most memory that is covered.
const BYTES_MAX: u64 = 1 << 30;
/// What is written and read back at a time.
const PIECE_BYTES: usize = 16 << 20;

/// Why a device was not found sound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// There is nothing to check it by.
    #[error("{0}")]
    NotMade(String),
    /// It does not do what it is to do.
    #[error("{0}")]
    Failed(String),
}

/// Checks the first device that CUDA shows to this process.
///
/// # Errors
/// [`CheckError::NotMade`] where the library cannot be loaded, or the device has no memory left to be checked;
/// [`CheckError::Failed`] where a call fails, or what is read back is not what was written.
pub fn check(library: &Path) -> Result<(), CheckError> {
    let cuda = Cuda::load(library)?;
    cuda.use_first_device()?;
    let bytes = (cuda.free_memory()? / 2).min(BYTES_MAX);
    let pieces = usize::try_from(bytes).unwrap_or(usize::MAX) / PIECE_BYTES;
    if pieces == 0 {
        return Err(CheckError::NotMade("the device has less than 32 MiB of memory left to be checked".to_owned()));
    }
    let memory = cuda.allocate(pieces * PIECE_BYTES)?;
    // Each bit of each word is set once and cleared once.
    for flipped in [0, u32::MAX] {
        covers(&cuda, &memory, pieces, flipped)?;
    }
    cuda.free(&memory)
}

/// Covers all of the memory with a pattern, and reads it back.
fn covers(cuda: &Cuda, memory: &Memory, pieces: usize, flipped: u32) -> Result<(), CheckError> {
    // A kernel of the driver's own clears what the last round left, so that nothing passes for having been there.
    cuda.clear(memory, pieces * PIECE_BYTES)?;
    let pattern: Vec<u32> = (0..PIECE_BYTES as u32 / 4).map(|word| word.wrapping_mul(0x9e37_79b9) ^ flipped).collect();
    cuda.write(memory, &pattern)?;
    for piece in 1..pieces {
        cuda.copy_within(memory, (piece - 1) * PIECE_BYTES, piece * PIECE_BYTES, PIECE_BYTES)?;
    }
    let mut read = vec![0_u32; pattern.len()];
    for piece in 0..pieces {
        cuda.read(memory, piece * PIECE_BYTES, &mut read)?;
        let differ = pattern.iter().zip(&read).filter(|(written, read)| written != read).count();
        if differ > 0 {
            let first = pattern.iter().zip(&read).position(|(written, read)| written != read).unwrap_or(0);
            let at = piece * PIECE_BYTES + first * 4;
            return Err(CheckError::Failed(format!(
                "{differ} words of memory are not what was written to them, the first at byte {at} of {}",
                pieces * PIECE_BYTES
            )));
        }
    }
    Ok(())
}
