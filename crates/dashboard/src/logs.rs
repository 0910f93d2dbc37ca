//! Files of logs on all nodes, as Ray's paths name them: `/api/v0/logs` lists them, `/api/v0/logs/file` and `/stream` send
//! what is in one. The page asks `/ox/v1/logs` for a part of one.

use crate::answer::{Answer, not_found, pieces, text};
use crate::page::replies::reply;
use crate::query::{Query, nodes};
use crate::routes::{Request, Route, Site, route};
use crate::state::{has_too_many, told};
use anstream::adapter::StripBytes;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, HeaderValue};
use oxiray_ids::{ActorId, NodeId, TaskId, WorkerId};
use oxiray_ray_api::state::refused;
use oxiray_ray_api::{RayAnswer, logs};
use oxiray_visitor::VisitError;
use oxiray_wire::message::{ListedLog, LogAction, LogPart, LogQuery, LogSelector};
use serde_json::json;
use std::rc::Rc;
use tokio::sync::mpsc::Sender;
use tokio::task::spawn_local;

/// Their paths.
pub(crate) const ROUTES: &[Route] = &[
    route!("GET", "/api/v0/logs", list),
    route!("GET", "/api/v0/logs/{}", read),
    route!("GET", "/ox/v1/logs", page_log),
];

/// How many of the last lines are sent where nothing is said: as in Ray.
const LINES: i64 = 1000;

/// All files on a node that fit; on the head's where no node is named.
async fn files(site: &Site, node: Option<NodeId>, wanted: &LogSelector) -> Result<Vec<ListedLog>, VisitError> {
    let mut files: Vec<ListedLog> = Vec::new();
    loop {
        let file = files.last().map_or_else(String::new, |last| last.name.clone());
        let wanted = Some(wanted.clone());
        let asked = LogQuery { action: LogAction::List, node, wanted, file, ..LogQuery::default() };
        let answered = site.daemon.ask(asked).await?;
        files.extend(answered.files);
        if !answered.more {
            return Ok(files);
        }
    }
}

/// `/api/v0/logs`.
async fn list(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let query = Query::of(&request);
    let listed = async {
        let Some(node) = query.node(&site).await.map_err(|text| refused(404, &text))? else {
            return Err(refused(400, "Neither node_id nor node_ip is given: name the node whose files are meant."));
        };
        let wanted = LogSelector { glob: query.text("glob").unwrap_or("*").to_owned(), ..LogSelector::default() };
        let found = files(&site, Some(node), &wanted).await.map_err(|error| refused(500, &error.to_string()))?;
        Ok::<RayAnswer, RayAnswer>(logs::listed(found.iter().map(|file| file.name.as_str())))
    };
    told(listed.await.unwrap_or_else(|refusal| refusal))
}

/// A part of a file on a node.
#[derive(Debug)]
struct Found {
    node: Option<NodeId>,
    file: ListedLog,
    part: Option<LogPart>,
}

impl Found {
    fn begin(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.from)
    }

    /// Where it ends now, and for good where that is known.
    fn end(&self) -> (u64, Option<u64>) {
        let ends = self.part.as_ref().and_then(|part| part.to);
        (ends.unwrap_or(self.file.end), ends)
    }
}

/// How a file is sent.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// How many of the last lines; all where nothing is said.
    lines: Option<u64>,
    /// Whether what is added later is sent too.
    follows: bool,
    /// Whether escape sequences of terminals are left out.
    is_plain: bool,
}

/// `/api/v0/logs/file`, and `/api/v0/logs/stream`, which goes on until no more is written.
async fn read(site: Rc<Site>, request: Request) -> Answer {
    let follows = match request.named[0].as_str() {
        "file" => false,
        "stream" => true,
        _ => return not_found(),
    };
    let query = Query::of(&request);
    let wanted = async {
        let lines = query.read("lines", "whole number of lines; -1 stands for all")?.unwrap_or(LINES);
        let manner = Manner { lines: u64::try_from(lines).ok(), follows, is_plain: query.is_set("filter_ansi_code") };
        Ok::<_, String>((manner, meant(&site, &query).await?))
    };
    // As in Ray, what is wrong is told in a text of this status.
    let (manner, found) = match wanted.await {
        Ok((_, found)) if found.is_empty() => {
            let why = "no file of logs is known of what was named: /api/v0/logs lists those that a node has";
            return text(StatusCode::INTERNAL_SERVER_ERROR, why);
        }
        Ok(wanted) => wanted,
        Err(why) => return text(StatusCode::INTERNAL_SERVER_ERROR, why),
    };
    let (mut answer, sender) = pieces("text/plain; charset=utf-8");
    let name = query.text("download_filename").or_else(|| found.first().map(|one| one.file.name.as_str()));
    let name: String = name.unwrap_or("log.txt").chars().filter(|letter| !matches!(letter, '"' | '\\' | '/')).collect();
    if let Ok(attachment) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        answer.headers_mut().insert(CONTENT_DISPOSITION, attachment);
    }
    spawn_local(async move {
        if let Err(error) = send_all(&site, &found, manner, &sender).await {
            // Whoever went away is told nothing.
            let _ = sender.send(format!("\nerror: {error}\n").into()).await;
        }
    });
    answer
}

/// What is meant, oldest first; nothing where no file of it is known.
async fn meant(site: &Site, query: &Query) -> Result<Vec<Found>, String> {
    let named = query.node(site).await?;
    let suffix = query.text("suffix").unwrap_or("out");
    let error = match suffix {
        "out" => false,
        "err" => true,
        other => return Err(format!("suffix={other} is neither out nor err")),
    };
    let of_worker = LogSelector {
        actor: query.id("actor_id", ActorId::from_hex)?,
        worker: query.id("worker_id", WorkerId::from_hex)?,
        task: query.id("task_id", TaskId::from_hex)?,
        attempt: query.read("attempt_number", "number of an attempt, which count from 0")?,
        pid: query.read("pid", "process id")?,
        error: Some(error),
        ..LogSelector::default()
    };
    let names_task_or_actor = of_worker.actor.is_some() || of_worker.task.is_some();
    let is_of_worker = names_task_or_actor || of_worker.worker.is_some() || of_worker.pid.is_some();
    let exactly = |name: String| LogSelector { glob: name, ..LogSelector::default() };
    let (wanted, on) = match (query.text("filename"), query.text("submission_id")) {
        (Some(name), _) if named.is_some() => (exactly(name.to_owned()), vec![named]),
        (Some(_), _) => return Err("filename is given without node_id or node_ip: name the node that has it".into()),
        // The head's machine has the files of submitted jobs.
        (None, Some(id)) => (exactly(format!("submitted-{id}.log")), vec![None]),
        (None, None) if is_of_worker && named.is_some() => (of_worker, vec![named]),
        (None, None) if is_of_worker => {
            (of_worker, nodes(site).await?.into_iter().map(|(node, _)| Some(node)).collect())
        }
        (None, None) => return Err("name what is meant: filename, actor_id, task_id, pid or submission_id".into()),
    };
    let mut found = Vec::new();
    for node in on {
        for file in files(site, node, &wanted).await.map_err(|error| error.to_string())? {
            if file.parts.is_empty() {
                found.push(Found { node, file, part: None });
            } else {
                found.extend(file.parts.iter().map(|part| Found {
                    node,
                    file: file.clone(),
                    part: Some(part.clone()),
                }));
            }
        }
    }
    found.sort_by_key(|one| (one.part.as_ref().map(|part| (part.attempt, part.from)), one.file.began_ms));
    Ok(found)
}

async fn send_all(site: &Site, found: &[Found], manner: Manner, to: &Sender<Bytes>) -> Result<(), VisitError> {
    let mut strip = StripBytes::new();
    for (index, one) in found.iter().enumerate() {
        let (now, for_good) = one.end();
        let mut query = LogQuery {
            action: LogAction::Read,
            node: one.node,
            file: one.file.name.clone(),
            offset: one.begin(),
            limit: Some(now),
            tail: manner.lines,
            wanted: one.part.as_ref().map(|part| LogSelector {
                task: Some(part.task),
                attempt: Some(part.attempt),
                ..LogSelector::default()
            }),
            ..LogQuery::default()
        };
        // The newest is what more is written to.
        let follows = manner.follows && index + 1 == found.len();
        loop {
            let answered = site.daemon.ask(query.clone()).await?;
            let at = answered.offset + answered.bytes.len() as u64;
            let is_read = answered.bytes.is_empty() || at >= now;
            let said = if manner.is_plain { stripped(&mut strip, &answered.bytes) } else { answered.bytes };
            if !said.is_empty() && to.send(said).await.is_err() || to.is_closed() {
                return Ok(());
            }
            (query.offset, query.tail) = (at.max(query.offset), None);
            match query.action {
                LogAction::Follow if answered.is_over => break,
                LogAction::Follow => {}
                _ if !is_read => {}
                _ if follows => (query.action, query.limit) = (LogAction::Follow, for_good),
                _ => break,
            }
        }
    }
    Ok(())
}

fn stripped(strip: &mut StripBytes, bytes: &[u8]) -> Bytes {
    strip.strip_next(bytes).collect::<Vec<_>>().concat().into()
}

/// The most bytes of one answer to the page.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Which bytes of a file the page wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stretch {
    /// The last ones.
    Last,
    /// Those from there on.
    From(u64),
    /// The last ones before.
    Before(u64),
}

impl Stretch {
    fn of(query: &Query) -> Result<Self, String> {
        let place = "place in a file, counted in bytes";
        Ok(match (query.read("from", place)?, query.read("before", place)?) {
            (Some(from), _) => Self::From(from),
            (None, Some(before)) => Self::Before(before),
            (None, None) => Self::Last,
        })
    }

    /// From where to where is read of a file that has these, and whether what is read begins within a line.
    fn within(self, begin: u64, end: u64) -> (u64, u64, bool) {
        // A file that has grown too long has lost its beginning, and all that a task printed may be in that.
        let end = end.max(begin);
        let up_to = |end: u64| {
            let from = end.saturating_sub(PAGE_BYTES_MAX).max(begin);
            (from, end, from > begin)
        };
        match self {
            Self::Last => up_to(end),
            Self::Before(before) => up_to(before.clamp(begin, end)),
            Self::From(from) => {
                let from = from.clamp(begin, end);
                (from, end.min(from + PAGE_BYTES_MAX), false)
            }
        }
    }
}

/// `/ox/v1/logs`: the end of what a process, an actor's last process or a task printed, or what is around a place in it.
async fn page_log(site: Rc<Site>, request: Request) -> Answer {
    let Ok(_turn) = site.lists.try_acquire() else { return has_too_many() };
    let query = Query::of(&request);
    let told = async {
        let stretch = Stretch::of(&query)?;
        let Some(found) = meant(&site, &query).await?.pop() else { return Ok(json!({"file": null})) };
        let (now, for_good) = found.end();
        let begin = found.begin().max(found.file.begin);
        let (mut from, limit, is_within_line) = stretch.within(begin, now);
        let (node, file) = (found.node, found.file.name.clone());
        let asked =
            LogQuery { action: LogAction::Read, node, file, offset: from, limit: Some(limit), ..LogQuery::default() };
        let told =
            if from < limit { Some(site.daemon.ask(asked).await.map_err(|error| error.to_string())?) } else { None };
        let mut bytes = told.map_or_else(Bytes::new, |told| {
            from = told.offset;
            told.bytes
        });
        let next = from + bytes.len() as u64;
        // Older lines are asked for up to `from`: what stands before the first end of a line belongs to them.
        if is_within_line && let Some(end_of_line) = bytes.iter().position(|byte| *byte == b'\n') {
            from += end_of_line as u64 + 1;
            bytes = bytes.slice(end_of_line + 1..);
        }
        let is_over = for_good.is_some() || found.file.ended_ms.is_some();
        Ok::<_, String>(json!({
            "file": found.file.name, "text": String::from_utf8_lossy(&bytes), "from": from, "next": next, "begin": begin,
            "more": next < now, "ended": is_over && next >= now, "shared": found.part.as_ref().is_some_and(|part| part.shared),
        }))
    };
    match told.await {
        Ok(value) => reply(&request, &value),
        Err(why) => text(StatusCode::BAD_REQUEST, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_told_a_bounded_stretch_of_a_file() {
        let most = PAGE_BYTES_MAX;
        for (stretch, (begin, end), expected) in [
            (Stretch::Last, (0, 10), (0, 10, false)),
            (Stretch::Last, (5, 5), (5, 5, false)),
            (Stretch::Last, (0, most + 10), (10, most + 10, true)),
            (Stretch::From(4), (0, 10), (4, 10, false)),
            // What was there is cut, or the place is behind the end.
            (Stretch::From(4), (6, 10), (6, 10, false)),
            (Stretch::From(40), (0, 10), (10, 10, false)),
            (Stretch::From(1), (0, 2 * most), (1, most + 1, false)),
            (Stretch::Before(most + 20), (0, 3 * most), (20, most + 20, true)),
            (Stretch::Before(7), (5, 10), (5, 7, false)),
            (Stretch::Before(3), (5, 10), (5, 5, false)),
            // What is meant was cut, all of it.
            (Stretch::Last, (9, 4), (9, 9, false)),
            (Stretch::From(2), (9, 4), (9, 9, false)),
            (Stretch::Before(2), (9, 4), (9, 9, false)),
        ] {
            assert_eq!(stretch.within(begin, end), expected, "{stretch:?} of {begin} to {end}");
        }
    }
}
