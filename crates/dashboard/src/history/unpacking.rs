//! Lines out of compressed files, as far as they can be read.
//!
//! A file is gzip members one after the other, each of whole lines. Where one is damaged or cut, those before it are read,
//! and those behind it from the next begin of a member on.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// The longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 4 << 20;
/// The most bytes that come out of one file, however well it is compressed (HISTORY-3).
const UNPACKED_BYTES_MAX: u64 = 4 << 30;
/// After how many members that cannot be read a file is given up.
const TRIES_MAX: u32 = 1_000;
/// How each member begins.
const MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// What there is to be said of a file that was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// What is wrong with it, for people; empty where it is whole.
    pub(crate) damage: Vec<String>,
}

/// Hands over each line of a file.
pub(crate) fn unpack(file: impl Read + Seek, mut take: impl FnMut(&[u8])) -> Unpacked {
    let mut told = Unpacked::default();
    if let Err(error) = unpack_within(file, UNPACKED_BYTES_MAX, &mut take, &mut told) {
        told.damage.push(format!("it cannot be read to its end: {error}"));
    }
    told
}

fn unpack_within(
    file: impl Read + Seek,
    most: u64,
    take: &mut dyn FnMut(&[u8]),
    told: &mut Unpacked,
) -> io::Result<()> {
    let mut packed = BufReader::with_capacity(64 << 10, file);
    let (mut left, mut tries, mut is_in_step) = (most, 0, true);
    while let Some(is_member) = is_at_member(&mut packed)? {
        if !is_member {
            if is_in_step {
                told.damage.push("a part of it is none of history's, and is left out".to_owned());
            }
            is_in_step = false;
            packed.consume(1);
            continue;
        }
        let begin = packed.stream_position()?;
        let mut member = GzDecoder::new(packed);
        let read = lines(&mut member, &mut left, take);
        packed = member.into_inner();
        match read {
            Ok(0) => is_in_step = true,
            Ok(long) => {
                is_in_step = true;
                told.damage.push(format!("{long} lines are longer than {LINE_BYTES_MAX} bytes, and are left out"));
            }
            Err(error) => {
                if is_in_step {
                    told.damage.push(format!("a part of it is damaged or cut, and is left out ({error})"));
                }
                is_in_step = false;
                tries += 1;
                if tries > TRIES_MAX {
                    told.damage.push("so much of it is damaged that the rest is left out".to_owned());
                    return Ok(());
                }
                // What was cut may have taken those behind it for its own rest.
                packed.seek(SeekFrom::Start(begin + 1))?;
            }
        }
        if left == 0 {
            told.damage.push(format!("it has more than {most} bytes, and the rest is left out"));
            return Ok(());
        }
    }
    Ok(())
}

/// Whether a member begins here; nothing at the end of the file.
fn is_at_member(packed: &mut impl BufRead) -> io::Result<Option<bool>> {
    let there = packed.fill_buf()?;
    if there.is_empty() {
        return Ok(None);
    }
    // At the end of what was read ahead the rest of the begin may be missing: the decoder says whether it is one.
    let known = there.len().min(MAGIC.len());
    Ok(Some(there[..known] == MAGIC[..known]))
}

/// Hands over the lines of a member. Returns how many were too long.
fn lines(member: &mut impl Read, left: &mut u64, take: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let (mut line, mut is_long, mut long) = (Vec::new(), false, 0);
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = member.read(&mut piece)?;
        if count == 0 {
            return Ok(long);
        }
        let within = count.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= within as u64;
        let mut rest = &piece[..within];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            if is_long || line.len() > LINE_BYTES_MAX {
                long += 1;
            } else if !line.is_empty() {
                take(&line);
            }
            line.clear();
            is_long = false;
        }
        if line.len() + rest.len() > LINE_BYTES_MAX {
            is_long = true;
            line.clear();
        } else {
            line.extend_from_slice(rest);
        }
        if *left == 0 {
            return Ok(long);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write as _;

    fn member(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text).expect("memory takes it");
        packed.finish().expect("memory takes it")
    }

    fn read(bytes: &[u8]) -> (Vec<String>, Unpacked) {
        let mut found = Vec::new();
        let told = unpack(io::Cursor::new(bytes), |line| found.push(String::from_utf8_lossy(line).into_owned()));
        (found, told)
    }

    #[test]
    fn members_follow_each_other() {
        let file = [member(b"a\nb\n"), member(b"c\n")].concat();
        assert_eq!(read(&file), (vec!["a".into(), "b".into(), "c".into()], Unpacked::default()));
        assert_eq!(read(&[]), (vec![], Unpacked::default()));
    }

    #[test]
    fn a_member_that_is_cut_hides_none_of_the_others() {
        let (first, cut, last) = (member(b"a\n"), member(b"b\nb\nb\n"), member(b"c\n"));
        let (found, told) = read(&[&first[..], &cut[..cut.len() - 3]].concat());
        assert_eq!((found[0].as_str(), told.damage.len()), ("a", 1), "{found:?}");
        let (found, told) = read(&[&first[..], &cut[..cut.len() / 2], &last[..]].concat());
        assert_eq!((found[0].as_str(), found[found.len() - 1].as_str()), ("a", "c"));
        assert_eq!(told.damage.len(), 1, "{told:?}");
    }

    #[test]
    fn what_is_packed_too_well_is_read_up_to_a_limit() {
        let bomb = member(&vec![b'x'; LINE_BYTES_MAX * 4]);
        let (found, told) = read(&[bomb, member(b"a\n")].concat());
        // A line without an end is none; the next member begins another.
        assert_eq!(found, ["a"], "{told:?}");
        let mut count = 0;
        let (file, mut told) = (io::Cursor::new(member(&b"ab\n".repeat(10_000))), Unpacked::default());
        unpack_within(file, 3_000, &mut |_| count += 1, &mut told).expect("memory can be read");
        assert_eq!((count, told.damage.len()), (1_000, 1), "{told:?}");
    }

    proptest! {
        #[test]
        fn whatever_is_there_it_ends(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0_usize..60) {
            let mut file = member(b"first\n");
            let at = at.min(file.len());
            file.splice(at..at, bytes);
            read(&file);
        }
    }
}
