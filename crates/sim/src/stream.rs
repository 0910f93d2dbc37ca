//! Streams between processes: in order each way, late, at times held up, and over when an end closes.
//!
//! - STREAM-1: what is sent arrives in the order sent, or not at all; after the first thing that does not arrive,
//!   nothing does but the end.
//! - STREAM-2: an end that is handed on, as a descriptor in a message, is closed where the message is lost.

use crate::agenda::{Event, Micros};
use crate::world::{NodeIndex, ProcessIndex, StreamIndex, World};
use oxiray_machine::Key;
use oxiray_wire::Message;
use std::collections::VecDeque;

/// Who is at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The descriptor is on its way.
    Nobody,
    /// A node, which knows it by a key.
    Node { node: NodeIndex, key: Key },
    /// A driver or a worker.
    Process(ProcessIndex),
}

/// One end of a stream as it is handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) stream: StreamIndex,
    pub(crate) side: usize,
}

/// What travels.
#[derive(Debug)]
pub(crate) enum Packet {
    /// A message of the wire, with an end of another stream or without.
    Said { message: Box<Message>, descriptor: Option<Descriptor> },
    /// The other end is closed.
    Over,
}

/// Two ends and what is under way to each.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) ends: [End; 2],
    pub(crate) closed: [bool; 2],
    /// Nothing arrives any more but the end.
    is_broken: bool,
    under_way: [VecDeque<Packet>; 2],
    /// When the last of it arrives.
    due: [Micros; 2],
    /// Held up until healed.
    stalled: [bool; 2],
    /// What arrived meanwhile.
    owed: [usize; 2],
    /// How long things usually take.
    usual: Micros,
}

impl World {
    /// A stream between these.
    pub(crate) fn new_stream(&mut self, ends: [End; 2], usual: Micros) -> StreamIndex {
        self.streams.push(Stream {
            ends,
            closed: [false; 2],
            is_broken: false,
            under_way: [VecDeque::new(), VecDeque::new()],
            due: [0; 2],
            stalled: [false; 2],
            owed: [0; 2],
            usual,
        });
        self.streams.len() - 1
    }

    /// Sends from one side to the other.
    pub(crate) fn send(&mut self, from: Descriptor, packet: Packet) {
        let to = 1 - from.side;
        let stream = &mut self.streams[from.stream];
        let is_lost = stream.is_broken && !matches!(packet, Packet::Over);
        if is_lost || stream.closed[to] || stream.closed[from.side] {
            return self.lose(&packet);
        }
        let at = (self.now + self.chance.delay(stream.usual)).max(stream.due[to]);
        stream.due[to] = at;
        stream.under_way[to].push_back(packet);
        self.agenda.plan(at, Event::Arrive { stream: from.stream, to });
    }

    /// STREAM-2.
    pub(crate) fn lose(&mut self, packet: &Packet) {
        if let Packet::Said { descriptor: Some(descriptor), .. } = packet {
            self.close(*descriptor);
        }
    }

    /// Closes one side; the other hears of it after all that was sent.
    pub(crate) fn close(&mut self, side: Descriptor) {
        if self.streams[side.stream].closed[side.side] {
            return;
        }
        self.send(side, Packet::Over);
        let stream = &mut self.streams[side.stream];
        stream.closed[side.side] = true;
        for packet in std::mem::take(&mut stream.under_way[side.side]) {
            self.lose(&packet);
        }
    }

    /// What was sent last from this side gets lost with the machine that sent it (STREAM-1).
    pub(crate) fn lose_tail(&mut self, from: Descriptor) {
        let to = 1 - from.side;
        let under_way = self.streams[from.stream].under_way[to].len() as u64;
        let kept = self.chance.between(0, under_way) as usize;
        let lost = self.streams[from.stream].under_way[to].split_off(kept);
        for packet in lost {
            self.lose(&packet);
        }
    }

    /// What was sent last is lost both ways, and then both ends hear that it is over.
    pub(crate) fn break_stream(&mut self, stream: StreamIndex) {
        for side in [0, 1] {
            self.lose_tail(Descriptor { stream, side });
        }
        self.streams[stream].is_broken = true;
        for side in [0, 1] {
            self.send(Descriptor { stream, side }, Packet::Over);
        }
    }

    /// Nothing arrives on that side until [`World::heal`].
    pub(crate) fn stall(&mut self, stream: StreamIndex, to: usize) {
        self.streams[stream].stalled[to] = true;
    }

    pub(crate) fn heal(&mut self, stream: StreamIndex, to: usize) {
        self.streams[stream].stalled[to] = false;
        self.arrivals_again(stream, to);
    }

    /// Gives an end that was handed on to whoever got it.
    pub(crate) fn adopt(&mut self, descriptor: Descriptor, process: ProcessIndex) {
        self.streams[descriptor.stream].ends[descriptor.side] = End::Process(process);
        self.arrivals_again(descriptor.stream, descriptor.side);
    }

    fn arrivals_again(&mut self, stream: StreamIndex, to: usize) {
        for _ in 0..std::mem::take(&mut self.streams[stream].owed[to]) {
            self.agenda.plan(self.now, Event::Arrive { stream, to });
        }
    }

    /// What was sent to this side and has arrived: all of it where the other end is on the same machine.
    pub(crate) fn take_arrived(&mut self, at: Descriptor) -> VecDeque<Packet> {
        let stream = &mut self.streams[at.stream];
        let count = stream.under_way[at.side].len() as u64;
        let arrived = if stream.usual <= 50 { count } else { self.chance.between(0, count) };
        let rest = self.streams[at.stream].under_way[at.side].split_off(arrived as usize);
        std::mem::replace(&mut self.streams[at.stream].under_way[at.side], rest)
    }

    /// The next thing on a stream is there.
    pub(crate) fn arrive(&mut self, stream: StreamIndex, to: usize) {
        let found = &mut self.streams[stream];
        let is_read = match found.ends[to] {
            End::Nobody => false,
            End::Node { node, .. } => {
                if let Some(until) = self.nodes[node].frozen_until {
                    return self.agenda.plan(until, Event::Arrive { stream, to });
                }
                true
            }
            End::Process(process) => self.processes[process].reads(),
        };
        if found.stalled[to] || !is_read {
            found.owed[to] += 1;
            return;
        }
        if let Some(packet) = found.under_way[to].pop_front() {
            self.deliver(stream, to, packet);
        }
    }

    /// Everything that was sent to this side is read at once.
    pub(crate) fn read_to_the_end(&mut self, stream: StreamIndex, to: usize) {
        while let Some(packet) = self.streams[stream].under_way[to].pop_front() {
            self.deliver(stream, to, packet);
        }
    }

    fn deliver(&mut self, stream: StreamIndex, to: usize, packet: Packet) {
        if self.streams[stream].closed[to] {
            return self.lose(&packet);
        }
        match self.streams[stream].ends[to] {
            End::Node { node, key } => self.node_hears(node, key, packet),
            End::Process(process) => self.process_hears(process, Descriptor { stream, side: to }, packet),
            End::Nobody => self.lose(&packet),
        }
    }
}
