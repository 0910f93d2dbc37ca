//! Who may join, and for how long: tokens, certificates, and the daemon's word.

use super::*;
use crate::authority::fingerprint;
use crate::renewal::Renewal;
use crate::tls::{joining, node_of};

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Head {
    /// Joins as one who had these before.
    fn join_again(&self, token: &JoinToken, node: NodeId, before: &Credentials) -> (Result<Joined, JoinFailure>, Seen) {
        let address = self.gateway.address().to_string();
        let newcomer = Newcomer {
            address: &address,
            token,
            node,
            predecessor: node_of(&before.identity.certificate),
            before: Some(&before.last_certificate()),
            protocol: PROTOCOL,
            limit: LIMIT,
        };
        let seen = RefCell::default();
        let joined = self.answering(&newcomer, |token, before| {
            *seen.borrow_mut() = Some((token.map(str::to_owned), before));
            Ok(())
        });
        (joined, seen.into_inner())
    }
}

/// What the daemon was asked: by which token, and by which node's certificate.
type Seen = Option<(Option<String>, Option<NodeId>)>;

/// What tests ask of a member's certificate.
fn credentials(head: &Head, node: NodeId) -> Credentials {
    head.join(&head.token, node, PROTOCOL).expect("it is let in").credentials
}

#[test]
fn the_daemon_says_who_is_let_in_and_why_not() {
    let head = Head::start();
    let other = head.token.sibling([9; 32]);
    let address = head.gateway.address().to_string();
    let newcomer = Newcomer {
        address: &address,
        token: &other,
        node: NodeId::generate(),
        predecessor: None,
        before: None,
        protocol: PROTOCOL,
        limit: LIMIT,
    };
    assert!(matches!(head.answering(&newcomer, |_, _| Ok(())), Err(JoinFailure::Refused)), "it is not known yet");
    head.gateway.set_tokens(vec![head.token.clone(), other.clone()]);
    for (refusal, is_told) in [
        (Refusal::Ended, JoinFailure::Ended),
        (Refusal::Taken, JoinFailure::Taken),
        (Refusal::Revoked, JoinFailure::Revoked),
        (Refusal::Unwritten, JoinFailure::Unwritten),
    ] {
        let told = head.answering(&newcomer, |_, _| Err(refusal)).expect_err("it is refused");
        assert_eq!(format!("{told:?}"), format!("{is_told:?}"));
    }
    let seen = RefCell::new(None);
    let joined = head.answering(&newcomer, |token, before| {
        *seen.borrow_mut() = Some((token.map(str::to_owned), before));
        Ok(())
    });
    joined.expect("it is let in");
    assert_eq!(seen.into_inner(), Some((Some(other.id()), None)));
    head.gateway.set_tokens(vec![other]);
    assert!(matches!(head.join(&head.token, NodeId::generate(), PROTOCOL), Err(JoinFailure::Refused)));
}

#[test]
fn a_machine_that_comes_again_is_known_by_its_key() {
    let head = Head::start();
    let (node, next) = (NodeId::generate(), NodeId::generate());
    let before = credentials(&head, node);
    head.joined();
    let wrong = head.token.sibling([0; 32]);
    let (joined, seen) = head.join_again(&wrong, next, &before);
    joined.expect("its certificate is enough");
    assert_eq!(seen, Some((None, Some(node))));
    let told = head.next(|event| matches!(event, Event::Joined { .. }));
    assert!(
        matches!(told, Event::Joined { node, predecessor, .. } if node == next && predecessor == Some(before_node(&before)))
    );
    // Another machine may say whom it replaces, and is not believed.
    let address = head.gateway.address().to_string();
    let posing = Newcomer {
        address: &address,
        token: &head.token,
        node: NodeId::generate(),
        predecessor: Some(next),
        before: Some(&before.last_certificate()),
        protocol: PROTOCOL,
        limit: LIMIT,
    };
    head.answering(&posing, |_, _| Ok(())).expect("it is let in");
    let told = head.next(|event| matches!(event, Event::Joined { .. }));
    assert!(matches!(told, Event::Joined { predecessor: None, .. }), "{told:?}");
}

fn before_node(before: &Credentials) -> NodeId {
    node_of(&before.identity.certificate).expect("it names a node")
}

/// A head whose authority is that of an earlier one, with another time.
fn head_at(parts: &crate::AuthorityParts, shift: impl Fn(Duration) -> Duration) -> Head {
    Head::of(Authority::from_parts(parts).expect("an authority").at(shift), LIMITS)
}

#[test]
fn certificates_end_and_are_renewed_before() {
    let parts = Authority::make().expect("an authority").to_parts();
    let node = NodeId::generate();
    let yesterday = Authority::from_parts(&parts).expect("an authority").at(|now| now.saturating_sub(25 * DAY / 24));
    let own = yesterday.head_credentials(node, PROTOCOL).expect("credentials");
    let renewal = Renewal::begin().expect("a key");
    let certified = yesterday.certify(node, renewal.public_key()).expect("a certificate");
    let old = renewal.finish(&own, certified, PROTOCOL).expect("it is of this key");
    assert!(old.renew_at() < crate::clock::since_boot() + DAY / 2);
    let head = head_at(&parts, |now| now);
    // The head of today does not take it: TLS ends before anything is said.
    let (joined, seen) = head.join_again(&head.token, node, &old);
    assert!(matches!(joined, Err(JoinFailure::Broken(_))) && seen.is_none(), "{joined:?}");
    // Nor does a newcomer take that of yesterday's head, and says what may be wrong.
    let earlier = head_at(&parts, |now| now.saturating_sub(25 * DAY / 24));
    let joined = earlier.join(&earlier.token, NodeId::generate(), PROTOCOL);
    assert!(matches!(joined, Err(JoinFailure::Clock)), "{joined:?}");
    // Renewed over a stream that stands.
    let renewal = Renewal::begin().expect("a key");
    let authority = Authority::from_parts(&parts).expect("an authority");
    let certified = authority.certify(node, renewal.public_key()).expect("a certificate");
    assert_eq!(u64::from(certified.lifetime_s), DAY.as_secs());
    let renewed = renewal.finish(&old, certified, PROTOCOL).expect("it is of this key");
    let (joined, seen) = head.join_again(&head.token.sibling([0; 32]), node, &renewed);
    joined.expect("it is let in");
    assert_eq!(seen, Some((None, Some(node))));
    assert!(authority.certify(node, b"no key").is_err());
}

/// CLOCK-1: the newcomer's own clock plays no part after it has joined, and the next head's may be behind by less than an
/// hour.
#[test]
fn clocks_may_differ() {
    let parts = Authority::make().expect("an authority").to_parts();
    let (node, year) = (NodeId::generate(), 365 * DAY);
    let before = credentials(&head_at(&parts, |now| now), node);
    let behind = head_at(&parts, |now| now.saturating_sub(DAY / 25));
    behind.join_again(&behind.token, node, &before).0.expect("its certificate is valid an hour before");
    // A renewed one takes the time of the head along, whatever that is.
    let authority = Authority::from_parts(&parts).expect("an authority").at(|now| now + year);
    let renewal = Renewal::begin().expect("a key");
    let certified = authority.certify(node, renewal.public_key()).expect("a certificate");
    let ahead = renewal.finish(&before, certified, PROTOCOL).expect("it is of this key");
    let head = head_at(&parts, |now| now + year);
    let ticket = Ticket::generate();
    let (near, local) = pair();
    let options = Options {
        credentials: ahead,
        authority: None,
        listen: loopback(),
        protocol: PROTOCOL.to_vec(),
        limits: LIMITS,
    };
    let member = Gateway::start(options).expect("a gateway");
    member.dial(head.gateway.address(), Expectation { ticket, node: head.node, local: local.into() });
    let (far, local) = pair();
    head.gateway.expect(Expectation { ticket, node, local: local.into() });
    carries(near, far, 10);
}

#[test]
fn a_gateway_shows_what_was_renewed() {
    let parts = Authority::make().expect("an authority").to_parts();
    let head = head_at(&parts, |now| now.saturating_sub(2 * DAY));
    let authority = Authority::from_parts(&parts).expect("an authority");
    let newer = authority.head_credentials(head.node, PROTOCOL).expect("credentials");
    let today = || {
        let mut tls = joining(fingerprint(&newer.identity.authority), PROTOCOL, None).expect("a client");
        let mut tcp = TcpStream::connect(head.gateway.address()).expect("it listens");
        tcp.set_read_timeout(Some(LIMIT)).expect("a limit");
        while tls.is_handshaking() {
            if tls.complete_io(&mut tcp).is_err() {
                return false;
            }
        }
        true
    };
    assert!(!today(), "its certificate has ended");
    head.gateway.renew(newer.clone());
    let until = Instant::now() + LIMIT;
    while !today() {
        assert!(Instant::now() < until, "it shows the other one in time");
    }
}
