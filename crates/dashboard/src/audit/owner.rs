//! The user of a peer on this machine, as the kernel's table of connections has it.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The kernel's tables.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// How much of a table is looked through, in bytes: on a machine with more connections than that nobody is named.
const TABLE_BYTES_MAX: u64 = 2 << 20;

/// The user at the other end of a connection from `peer` to `local`; nothing where that is another machine, or is not known.
pub(super) fn of(peer: SocketAddr, local: Option<SocketAddr>) -> Option<u32> {
    let local = local.filter(|local| peer.ip().is_loopback() || same(peer.ip()) == same(local.ip()))?;
    TABLES.iter().find_map(|table| found(&read(table).ok()?, peer, local))
}

fn read(table: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(table)?.take(TABLE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The user of the socket with this own address and that peer, seen from the other end.
fn found(table: &str, own: SocketAddr, other: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, from, to, _, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
        let is_it = is_same(address(from)?, own) && is_same(address(to)?, other);
        // A connection that nobody has any more is nobody's, whatever user stands there.
        (is_it && inode != "0").then(|| uid.parse().ok())?
    })
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && same(one.ip()) == same(other.ip())
}

/// An address of version 4 is one also where it is written as one of version 6.
fn same(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// `0100007F:1F90`: words of 32 bits as this machine has them in memory.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = if ip.len() == 8 {
        Ipv4Addr::from(word(0)?).into()
    } else {
        let words = [word(0)?, word(8)?, word(16)?, word(24)?];
        let mut bytes = [0; 16];
        bytes.copy_from_slice(words.as_flattened());
        Ipv6Addr::from(bytes).into()
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_peer_of_this_machine_has_a_user() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else {
                assert_eq!(host, "[::1]:0", "there is always version 4");
                continue;
            };
            let stream = TcpStream::connect(listener.local_addr().expect("one")).expect("it listens");
            let (accepted, peer) = listener.accept().expect("one");
            let own = rustix::process::getuid().as_raw();
            assert_eq!(of(peer, accepted.local_addr().ok()), Some(own), "{host}");
            drop(stream);
            assert_eq!(of(peer, accepted.local_addr().ok()), None, "it is gone");
        }
    }

    #[test]
    fn a_row_is_of_one_connection() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:2049 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 7 1\n\
            1: 0100007F:9C40 0100007F:2049 01 00000000:00000000 00:00000000 00000000  1001        0 8 1\n\
            2: 0000000000000000FFFF00000100007F:9C41 0000000000000000FFFF00000100007F:2049 01 0:0 0:0 0 1002 0 9 1\n\
            3: 0100007F:9C42 0100007F:2049 06 00000000:00000000 00:00000000 00000000  0        0 0 1\n";
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let of = |port: u16| found(table, at(port), at(0x2049));
        assert_eq!((of(0x9c40), of(0x9c41), of(0x9c42), of(0x9c43)), (Some(1001), Some(1002), None, None));
        assert_eq!(super::of("10.9.8.7:1".parse().expect("one"), Some(at(1))), None);
    }
}
