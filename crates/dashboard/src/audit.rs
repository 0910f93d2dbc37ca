//! Who did what over HTTP: a line for each act, in a file among the session's logs ([its fields](../../../docs/security.md)).
//!
//! - AUDIT-1: an act has one line, which is written before the act is answered; also where whoever asked went before that.
//! - AUDIT-2: a line has nothing that was sent but what a route names: no secret, no query, no body. An entrypoint, which may
//!   have secrets in it, is known by its digest.
//! - AUDIT-3: the files are bounded, and so is how many lines strangers can cause: what they do beyond that is counted.

mod file;
mod owner;

use crate::log::say;
use crate::paths::matched;
use file::Rotated;
use http::StatusCode;
use oxiray_network::porch::{KeyKind, RefusedRequest};
use oxiray_visitor::json::date;
use ring::digest::{SHA256, digest};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc};

/// The file of the dashboard, and that of a process that exports metrics beside it.
pub(crate) const FILE: &str = "audit.jsonl";
pub(crate) const METRICS_FILE: &str = "audit-metrics.jsonl";
/// The file of a process by what it does.
pub(crate) fn name(is_metrics_only: bool) -> &'static str {
    if is_metrics_only { METRICS_FILE } else { FILE }
}

/// How many lines there are of what is refused, in which time (AUDIT-3).
const REFUSED_LINES_MAX: u32 = 10;
const REFUSED_WINDOW: Duration = Duration::from_secs(1);
/// How many refused requests wait for their lines.
const REFUSED_WAITING_MAX: usize = 64;
/// The longest subject of a line, in characters.
const SUBJECT_MAX: usize = 256;

/// What is recorded, by method and route. All that changes something, and what looks into programs.
const ACTS: [(&str, &str, &str); 22] = [
    ("POST", "/api/jobs/", "submit_job"),
    ("POST", "/api/jobs/{}/stop", "stop_job"),
    ("DELETE", "/api/jobs/{}", "delete_job"),
    ("PUT", "/api/packages/{}/{}", "upload_package"),
    ("POST", "/ox/v1/jobs/{}/stop", "stop_job"),
    ("POST", "/ox/v1/jobs/{}/delete", "delete_job"),
    ("POST", "/ox/v1/tasks/{}/cancel", "cancel_task"),
    ("POST", "/ox/v1/actors/{}/kill", "kill_actor"),
    ("POST", "/ox/v1/nodes/{}/drain", "drain_node"),
    ("POST", "/ox/v1/nodes/{}/keep", "keep_node"),
    ("POST", "/ox/v1/devices/{}/{}/{}/drain", "drain_device"),
    ("POST", "/ox/v1/devices/{}/{}/{}/undrain", "undrain_device"),
    ("POST", "/ox/v1/devices/{}/{}/{}/check", "check_device"),
    ("POST", "/ox/v1/keys", "make_key"),
    ("POST", "/ox/v1/session", "begin_session"),
    ("GET", "/ox/v1/profile", "profile"),
    ("GET", "/ox/v1/stacks", "stacks"),
    ("GET", "/worker/traceback", "stacks"),
    ("GET", "/task/traceback", "stacks"),
    ("GET", "/worker/cpu_profile", "profile"),
    ("GET", "/task/cpu_profile", "profile"),
    ("GET", "/memory_profile", "profile"),
];

/// The name of what a request of this method to this path does; nothing where that is not recorded.
fn act_of(method: &str, path: &str) -> Option<&'static str> {
    // It is answered as that is, without the body of the answer.
    let method = if method == "HEAD" { "GET" } else { method };
    let is_it = |(known, route, _): &&(&str, &str, &str)| *known == method && matched(route, path).is_some();
    ACTS.iter().find(is_it).map(|(_, _, act)| *act)
}

/// One line.
#[derive(Debug, Clone, Serialize)]
struct Line {
    time: String,
    act: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    entrypoint_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'static str,
    /// Refused requests before this one that have no line.
    #[serde(skip_serializing_if = "is_none")]
    left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    /// From where.
    pub(crate) peer: SocketAddr,
    /// Where they came to.
    pub(crate) local: Option<SocketAddr>,
    /// With which secret.
    pub(crate) key: Option<KeyKind>,
}

/// What is found out of an act while it is done.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    subject: RefCell<String>,
    entrypoint: Cell<Option<[u8; 32]>>,
}

impl Noted {
    /// The act is about this.
    pub(crate) fn subject(&self, name: &str) {
        *self.subject.borrow_mut() = name.chars().take(SUBJECT_MAX).collect();
    }

    /// It runs this.
    pub(crate) fn entrypoint(&self, text: &str) {
        self.entrypoint.set(digest(&SHA256, text.as_bytes()).as_ref().try_into().ok());
    }
}

/// An act that is being done.
#[derive(Debug)]
pub(crate) struct Act {
    audit: Rc<Audit>,
    noted: Rc<Noted>,
    line: Line,
}

impl Act {
    /// It was answered so.
    pub(crate) fn done(mut self, status: StatusCode) {
        self.line.status = Some(status.as_u16());
        self.line.result = match status.as_u16() {
            200..400 => "done",
            400..500 => "refused",
            _ => "failed",
        };
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        self.line.subject = self.noted.subject.take();
        let hex = |bytes: [u8; 32]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        self.line.entrypoint_sha256 = self.noted.entrypoint.take().map(hex);
        self.audit.write(&self.line);
    }
}

/// What was refused of late.
#[derive(Debug)]
struct Refusals {
    begun: Instant,
    lines: u32,
    left_out: u64,
}

/// The record.
#[derive(Debug)]
pub(crate) struct Audit {
    file: RefCell<Rotated>,
    /// How many lines could not be written since that was said.
    lost: Cell<u64>,
    refusals: RefCell<Refusals>,
    /// Some were left out.
    is_left_out: Notify,
}

impl Audit {
    /// Goes on with this file, or begins it.
    pub(crate) fn new(logs: &Path, name: &'static str) -> Rc<Self> {
        Rc::new(Self {
            file: RefCell::new(Rotated::new(logs.join(name))),
            lost: Cell::new(0),
            refusals: RefCell::new(Refusals { begun: Instant::now(), lines: 0, left_out: 0 }),
            is_left_out: Notify::new(),
        })
    }

    /// An act begins, where a request of this method to this path is one. It is recorded when what this returns is dropped.
    pub(crate) fn begin(
        self: &Rc<Self>,
        (method, path): (&str, &str),
        asker: Asker,
        subject: &str,
        noted: &Rc<Noted>,
    ) -> Option<Act> {
        let act = act_of(method, path)?;
        let Asker { peer, local, key } = asker;
        noted.subject(subject);
        let (uid, key) = (owner::of(peer, local), key.map(KeyKind::name));
        let line = Line { key, uid, peer: Some(peer.to_string()), result: "unknown", ..Line::now(act) };
        Some(Act { audit: Rc::clone(self), noted: Rc::clone(noted), line })
    }

    /// A request was refused by its head. What only reads is recorded where it showed a secret.
    pub(crate) fn refuse(&self, request: &RefusedRequest, now: Instant) {
        let RefusedRequest { peer, local, method, path, key, refusal } = request;
        let act = act_of(method, path);
        let is_reading = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS");
        if is_reading && !refusal.is_of_secret && act.is_none() {
            return;
        }
        let Some(left_out) = self.has_room(now) else { return };
        let (status, name) = refusal.status;
        self.write(&Line {
            key: key.map(KeyKind::name),
            peer: Some(peer.to_string()),
            uid: owner::of(*peer, *local),
            result: "refused",
            status: Some(status),
            why: if refusal.text.is_empty() { name } else { refusal.text },
            left_out,
            ..Line::now(act.unwrap_or(if is_reading { "read" } else { "other" }))
        });
    }

    /// Requests were refused that could not even be told of.
    fn missed(&self, count: u64) {
        self.refusals.borrow_mut().left_out += count;
        self.is_left_out.notify_one();
    }

    /// How many had no line before one that may have one; nothing where it has none either.
    fn has_room(&self, now: Instant) -> Option<u64> {
        let mut refusals = self.refusals.borrow_mut();
        if now.saturating_duration_since(refusals.begun) >= REFUSED_WINDOW {
            (refusals.begun, refusals.lines) = (now, 0);
        }
        if refusals.lines >= REFUSED_LINES_MAX {
            refusals.left_out += 1;
            self.is_left_out.notify_one();
            return None;
        }
        refusals.lines += 1;
        Some(std::mem::take(&mut refusals.left_out))
    }

    /// Tells of those that were left out once others stop coming.
    async fn tell_left_out(&self) -> Infallible {
        loop {
            self.is_left_out.notified().await;
            tokio::time::sleep(REFUSED_WINDOW).await;
            self.finish();
        }
    }

    /// Tells of those that were left out.
    pub(crate) fn finish(&self) {
        let left_out = std::mem::take(&mut self.refusals.borrow_mut().left_out);
        if left_out > 0 {
            self.write(&Line { result: "refused", left_out, ..Line::now("other") });
        }
    }

    fn write(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        let (lost, written) = (self.lost.get(), self.file.borrow_mut().append(&text));
        match written {
            Ok(()) if lost > 0 => {
                say(&format!("acts are recorded again; {lost} have no line"));
                self.lost.set(0);
            }
            Ok(()) => {}
            Err(error) => {
                if lost == 0 {
                    let path = self.file.borrow().path().display().to_string();
                    say(&format!("acts over HTTP cannot be recorded in {path}: {error}"));
                }
                self.lost.set(lost + 1);
            }
        }
    }
}

impl Line {
    fn now(act: &'static str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = since.as_millis() as u64;
        let time = format!("{}.{:03}Z", date(ms).replace(' ', "T"), ms % 1_000);
        Self {
            time,
            act,
            subject: String::new(),
            entrypoint_sha256: None,
            key: None,
            peer: None,
            uid: None,
            result: "done",
            status: None,
            why: "",
            left_out: 0,
        }
    }
}

/// Where a porch tells of what it refuses, from its own thread.
pub(crate) fn hear_refusals() -> (impl FnMut(RefusedRequest) + Send + 'static, Refused) {
    let (sender, receiver) = mpsc::channel(REFUSED_WAITING_MAX);
    let missed = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&missed);
    let tell = move |request| {
        // AUDIT-3.
        if sender.try_send(request).is_err() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    (tell, Refused { receiver, missed })
}

/// What a porch refuses, as it comes.
#[derive(Debug)]
pub(crate) struct Refused {
    receiver: mpsc::Receiver<RefusedRequest>,
    missed: Arc<AtomicU64>,
}

impl Refused {
    /// Has all of it recorded.
    pub(crate) async fn record(mut self, audit: &Audit) -> Infallible {
        let recorded = async {
            while let Some(request) = self.receiver.recv().await {
                audit.refuse(&request, Instant::now());
                match self.missed.swap(0, Ordering::Relaxed) {
                    0 => {}
                    missed => audit.missed(missed),
                }
            }
            // The porch is closed.
            std::future::pending().await
        };
        tokio::select! {
            never = recorded => never,
            never = audit.tell_left_out() => never,
        }
    }
}

#[cfg(test)]
mod tests;
