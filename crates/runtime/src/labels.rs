//! Whose output follows, and what the process is called meanwhile.

use std::ffi::CString;

/// Says that what this process prints from here on is of that task or actor, to the daemon that reads it, and names the
/// thread after it.
pub fn label_output(label: &str) {
    if let Ok(title) = CString::new(format!("ray::{label}")) {
        // What `ps` and `top` show; the kernel cuts it at 15 bytes.
        let _ = rustix::thread::set_name(&title);
    }
    let line = format!("\u{1e}oxiray-name:{}\n", label.replace('\n', " "));
    // Where the daemon no longer reads, nobody needs the label.
    let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
