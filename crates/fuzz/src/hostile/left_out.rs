//! What the hostile do not say, since whoever was let in may do it and it harms others' work by what it means: the cluster
//! is one user's, and everybody who was let in is trusted with all of it (`docs/security.md`, "What is not defended").

use oxiray_wire::Message;
use oxiray_wire::message::{Amount, KeyValueAction, NodeJoin, NodeState};

/// The resource that a hostile member offers, and nobody else.
pub const RESOURCE: &str = "hostile";
/// Names of resources that a hostile member may say it has: no honest work asks for any.
const HARMLESS: [&str; 3] = [RESOURCE, "a", ""];

/// What a driver, a worker, or the command line does not say.
pub fn of_client(message: &Message) -> bool {
    match message {
        // What the command line is for may be asked by everybody who was let in: end the cluster, empty nodes, drain
        // devices, end work, run jobs, revoke tokens, bring and take away machines.
        Message::Stop(_)
        | Message::DrainAsked(_)
        | Message::DeviceAsked(_)
        | Message::EndAsked(_)
        | Message::SubmissionAsked(_)
        | Message::TokenAsked(_)
        | Message::GrowthState(_) => true,
        // Kept values are everybody's, and a deletion is of all keys with a beginning: the empty one is all of them.
        Message::KeyValueRequest(asked) => matches!(asked.action, KeyValueAction::Put | KeyValueAction::Delete),
        // What outlives whoever made it holds what it was granted for ever, since there are no quotas.
        Message::ActorCreate(asked) => asked.detached,
        Message::GroupCreate(asked) => asked.detached,
        _ => tells_what_is_others(message),
    }
}

/// Whoever knows the identifier of an object, an actor or a group may free, end or remove it, whoever made it. So those who
/// say anything do not ask for others'.
pub fn tells_what_is_others(message: &Message) -> bool {
    matches!(
        message,
        Message::HoldingsQuery(_)
            | Message::Holdings(_)
            | Message::GroupQuery(_)
            | Message::GroupReport(_)
            | Message::Seek(_)
            | Message::ObjectDelete(_)
            | Message::CopyWanted(_)
    )
}

/// Whether it names what others made: an identifier of it is never remembered, as it may end what it names.
pub fn names_what_is_others(message: &Message) -> bool {
    let is_an_answer = matches!(
        message,
        Message::StateReport(_)
            | Message::StateChanges(_)
            | Message::ChronicleBatch(_)
            | Message::WaitsReport(_)
            | Message::TaskLog(_)
            | Message::ObjectLog(_)
            | Message::StackReport(_)
    );
    let is_of_a_name = matches!(message, Message::ActorAnswer(answer) if answer.existed);
    is_an_answer || is_of_a_name || tells_what_is_others(message)
}

/// What a member does not say, or has one of its workers or proxied clients say.
pub fn of_member(message: &Message) -> bool {
    match message {
        Message::Relay(relayed) => {
            let kind = u16::try_from(relayed.kind).unwrap_or(u16::MAX);
            let inner = Message::decode(kind, relayed.body.clone()).ok().flatten();
            inner.is_some_and(|inner| of_client(&inner))
        }
        // What a node has, it alone can tell, and is believed: work would be placed where nobody runs it, and objects
        // looked for where nobody has them, as on a machine that is broken. It is drained, or its certificate revoked.
        Message::NodeState(state) => offers(state),
        Message::NodeJoin(told) => describes(told),
        Message::NodeResume(told) => told.node.as_ref().is_some_and(describes) || !told.stored.is_empty(),
        Message::PlaceRefused(said) => said.state.as_ref().is_some_and(offers),
        Message::Sought(said) => said.is_here,
        Message::Copied(_) => true,
        other => of_client(other),
    }
}

fn describes(told: &NodeJoin) -> bool {
    !told.totals.iter().all(is_harmless) || told.state.as_ref().is_some_and(offers)
}

fn offers(state: &NodeState) -> bool {
    !state.free.iter().all(is_harmless) || !state.devices.is_empty() || !state.bundles.is_empty()
}

fn is_harmless(amount: &Amount) -> bool {
    HARMLESS.contains(&amount.resource.as_str())
}
