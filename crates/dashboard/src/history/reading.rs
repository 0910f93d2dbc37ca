//! Reads the history of a session.

use super::index::{INDEX, Index, IndexedJob};
use super::line::{CLUSTER, HistoryLine, SCHEMA};
use super::past::{Past, meant};
use super::shelf::{FileName, FoundFile, Reads, Shelf, ShelfError};
use super::unpacking::unpack;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;
use thiserror::Error;

/// The most bytes of an index that are read.
const INDEX_BYTES_MAX: u64 = 16 << 20;

/// What is to be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// The place: a folder, or a URL.
    pub(crate) place: String,
    /// The session; the one that was written last where it is left out.
    pub(crate) session: Option<String>,
    /// The job, by its identifier or name; all where it is left out.
    pub(crate) job: Option<String>,
    /// How much memory it may take, in bytes.
    pub(crate) most_bytes: usize,
}

/// Why nothing was read.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    /// The place.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// There is nothing there.
    #[error(
        "there is no history at {place}: it has folders of sessions with files such as cluster.jsonl.gz, and `oxiray start --head --history=…` writes them"
    )]
    Nothing {
        /// The place.
        place: String,
    },
    /// There is no such session.
    #[error("there is no history of session `{given}` at {place}: there are {known}")]
    Session {
        /// The place.
        place: String,
        /// What was asked for.
        given: String,
        /// What there is.
        known: String,
    },
    /// More than one begins so.
    #[error("more than one begins with `{given}`: {known}; give more of it")]
    Several {
        /// What was asked for.
        given: String,
        /// What begins so.
        known: String,
    },
    /// It is of another version.
    #[error(
        "{file} is of version {schema} of history's files, and this program reads version {SCHEMA}: read it with the Oxiray that wrote it, or a newer one"
    )]
    Schema {
        /// The file.
        file: String,
        /// Its version.
        schema: u32,
    },
    /// There is no such job.
    #[error("there is no job `{given}` in the history of {session}: there are {known}")]
    Job {
        /// What was asked for.
        given: String,
        /// The session.
        session: String,
        /// What there is.
        known: String,
    },
}

/// A folder of one session, as its parent and its name.
fn above(place: &str, found: &[FoundFile]) -> Option<(String, String)> {
    let is_of_session = found.iter().any(|file| !file.name.contains('/') && file.name.ends_with(".jsonl.gz"));
    let path = std::path::absolute(Path::new(place)).ok().filter(|_| is_of_session)?;
    let name = path.file_name()?.to_str()?.to_owned();
    Some((path.parent()?.to_str()?.to_owned(), name))
}

/// Reads a session's history.
pub(crate) fn read(asked: &Asked) -> Result<Past, ReadError> {
    let mut shelf = Shelf::of(&asked.place)?;
    let mut found = shelf.list()?;
    let mut asked = asked.clone();
    if let Some((parent, session)) = above(&asked.place, &found).filter(|_| matches!(shelf, Shelf::Folder(_))) {
        shelf = Shelf::of(&parent)?;
        found = shelf.list()?;
        asked.session.get_or_insert(session);
        asked.place = parent;
    }
    let mut sessions: BTreeMap<String, u64> = BTreeMap::new();
    for file in &found {
        let Some(name) = FileName::read(&file.name) else { continue };
        let changed = sessions.entry(name.session).or_default();
        *changed = (*changed).max(file.changed_ms);
    }
    let newest =
        sessions.iter().max_by_key(|(name, changed)| (**changed, (*name).clone())).map(|(name, _)| name.clone());
    let newest = newest.ok_or_else(|| ReadError::Nothing { place: asked.place.clone() })?;
    let session = asked.session.clone().unwrap_or(newest);
    let names: Vec<(&str, &str)> = sessions.keys().map(|name| (name.as_str(), name.as_str())).collect();
    let session = match meant(&session, &names) {
        Ok(found) => found.to_owned(),
        Err(several) if several.is_empty() => {
            let known = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            return Err(ReadError::Session { place: asked.place, given: session, known });
        }
        Err(several) => return Err(ReadError::Several { given: session, known: several.join(", ") }),
    };
    let mut past = Past::new(asked.most_bytes);
    read_session(&mut shelf, (&session, &found), asked.job.as_deref(), &mut past)?;
    past.finish();
    if let Some(wanted) = &asked.job {
        let job = past.job(wanted).map_err(|several| {
            let given = wanted.clone();
            if !several.is_empty() {
                return ReadError::Several { given, known: several.join(", ") };
            }
            let rows = past.rows("jobs", u64::MAX);
            let known = rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>().join(", ");
            ReadError::Job { given, session, known }
        })?;
        past.narrow(&job);
    }
    Ok(past)
}

/// What the session's index says; nothing where it cannot be read.
fn index_of(shelf: &mut Shelf, session: &str) -> Index {
    let mut text = Vec::new();
    let read = shelf.open(&format!("{session}/{INDEX}"));
    let _ = read.map(|file| file.take(INDEX_BYTES_MAX).read_to_end(&mut text));
    serde_json::from_slice(&text).unwrap_or_default()
}

fn read_session(
    shelf: &mut Shelf,
    (session, found): (&str, &[FoundFile]),
    job: Option<&str>,
    past: &mut Past,
) -> Result<(), ReadError> {
    let index = index_of(shelf, session);
    // Where the index knows the job by its whole name, others need not be read. A submission may have had several drivers, each
    // with a file of its own.
    let is_meant = |id: &str, told: &IndexedJob| job.is_some_and(|job| id == job || told.submission == job);
    let of_job = index.jobs.iter().filter(|(id, told)| is_meant(id, told));
    let known: BTreeSet<&str> = of_job.map(|(id, _)| id.as_str()).collect();
    let is_read = |name: &FileName| name.job == CLUSTER || known.is_empty() || known.contains(name.job.as_str());
    let files = found.iter().filter_map(|file| Some((FileName::read(&file.name)?, file.name.clone())));
    let mut by_job: BTreeMap<(bool, String), Vec<(FileName, String)>> = BTreeMap::new();
    for (name, file) in files.filter(|(name, _)| name.session == session && is_read(name)) {
        by_job.entry((name.job != CLUSTER, name.job.clone())).or_default().push((name, file));
    }
    for ((_, job), files) in by_job {
        for (name, opened) in shelf.open_in_order(files) {
            match opened {
                Ok(opened) => read_file((&job, &name), opened, past)?,
                Err(error) => past.note(format!("{name} cannot be read: {error}")),
            }
        }
    }
    past.know_until(index.until_ms);
    Ok(())
}

fn read_file((job, name): (&str, &str), opened: Box<dyn Reads>, past: &mut Past) -> Result<(), ReadError> {
    let number = past.file(job);
    let (mut other, mut wrong) = (None, 0_u64);
    let told = unpack(opened, |line| match serde_json::from_slice::<HistoryLine>(line) {
        Ok(line) if other.is_none() => other = past.take(number, line).err(),
        Ok(_) => {}
        Err(_) => wrong += 1,
    });
    if let Some(schema) = other {
        return Err(ReadError::Schema { file: name.to_owned(), schema });
    }
    if wrong > 0 {
        past.note(format!("{name}: {wrong} lines are none of history's, and are left out"));
    }
    for damage in told.damage {
        past.note(format!("{name}: {damage}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write as _;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(format!("{text}\n").as_bytes()).expect("memory takes it");
        fs::write(path, packed.finish().expect("memory takes it")).expect("written");
    }

    fn asked(place: &Path) -> Asked {
        Asked { place: place.display().to_string(), most_bytes: 1 << 20, ..Asked::default() }
    }

    const BEGIN: &str = r#"{"at_ms":1,"kind":"begin","begin":{"schema":1,"job":"cluster","session":"s"}}"#;
    const JOB: &str = r#"{"at_ms":5,"kind":"row","list":"jobs","key":"one","cells":{"state":"RUNNING","job_id":"01000000","submission":"one"}}"#;

    #[test]
    fn a_place_without_history_is_told_of_with_the_way_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = read(&asked(folder.path())).expect_err("nothing is there").to_string();
        assert!(told.contains("no history at") && told.contains("--history"), "{told}");
        let missing = folder.path().join("missing");
        assert!(read(&asked(&missing)).expect_err("nothing is there").to_string().contains("missing"));
        write(&folder.path().join("s/cluster.jsonl.gz"), BEGIN);
        let wanted = Asked { session: Some("t".into()), ..asked(folder.path()) };
        assert!(read(&wanted).expect_err("no such session").to_string().ends_with("there are s"));
        write(&folder.path().join("session_1/cluster.jsonl.gz"), BEGIN);
        write(&folder.path().join("session_2/cluster.jsonl.gz"), BEGIN);
        let wanted = |given: &str| Asked { session: Some(given.into()), ..asked(folder.path()) };
        assert!(
            read(&wanted("s")).is_ok() && read(&wanted("session_2")).is_ok(),
            "a whole name goes before beginnings"
        );
        let told = read(&wanted("session")).expect_err("two begin so").to_string();
        assert!(told.contains("session_1, session_2") && told.contains("give more of it"), "{told}");
    }

    #[test]
    fn files_of_all_jobs_are_read_together_and_what_is_wrong_is_noted() {
        let folder = tempfile::tempdir().expect("a folder");
        write(&folder.path().join("s/cluster.jsonl.gz"), BEGIN);
        write(&folder.path().join("s/01000000.jsonl.gz"), &format!("{JOB}\nwhat"));
        let past = read(&asked(folder.path())).expect("it is read");
        assert_eq!((past.rows("jobs", 5).len(), past.notes().len()), (1, 1), "{:?}", past.notes());
        let past = read(&asked(&folder.path().join("s"))).expect("a session's own folder is read as well");
        assert_eq!(past.rows("jobs", 5).len(), 1);
        let wanted = Asked { job: Some("two".into()), ..asked(folder.path()) };
        assert!(read(&wanted).expect_err("no such job").to_string().ends_with("there are one"));
    }

    #[test]
    fn all_drivers_of_a_submission_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let task =
            r#"{"at_ms":5,"kind":"row","list":"tasks","key":"t","cells":{"state":"FINISHED","job_id":"02000000"}}"#;
        write(&folder.path().join("s/cluster.jsonl.gz"), &format!("{BEGIN}\n{}", JOB.replace("01000000", "02000000")));
        write(&folder.path().join("s/01000000.jsonl.gz"), &JOB.replace("\"at_ms\":5", "\"at_ms\":4"));
        write(&folder.path().join("s/02000000.jsonl.gz"), task);
        let mut index = Index::default();
        for id in ["01000000", "02000000"] {
            index.set_job(id.to_owned(), IndexedJob { submission: "one".to_owned(), ..IndexedJob::default() });
        }
        index.set_job("03000000".to_owned(), IndexedJob { submission: "one-more".to_owned(), ..IndexedJob::default() });
        fs::write(folder.path().join("s").join(INDEX), serde_json::to_vec(&index).expect("JSON")).expect("written");
        for given in ["one", "on"] {
            let past = read(&Asked { job: Some(given.into()), ..asked(folder.path()) }).expect("it is read");
            assert_eq!((past.rows("jobs", 5).len(), past.rows("tasks", 5).len()), (1, 1), "{given}");
        }
    }

    #[test]
    fn a_file_that_the_recorder_puts_aside_meanwhile_is_read_once_and_not_missed() {
        let task = |key: &str| {
            format!(
                r#"{{"at_ms":5,"kind":"row","list":"tasks","key":"{key}","cells":{{"state":"FINISHED","job_id":"01000000"}}}}"#
            )
        };
        let folder = tempfile::tempdir().expect("a folder");
        let (written, full) = (folder.path().join("s/01000000.jsonl.gz"), folder.path().join("s/01000000.1.jsonl.gz"));
        // What is found, and what there is by the time that it is opened: the recorder put its file aside, and has begun the next
        // one, or not yet.
        for (had_full, has_begun) in [(false, true), (true, true), (false, false)] {
            let _ = fs::remove_file(&full);
            if had_full {
                write(&full, &task("removed"));
            }
            write(&written, &format!("{BEGIN}\n{JOB}\n{}", task("before")));
            let mut shelf = Shelf::of(folder.path().to_str().expect("text")).expect("a folder");
            let found = shelf.list().expect("listed");
            fs::rename(&written, &full).expect("put aside");
            if has_begun {
                write(&written, &task("after"));
            }
            let mut past = Past::new(1 << 20);
            read_session(&mut shelf, ("s", &found), None, &mut past).expect("it is read");
            past.finish();
            let keys: Vec<String> = past.rows("tasks", 5).iter().map(|row| row.key.clone()).collect();
            let expected = if has_begun { &["after", "before"][..] } else { &["before"] };
            assert_eq!((keys, past.notes()), (expected.iter().map(|key| (*key).to_owned()).collect(), &[][..]));
        }
    }

    #[test]
    fn a_file_that_is_put_aside_between_two_openings_is_read_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |part: &str| folder.path().join(format!("s/01000000{part}.jsonl.gz"));
        write(&path(""), BEGIN);
        fs::hard_link(path(""), path(".1")).expect("the file under its next name as well");
        let mut shelf = Shelf::of(folder.path().to_str().expect("text")).expect("a folder");
        let found = shelf.list().expect("listed").into_iter();
        let found = found.filter_map(|file| Some((FileName::read(&file.name)?, file.name))).collect();
        assert_eq!(shelf.open_in_order(found).len(), 1);
    }

    #[test]
    fn another_version_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        write(&folder.path().join("s/cluster.jsonl.gz"), &BEGIN.replace("\"schema\":1", "\"schema\":2"));
        let told = read(&asked(folder.path())).expect_err("it means something else").to_string();
        assert!(told.contains("s/cluster.jsonl.gz is of version 2") && told.contains("reads version 1"), "{told}");
    }
}
