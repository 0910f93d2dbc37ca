//! All members, served by one thread.

use crate::member::{Member, Progress};
use oxiray_network::JoinToken;
use oxiray_processes::since_boot;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many descriptors are looked at in one turn.
const EVENTS_MAX: usize = 256;
/// What the epoll calls the connection of descriptor 0.
const FIRST_CONNECTING: u64 = 1 << 32;
/// How long a turn may wait, so that the end is noticed.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Members that live until this is dropped.
#[derive(Debug)]
pub(crate) struct Members {
    is_over: Arc<AtomicBool>,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Members {
    /// Joins so many members, one after the other, and serves those that have joined meanwhile.
    pub(crate) fn join(address: &str, token: &JoinToken, count: u32, cpus: u32) -> io::Result<Self> {
        let progress = Arc::new(Progress::default());
        let mut turns = Turns::new(Arc::clone(&progress))?;
        for number in 0..count {
            turns.add(Member::join(address, token, number, cpus, Arc::clone(&progress))?)?;
            turns.turn(Duration::ZERO)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                turns.turn(TURN_MAX)?;
            }
            Ok(())
        });
        Ok(Self { is_over, progress, thread: Some(thread) })
    }

    /// How far their work has come.
    pub(crate) fn progress(&mut self) -> io::Result<&Progress> {
        self.check()?;
        Ok(&self.progress)
    }

    /// An error of the thread that serves them, where it has ended for one.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        match self.thread.take_if(|thread| thread.is_finished()) {
            Some(thread) => thread.join().unwrap_or_else(|_| Err(io::Error::other("the members' thread panicked"))),
            None => Ok(()),
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An error of it was seen by `check`, or comes of a head that ended first.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Turns {
    epoll: OwnedFd,
    members: Vec<Member>,
    /// When each is to look at the clock, by the time since the machine was started.
    looks: Vec<Duration>,
    /// The same, the next one first.
    due: BTreeSet<(Duration, usize)>,
    /// Connections that are being made, by what the epoll calls them: all that is no member's index.
    connecting: BTreeMap<u64, OwnedFd>,
    progress: Arc<Progress>,
}

impl Turns {
    fn new(progress: Arc<Progress>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            members: Vec::new(),
            looks: Vec::new(),
            due: BTreeSet::new(),
            connecting: BTreeMap::new(),
            progress,
        })
    }

    /// A member is to look at the clock then.
    fn look_at(&mut self, member: usize, at: Duration) {
        self.due.remove(&(self.looks[member], member));
        self.looks[member] = at;
        self.due.insert((at, member));
    }

    /// Watches the connections that a member has begun to make.
    fn watch_connecting(&mut self, at: usize) -> io::Result<()> {
        for end in self.members[at].take_connecting() {
            let name = FIRST_CONNECTING + u64::from(end.as_raw_fd().unsigned_abs());
            epoll::add(&self.epoll, &end, epoll::EventData::new_u64(name), epoll::EventFlags::IN)?;
            self.connecting.insert(name, end);
        }
        Ok(())
    }

    fn add(&mut self, mut member: Member) -> io::Result<()> {
        let at = self.members.len();
        self.looks.push(member.look_at_the_clock()?);
        self.due.insert((self.looks[at], at));
        epoll::add(&self.epoll, &member, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
        self.members.push(member);
        Ok(())
    }

    /// Waits for what comes, and does what is due.
    fn turn(&mut self, limit: Duration) -> io::Result<()> {
        let left = self.due.first().map_or(limit, |(at, _)| at.saturating_sub(since_boot()).min(limit));
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        let mut events = Vec::with_capacity(EVENTS_MAX);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let (data, flags) = (event.data, event.flags);
            if self.connecting.remove(&data.u64()).is_some() {
                self.progress.connected.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let at = usize::try_from(data.u64()).expect("it is an index into `members`");
            let member = &mut self.members[at];
            let waited_to_write = flags.contains(epoll::EventFlags::OUT);
            member.hear()?;
            if member.has_unsent() != waited_to_write {
                let out = if member.has_unsent() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
                epoll::modify(
                    &self.epoll,
                    &*member,
                    epoll::EventData::new_u64(at as u64),
                    epoll::EventFlags::IN | out,
                )?;
            }
            let next = member.next_look();
            self.look_at(at, next);
            self.watch_connecting(at)?;
        }
        while let Some((_, index)) = self.due.first().copied().filter(|(at, _)| *at <= since_boot()) {
            let next = self.members[index].look_at_the_clock()?;
            self.look_at(index, next);
        }
        Ok(())
    }
}
