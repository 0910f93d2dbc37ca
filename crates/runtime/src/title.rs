//! What `ps` shows as a worker's command: the memory that the kernel reads it from, written anew.
//!
//! The kernel shows the bytes that a process's arguments were in when it was started. A fork has them of its template, and
//! nothing reads them any more, since Python has copied them.

use parking_lot::Mutex;
use std::sync::OnceLock;

/// Where arguments are, among the fields of `/proc/self/stat` that follow the program's name (`arg_start`, field 48).
const ARGUMENTS_FIELD: usize = 45;

struct Area {
    start: *mut u8,
    bytes: usize,
    /// How much of it the present title takes.
    used: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and the lock around it is taken for each access.
unsafe impl Send for Area {}

static AREA: OnceLock<Option<Mutex<Area>>> = OnceLock::new();

/// In the process that workers are forked from: finds out where they show their titles.
pub(crate) fn find_titles() {
    AREA.get_or_init(|| find().map(Mutex::new));
}

/// Shows `ray::` and this, cut at the length of what the template was started with.
pub fn show_title(text: &str) {
    let Some(Some(area)) = AREA.get() else { return };
    let mut area = area.lock();
    let mut at = 0;
    for part in [b"ray::", text.as_bytes()] {
        let room = part.len().min(area.bytes - 1 - at);
        // SAFETY: `find` saw that these bytes are this process's own arguments, of which `room` are left after `at`; nobody else
        // writes them, and the kernel reads them whenever it likes.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), area.start.add(at), room) };
        at += room;
    }
    let rest = area.used.saturating_sub(at);
    // SAFETY: as above: `used` is within the area.
    unsafe { std::ptr::write_bytes(area.start.add(at), 0, rest) };
    area.used = at;
}

/// The area, where the kernel tells it and it holds what is shown now.
fn find() -> Option<Area> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(ARGUMENTS_FIELD);
    let start: usize = fields.next()?.parse().ok()?;
    let bytes = fields.next()?.parse::<usize>().ok()?.checked_sub(start).filter(|bytes| *bytes > 1 && start != 0)?;
    let shown = std::fs::read("/proc/self/cmdline").ok()?;
    if shown.len() != bytes {
        return None;
    }
    let start = std::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the kernel says that the arguments are here, and has just read as many bytes from there.
    let is_it = unsafe { std::slice::from_raw_parts(start, bytes) } == shown;
    is_it.then_some(Area { start, bytes, used: bytes })
}
