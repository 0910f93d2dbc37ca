//! Strangers: let in or turned away (NETWORK-1, EXCHANGE-1, EXCHANGE-2, EXCHANGE-3).

use crate::carrier::Carrier;
use crate::exchange::{ACCEPT_PAUSE, Exchange, FIRST, LISTENER, Line, Stage, TELLING_PERIOD, watched};
use crate::expectation::{Expectation, Local, Ticket};
use crate::greeting::{ADMITTED, EXPORTER, Greeting, JOIN_BYTES, JoinGreeting, REFUSED, Refusal, STREAM_BYTES};
use crate::mailbox::Event;
use crate::socket;
use crate::tls::node_of;
use crate::token::{JoinToken, PART_BYTES};
use oxiray_ids::NodeId;
use rustix::event::epoll;
use rustls::HandshakeKind;
use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// How many connections are accepted before others are served.
const ACCEPTS_MAX: usize = 64;

impl Line {
    /// Says something before the connection is carried: at once, as far as the kernel takes it.
    fn answer(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.carrier.tls()?.writer().write_all(bytes)?;
        self.carrier.shake()?;
        Ok(())
    }

    fn answer_last(&mut self, byte: u8) -> io::Result<()> {
        self.carrier.tls()?.writer().write_all(&[byte])?;
        self.carrier.tls()?.send_close_notify();
        self.carrier.shake()?;
        Ok(())
    }
}

impl Exchange {
    pub(crate) fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((tcp, address)) => self.stranger(tcp, address.ip(), now),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    // Whoever waits goes on waiting: descriptors may be free again soon.
                    self.listen_no_more();
                    self.rests_until = Some(now + ACCEPT_PAUSE);
                    return self.turn_away(None, &format!("it cannot be accepted: {error}"), now);
                }
            }
        }
    }

    fn stranger(&mut self, tcp: TcpStream, address: IpAddr, now: Instant) {
        let prepared = tcp.set_nonblocking(true).and_then(|()| socket::prepare(&tcp, self.options.limits.silence));
        let tls = prepared.and_then(|()| self.options.credentials.accepting().map_err(io::Error::other));
        let stage = Stage::Stranger { until: now + self.options.limits.proving, early: Vec::new() };
        let added = tls.and_then(|tls| {
            let carrier = Carrier::new(tls, tcp);
            self.add(Line::new(carrier, stage, None, Some(address)))
        });
        match added {
            Ok(number) => {
                if let Some(loser) = self.strangers.enter(number, address) {
                    self.crowd_out(loser, now);
                }
                self.serve(number, now);
            }
            Err(error) => self.turn_away(Some(address), &error.to_string(), now),
        }
    }

    /// CROWD-2.
    fn crowd_out(&mut self, number: u64, now: Instant) {
        let address = self.lines.get(&number).and_then(|line| line.address);
        self.drop_line(number);
        self.turn_away(address, "too many wait to prove themselves, and it has waited longest", now);
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
            Greeting::Join(greeting) => self.newcomer(number, *greeting, now),
            Greeting::Stream(ticket) => self.bearer(number, Ticket(ticket), now),
        }
    }

    /// Somebody with a token's secret or with a certificate, or who says so (NETWORK-1). Whether that holds is the
    /// daemon's to say.
    fn newcomer(&mut self, number: u64, greeting: JoinGreeting, now: Instant) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let Some((_, tokens)) = &self.options.authority else {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it wants to join, and this is not the head"));
        };
        let tls = line.carrier.tls()?;
        // In a session that is resumed nobody has looked whether the certificate still is valid.
        let is_new = tls.handshake_kind() != Some(HandshakeKind::Resumed);
        let before = tls.peer_certificates().filter(|_| is_new).and_then(|chain| node_of(chain.first()?));
        let is_barred = line.address.is_some_and(|address| self.crowd.is_barred(address, now));
        let exported = line.carrier.tls()?.export_keying_material([0; PART_BYTES], EXPORTER, None);
        let exported = exported.map_err(io::Error::other)?;
        // CROWD-1. Whoever has a certificate may have an old token as well.
        let tokens = if is_barred { &[] } else { &tokens[..] };
        let token = tokens.iter().find(|token| greeting.is_proven(token, &exported)).map(JoinToken::id);
        if token.is_none() && before.is_none() {
            if let Some(address) = line.address.filter(|_| !is_barred) {
                self.crowd.erred(address, now);
            }
            self.refuse(number, if is_barred { Refusal::Barred } else { Refusal::Secret }, now);
            return Ok(());
        }
        let node = greeting.node;
        let until = now + self.options.limits.proving;
        line.stage = Stage::Newcomer { until, greeting: Box::new(greeting), before };
        self.strangers.leave(number);
        self.counter.tell(Event::Asks { number, node, token, before });
        Ok(())
    }

    /// The daemon lets a newcomer in, which may be gone by now.
    pub(crate) fn admit(&mut self, number: u64, now: Instant) {
        if let Err(error) = self.welcome(number) {
            let address = self.lines.get(&number).and_then(|line| line.address);
            self.drop_line(number);
            self.turn_away(address, &error.to_string(), now);
        }
    }

    fn welcome(&mut self, number: u64) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let (Stage::Newcomer { greeting, before, .. }, Some((authority, _))) = (&line.stage, &self.options.authority)
        else {
            return Ok(());
        };
        let predecessor = before.filter(|before| *before == greeting.predecessor);
        let node = greeting.node;
        let certified = authority.certify(node, &greeting.public_key).map_err(io::Error::other)?;
        let length = u16::try_from(certified.certificate.len()).map_err(io::Error::other)?;
        let mut answer = vec![ADMITTED];
        answer.extend_from_slice(&certified.now_s.to_le_bytes());
        answer.extend_from_slice(&certified.lifetime_s.to_le_bytes());
        answer.extend_from_slice(&length.to_le_bytes());
        answer.extend_from_slice(&certified.certificate);
        line.answer(&answer)?;
        let ip = line.address;
        let (near, far) = UnixStream::pair()?;
        self.open(number, node, OwnedFd::from(near).into(), &[])?;
        if let Some(ip) = ip {
            self.counter.tell(Event::Joined { node, predecessor, ip, local: far.into() });
        }
        Ok(())
    }

    pub(crate) fn refuse(&mut self, number: u64, why: Refusal, now: Instant) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let address = line.address;
        // It fails where the peer has hung up, which is as good.
        let _ = line.answer_last(why as u8);
        self.drop_line(number);
        self.turn_away(address, why.reason(), now);
    }

    /// A node with a ticket, or who says so (NETWORK-1, EXCHANGE-2).
    fn bearer(&mut self, number: u64, ticket: Ticket, now: Instant) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(&number) else { return Ok(()) };
        let node = line.carrier.tls()?.peer_certificates().and_then(|chain| node_of(chain.first()?));
        let Some(node) = node else {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it shows a ticket and no certificate"));
        };
        let Stage::Stranger { early, .. } = &mut line.stage else { return Ok(()) };
        let early = std::mem::take(early);
        line.stage = Stage::Bearer { until: now + self.options.limits.ticket, node, ticket, early };
        self.strangers.leave(number);
        if self.expected.contains_key(&ticket) {
            self.present(number, now);
        } else if let Some(loser) = self.bearers.enter(number, node) {
            self.crowd_out(loser, now);
        }
        Ok(())
    }

    /// Lets a bearer in whose ticket is known and its own.
    pub(crate) fn present(&mut self, number: u64, now: Instant) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let Stage::Bearer { node, ticket, early, .. } = &mut line.stage else { return };
        let Some((expectation, _)) = self.expected.get(ticket) else { return };
        if *node != expectation.node {
            let address = line.address;
            // It fails where the peer has hung up, which is as good.
            let _ = line.answer_last(REFUSED);
            self.drop_line(number);
            return self.turn_away(address, "its ticket is another node's", now);
        }
        let (ticket, early) = (*ticket, std::mem::take(early));
        let answered = line.answer(&[ADMITTED]);
        let (Expectation { node, local, .. }, _) = self.expected.remove(&ticket).expect("it was just found");
        if let Err(error) = answered.and_then(|()| self.open(number, node, local, &early)) {
            self.drop_line(number);
            self.tell(format!("the stream of node {node} cannot be carried: {error}"));
        }
    }

    /// Joins a connection to its local socket: it is carried from here on.
    pub(crate) fn open(&mut self, number: u64, node: NodeId, local: Local, early: &[u8]) -> io::Result<()> {
        self.strangers.leave(number);
        self.bearers.leave(number);
        let Some(mut line) = self.lines.remove(&number) else { return Ok(()) };
        epoll::add(&self.epoll, &local.socket, epoll::EventData::new_u64(FIRST + (number << 1 | 1)), watched(false))?;
        line.carrier = line.carrier.attach(local, early)?;
        line.stage = Stage::Open;
        line.node = Some(node);
        self.lines.insert(number, line);
        self.busy.push(number);
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
