//! The jobs API, as Ray's clients ask it.

use crate::answer::{Answer, json, pieces, text, unanswered};
use crate::routes::{BodyError, Request, Site};
use bytes::Bytes;
use http::StatusCode;
use oxiray_network::porch::KeyError;
use oxiray_ray_api::jobs::{JobDetails, JobSubmitRequest, QUOTED_CHARACTERS, details, new_submission_id};
use oxiray_visitor::VisitError;
use oxiray_wire::message::{FailureCode, StateFilter, StateQuery, SubmissionAction, SubmissionAsked, SubmissionState};
use oxiray_wire::session::{logs_of, printed_by};
use oxiray_wire::state::{JobRow, StateKind};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Serialize;
use serde_json::Value as Json;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most jobs that are listed.
const JOBS_MAX: u32 = 10_000;
/// The longest body that describes a job, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// How much of what a job printed is read at once, in bytes.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Rows of jobs, submitted ones first, as Ray has them; of one column's value where one is given.
pub(crate) async fn rows(site: &Site, only: Option<(&str, &str)>) -> Result<Vec<JobRow>, VisitError> {
    let filter =
        |(key, value): (&str, &str)| StateFilter { key: key.to_owned(), differs: false, value: value.to_owned() };
    let asked = StateQuery {
        kind: StateKind::Jobs,
        limit: JOBS_MAX,
        detail: true,
        filters: only.into_iter().map(filter).collect(),
        ..StateQuery::default()
    };
    let report = site.daemon.ask(asked).await?;
    oxiray_visitor::json::check(report.version)?;
    let mut rows = report.tables.map(|tables| tables.jobs).unwrap_or_default();
    rows.sort_by_key(|row| row.submission.is_empty());
    Ok(rows)
}

/// The job that goes by this name, or is this job; the answer that there is none.
pub(crate) async fn found(site: &Site, id: &str) -> Result<JobRow, Answer> {
    for column in ["submission_id", "job_id"] {
        let rows = rows(site, Some((column, id))).await.map_err(|error| unanswered(&error))?;
        if let Some(row) = rows.into_iter().next() {
            return Ok(row);
        }
    }
    Err(text(StatusCode::NOT_FOUND, format!("Job {id} does not exist")))
}

/// The same, where it was submitted.
pub(crate) async fn submitted(site: &Site, id: &str, act: &str) -> Result<JobRow, Answer> {
    let row = found(site, id).await?;
    if row.submission.is_empty() {
        return Err(text(StatusCode::BAD_REQUEST, format!("Can only {act} submission type jobs")));
    }
    Ok(row)
}

/// Where it is kept what the job printed.
pub(crate) fn printed(site: &Site, row: &JobRow) -> PathBuf {
    printed_by(&logs_of(&site.session), &row.submission)
}

/// What is told of the job. The end of what it printed is looked at where it failed.
pub(crate) fn told(site: &Site, request: &Request, row: &JobRow) -> JobDetails {
    let has_failed = row.state == SubmissionState::Failed && row.exit_code.is_some() && !row.submission.is_empty();
    let end = has_failed.then(|| end_of(&printed(site, row)).unwrap_or_default());
    details(row, end.as_deref(), request.is_from_browser, &site.uploads.folder().to_string_lossy())
}

/// The end of a file, as text.
fn end_of(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    // A character has four bytes at most.
    let wanted = (QUOTED_CHARACTERS * 4) as u64;
    let begin = file.metadata()?.len().saturating_sub(wanted);
    let mut bytes = vec![0; wanted as usize];
    let mut length = 0;
    loop {
        match file.read_at(&mut bytes[length..], begin + length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

pub(crate) async fn list(site: Rc<Site>, request: Request) -> Answer {
    match rows(&site, None).await {
        Ok(rows) => json(&rows.iter().map(|row| told(&site, &request, row)).collect::<Vec<_>>()),
        Err(error) => unanswered(&error),
    }
}

pub(crate) async fn get(site: Rc<Site>, request: Request) -> Answer {
    match found(&site, &request.named[0]).await {
        Ok(row) => json(&told(&site, &request, &row)),
        Err(answer) => answer,
    }
}

#[derive(Serialize)]
struct Submitted<'id> {
    job_id: &'id str,
    submission_id: &'id str,
}

pub(crate) async fn submit(site: Rc<Site>, mut request: Request) -> Answer {
    let mut asked = match wanted(&mut request).await {
        Ok(asked) => asked,
        Err(answer) => return answer,
    };
    asked.resolve_packages(|name| site.uploads.find(name));
    let id = match asked.submission_id.map_or_else(new_id, Ok) {
        Ok(id) => id,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    };
    request.noted.subject(&id);
    request.noted.entrypoint(&asked.spec.entrypoint);
    // The head takes a job that is submitted twice in the same words for one; Ray refuses the second.
    let _alone = site.submitting.lock().await;
    match one(&site, SubmissionAction::List, &id).await {
        Ok(_) => {
            let text_of = "already exists. Please use a different submission_id.";
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("ValueError: Job with submission_id {id} {text_of}"),
            );
        }
        Err(VisitError::Failed(failure)) if failure.code == FailureCode::NotFound => {}
        Err(error) => return unanswered(&error),
    }
    let submission = SubmissionAsked {
        action: SubmissionAction::Submit,
        id: id.clone(),
        spec: Some(asked.spec),
        ..SubmissionAsked::default()
    };
    match site.daemon.ask(submission).await {
        Ok(_) => json(&Submitted { job_id: &id, submission_id: &id }),
        Err(VisitError::Failed(failure)) => text(StatusCode::BAD_REQUEST, failure.text),
        Err(error) => unanswered(&error),
    }
}

/// The job that the request describes.
async fn wanted(request: &mut Request) -> Result<JobSubmitRequest, Answer> {
    let body = request.read(BODY_BYTES_MAX).await.map_err(|error| match error {
        BodyError::TooLong => {
            text(StatusCode::PAYLOAD_TOO_LARGE, format!("the description of a job may have {BODY_BYTES_MAX} bytes"))
        }
        BodyError::Gone => text(StatusCode::BAD_REQUEST, "the body did not come"),
    })?;
    let sent: Json = serde_json::from_slice(&body).map_err(|error| {
        text(StatusCode::INTERNAL_SERVER_ERROR, format!("500 Internal Server Error\n\nthe body is no JSON: {error}"))
    })?;
    JobSubmitRequest::parse(sent).map_err(|wrong| text(StatusCode::BAD_REQUEST, wrong.to_string()))
}

fn new_id() -> Result<String, KeyError> {
    let mut random = [0; 16];
    SystemRandom::new().fill(&mut random).map_err(|_| KeyError::NoRandomness)?;
    Ok(new_submission_id(random))
}

/// Has the head do something with one submitted job.
pub(crate) async fn one(
    site: &Site,
    action: SubmissionAction,
    id: &str,
) -> Result<Option<oxiray_wire::message::Submission>, VisitError> {
    let asked = SubmissionAsked { action, id: id.to_owned(), ..SubmissionAsked::default() };
    Ok(site.daemon.ask(asked).await?.jobs.pop())
}

#[derive(Serialize)]
struct Stopped {
    stopped: bool,
}

pub(crate) async fn stop(site: Rc<Site>, request: Request) -> Answer {
    let row = match submitted(&site, &request.named[0], "stop").await {
        Ok(row) => row,
        Err(answer) => return answer,
    };
    if row.state.is_final() {
        return json(&Stopped { stopped: false });
    }
    match one(&site, SubmissionAction::Stop, &row.submission).await {
        Ok(_) => json(&Stopped { stopped: true }),
        Err(error) => unanswered(&error),
    }
}

#[derive(Serialize)]
struct Deleted {
    deleted: bool,
}

pub(crate) async fn delete(site: Rc<Site>, request: Request) -> Answer {
    let row = match submitted(&site, &request.named[0], "delete").await {
        Ok(row) => row,
        Err(answer) => return answer,
    };
    // The head refuses where it has not ended.
    match one(&site, SubmissionAction::Delete, &row.submission).await {
        Ok(_) => json(&Deleted { deleted: true }),
        Err(error) => unanswered(&error),
    }
}

/// What the job printed, whole: read and sent piece by piece (HTTP-2).
pub(crate) async fn logs(site: Rc<Site>, request: Request) -> Answer {
    let row = match submitted(&site, &request.named[0], "get logs of").await {
        Ok(row) => row,
        Err(answer) => return answer,
    };
    let file = match File::open(printed(&site, &row)) {
        Ok(file) => Some(file),
        // A job that has not begun has none.
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("what it printed cannot be read: {error}"));
        }
    };
    let (answer, sender) = pieces("application/json; charset=utf-8");
    tokio::task::spawn_local(async move {
        let end = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |about| about.len());
        let mut reader = TextReader::new(file, end);
        // Whoever asked may go at any time.
        let mut goes_on = sender.send(Bytes::from_static(b"{\"logs\": \"")).await.is_ok();
        while goes_on && let Some(piece) = reader.next() {
            let quoted = serde_json::to_string(&piece).unwrap_or_default();
            goes_on = sender.send(Bytes::copy_from_slice(&quoted.as_bytes()[1..quoted.len() - 1])).await.is_ok();
        }
        if goes_on {
            let _ = sender.send(Bytes::from_static(b"\"}")).await;
        }
    });
    answer
}

/// Reads a file as text, of whole characters, from where it last ended.
#[derive(Debug)]
pub(crate) struct TextReader {
    file: Option<File>,
    offset: u64,
    end: u64,
}

impl TextReader {
    /// Reads up to `end`.
    pub(crate) fn new(file: Option<File>, end: u64) -> Self {
        Self { file, offset: 0, end }
    }

    /// Begins a file that there was not before.
    pub(crate) fn open(&mut self, path: &Path) {
        if self.file.is_none() {
            self.file = File::open(path).ok();
        }
    }

    /// The next piece; `None` where there is nothing more now, or it cannot be read.
    pub(crate) fn next(&mut self) -> Option<String> {
        let mut bytes = vec![0; PIECE_BYTES.min(self.end.saturating_sub(self.offset) as usize)];
        let read = self.file.as_ref()?.read_at(&mut bytes, self.offset).ok().filter(|read| *read > 0)?;
        let whole = whole_characters(&bytes[..read]);
        self.offset += whole as u64;
        Some(String::from_utf8_lossy(&bytes[..whole]).into_owned())
    }
}

/// How many of the bytes are whole characters, or none at all: one that has just begun goes on in the next piece.
fn whole_characters(bytes: &[u8]) -> usize {
    let error = std::str::from_utf8(bytes).err();
    match error {
        Some(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        assert_eq!(whole_characters("aé".as_bytes()), 3);
        assert_eq!(whole_characters(&"aé".as_bytes()[..2]), 1);
        assert_eq!(whole_characters(&[0xc3]), 1, "what may never go on is told all the same");
        assert_eq!(whole_characters(b"a\xffb"), 3);
    }
}
