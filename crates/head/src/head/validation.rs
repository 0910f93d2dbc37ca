//! Where numbers and identifiers that peers chose are looked up, or become keys of the head's tables.
//!
//! - DOOR-1: a peer that says what no honest peer can say is ended, with the reason in the log. What an honest peer may say
//!   late, because messages cross, names nothing any more and is passed over in silence.
//! - DOOR-2: a number that a peer chose is looked up among what is that peer's own, and nowhere else.

use super::HeadCore;
use crate::members::{Order, Prepare};
use oxiray_ids::{LeaseRequestNumber, NodeId, WorkerId, WorkerNumber};
use oxiray_machine::{Effect, Key};
use oxiray_wire::message::{NodeJoin, Placed};
use oxiray_wire::state::ExitKind;

/// Bytes of a runtime environment that are shown, at most. It is kept with each log of calls.
const ENVIRONMENT_BYTES_MAX: usize = 4 << 10;

/// A runtime environment, as JSON, that is too long to be kept is not shown.
pub(super) fn clear_long_environment(environment: &mut String) {
    if environment.len() > ENVIRONMENT_BYTES_MAX {
        environment.clear();
    }
}

/// What no honest peer says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    /// An owner counts its requests.
    #[error("it asked for a lease under number {0}, under which it waits for another")]
    RequestTwice(LeaseRequestNumber),
    /// A member counts its workers and proxied clients together.
    #[error("it said of proxied client {0} what is said of workers")]
    ProxiedClientAsWorker(WorkerNumber),
    /// A new worker or proxied client has a number of its own.
    #[error("it gave a new process number {0}, which another of its processes has")]
    NumberTwice(WorkerNumber),
    /// Identifiers of processes are drawn at random.
    #[error("it gave a worker identifier {0}, which another process has, or which is no identifier")]
    WorkerTwice(WorkerId),
    /// A worker serves one lease or actor at a time.
    #[error("it placed order {order} on worker {worker}, which is in use")]
    WorkerInUse {
        /// The order.
        order: u64,
        /// The worker, as its node counts.
        worker: WorkerNumber,
    },
    /// Orders are answered by the member that they were given to.
    #[error("it answered order {0}, which was given to another node")]
    OrderOfAnother(u64),
    /// A node joins once.
    #[error("it joined a second time")]
    JoinedTwice,
    /// Identifiers of nodes are drawn at random.
    #[error("it joined as node {0}, which another node is")]
    NodeTwice(NodeId),
    /// A node describes itself by a node's identifier and an inventory.
    #[error("it describes itself in a way that cannot be read")]
    Description,
}

impl HeadCore {
    /// DOOR-1.
    pub(super) fn expel(&mut self, peer: Key, error: &ProtocolError) {
        self.out.push(Effect::Expel { peer, why: format!("it broke the protocol: {error}") });
        if let Some(worker) = self.workers.by_key.get_mut(&peer) {
            worker.end.last_words.get_or_insert_with(|| format!("its process broke the protocol: {error}."));
            self.exits_by(peer, ExitKind::SystemError, &format!("it broke the protocol: {error}"));
            self.kill_worker(peer);
        }
    }

    /// The worker of a member; nothing where it is gone.
    pub(super) fn worker_of(&self, member: Key, number: WorkerNumber) -> Result<Option<Key>, ProtocolError> {
        match self.members.process_of(member, number) {
            Some(key) if !self.workers.by_key.contains_key(&key) => Err(ProtocolError::ProxiedClientAsWorker(number)),
            known => Ok(known),
        }
    }

    /// A number for a new worker or proxied client of a member.
    pub(super) fn new_number(&self, member: Key, number: WorkerNumber) -> Result<WorkerNumber, ProtocolError> {
        match self.members.process_of(member, number) {
            Some(_) => Err(ProtocolError::NumberTwice(number)),
            None => Ok(number),
        }
    }

    /// An identifier for a new worker.
    pub(super) fn new_worker_id(&self, id: WorkerId) -> Result<WorkerId, ProtocolError> {
        if self.clients.keys.contains_key(&id) || id.is_nil() {
            return Err(ProtocolError::WorkerTwice(id));
        }
        Ok(id)
    }

    /// The worker that a member placed an order on, where the head knows it already. One that the head has killed may
    /// have been placed on before the member heard of that.
    pub(super) fn placed_worker(&self, member: Key, said: &Placed) -> Result<Option<Key>, ProtocolError> {
        let known = self.worker_of(member, said.worker)?;
        let in_use = |key: &Key| self.workers.by_key.get(key).is_some_and(|worker| worker.duty.is_use());
        if known.as_ref().is_some_and(in_use) {
            return Err(ProtocolError::WorkerInUse { order: said.order, worker: said.worker });
        }
        Ok(known)
    }

    /// Takes an order that the member answers; nothing where it was taken back.
    pub(super) fn answered_order(&mut self, member: Key, number: u64) -> Result<Option<Order>, ProtocolError> {
        match self.members.orders.get(&number) {
            Some(order) if order.member != member => Err(ProtocolError::OrderOfAnother(number)),
            _ => Ok(self.members.orders.remove(&number)),
        }
    }

    /// The same for bundles that a member was to set aside.
    pub(super) fn answered_prepare(&mut self, member: Key, number: u64) -> Result<Option<Prepare>, ProtocolError> {
        match self.members.prepares.get(&number) {
            Some(prepare) if prepare.member != member => Err(ProtocolError::OrderOfAnother(number)),
            _ => Ok(self.members.prepares.remove(&number)),
        }
    }

    /// The identifier under which a member joins.
    pub(super) fn new_node(&self, member: Key, told: &NodeJoin) -> Result<NodeId, ProtocolError> {
        if self.members.by_key.contains_key(&member) {
            return Err(ProtocolError::JoinedTwice);
        }
        match told.node {
            node if node.is_nil() => Err(ProtocolError::Description),
            node if self.members.by_node.contains_key(&node) => Err(ProtocolError::NodeTwice(node)),
            node => Ok(node),
        }
    }
}
