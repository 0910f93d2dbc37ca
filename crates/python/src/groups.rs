//! Placement groups, as `oxiray.util.placement_group` asks for them.

use crate::blob::Serialized;
use crate::caller::units;
use crate::ids::{NodeID, PlacementGroupID};
use crate::reference::ObjectRef;
use crate::strategy::{Condition, conditions};
use crate::{process, state};
use oxiray_client::assigned;
use oxiray_runtime::amounts;
use oxiray_wire::message::{Content, GroupBundle, GroupCreate, PlacementStrategy, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Makes a placement group, which waits for room. Raises `ValueError` for what no group may ask for.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call from one place in Python, by keyword")]
#[pyo3(signature = (*, name, strategy, bundles, selectors, detached, preferred, urgency = (None, false), domain = String::new()))]
fn create_placement_group(
    py: Python<'_>,
    name: String,
    strategy: &str,
    bundles: Vec<BTreeMap<String, f64>>,
    selectors: Vec<Vec<Condition>>,
    detached: bool,
    preferred: Option<Bound<'_, NodeID>>,
    urgency: (Option<i32>, bool),
    domain: String,
) -> PyResult<PlacementGroupID> {
    let runtime = process::required()?;
    let mut selectors = selectors.into_iter();
    let bundles = bundles.into_iter().map(|bundle| {
        let conditions = conditions(selectors.next().unwrap_or_default())?;
        Ok(GroupBundle { demand: amounts(&units(bundle)?), conditions })
    });
    let unknown = || PyValueError::new_err(format!("{strategy:?} is no strategy of a placement group"));
    let create = GroupCreate {
        name,
        strategy: PlacementStrategy::from_name(strategy).ok_or_else(unknown)?,
        bundles: bundles.collect::<PyResult<_>>()?,
        detached,
        preferred: preferred.map(|node| node.get().0),
        priority: urgency.0.unwrap_or_else(assigned::priority),
        preemptible: urgency.1,
        domain,
        ..GroupCreate::default()
    };
    let made = py.detach(|| runtime.create_group(create));
    made.map(PlacementGroupID).map_err(|error| process::error(py, &error))
}

/// Whether the group is known to be created, without asking; that is told once, and only to who made it.
#[pyfunction]
fn placement_group_created(group: &Bound<'_, PlacementGroupID>) -> PyResult<bool> {
    Ok(process::required()?.take_created(group.get().0))
}

/// Others are about to be told of a group that was just made. Does nothing where the connection is over.
#[pyfunction]
fn share_placement_group(py: Python<'_>, group: &Bound<'_, PlacementGroupID>) {
    let group = group.get().0;
    if let Some(runtime) = process::current() {
        py.detach(|| runtime.share_group(group));
    }
}

/// A reference that gets `value` when the group is created.
#[pyfunction]
fn placement_group_ready(group: &Bound<'_, PlacementGroupID>, value: &Bound<'_, PyAny>) -> PyResult<ObjectRef> {
    let runtime = process::required()?;
    let inline = Content::Inline(Serialized::of(value)?.into_bytes());
    let id = runtime.group_ready(group.get().0, Value { content: Some(inline), contained: Vec::new() });
    Ok(ObjectRef::adopt(runtime, id))
}

/// Gives a group up; what runs within it is killed.
#[pyfunction]
fn remove_placement_group(group: &Bound<'_, PlacementGroupID>) -> PyResult<()> {
    process::required()?.remove_group(group.get().0);
    Ok(())
}

/// What there is to know of one group, of the one of this name, or of all: a list.
#[pyfunction]
#[pyo3(signature = (group=None, name=""))]
fn placement_groups<'py>(
    py: Python<'py>,
    group: Option<Bound<'py, PlacementGroupID>>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let runtime = process::required()?;
    let group = group.map(|group| group.get().0);
    let groups = py.detach(|| runtime.groups(group, name)).map_err(|error| process::error(py, &error))?;
    state::shown(py, &groups)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(create_placement_group, module)?)?;
    module.add_function(wrap_pyfunction!(placement_group_created, module)?)?;
    module.add_function(wrap_pyfunction!(share_placement_group, module)?)?;
    module.add_function(wrap_pyfunction!(placement_group_ready, module)?)?;
    module.add_function(wrap_pyfunction!(remove_placement_group, module)?)?;
    module.add_function(wrap_pyfunction!(placement_groups, module)?)
}
