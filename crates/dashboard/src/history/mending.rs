//! A file that a killed recorder left: what it did not finish is cut off, so that what is appended can be read by everybody.

use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};

/// Counts what is read.
#[derive(Debug)]
struct Counted<'file> {
    file: &'file File,
    bytes: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Cuts off what is behind the last whole member. Returns how many bytes that were.
pub(crate) fn mend(file: &File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let whole = whole_bytes(file)?;
    if whole < length {
        file.set_len(whole)?;
    }
    Ok(length - whole)
}

/// Where the last member ends that can be read, with all before it.
fn whole_bytes(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut packed = BufReader::with_capacity(64 << 10, Counted { file, bytes: 0 });
    let mut whole = 0;
    loop {
        let mut member = GzDecoder::new(packed);
        match io::copy(&mut member, &mut io::sink()) {
            Ok(_) if member.header().is_some() => {}
            _ => return Ok(whole),
        }
        packed = member.into_inner();
        whole = packed.get_ref().bytes - packed.buffer().len() as u64;
        if whole == file.metadata()?.len() {
            return Ok(whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    fn member(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(text).expect("memory takes it");
        packed.finish().expect("memory takes it")
    }

    #[test]
    fn only_what_was_not_finished_is_cut_off() {
        let (first, second) = (member(b"a\n"), member(&b"something longer\n".repeat(99)));
        for cut in 1..second.len() {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&first).expect("written");
            file.write_all(&second[..second.len() - cut]).expect("written");
            assert_eq!(mend(&file).expect("mended"), (second.len() - cut) as u64, "{cut}");
            assert_eq!(file.metadata().expect("there").len(), first.len() as u64);
        }
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[first, second].concat()).expect("written");
        assert_eq!(mend(&file).expect("whole"), 0);
        let empty = tempfile::tempfile().expect("a file");
        assert_eq!(mend(&empty).expect("empty"), 0);
    }
}
