//! What the tests that play a daemon have in common.

use oxiray_ids::{JobId, NodeId, WorkerId};
use oxiray_runtime::{Identity, Runtime};
use oxiray_wire::Connection;

/// A runtime of a new process, and the daemon's end of its stream.
pub(crate) fn started() -> (Runtime, Connection) {
    let (near, far) = Connection::pair().expect("a pair");
    let identity = Identity {
        node: NodeId::generate(),
        worker: WorkerId::generate(),
        job: JobId::from_number(1),
        namespace: String::new(),
        session: String::new(),
        address: String::new(),
        epoch: 0,
    };
    let far = Connection::new(far).expect("a socket");
    (Runtime::start(identity, far, Vec::new(), None, None).expect("it starts"), near)
}
