//! Which machine a demand runs on.

use oxiray_ids::NodeId;
use oxiray_resources::Demand;

use crate::{NodeView, Reason};

/// Where a demand goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The machine that has what is asked for.
    On(NodeId),
    /// Some machine could, once others give back what they hold or devices return to service.
    Wait(Reason),
    /// No machine could with nothing running on it.
    Never(Reason),
}

/// Places `demand` on the first of `nodes` that has what it asks for now. The order of `nodes` is
/// the caller's preference; a machine whose devices have room in sum only is passed over.
pub fn place(nodes: &[NodeView], demand: &Demand) -> Placement {
    let mut busy = None;
    for view in nodes {
        match view.fits(demand) {
            Ok(()) => return Placement::On(view.node),
            Err(shortage) if busy.is_none() && view.inventory.could_ever(demand).is_ok() => busy = Some(shortage),
            Err(_) => {}
        }
    }
    match busy {
        Some(shortage) => Placement::Wait(Reason::busy(demand, shortage)),
        None => Placement::Never(Reason::never(nodes, demand)),
    }
}
