//! How files of workers are called.

use oxiray_ids::{JobId, WorkerId};
use std::fmt;

/// What one worker prints into one of its streams for one job: the name that Ray gives to such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// The worker.
    pub worker: WorkerId,
    /// The job; nil until the worker has one.
    pub job: JobId,
    /// The worker's process.
    pub pid: u32,
    /// Whether it is of standard error.
    pub is_error: bool,
}

impl FileName {
    /// The name that a text is.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, ending) = text.strip_prefix("worker-")?.rsplit_once('.')?;
        let is_error = match ending {
            "out" => false,
            "err" => true,
            _ => return None,
        };
        let mut parts = rest.split('-');
        let (worker, job, pid) = (parts.next()?, parts.next()?, parts.next()?);
        let name = Self {
            worker: WorkerId::from_hex(worker).ok()?,
            job: JobId::from_hex(job).ok()?,
            pid: pid.parse().ok()?,
            is_error,
        };
        // As it is written, and no other way.
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = if self.is_error { "err" } else { "out" };
        write!(f, "worker-{}-{}-{}.{ending}", self.worker, self.job, self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let name = FileName { worker: WorkerId::new([7; 28]), job: JobId::from_number(3), pid: 12, is_error: true };
        let text = name.to_string();
        assert_eq!(text, format!("worker-{}-03000000-12.err", "07".repeat(28)));
        assert_eq!(FileName::read(&text), Some(name));
        let others =
            [text.replace(".err", ".log"), text.replace("-12", "-012"), format!("{text}.1"), format!("x/{text}")];
        assert!(others.iter().all(|other| FileName::read(other).is_none()));
    }
}
