//! Facts about this machine.

use crate::limits::kibibytes;
use std::fs;
use std::net::UdpSocket;

/// How many processors this process may use, where quotas leave so many.
pub(crate) fn processors(quota: Option<f64>) -> usize {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    quota.map_or(here, |quota| here.min((quota as usize).max(1)))
}

/// Bytes of memory that this process holds.
pub(crate) fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&text, "VmRSS:").unwrap_or(0) << 10
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
        assert!(resident_bytes() > 0 && processors(None) > 0);
        assert_eq!((processors(Some(0.5)), processors(Some(1.9))), (1, 1));
    }
}
