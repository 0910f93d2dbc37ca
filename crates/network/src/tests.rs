#![expect(clippy::disallowed_methods, reason = "THREADS-1 is about the product: tests start threads of their own")]

use crate::authority::{Authority, PUBLIC_KEY_BYTES};
use crate::direct_transfer::tests::Bytes;
use crate::greeting::{Greeting, JOIN_BYTES, JoinGreeting, STREAM_BYTES, stream_greeting};
use crate::{
    Credentials, DirectTransfer, Event, Expectation, Gateway, JoinFailure, JoinToken, Joined, Limits, Load, Local,
    Newcomer, Options, Refusal, Ticket, TokenError, Way, join,
};
use oxiray_ids::NodeId;
use oxiray_records::{Handover, Kind, Opener, Sealer};
use proptest::prelude::*;
use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod crowding;
mod entering;

const PROTOCOL: &[u8] = b"oxiray/test";
const LIMIT: Duration = Duration::from_secs(60);
const LIMITS: Limits = Limits { proving: Duration::from_secs(30), ticket: Duration::from_secs(10), silence: LIMIT };

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

struct Head {
    gateway: Gateway,
    token: JoinToken,
    node: NodeId,
    heard: RefCell<Vec<Event>>,
}

impl Head {
    fn start() -> Self {
        Self::start_with(LIMITS)
    }

    fn start_with(limits: Limits) -> Self {
        Self::of(Authority::make().expect("an authority"), limits)
    }

    fn of(authority: Authority, limits: Limits) -> Self {
        let node = NodeId::generate();
        let token = authority.token().clone();
        let credentials = authority.head_credentials(node, PROTOCOL).expect("credentials");
        let options = Options {
            credentials,
            authority: Some((Arc::new(authority), vec![token.clone()])),
            listen: loopback(),
            protocol: PROTOCOL.to_vec(),
            limits,
        };
        let heard = RefCell::default();
        Self { gateway: Gateway::start(options).expect("a gateway"), token, node, heard }
    }

    fn join(&self, token: &JoinToken, node: NodeId, protocol: &[u8]) -> Result<Joined, JoinFailure> {
        let address = self.gateway.address().to_string();
        let newcomer =
            Newcomer { address: &address, token, node, predecessor: None, before: None, protocol, limit: LIMIT };
        self.answering(&newcomer, |_, _| Ok(()))
    }

    /// Joins, and gives the daemon's word to who asks meanwhile.
    fn answering(
        &self,
        newcomer: &Newcomer<'_>,
        verdict: impl Fn(Option<&str>, Option<NodeId>) -> Result<(), Refusal>,
    ) -> Result<Joined, JoinFailure> {
        std::thread::scope(|scope| {
            let joining = scope.spawn(|| join(newcomer));
            while !joining.is_finished() {
                self.listen();
                let asks = |event: &Event| matches!(event, Event::Asks { .. });
                if let Some(Event::Asks { number, token, before, .. }) = self.taken(asks) {
                    match verdict(token.as_deref(), before) {
                        Ok(()) => self.gateway.admit(number),
                        Err(refusal) => self.gateway.refuse(number, refusal),
                    }
                }
                std::thread::yield_now();
            }
            joining.join().expect("it ends")
        })
    }

    fn joined(&self) -> (NodeId, UnixStream) {
        match self.next(|event| matches!(event, Event::Joined { .. })) {
            Event::Joined { node, local, .. } => (node, local.into()),
            event => panic!("another event: {event:?}"),
        }
    }

    fn listen(&self) {
        self.heard.borrow_mut().extend(self.gateway.events());
    }

    fn taken(&self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let mut heard = self.heard.borrow_mut();
        let place = heard.iter().position(wanted)?;
        Some(heard.remove(place))
    }

    /// The next event of a kind; others stay.
    fn next(&self, wanted: impl Fn(&Event) -> bool) -> Event {
        let until = Instant::now() + LIMIT;
        loop {
            self.listen();
            if let Some(event) = self.taken(&wanted) {
                return event;
            }
            assert!(Instant::now() < until, "nothing of the kind happened");
            std::thread::yield_now();
        }
    }
}

/// A member with its stream to the head, and the head's to it.
fn member(head: &Head) -> (NodeId, Gateway, UnixStream, UnixStream) {
    let node = NodeId::generate();
    let joined = head.join(&head.token, node, PROTOCOL).expect("it is let in");
    assert_eq!(joined.head, head.gateway.address());
    let (gateway, control) = Gateway::start_joined(joined, loopback(), PROTOCOL.to_vec(), LIMITS).expect("a gateway");
    let (told, far) = head.joined();
    assert_eq!(told, node);
    (node, gateway, control.into(), far)
}

fn pair() -> (UnixStream, OwnedFd) {
    let (near, far) = UnixStream::pair().expect("a pair");
    near.set_read_timeout(Some(LIMIT)).expect("a limit");
    (near, far.into())
}

/// What is written at the one end is read at the other, unchanged.
fn carries(mut from: UnixStream, mut to: UnixStream, bytes: usize) -> (UnixStream, UnixStream) {
    let sent: Vec<u8> = (0..bytes).map(|index| (index * 31 % 251) as u8).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || {
        from.write_all(&copy).expect("it is taken");
        from
    });
    let mut received = vec![0; bytes];
    to.set_read_timeout(Some(LIMIT)).expect("a limit");
    to.read_exact(&mut received).expect("it comes");
    assert!(received == sent);
    (writer.join().expect("it ends"), to)
}

#[test]
fn a_token_survives_its_file_and_nothing_else_is_one() {
    let token = JoinToken { fingerprint: [0x5a; 32], secret: [7; 32] };
    let text = token.to_text();
    assert_eq!(JoinToken::parse(&format!(" {text}\n")), Ok(token.clone()));
    assert!(!format!("{token:?}").contains("0707"), "a secret is not printed");
    for (wrong, error) in [
        ("", TokenError::Prefix),
        ("oxr2.ab.cd", TokenError::Prefix),
        ("oxr1.ab", TokenError::Form),
        (&text[..text.len() - 1], TokenError::Form),
        (&text.replace("07", "0x"), TokenError::Form),
        (&format!("{text}0"), TokenError::Form),
    ] {
        assert_eq!(JoinToken::parse(wrong), Err(error), "{wrong}");
    }
}

#[test]
fn a_member_and_the_head_understand_each_other() {
    let head = Head::start();
    let (_, _gateway, control, far) = member(&head);
    let (control, far) = carries(control, far, 10);
    carries(far, control, 3 << 20);
}

#[test]
fn streams_go_to_whom_their_tickets_are_for() {
    let head = Head::start();
    let (one, first, _one_control, _one_far) = member(&head);
    let (other, second, _other_control, _other_far) = member(&head);
    // Member to member, the bearer first.
    let ticket = Ticket::generate();
    let (near, local) = pair();
    first.dial(second.address(), Expectation { ticket, node: other, local: local.into() });
    let (far, local) = pair();
    second.expect(Expectation { ticket, node: one, local: local.into() });
    let (near, far) = carries(near, far, 1 << 20);
    // What was said before an end arrives before it.
    drop(carries(far, near, 100_000).0);
    // Member to head, the expectation first.
    let ticket = Ticket::generate();
    let (mut far, local) = pair();
    head.gateway.expect(Expectation { ticket, node: one, local: local.into() });
    let (near, local) = pair();
    first.dial(head.gateway.address(), Expectation { ticket, node: head.node, local: local.into() });
    let (near, _) = carries(near, far.try_clone().expect("a copy"), 5);
    drop(near);
    assert_eq!(far.read(&mut [0; 9]).expect("an end"), 0);
    // A ticket of another node, and one that nobody gave out.
    let ticket = Ticket::generate();
    let (_far, local) = pair();
    head.gateway.expect(Expectation { ticket, node: other, local: local.into() });
    let (mut near, local) = pair();
    first.dial(head.gateway.address(), Expectation { ticket, node: head.node, local: local.into() });
    assert_eq!(near.read(&mut [0; 9]).expect("an end"), 0);
    // A node that is not who was dialled.
    let (mut near, local) = pair();
    first.dial(head.gateway.address(), Expectation { ticket: Ticket::generate(), node: other, local: local.into() });
    assert_eq!(near.read(&mut [0; 9]).expect("an end"), 0);
}

/// Streams with direct transfer seal their records themselves from the first one on, with what was said early already there.
#[test]
fn freight_goes_both_ways_beside_what_is_said() {
    const SIZE: usize = 9_000_001;
    let head = Head::start();
    let (one, gateway, _control, _far) = member(&head);
    let ticket = Ticket::generate();
    let [there, here] = [(); 2].map(|()| Arc::new(DirectTransfer::default()));
    let (near, local) = pair();
    let local = Local { socket: local, way: Way::DirectTransfer(there.clone()) };
    gateway.dial(head.gateway.address(), Expectation { ticket, node: head.node, local });
    let (far, local) = pair();
    let local = Local { socket: local, way: Way::DirectTransfer(here.clone()) };
    head.gateway.expect(Expectation { ticket, node: one, local });
    let source: Vec<u8> = (0..SIZE).map(|place| (place % 249) as u8).collect();
    for (giving, taking, mut mouth, mut ear) in [(&there, &here, &near, &far), (&here, &there, &far, &near)] {
        let target = Bytes::new(&vec![0; SIZE]);
        taking.open(5, target.clone(), SIZE as u64);
        giving.load(4, Load { tag: 5, memory: Bytes::new(&source), offset: 0, bytes: SIZE as u64 });
        mouth.write_all(b"thisthat").expect("it is taken");
        let mut heard = [0; 8];
        ear.read_exact(&mut heard).expect("it comes");
        assert_eq!(&heard, b"thisthat");
        assert!(target.contents() == source);
    }
    let (near, mut far) = carries(near, far, 300_000);
    drop(near);
    assert_eq!(far.read(&mut [0; 9]).expect("an end"), 0);
}

/// A connection that was given away, as the process has it.
struct Process {
    tcp: TcpStream,
    promise: UnixStream,
    sealer: Sealer,
    opener: Opener,
}

impl Process {
    /// A promise: what the gateway has of it, and who waits for it to be kept.
    fn promised() -> (Local, UnixStream) {
        let kind = rustix::net::SocketType::SEQPACKET;
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (near, far) = rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None).expect("a pair");
        let near = UnixStream::from(near);
        near.set_read_timeout(Some(LIMIT)).expect("a limit");
        (Local { socket: far, way: Way::Given }, near)
    }

    fn take(promise: UnixStream) -> Self {
        let mut packet = vec![0; 64 << 10];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::RecvAncillaryBuffer::new(&mut space);
        let mut room = [std::io::IoSliceMut::new(&mut packet)];
        let flags = rustix::net::RecvFlags::CMSG_CLOEXEC;
        let message = rustix::net::recvmsg(&promise, &mut room, &mut control, flags).expect("a packet");
        let count = message.bytes;
        let Some(rustix::net::RecvAncillaryMessage::ScmRights(mut descriptors)) = control.drain().next() else {
            panic!("a descriptor comes along")
        };
        let tcp = TcpStream::from(descriptors.next().expect("one"));
        tcp.set_nonblocking(false).expect("it may");
        tcp.set_read_timeout(Some(LIMIT)).expect("a limit");
        let Handover { sealing, opening, early, unsent } = Handover::parse(&packet[..count]).expect("it is whole");
        assert!(early.is_empty(), "nobody spoke early");
        let text = format!("{sealing:?}");
        assert!(text.contains("ChaCha20Poly1305"), "a cipher whose keys last: {text}");
        (&tcp).write_all(&unsent).expect("it is taken");
        let keys = (Sealer::new(&sealing).expect("keys"), Opener::new(&opening).expect("keys"));
        Self { tcp, promise, sealer: keys.0, opener: keys.1 }
    }

    fn say(&mut self, words: &[u8]) {
        let mut out = Vec::new();
        self.sealer.seal(Kind::Data, words, &[], &mut out).expect("sealed");
        self.tcp.write_all(&out).expect("it is taken");
    }

    /// The next word; nothing at the end.
    fn hear(&mut self) -> Vec<u8> {
        loop {
            let mut record = vec![0; 5];
            if self.tcp.read(&mut record[..1]).expect("in time") == 0 {
                return Vec::new();
            }
            self.tcp.read_exact(&mut record[1..]).expect("a header");
            record.resize(5 + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
            self.tcp.read_exact(&mut record[5..]).expect("a record");
            let (kind, count) = self.opener.open(&mut record, 0).expect("the peer has sealed it");
            if kind == Kind::Data {
                return record[..count].to_vec();
            }
        }
    }
}

/// Two connected processes of two members, and what keeps them.
fn given() -> ((Head, Gateway, Gateway, [NodeId; 2]), Process, Process) {
    let head = Head::start();
    let (one, first, ..) = member(&head);
    let (other, second, ..) = member(&head);
    let ticket = Ticket::generate();
    let ((local, near), (remote, far)) = (Process::promised(), Process::promised());
    first.dial(second.address(), Expectation { ticket, node: other, local });
    second.expect(Expectation { ticket, node: one, local: remote });
    let processes = (Process::take(near), Process::take(far));
    ((head, first, second, [one, other]), processes.0, processes.1)
}

#[test]
fn a_connection_is_given_to_the_processes_that_speak() {
    let (_kept, mut near, mut far) = given();
    for word in [&b"a call"[..], &[7; 16_000]] {
        near.say(word);
        assert_eq!(far.hear(), word);
        far.say(word);
        assert_eq!(near.hear(), word);
    }
}

/// CARRIER-3: also where the peer had more to say to it, of which the kernel would make a reset.
#[test]
fn the_last_words_of_a_process_are_heard_before_its_end() {
    let (_kept, mut near, mut far) = given();
    far.say(b"nobody reads this");
    near.say(b"farewell");
    drop(near);
    assert_eq!(far.hear(), b"farewell");
    assert!(far.hear().is_empty());
}

#[test]
fn a_process_hears_that_its_peers_node_is_forgotten() {
    let (kept, near, far) = given();
    let (_head, first, _second, [_, other]) = &kept;
    first.forget(*other);
    let mut near = near;
    assert_eq!(near.promise.read(&mut [0; 1]).expect("an end"), 0);
    drop((near, far));
}

#[test]
fn a_node_that_is_forgotten_has_no_streams() {
    let head = Head::start();
    let (node, gateway, mut control, mut far) = member(&head);
    head.gateway.forget(node);
    control.set_read_timeout(Some(LIMIT)).expect("a limit");
    far.set_read_timeout(Some(LIMIT)).expect("a limit");
    assert_eq!(control.read(&mut [0; 9]).expect("an end"), 0);
    assert_eq!(far.read(&mut [0; 9]).expect("an end"), 0);
    // It has its certificate still, and no ticket is its own.
    let (mut near, local) = pair();
    gateway
        .dial(head.gateway.address(), Expectation { ticket: Ticket::generate(), node: head.node, local: local.into() });
    assert_eq!(near.read(&mut [0; 9]).expect("an end"), 0);
}

#[test]
fn the_last_words_are_heard() {
    let head = Head::start();
    let (_, gateway, mut control, mut far) = member(&head);
    control.write_all(&vec![3; 200_000]).expect("it is taken");
    drop(control);
    let reader = std::thread::spawn(move || {
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).expect("an end");
        heard.len()
    });
    gateway.finish(LIMIT);
    assert_eq!(reader.join().expect("it ends"), 200_000);
}

#[test]
fn wrong_old_and_foreign_tokens_are_refused() {
    let (head, other) = (Head::start(), Head::start());
    let node = NodeId::generate();
    assert!(matches!(head.join(&other.token, node, PROTOCOL), Err(JoinFailure::Foreign)));
    let wrong = JoinToken { secret: [0; 32], ..head.token.clone() };
    assert!(matches!(head.join(&wrong, node, PROTOCOL), Err(JoinFailure::Refused)));
    let newer = head.join(&head.token, node, b"oxiray/next");
    assert!(matches!(newer, Err(JoinFailure::Version)), "{newer:?}");
    head.join(&head.token, node, PROTOCOL).expect("the right one is let in");
    assert_eq!(head.joined().0, node);
}

#[test]
fn a_member_lets_nobody_join() {
    let head = Head::start();
    let (_, gateway, _control, _far) = member(&head);
    let address = gateway.address().to_string();
    let newcomer = Newcomer {
        address: &address,
        token: &head.token,
        node: NodeId::generate(),
        predecessor: None,
        before: None,
        protocol: PROTOCOL,
        limit: LIMIT,
    };
    // It is of the cluster, but not its head, and its certificate says so.
    assert!(matches!(join(&newcomer), Err(JoinFailure::Foreign | JoinFailure::Broken(_))));
}

#[test]
fn a_proof_is_worth_nothing_elsewhere() {
    let token = JoinToken { fingerprint: [1; 32], secret: [2; 32] };
    let greeting = JoinGreeting::new(NodeId::generate(), NodeId::NIL, [4; PUBLIC_KEY_BYTES], &token, &[5; 32]);
    assert!(greeting.is_proven(&token, &[5; 32]));
    assert!(!greeting.is_proven(&token, &[6; 32]), "on another connection");
    assert!(!greeting.is_proven(&JoinToken { secret: [3; 32], ..token.clone() }, &[5; 32]), "by another secret");
    let mut posing = greeting;
    posing.node = NodeId::generate();
    assert!(!posing.is_proven(&token, &[5; 32]), "for another node");
}

#[test]
fn strangers_hear_nothing_but_the_handshake_and_do_no_harm() {
    let head = Head::start();
    for said in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &vec![0; 70_000], &[0x16, 3, 1, 0xff, 0xff], &[1; 5]] {
        let mut stranger = TcpStream::connect(head.gateway.address()).expect("it listens");
        stranger.set_read_timeout(Some(LIMIT)).expect("a limit");
        // The head may have closed before everything is said.
        let _ = stranger.write_all(said);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        // At most an alert of TLS: a record of two bytes.
        assert!(answer.len() <= 7, "{answer:?}");
        assert!(answer.is_empty() || answer[0] == 0x15);
    }
    let (_, _gateway, control, far) = member(&head);
    carries(control, far, 10);
}

#[test]
fn a_visitor_speaks_to_the_head_and_listens_nowhere() {
    let head = Head::start();
    let joined = head.join(&head.token, NodeId::generate(), PROTOCOL).expect("it is let in");
    let (visiting, control) = Gateway::start_visiting(joined, PROTOCOL.to_vec(), LIMITS).expect("a gateway");
    assert_eq!(visiting.address().port(), 0);
    let (_, far) = head.joined();
    let (control, far) = carries(control.into(), far, 100_000);
    let (mut far, control) = carries(far, control, 100_000);
    drop((visiting, control));
    assert_eq!(far.read(&mut [0]).expect("the end"), 0, "the head hears that it went");
}

proptest! {
    #[test]
    fn any_bytes_are_a_greeting_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..2 * JOIN_BYTES)) {
        match Greeting::parse(&bytes) {
            Ok(Some((Greeting::Join(greeting), length))) => {
                prop_assert_eq!(length, JOIN_BYTES);
                prop_assert_eq!(&greeting.to_bytes(), &bytes[..length]);
                let token = JoinToken { fingerprint: [1; 32], secret: [2; 32] };
                prop_assert!(!greeting.is_proven(&token, &[0; 32]));
            }
            Ok(Some((Greeting::Stream(ticket), length))) => {
                prop_assert_eq!(length, STREAM_BYTES);
                prop_assert_eq!(&stream_greeting(&ticket)[..], &bytes[..length]);
            }
            Ok(None) => prop_assert!(bytes.len() < JOIN_BYTES),
            Err(_) => prop_assert!(!matches!(bytes[0], 1 | 2)),
        }
    }

    #[test]
    fn any_text_is_a_token_or_none(text in "oxr1[.0-9a-f]{0,200}|.{0,80}") {
        if let Ok(token) = JoinToken::parse(&text) {
            prop_assert_eq!(token.to_text(), text.trim().to_lowercase());
        }
    }
}
