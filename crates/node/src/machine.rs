//! Facts about this machine.

use std::fs;
use std::net::UdpSocket;

/// How many processors this process may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bytes of main memory; 1 GiB where the kernel does not tell.
pub(crate) fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kibibytes(&text, "MemTotal:").unwrap_or(1 << 20) << 10
}

/// Bytes of memory that this process holds.
pub(crate) fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&text, "VmRSS:").unwrap_or(0) << 10
}

fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The host's name.
pub(crate) fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".into() } else { name.trim().into() }
}

/// The address that other machines would see: the one that a packet to the outside would carry. None is sent.
pub(crate) fn address() -> String {
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    outward.map_or_else(|_| "127.0.0.1".into(), |address| address.ip().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_kernel_tables() {
        assert_eq!(kibibytes("MemTotal:       16314 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(16314));
        assert_eq!(kibibytes("", "MemTotal:"), None);
        assert!(memory_bytes() > 64 << 20 && resident_bytes() > 0 && processors() > 0);
    }
}
