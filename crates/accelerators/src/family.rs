//! What a vendor's family of accelerators is, and the table of all of them.
//!
//! A family is data and four functions; each is defined in a file of its own, and adding one takes that file, a line in
//! [`FAMILIES`] and a recorded machine in `tests/fixtures/hosts/`.

use std::fmt;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::detect::{Detected, Findings};
use crate::host::Host;
use crate::quantity::QuantityRule;
use crate::visibility::{Assignment, Changes, Lookup, Preset};

/// The resource that the three GPU vendors share.
pub const GPU: &str = "GPU";

/// One vendor's accelerators: how they are found, named, asked for and shown to a process.
pub struct Family {
    /// The word for it in settings, such as `nvidia`.
    pub key: &'static str,
    /// What people call one of its devices, such as `NVIDIA GPU`.
    pub name: &'static str,
    /// The resource that its devices are counted as.
    pub resource: &'static str,
    /// The variables that list a process its devices: two where the vendor's library filters twice.
    pub variables: &'static [&'static str],
    /// Variables that say more about the devices in the list.
    pub companions: &'static [&'static str],
    /// Variables that ask, when on, not to write [`Family::variables`].
    pub opt_outs: &'static [&'static str],
    /// Which quantities one task or actor may ask for.
    pub quantity: QuantityRule,
    /// The type name, where every device of the family has the same.
    pub constant_type: Option<&'static str>,
    /// Further names under which users ask for a type: the detected name, and the other.
    pub type_aliases: &'static [(&'static str, &'static str)],
    /// What `RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO` writes for a process without devices; `None` removes the variables.
    pub(crate) hidden: Option<&'static str>,
    /// Looks for the family on a machine; `None` where there is no device of it.
    pub(crate) detect: fn(&Host, &mut Findings) -> Option<Detected>,
    /// The devices that the variables of an environment list; `None` where they list nothing.
    pub(crate) preset: fn(Lookup<'_>) -> Option<Preset>,
    /// The variables that show a process the devices assigned to it.
    pub(crate) show: fn(&Assignment<'_>) -> Changes,
}

/// Every family, in the order in which they are detected, reported and, among the GPU vendors, preferred.
pub static FAMILIES: [&Family; 7] = [
    &crate::nvidia::FAMILY,
    &crate::amd::FAMILY,
    &crate::intel::FAMILY,
    &crate::neuron::FAMILY,
    &crate::tpu::FAMILY,
    &crate::gaudi::FAMILY,
    &crate::ascend::FAMILY,
];

/// The families that a resource may stand for, preferred first; none for a resource that is no accelerator.
pub fn families_of(resource: &str) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied().filter(move |family| family.resource == resource)
}

/// The families of a node on which `GPU` stands for `gpu_family`: one for each resource.
pub(crate) fn families_on_node(gpu_family: &Family) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied().filter(move |family| family.resource != GPU || *family == gpu_family)
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key)
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Family", 4)?;
        fields.serialize_field("key", self.key)?;
        fields.serialize_field("name", self.name)?;
        fields.serialize_field("resource", self.resource)?;
        fields.serialize_field("variables", self.variables)?;
        fields.end()
    }
}
