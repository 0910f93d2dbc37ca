//! What the operator counts, in the text format of Prometheus, and whether it serves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The most of a request that is read: its first line is all that counts.
const REQUEST_BYTES_MAX: usize = 4096;
/// How long a client may take.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<&'static str, u64>>,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    reconciled: AtomicU64,
    failed: AtomicU64,
    microseconds: AtomicU64,
    pods_made: AtomicU64,
    pods_deleted: AtomicU64,
    is_leader: AtomicBool,
    /// Whether the API has been reached.
    is_ready: AtomicBool,
}

fn add(table: &Mutex<BTreeMap<&'static str, u64>>, key: &'static str) {
    *table.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
}

impl Metrics {
    pub(crate) fn count_request(&self, verb: &'static str) {
        add(&self.requests, verb);
    }

    pub(crate) fn count_refusal(&self, verb: &'static str) {
        add(&self.refusals, verb);
    }

    pub(crate) fn count_reconcile(&self, took: Duration, is_ok: bool) {
        self.reconciled.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(!is_ok), Ordering::Relaxed);
        self.microseconds.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_pods(&self, made: usize, deleted: usize) {
        self.pods_made.fetch_add(made as u64, Ordering::Relaxed);
        self.pods_deleted.fetch_add(deleted as u64, Ordering::Relaxed);
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, help, table) in [
            ("oxiray_operator_api_requests_total", "Requests to the API.", &self.requests),
            ("oxiray_operator_api_errors_total", "Requests to the API that failed.", &self.refusals),
        ] {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
            for (verb, count) in table.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let _ = writeln!(text, "{name}{{verb=\"{verb}\"}} {count}");
            }
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = [
            ("oxiray_operator_reconciles_total", "Looks at a cluster.", read(&self.reconciled) as f64),
            ("oxiray_operator_reconcile_errors_total", "Looks that failed.", read(&self.failed) as f64),
            ("oxiray_operator_reconcile_seconds_total", "Time they took.", read(&self.microseconds) as f64 / 1e6),
            ("oxiray_operator_pods_made_total", "Pods that were made.", read(&self.pods_made) as f64),
            ("oxiray_operator_pods_deleted_total", "Pods that were deleted.", read(&self.pods_deleted) as f64),
        ];
        for (name, help, value) in counters {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        }
        let leader = u8::from(self.is_leader.load(Ordering::Relaxed));
        let name = "oxiray_operator_is_leader";
        let _ = writeln!(text, "# HELP {name} Whether this one acts.\n# TYPE {name} gauge\n{name} {leader}");
        text
    }

    /// Answers `/metrics`, `/healthz` and `/readyz` for good.
    pub(crate) async fn serve(&self, listener: TcpListener) {
        loop {
            // One after the other: whoever asks is a probe or a scraper, and is given up on when it is slow.
            if let Ok((stream, _)) = listener.accept().await {
                let _ = tokio::time::timeout(CLIENT_LIMIT, self.answer(stream)).await;
            }
        }
    }

    async fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut request = Vec::new();
        while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
            let mut part = [0; 1024];
            let read = stream.read(&mut part).await?;
            if read == 0 {
                return Ok(());
            }
            request.extend_from_slice(&part[..read]);
        }
        let line = String::from_utf8_lossy(&request);
        let (status, body) = match line.split_whitespace().nth(1) {
            Some("/metrics") => ("200 OK", self.text()),
            Some("/healthz") => ("200 OK", "ok\n".to_owned()),
            Some("/readyz") if self.is_ready.load(Ordering::Relaxed) => ("200 OK", "ok\n".to_owned()),
            Some("/readyz") => ("503 Service Unavailable", "the API was not reached yet\n".to_owned()),
            _ => ("404 Not Found", "there are /metrics, /healthz and /readyz\n".to_owned()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    }
}
