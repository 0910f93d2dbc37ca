//! Files of the storage, written and read in pieces: what is in memory is bounded by the turns.

use crate::place::Place;
use crate::trouble::Trouble;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _};
use oxiray_store::Checksum;
use oxiray_store::storage::Range;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinSet, spawn_blocking};

/// Bytes of one request.
pub(crate) const PIECE_BYTES: u64 = 8 << 20;
/// Requests at once, and so pieces in memory.
pub(crate) const TURNS: usize = 8;
/// Of these, pieces of one file that is read.
const PIECES_AT_ONCE: usize = 4;
/// Threads that copy pieces from and to files.
pub(crate) const READERS: usize = 4;
/// An upload has 10,000 pieces at most.
const PIECES_MAX: u64 = 9_000;

/// Who has one may have a piece in memory. They are had in the order in which they were asked for, so that who waits for
/// an earlier piece of a file never waits for a later one.
pub(crate) type Turns = Arc<Semaphore>;

pub(crate) async fn turn(turns: &Turns) -> OwnedSemaphorePermit {
    Arc::clone(turns).acquire_owned().await.expect("turns are never over")
}

/// Parts of files, read one after the other and summed up each.
#[derive(Debug)]
struct Source {
    files: Arc<Vec<File>>,
    ranges: Vec<Range>,
    /// The part that is being read, and how much of it was.
    at: (usize, u64),
    checksum: Checksum,
    checksums: Vec<u32>,
}

impl Source {
    fn new(files: Arc<Vec<File>>, ranges: Vec<Range>) -> Self {
        Self { files, ranges, at: (0, 0), checksum: Checksum::new(), checksums: Vec::new() }
    }

    /// The next bytes, as many as asked for until the last.
    fn read(&mut self, bytes: u64) -> io::Result<Bytes> {
        let mut piece = vec![0; bytes as usize];
        let mut filled = 0;
        while let Some(range) = self.ranges.get(self.at.0) {
            let count = ((range.bytes - self.at.1) as usize).min(piece.len() - filled);
            let target = &mut piece[filled..filled + count];
            let file = self.files.get(range.file as usize).ok_or_else(|| io::Error::other("a file is missing"))?;
            file.read_exact_at(target, range.offset + self.at.1)?;
            self.checksum.update(target);
            filled += count;
            self.at.1 += count as u64;
            if self.at.1 < range.bytes {
                break;
            }
            self.checksums.push(std::mem::replace(&mut self.checksum, Checksum::new()).value());
            self.at = (self.at.0 + 1, 0);
        }
        piece.truncate(filled);
        Ok(piece.into())
    }
}

/// A piece read by a thread that may wait.
async fn read(mut source: Source, bytes: u64) -> Result<(Source, Bytes), Trouble> {
    let read = spawn_blocking(move || {
        let piece = source.read(bytes);
        piece.map(|piece| (source, piece))
    });
    read.await.map_err(io::Error::other).flatten().map_err(|error| Trouble::here("read the object", &error))
}

/// Writes the parts as one file. Returns what each sums up to.
pub(crate) async fn put(
    place: &Place,
    path: &Path,
    (files, ranges): (Arc<Vec<File>>, Vec<Range>),
    turns: &Turns,
) -> Result<Vec<u32>, Trouble> {
    let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
    let asked = format!("writing {bytes} bytes to {path}");
    let source = Source::new(files, ranges);
    if bytes <= PIECE_BYTES {
        let _turn = turn(turns).await;
        let (source, piece) = read(source, bytes).await?;
        place.store.put(path, piece.into()).await.map_err(|error| place.trouble(&asked, &error))?;
        return Ok(source.checksums);
    }
    let mut upload = place.store.put_multipart(path).await.map_err(|error| place.trouble(&asked, &error))?;
    let sent = match send(&mut *upload, source, bytes, turns, |error| place.trouble(&asked, error)).await {
        Ok(source) => upload.complete().await.map(|_| source).map_err(|error| place.trouble(&asked, &error)),
        Err(trouble) => Err(trouble),
    };
    match sent {
        Ok(source) => Ok(source.checksums),
        Err(trouble) => {
            // Where that fails too, a rule of the bucket has to remove it.
            let _ = upload.abort().await;
            Err(trouble)
        }
    }
}

/// Sends the pieces of an upload, several at once.
async fn send(
    upload: &mut dyn MultipartUpload,
    mut source: Source,
    bytes: u64,
    turns: &Turns,
    trouble: impl Fn(&object_store::Error) -> Trouble,
) -> Result<Source, Trouble> {
    let piece_bytes = PIECE_BYTES.max(bytes.div_ceil(PIECES_MAX));
    let mut under_way = JoinSet::new();
    let taken = |sent: Result<object_store::Result<()>, tokio::task::JoinError>| {
        sent.map_err(object_store::Error::from).flatten().map_err(|error| trouble(&error))
    };
    let mut left = bytes;
    while left > 0 {
        let turn = turn(turns).await;
        let piece;
        (source, piece) = read(source, piece_bytes.min(left)).await?;
        left -= piece.len() as u64;
        let part = upload.put_part(piece.into());
        under_way.spawn(async move {
            let sent = part.await;
            drop(turn);
            sent
        });
        while let Some(sent) = under_way.try_join_next() {
            taken(sent)?;
        }
    }
    while let Some(sent) = under_way.join_next().await {
        taken(sent)?;
    }
    Ok(source)
}

/// A part of a file here that is written to. Whoever has the lock knows that nobody does just now, not even for an attempt
/// that was given up.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: Arc<File>,
    pub(crate) range: Range,
    pub(crate) writing: Arc<Mutex<()>>,
}

/// Reads a part of a file of the storage into a part of one here, and compares what it sums up to.
pub(crate) async fn get(
    place: &Place,
    path: &Path,
    (offset, checksum): (u64, u32),
    target: &Target,
    turns: &Turns,
) -> Result<(), Trouble> {
    let to = target.range;
    let asked = format!("reading {} bytes from {path}", to.bytes);
    let starts = (0..to.bytes).step_by(PIECE_BYTES as usize);
    let pieces = stream::iter(starts).map(|start| async move {
        let turn = turn(turns).await;
        let end = (start + PIECE_BYTES).min(to.bytes);
        let piece = place.store.get_range(path, offset + start..offset + end).await?;
        if piece.len() as u64 != end - start {
            return Err(object_store::Error::Generic { store: "S3", source: "the answer is cut short".into() });
        }
        Ok((start, piece, turn))
    });
    let pieces = pieces.buffered(PIECES_AT_ONCE).map_err(|error| place.trouble(&asked, &error));
    let write = |sum: Checksum, (start, piece, turn): (u64, Bytes, OwnedSemaphorePermit)| {
        let (file, writing) = (Arc::clone(&target.file), Arc::clone(&target.writing));
        async move {
            let writing = writing.lock_owned().await;
            let written = spawn_blocking(move || {
                let _writing = writing;
                let mut sum = sum;
                sum.update(&piece);
                let written = file.write_all_at(&piece, to.offset + start);
                drop((piece, turn));
                written.map(|()| sum)
            });
            written.await.map_err(io::Error::other).flatten().map_err(|error| Trouble::here("write the object", &error))
        }
    };
    let found = pieces.try_fold(Checksum::new(), write).await?.value();
    if found == checksum {
        return Ok(());
    }
    Err(Trouble::Gone(format!(
        "its bytes changed in the storage: what was read from {path} has checksum {found:08x}, and was written with {checksum:08x}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_whatever_the_pieces_are() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..100_u8).collect();
        file.write_all_at(&content, 0).unwrap();
        let range = |offset, bytes| Range { file: 0, offset, bytes };
        let ranges = vec![range(90, 10), range(0, 0), range(5, 50)];
        let sum = |bytes: &[u8]| {
            let mut sum = Checksum::new();
            sum.update(bytes);
            sum.value()
        };
        let files = Arc::new(vec![file]);
        for piece_bytes in [1, 7, 10, 59, 60, 100] {
            let mut source = Source::new(Arc::clone(&files), ranges.clone());
            let mut whole = Vec::new();
            while whole.len() < 60 {
                whole.extend(source.read(piece_bytes).unwrap());
            }
            assert_eq!(whole, [&content[90..], &content[5..55]].concat());
            assert_eq!(source.checksums, [sum(&content[90..]), sum(&[]), sum(&content[5..55])]);
        }
    }
}
