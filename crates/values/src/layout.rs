//! How a blob with buffers is laid out, whoever wrote its body:
//!
//! ```text
//! tag │ 7 zeros │ n: u64 │ p: u64 │ n lengths: u64 │ body: p bytes │ buffers, each 64-byte aligned
//! ```

use std::ops::Range;

const ALIGNMENT: usize = 64;

fn header_bytes(buffers: usize) -> usize {
    24 + 8 * buffers
}

/// How many bytes a blob takes, by the lengths of its parts.
pub fn size(body: usize, buffers: impl ExactSizeIterator<Item = usize>) -> usize {
    let before = header_bytes(buffers.len()) + body;
    buffers.fold(before, |size, buffer| size.next_multiple_of(ALIGNMENT) + buffer)
}

/// Writes a body, part after part; `target` has just its size. `copy` copies large memory.
pub fn write_body(mut target: &mut [u8], parts: &[&[u8]], copy: impl Fn(&mut [u8], &[u8])) {
    for part in parts {
        let (place, rest) = target.split_at_mut(part.len());
        copy(place, part);
        target = rest;
    }
}

/// Writes a blob whose body comes in parts; `target` has just its [`size`]. `copy` copies large memory.
pub fn write<'buffers>(
    target: &mut [u8],
    tag: u8,
    body: &[&[u8]],
    buffers: impl ExactSizeIterator<Item = &'buffers [u8]> + Clone,
    copy: impl Fn(&mut [u8], &[u8]),
) {
    target[..8].copy_from_slice(&[tag, 0, 0, 0, 0, 0, 0, 0]);
    let body_bytes = body.iter().map(|part| part.len()).sum();
    let numbers = [buffers.len(), body_bytes].into_iter().chain(buffers.clone().map(<[u8]>::len));
    for (number, slot) in numbers.zip(target[8..].chunks_exact_mut(8)) {
        slot.copy_from_slice(&(number as u64).to_le_bytes());
    }
    let mut at = header_bytes(buffers.len());
    write_body(&mut target[at..at + body_bytes], body, &copy);
    at += body_bytes;
    for buffer in buffers {
        let start = at.next_multiple_of(ALIGNMENT);
        target[at..start].fill(0);
        copy(&mut target[start..start + buffer.len()], buffer);
        at = start + buffer.len();
    }
}

/// Where body and buffers lie in a blob; nothing where they do not fit it (VALUES-2).
pub fn parts(blob: &[u8]) -> Option<(Range<usize>, Vec<Range<usize>>)> {
    let number = |index: usize| {
        let at = 8 + 8 * index;
        let bytes = blob.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let count = number(0)?;
    if count > blob.len() / 8 {
        return None;
    }
    let mut at = header_bytes(count);
    let body = at..at.checked_add(number(1)?)?;
    at = body.end;
    let mut buffers = Vec::with_capacity(count);
    for index in 0..count {
        let start = at.checked_next_multiple_of(ALIGNMENT)?;
        at = start.checked_add(number(2 + index)?)?;
        buffers.push(start..at);
    }
    (at <= blob.len()).then_some((body, buffers))
}
