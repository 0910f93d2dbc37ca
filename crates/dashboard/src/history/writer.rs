//! Writes lines to files, and keeps the bounds. It waits for disks and storage, and therefore runs on a thread that may.
//!
//! - WRITER-1: what is written to a file at once is a gzip member of whole lines, with its first line before anything else.
//! - WRITER-2: a file has half of what a job may have; then another is begun, and of full ones the last is kept. In storage
//!   parts are removed instead, the oldest first.
//! - WRITER-3: what the shelf does not take is kept up to [`UNSENT_BYTES_MAX`] bytes and tried again, ever later; of what has
//!   no room there it is told that it is missing, once the shelf takes something.

use super::index::INDEX;
use super::line::{Begin, BeginHow, CLUSTER, HistoryLine, LineKind};
use super::mending::mend;
use super::shelf::{FileName, Shelf, ShelfError, here, own_file, own_folder};
use super::tidying::{Bounds, LOCK, Removal, lonely, removals};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// The most bytes of lines that wait for a shelf that does not take them.
const UNSENT_BYTES_MAX: usize = 16 << 20;
/// From how many bytes on another part is begun in storage.
const PART_BYTES: usize = 1 << 20;
/// After what time a shelf is tried again, doubled each time up to the last.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Lines, by the job whose they are.
    pub(crate) lines: BTreeMap<String, Vec<u8>>,
    /// The session's index, as it is once these lines are written.
    pub(crate) index: Vec<u8>,
    /// Who writes.
    pub(crate) begin: Begin,
    /// When who writes began, in milliseconds since 1970.
    pub(crate) began_ms: u64,
    /// The time.
    pub(crate) now_ms: u64,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The jobs whose rows are to be told anew: their file is a new one, or lines were lost.
    pub(crate) again: BTreeSet<String>,
    /// Why not everything was written, for people.
    pub(crate) trouble: Option<String>,
}

/// A file that was written to.
#[derive(Debug, Default)]
struct Open {
    /// Lines that were not taken yet.
    unsent: Vec<u8>,
    /// From when on lines are lost.
    lost_from_ms: Option<u64>,
    /// Bytes since rows were told in whole.
    bytes: u64,
    /// Whether this program has written to it.
    is_begun: bool,
    /// The parts in storage, by their numbers and bytes.
    parts: VecDeque<(u32, u64)>,
    /// The last of them, packed.
    part: Vec<u8>,
}

/// Writes the files of one session.
#[derive(Debug)]
pub(crate) struct Writer {
    shelf: Shelf,
    session: String,
    bounds: Bounds,
    files: BTreeMap<String, Open>,
    /// Since when the shelf takes nothing, and when it is tried again.
    failing: Option<(Instant, Duration)>,
    /// Held as long as this lives, so that no two write to one folder.
    _lock: Option<File>,
}

impl Writer {
    /// One for a session. Returns the index that the last one wrote, too, which is empty where there was none.
    pub(crate) fn open(mut shelf: Shelf, session: &str, bounds: Bounds) -> Result<(Self, Vec<u8>), ShelfError> {
        let mut lock = None;
        if let Shelf::Folder(root) = &shelf {
            let folder = root.join(session);
            own_folder(&folder).map_err(|error| here(&folder, error))?;
            lock = Some(locked(&folder.join(LOCK))?);
        }
        let mut files: BTreeMap<String, Open> = BTreeMap::new();
        let mut index = Vec::new();
        for file in shelf.list()? {
            if file.name == format!("{session}/{INDEX}") {
                // What is in it is known from the files as well.
                let _ = shelf.open(&file.name).map(|mut from| from.read_to_end(&mut index));
            }
            let Some(name) = FileName::read(&file.name).filter(|name| name.session == session) else { continue };
            if matches!(shelf, Shelf::Storage(_)) {
                files.entry(name.job).or_default().parts.push_back((name.part, file.bytes));
            }
        }
        for file in files.values_mut() {
            file.parts.make_contiguous().sort_unstable();
        }
        Ok((Self { shelf, session: session.to_owned(), bounds, files, failing: None, _lock: lock }, index))
    }

    /// Writes what is new, and what was not taken before.
    pub(crate) fn write(&mut self, batch: Batch) -> Written {
        let mut written = Written::default();
        let mut room = UNSENT_BYTES_MAX.saturating_sub(self.files.values().map(|file| file.unsent.len()).sum());
        for (job, lines) in batch.lines {
            let file = self.files.entry(job.clone()).or_default();
            if lines.len() <= room && file.lost_from_ms.is_none() {
                room -= lines.len();
                file.unsent.extend_from_slice(&lines);
            } else {
                file.lost_from_ms.get_or_insert(batch.now_ms);
                written.again.insert(job);
            }
        }
        if self.failing.is_some_and(|(until, _)| Instant::now() < until) {
            return written;
        }
        let result = self.send(&batch.begin, (batch.began_ms, batch.now_ms), &mut written.again);
        let result = result.and_then(|()| self.shelf.put(&format!("{}/{INDEX}", self.session), &batch.index));
        match result {
            Ok(()) => self.failing = None,
            Err(error) => {
                let pause = self.failing.map_or(PAUSE, |(_, before)| (before * 2).min(PAUSE_MAX));
                self.failing = Some((Instant::now() + pause, pause));
                written.trouble = Some(error.to_string());
            }
        }
        written
    }

    fn send(&mut self, begin: &Begin, times: (u64, u64), again: &mut BTreeSet<String>) -> Result<(), ShelfError> {
        let mut waiting: Vec<String> =
            self.files.iter().filter(|(_, file)| !file.unsent.is_empty()).map(|(job, _)| job.clone()).collect();
        // Whoever reads meanwhile finds the jobs whose files there are: their rows are among the cluster's.
        waiting.sort_by_key(|job| job != CLUSTER);
        for job in waiting {
            let Some(mut file) = self.files.remove(&job) else { continue };
            let begin = Begin { job: job.clone(), ..begin.clone() };
            let sent = self.send_file(&mut file, &begin, times);
            if sent.as_ref().is_ok_and(|is_new| *is_new) {
                again.insert(job.clone());
            }
            self.files.insert(job, file);
            sent?;
        }
        Ok(())
    }

    /// Writes what waits of a file, piece by piece, so that its bound is looked at in between. Returns whether rows are to be told
    /// anew.
    fn send_file(&mut self, file: &mut Open, begin: &Begin, times: (u64, u64)) -> Result<bool, ShelfError> {
        let mut waiting = std::mem::take(&mut file.unsent);
        let lost = file.lost_from_ms.take();
        let most = usize::try_from(self.bounds.job_bytes / 4).unwrap_or(usize::MAX).min(PART_BYTES);
        let mut is_new = lost.is_some();
        while !waiting.is_empty() {
            let after =
                waiting.iter().skip(most).position(|byte| *byte == b'\n').map_or(waiting.len(), |end| most + end + 1);
            let rest = waiting.split_off(after);
            file.unsent = waiting;
            file.lost_from_ms = lost.filter(|_| rest.is_empty());
            let sent = match &mut self.shelf {
                Shelf::Folder(root) => append(&root.join(&self.session), file, begin, self.bounds, times),
                Shelf::Storage(_) => self.put_part(file, begin, times),
            };
            match sent {
                Ok(is_other) => is_new |= is_other,
                Err(error) => {
                    file.unsent.extend_from_slice(&rest);
                    file.lost_from_ms = lost;
                    return Err(error);
                }
            }
            file.unsent.clear();
            file.lost_from_ms = None;
            waiting = rest;
        }
        Ok(is_new)
    }

    /// Writes the last part anew with what waits, or begins another. Returns whether rows are to be told anew.
    fn put_part(&mut self, file: &mut Open, begin: &Begin, times: (u64, u64)) -> Result<bool, ShelfError> {
        let is_full = file.is_begun && file.bytes >= self.bounds.job_bytes / 2;
        let is_other = !file.is_begun || is_full || file.part.len() >= PART_BYTES;
        let number = file.parts.back().map_or(1, |(number, _)| number + u32::from(is_other));
        let mut part = if is_other { Vec::new() } else { file.part.clone() };
        let how = match (file.is_begun, is_full) {
            (false, _) => BeginHow::Started,
            (true, true) => BeginHow::Rolled,
            (true, false) => BeginHow::Continued,
        };
        let first = is_other.then_some(Begin { how, ..begin.clone() });
        let added = member(first.as_ref(), file, times);
        part.extend_from_slice(&added);
        let name = |part: u32| FileName { session: self.session.clone(), job: begin.job.clone(), part }.in_storage();
        self.shelf.put(&name(number), &part)?;
        if is_other {
            file.parts.push_back((number, 0));
        }
        if let Some(last) = file.parts.back_mut() {
            last.1 = part.len() as u64;
        }
        file.bytes = if is_full { 0 } else { file.bytes } + added.len() as u64;
        file.part = part;
        file.is_begun = true;
        while file.parts.len() > 1 && file.parts.iter().map(|(_, bytes)| bytes).sum::<u64>() > self.bounds.job_bytes {
            let oldest = file.parts[0].0;
            self.shelf.remove(&name(oldest))?;
            file.parts.pop_front();
        }
        Ok(is_full)
    }

    /// Removes what goes for the bounds. `active` are the jobs that go on.
    pub(crate) fn tidy(&mut self, active: &BTreeSet<String>, now_ms: u64) -> Result<Vec<Removal>, ShelfError> {
        let found = self.shelf.list()?;
        let removed = removals(&found, (&self.session, active), self.bounds, now_ms);
        for name in
            removed.iter().flat_map(|one| one.files.iter().cloned()).chain(lonely(&found, &removed, &self.session))
        {
            self.shelf.remove(&name)?;
        }
        for one in removed.iter().filter(|one| one.session == self.session) {
            self.files.remove(&one.job);
        }
        // What is over is looked up again where something is written to it after all.
        let is_folder = matches!(self.shelf, Shelf::Folder(_));
        self.files.retain(|job, file| {
            !is_folder || job == CLUSTER || active.contains(job) || !file.unsent.is_empty() || !file.is_begun
        });
        Ok(removed)
    }
}

/// The lock of a session's folder.
fn locked(path: &Path) -> Result<File, ShelfError> {
    let file = own_file(path, |options| options.write(true)).map_err(|error| here(path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ShelfError::Busy(path.display().to_string())),
        Err(TryLockError::Error(error)) => Err(here(path, error)),
    }
}

/// The lines of a file, packed: its first line where it has none yet, what waits, and that some are lost where they are.
fn member(first: Option<&Begin>, file: &Open, (began_ms, now_ms): (u64, u64)) -> Vec<u8> {
    let mut lines = Vec::new();
    if let Some(begin) = first {
        // What was seen since then waits to be written.
        let at_ms = if begin.how == BeginHow::Started { began_ms } else { now_ms };
        HistoryLine { begin: Some(begin.clone()), ..HistoryLine::of(LineKind::Begin, at_ms) }.write(&mut lines);
    }
    lines.extend_from_slice(&file.unsent);
    if let Some(from_ms) = file.lost_from_ms {
        HistoryLine::gap((from_ms, now_ms), "the history could not be written, and had no room for more")
            .write(&mut lines);
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(lines.len() / 4), Compression::default());
    // Memory takes what it is given.
    let _ = packed.write_all(&lines);
    packed.finish().unwrap_or_default()
}

/// Appends what waits to the file in a folder. Returns whether rows are to be told anew, since it is a new file.
fn append(
    folder: &Path,
    file: &mut Open,
    begin: &Begin,
    bounds: Bounds,
    times: (u64, u64),
) -> Result<bool, ShelfError> {
    let name = |part| {
        let name = FileName { session: String::new(), job: begin.job.clone(), part }.in_folder();
        folder.join(name.trim_start_matches('/'))
    };
    let path = name(0);
    let wrong = |error: io::Error| here(&path, error);
    // Whoever removes what is old takes the folder with its last file.
    own_folder(folder).map_err(wrong)?;
    let opened = own_file(&path, |options| options.read(true).append(true)).map_err(wrong)?;
    if !file.is_begun {
        mend(&opened).map_err(wrong)?;
    }
    let length = opened.metadata().map_err(wrong)?.len();
    let is_full = length >= bounds.job_bytes / 2;
    if is_full {
        let full = name(1);
        if full.exists() {
            let text = format!("older lines were removed: there are {} bytes of a job at most", bounds.job_bytes);
            let mut lines = Vec::new();
            HistoryLine { text, ..HistoryLine::of(LineKind::Cut, times.1) }.write(&mut lines);
            lines.append(&mut file.unsent);
            file.unsent = lines;
        }
        fs::rename(&path, &full).map_err(wrong)?;
    }
    let how = match (file.is_begun, is_full || length == 0) {
        (false, _) => Some(BeginHow::Started),
        (true, true) => Some(BeginHow::Rolled),
        (true, false) => None,
    };
    let first = how.map(|how| Begin { how, ..begin.clone() });
    let packed = member(first.as_ref(), file, times);
    let (mut opened, length) = if is_full {
        (own_file(&path, |options| options.read(true).append(true)).map_err(wrong)?, 0)
    } else {
        (opened, length)
    };
    if let Err(error) = opened.write_all(&packed) {
        // A member that is there in part would hide those after it from programs that stop there.
        let _ = opened.set_len(length);
        return Err(wrong(error));
    }
    let is_new = file.is_begun && how.is_some();
    file.is_begun = true;
    Ok(is_new)
}

#[cfg(test)]
mod tests {
    use super::super::unpacking::unpack;
    use super::*;
    use std::path::PathBuf;

    const BOUNDS: Bounds = Bounds { job_bytes: 4_000, all_bytes: 1 << 30, days: 30 };

    fn writer(root: &Path) -> Writer {
        Writer::open(Shelf::Folder(root.to_owned()), "s", BOUNDS).expect("opened").0
    }

    /// Lines that do not pack well.
    fn batch(job: &str, number: u64) -> Batch {
        let mut lines = Vec::new();
        let text: String =
            (0..200_u64).map(|at| char::from(33 + ((at * at * 31 + number * 7919 + at * number) % 90) as u8)).collect();
        HistoryLine { key: number.to_string(), text, ..HistoryLine::of(LineKind::Gap, number) }.write(&mut lines);
        Batch {
            lines: BTreeMap::from([(job.to_owned(), lines)]),
            index: b"{}".to_vec(),
            now_ms: number,
            ..Batch::default()
        }
    }

    fn read(path: PathBuf) -> Vec<HistoryLine> {
        let mut found = Vec::new();
        let told = unpack(File::open(path).expect("it is there"), |line| {
            found.push(serde_json::from_slice(line).expect("a line"));
        });
        assert!(told.damage.is_empty(), "{told:?}");
        found
    }

    #[test]
    fn a_file_begins_with_who_writes_and_goes_on_after_a_restart() {
        let root = tempfile::tempdir().expect("a folder");
        for number in 1..=2 {
            assert!(writer(root.path()).write(batch("01", number)).trouble.is_none());
        }
        let kinds: Vec<LineKind> = read(root.path().join("s/01.jsonl.gz")).iter().map(|line| line.kind).collect();
        assert_eq!(kinds, [LineKind::Begin, LineKind::Gap, LineKind::Begin, LineKind::Gap]);
    }

    #[test]
    fn what_a_killed_one_did_not_finish_is_cut_off_before_more_is_written() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("s/01.jsonl.gz");
        let mut first = writer(root.path());
        first.write(batch("01", 1));
        first.write(batch("01", 2));
        drop(first);
        let length = fs::metadata(&path).expect("there").len();
        File::options().write(true).open(&path).expect("opened").set_len(length - 4).expect("cut");
        writer(root.path()).write(batch("01", 3));
        let keys: Vec<String> =
            read(path).into_iter().filter(|line| line.kind == LineKind::Gap).map(|line| line.key).collect();
        assert_eq!(keys, ["1", "3"]);
    }

    #[test]
    fn a_job_has_no_more_than_its_bound_and_says_what_was_removed() {
        let root = tempfile::tempdir().expect("a folder");
        let mut writer = writer(root.path());
        let mut again = 0;
        for number in 0..100 {
            again += writer.write(batch("01", number)).again.len();
        }
        let sizes: u64 = ["01.jsonl.gz", "01.1.jsonl.gz"]
            .map(|name| fs::metadata(root.path().join("s").join(name)).expect("there").len())
            .iter()
            .sum();
        assert!(again >= 3 && sizes <= BOUNDS.job_bytes + 1_000, "{again} {sizes}");
        let lines = read(root.path().join("s/01.jsonl.gz"));
        assert_eq!(lines[0].begin.as_ref().map(|begin| begin.how), Some(BeginHow::Rolled));
        assert_eq!(lines[1].kind, LineKind::Cut);
    }

    #[test]
    fn a_shelf_that_takes_nothing_for_a_while_gets_it_later_and_hears_what_is_lost() {
        let root = tempfile::tempdir().expect("a folder");
        let mut writer = writer(root.path());
        let path = root.path().join("s/01.jsonl.gz");
        fs::create_dir(&path).expect("what cannot be written to");
        let told = writer.write(batch("01", 1));
        assert!(told.trouble.expect("it says so").contains("01.jsonl.gz"));
        let many =
            Batch { lines: BTreeMap::from([("01".to_owned(), vec![b'\n'; UNSENT_BYTES_MAX])]), ..batch("01", 2) };
        assert_eq!(writer.write(many).again.len(), 1, "it has no room");
        fs::remove_dir(&path).expect("removed");
        writer.failing = None;
        let told = writer.write(batch("02", 3));
        assert!(told.trouble.is_none() && told.again.contains("01"), "{told:?}");
        let lines = read(path);
        assert_eq!((lines[1].key.as_str(), lines[2].from_ms, lines.len()), ("1", 2, 3), "{lines:?}");
    }

    #[test]
    fn the_list_of_jobs_is_written_before_their_own_files() {
        let root = tempfile::tempdir().expect("a folder");
        let mut writer = writer(root.path());
        fs::create_dir(root.path().join("s/01.jsonl.gz")).expect("what cannot be written to");
        let mut both = batch("01", 1);
        both.lines.append(&mut batch(CLUSTER, 2).lines);
        assert!(writer.write(both).trouble.is_some());
        let keys: Vec<String> = read(root.path().join("s/cluster.jsonl.gz")).into_iter().map(|line| line.key).collect();
        assert_eq!(keys, ["", "2"]);
    }

    #[test]
    fn two_recorders_of_a_session_do_not_write_at_once() {
        let root = tempfile::tempdir().expect("a folder");
        let first = writer(root.path());
        let told = Writer::open(Shelf::Folder(root.path().to_owned()), "s", BOUNDS);
        assert!(told.is_err());
        drop(first);
        assert!(Writer::open(Shelf::Folder(root.path().to_owned()), "s", BOUNDS).is_ok());
    }
}
