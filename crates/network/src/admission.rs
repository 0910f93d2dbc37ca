//! Strangers: let in or turned away (NETWORK-1, EXCHANGE-1, EXCHANGE-2).

use crate::carrier::Carrier;
use crate::exchange::{BEARERS_MAX, Exchange, FIRST, LISTENER, Line, STRANGERS_MAX, Stage, TELLING_PERIOD, watched};
use crate::gateway::{Event, Expectation, Local, Ticket};
use crate::greeting::{ADMITTED, EXPORTER, Greeting, JOIN_BYTES, JoinGreeting, REFUSED, STREAM_BYTES};
use crate::socket;
use crate::tls::is_node;
use crate::token::PART_BYTES;
use oxiray_ids::NodeId;
use rustix::event::epoll;
use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

impl Exchange {
    pub(crate) fn accept(&mut self, now: Instant) {
        let strangers = self.lines.values().filter(|line| matches!(line.stage, Stage::Stranger { .. })).count();
        for _ in strangers..STRANGERS_MAX {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((tcp, address)) => self.stranger(tcp, address.ip(), now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.turn_away(None, &format!("it cannot be accepted: {error}"), now);
                    break;
                }
            }
        }
        // EXCHANGE-1: it is listened again when one of them has proven itself or is gone, and descriptors are free.
        self.listen_no_more();
    }

    fn stranger(&mut self, tcp: TcpStream, address: IpAddr, now: Instant) {
        if self.crowd.is_barred(address, now) {
            return self.turn_away(Some(address), "it has shown too many wrong secrets", now);
        }
        let prepared = tcp.set_nonblocking(true).and_then(|()| socket::prepare(&tcp, self.options.limits.silence));
        let tls = prepared.and_then(|()| self.options.credentials.accepting().map_err(io::Error::other));
        let stage = Stage::Stranger { until: now + self.options.limits.proving, early: Vec::new() };
        let added = tls.and_then(|tls| {
            let carrier = Carrier::new(tls, tcp);
            self.add(Line::new(carrier, stage, None, Some(address)))
        });
        match added {
            Ok(number) => self.serve(number, now),
            Err(error) => self.turn_away(Some(address), &error.to_string(), now),
        }
    }

    pub(crate) fn listen_again(&mut self) {
        if let Some(listener) = self.listener.as_ref().filter(|_| !self.listens && self.finish_at.is_none()) {
            let data = epoll::EventData::new_u64(LISTENER);
            self.listens = epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN).is_ok();
        }
    }

    pub(crate) fn listen_no_more(&mut self) {
        if let Some(listener) = &self.listener {
            let _ = epoll::delete(&self.epoll, listener);
        }
        self.listens = false;
    }

    /// A stranger's greeting, as far as it has come; whether it has said enough for now.
    pub(crate) fn greet(&mut self, number: u64, now: Instant) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let Stage::Stranger { early, .. } = &mut line.stage else { return Ok(()) };
        if !line.carrier.shake()? {
            return Ok(());
        }
        if line.carrier.tls()?.alpn_protocol() != Some(&self.options.protocol[..]) {
            return Err(io::Error::new(ErrorKind::InvalidData, "it speaks another protocol"));
        }
        let greeting = loop {
            let parsed =
                Greeting::parse(early).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it did not greet"))?;
            if let Some((greeting, length)) = parsed {
                early.drain(..length);
                break greeting;
            }
            let mut room = [0; JOIN_BYTES];
            let wanted = if early.first() == Some(&1) { JOIN_BYTES } else { STREAM_BYTES };
            match line.carrier.read_early(&mut room[..wanted - early.len()])? {
                Some(read) => early.extend_from_slice(&room[..read]),
                None => return Ok(()),
            }
        };
        match greeting {
            Greeting::Join(greeting) => self.newcomer(number, &greeting, now),
            Greeting::Stream(ticket) => self.bearer(number, Ticket(ticket), now),
        }
    }

    /// Somebody with the token's secret, or who says so (NETWORK-1).
    fn newcomer(&mut self, number: u64, greeting: &JoinGreeting, now: Instant) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let refused = |reason: &str| io::Error::new(ErrorKind::PermissionDenied, reason.to_owned());
        let Some(authority) = &self.options.authority else {
            return Err(refused("it wants to join, and this is not the head"));
        };
        let exported = line.carrier.tls()?.export_keying_material([0; PART_BYTES], EXPORTER, None);
        let exported = exported.map_err(io::Error::other)?;
        if !greeting.is_proven(authority.token(), &exported) {
            if let Some(address) = line.address {
                self.crowd.erred(address, now);
            }
            line.carrier.tls()?.writer().write_all(&[REFUSED])?;
            line.carrier.tls()?.send_close_notify();
            line.carrier.shake()?;
            return Err(refused("its token is not this cluster's"));
        }
        let certificate = authority.certify(greeting.node, &greeting.public_key).map_err(io::Error::other)?;
        let length = u16::try_from(certificate.len()).map_err(io::Error::other)?;
        let mut answer = vec![ADMITTED];
        answer.extend_from_slice(&length.to_le_bytes());
        answer.extend_from_slice(&certificate);
        line.carrier.tls()?.writer().write_all(&answer)?;
        let (near, far) = UnixStream::pair()?;
        self.open(number, greeting.node, OwnedFd::from(near).into(), &[])?;
        let predecessor = (!greeting.predecessor.is_nil()).then_some(greeting.predecessor);
        let ip = self.lines.get(&number).and_then(|line| line.address);
        if let Some(ip) = ip {
            self.counter.tell(Event::Joined { node: greeting.node, predecessor, ip, local: far.into() });
        }
        Ok(())
    }

    /// A node with a ticket, or who says so (NETWORK-1, EXCHANGE-2).
    fn bearer(&mut self, number: u64, ticket: Ticket, now: Instant) -> io::Result<()> {
        let bearers = self.lines.values().filter(|line| matches!(line.stage, Stage::Bearer { .. })).count();
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        if line.carrier.tls()?.peer_certificates().is_none() || bearers >= BEARERS_MAX {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it shows a ticket and no certificate"));
        }
        let Stage::Stranger { early, .. } = &mut line.stage else { return Ok(()) };
        let early = std::mem::take(early);
        line.stage = Stage::Bearer { until: now + self.options.limits.ticket, ticket, early };
        self.listen_again();
        self.present(number, now);
        Ok(())
    }

    /// Lets a bearer in whose ticket is known and its own.
    pub(crate) fn present(&mut self, number: u64, now: Instant) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let Stage::Bearer { ticket, early, .. } = &mut line.stage else { return };
        let Some((expectation, _)) = self.expected.get(ticket) else { return };
        let certificate = line.carrier.tls().ok().and_then(|tls| tls.peer_certificates()?.first());
        if !certificate.is_some_and(|certificate| is_node(certificate, expectation.node)) {
            let address = line.address;
            self.drop_line(number);
            return self.turn_away(address, "its ticket is another node's", now);
        }
        let (ticket, early) = (*ticket, std::mem::take(early));
        let (Expectation { node, local, .. }, _) = self.expected.remove(&ticket).expect("it was just found");
        if let Err(error) = self.open(number, node, local, &early) {
            self.drop_line(number);
            self.tell(format!("the stream of node {node} cannot be carried: {error}"));
        }
    }

    /// Joins a connection to its local socket: it is carried from here on.
    pub(crate) fn open(&mut self, number: u64, node: NodeId, local: Local, early: &[u8]) -> io::Result<()> {
        let Some(mut line) = self.lines.remove(&number) else { return Ok(()) };
        epoll::add(&self.epoll, &local.socket, epoll::EventData::new_u64(FIRST + (number << 1 | 1)), watched(false))?;
        line.carrier = line.carrier.attach(local, early)?;
        line.stage = Stage::Open;
        line.node = Some(node);
        self.lines.insert(number, line);
        self.busy.push(number);
        self.listen_again();
        Ok(())
    }

    /// Counts a stranger that was turned away. The log is told once in a while, whatever they do.
    pub(crate) fn turn_away(&mut self, address: Option<IpAddr>, reason: &str, now: Instant) {
        let from = address.map_or_else(|| "somebody".to_owned(), |address| address.to_string());
        self.turned_away.0 += 1;
        self.turned_away.1 = format!("{from}: {reason}");
        self.tell_of_strangers(now);
    }

    pub(crate) fn tell_of_strangers(&mut self, now: Instant) {
        let (count, last, told) = &mut self.turned_away;
        if *count == 0 || told.is_some_and(|told| now < told + TELLING_PERIOD) {
            return;
        }
        let text = match *count {
            1 => format!("a stranger was turned away: {last}"),
            count => format!("{count} strangers were turned away, the last one from {last}"),
        };
        (*count, *told) = (0, Some(now));
        self.tell(text);
    }

    pub(crate) fn tell(&self, line: String) {
        self.counter.tell(Event::Told(line));
    }
}
