//! Whose output follows, and what the process is called meanwhile.

use oxiray_wire::labels::{NAME_LETTERS_MAX, mark};
use rustix::io::fcntl_dupfd_cloexec;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

/// The ends of a worker's output that the daemon reads, whatever the program makes of descriptors 1 and 2.
struct Streams {
    mark: String,
    ends: [OwnedFd; 2],
}

static STREAMS: OnceLock<Streams> = OnceLock::new();

impl Streams {
    fn write(&self, name: &str) {
        let line = format!("{}{name}\n", self.mark);
        for end in &self.ends {
            // Where the daemon no longer reads, nobody needs it.
            let _ = rustix::io::write(end, line.as_bytes());
        }
    }
}

/// LABELS-1, in a new worker, before anything of the user's runs.
pub fn begin_output() -> std::io::Result<()> {
    // Above those that programs take for their standard streams.
    let ends = [fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?, fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?];
    let mark = mark(u128::from_ne_bytes(oxiray_ids::random()));
    STREAMS.get_or_init(|| Streams { mark, ends }).write("");
    Ok(())
}

/// Says that what this process prints from here on is of that task or actor, to the daemon that reads it, and names the
/// thread after it.
pub fn label_output(label: &str) {
    if let Ok(title) = CString::new(format!("ray::{label}")) {
        // What `top` shows; the kernel cuts it at 15 bytes.
        let _ = rustix::thread::set_name(&title);
    }
    if let Some(streams) = STREAMS.get() {
        let name: String =
            label.chars().take(NAME_LETTERS_MAX).map(|one| if one == '\n' { ' ' } else { one }).collect();
        streams.write(&name);
    }
}
