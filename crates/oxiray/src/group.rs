//! Placement groups: resources that are set aside together.

use crate::error::{Error, Result};
use crate::options::units;
use crate::process;
use crate::reference::ObjectRef;
use oxiray_client::assigned;
use oxiray_ids::PlacementGroupId;
use oxiray_resources::ResourceName;
use oxiray_runtime::{INLINE_BYTES, amounts};
use oxiray_values::Encoded;
use oxiray_wire::message::{Content, GroupBundle, GroupCreate, PlacementStrategy, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// How the bundles of a group are spread over machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spread {
    /// On as few machines as possible.
    #[default]
    Pack,
    /// On as many as possible.
    Spread,
    /// All on one.
    StrictPack,
    /// Each on another.
    StrictSpread,
}

impl From<Spread> for PlacementStrategy {
    fn from(spread: Spread) -> Self {
        match spread {
            Spread::Pack => Self::Pack,
            Spread::Spread => Self::Spread,
            Spread::StrictPack => Self::StrictPack,
            Spread::StrictSpread => Self::StrictSpread,
        }
    }
}

/// Resources that were asked for together: all of them are set aside, or none.
///
/// It lasts until [`PlacementGroup::remove`], or the end of the program that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementGroup(PlacementGroupId);

impl PlacementGroup {
    /// Asks for bundles, each a set of resources on one machine, such as `[("CPU", 1.0), ("GPU", 0.5)]`. `gpu_memory` among them
    /// is bytes of one GPU.
    pub fn create(bundles: &[&[(&str, f64)]], spread: Spread) -> Result<Self> {
        Self::make(bundles, spread, false)
    }

    /// The same, all of which may be given back early where something of a higher priority needs it, in a cluster with
    /// `--preemption=on`: what runs within it ends, and the group waits for room again.
    pub fn create_preemptible(bundles: &[&[(&str, f64)]], spread: Spread) -> Result<Self> {
        Self::make(bundles, spread, true)
    }

    fn make(bundles: &[&[(&str, f64)]], spread: Spread, preemptible: bool) -> Result<Self> {
        let runtime = process::required()?;
        let bundle = |bundle: &&[(&str, f64)]| {
            let named: BTreeMap<String, f64> =
                bundle.iter().map(|(name, amount)| (ResourceName::of_option(name).to_owned(), *amount)).collect();
            Ok(GroupBundle { demand: amounts(&units(&named)?), conditions: Vec::new() })
        };
        let bundles = bundles.iter().map(bundle).collect::<Result<Vec<_>>>()?;
        let (strategy, priority) = (spread.into(), assigned::priority());
        let create = GroupCreate { strategy, bundles, priority, preemptible, ..GroupCreate::default() };
        Ok(Self(runtime.create_group(create)?))
    }

    /// A reference that gets its value when the group is there.
    pub fn ready(&self) -> Result<ObjectRef<()>> {
        let runtime = process::required()?;
        let encoded = Encoded::native(&())?;
        assert!(encoded.size() < INLINE_BYTES, "nothing takes no room");
        let value = Value { content: Some(Content::Inline(encoded.into_bytes())), contained: Vec::new() };
        let id = runtime.group_ready(self.0, value);
        Ok(ObjectRef::adopt(runtime, id))
    }

    /// Whether the group is there within this time.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        match self.ready()?.get_timeout(limit) {
            Ok(()) => Ok(true),
            Err(Error::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives it up; what runs within it is killed.
    pub fn remove(self) -> Result<()> {
        process::required()?.remove_group(self.0);
        Ok(())
    }

    /// Its identifier: 36 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.hex()
    }

    pub(crate) fn id(&self) -> PlacementGroupId {
        self.0
    }
}
