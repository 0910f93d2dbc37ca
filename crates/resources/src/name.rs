//! Names of resources, and which of them stand for devices.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use oxiray_families::{device_resource, device_resources};
use thiserror::Error;

use crate::Quantity;

/// The longest name of a resource.
pub const RESOURCE_NAME_BYTES_MAX: usize = 1024;

/// What the resource that stands for an accelerator's type begins with: `accelerator_type:A100`.
pub const ACCELERATOR_TYPE_PREFIX: &str = "accelerator_type:";

/// What the resources begin with of which every machine has one, though none offers them: what is asked for of one sets how many
/// of a kind a machine takes.
pub(crate) const IMPLICIT_PREFIX: &str = "node:__internal_implicit_resource_";

/// Names of resources that are no devices and that everybody knows.
const BASIC: [ResourceName; 4] =
    [ResourceName::CPU, ResourceName::MEMORY, ResourceName::OBJECT_STORE_MEMORY, ResourceName::GPU_MEMORY];

/// What requests call [`ResourceName::GPU_MEMORY`].
const GPU_MEMORY_OPTION: &str = "gpu_memory";

/// The devices whose memory can be asked for.
static GPU: ResourceName = ResourceName::GPU;

/// The name of a resource; a clone costs no allocation.
#[derive(Clone)]
pub struct ResourceName(Text);

#[derive(Clone)]
enum Text {
    /// One of [`BASIC`].
    Basic(&'static str),
    /// One whose wholes are devices: each has its own account and its own number on the machine. Every other resource is
    /// one account.
    Device(&'static str),
    Other(Arc<str>),
}

/// A text is no name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It has no characters.
    #[error("a resource has no name; give it one")]
    Empty,
    /// It is longer than [`RESOURCE_NAME_BYTES_MAX`].
    #[error("a resource has a name of {bytes} bytes; the longest has {RESOURCE_NAME_BYTES_MAX}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}

impl ResourceName {
    /// Processor cores.
    pub const CPU: Self = Self(Text::Basic("CPU"));
    /// Graphics processors of every vendor.
    pub const GPU: Self = Self(Text::Device(oxiray_families::GPU.name));
    /// Bytes of main memory.
    pub const MEMORY: Self = Self(Text::Basic("memory"));
    /// Bytes of the object store.
    pub const OBJECT_STORE_MEMORY: Self = Self(Text::Basic("object_store_memory"));
    /// Bytes of the memory of one GPU: asked for in place of a number of GPUs or a share of one. No machine offers it by
    /// itself, and it is not the custom resource that a program may call `gpu_memory`.
    pub const GPU_MEMORY: Self = Self(Text::Basic(Self::GPU_MEMORY_NAME));
    const GPU_MEMORY_NAME: &'static str = "GPU:memory";
    /// The resource of this name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if let Some(basic) = BASIC.iter().find(|basic| basic.as_str() == name) {
            return Ok(basic.clone());
        }
        if let Some(device) = device_resource(name) {
            return Ok(Self(Text::Device(device.name)));
        }
        match name.len() {
            0 => Err(NameError::Empty),
            1..=RESOURCE_NAME_BYTES_MAX => Ok(Self(Text::Other(name.into()))),
            bytes => Err(NameError::TooLong { bytes }),
        }
    }

    /// The resource that every machine with accelerators of type `accelerator` offers.
    pub fn accelerator_type(accelerator: &str) -> Result<Self, NameError> {
        Self::new(&format!("{ACCELERATOR_TYPE_PREFIX}{accelerator}"))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Basic(name) | Text::Device(name) => name,
            Text::Other(name) => name,
        }
    }

    /// Every resource whose wholes are devices, in the order of the families.
    pub fn devices() -> impl Iterator<Item = Self> {
        device_resources().map(|device| Self(Text::Device(device.name)))
    }

    /// Whether its wholes are devices.
    pub const fn is_device(&self) -> bool {
        matches!(self.0, Text::Device(_))
    }

    /// The resource out of which this is granted: the devices whose memory it is, or itself.
    pub fn source(&self) -> &Self {
        if self.is_device_memory() { &GPU } else { self }
    }

    /// Whether it is memory of devices.
    pub fn is_device_memory(&self) -> bool {
        *self == Self::GPU_MEMORY
    }

    /// The name of the resource that a request calls so, where bundles are made of resources and options alike.
    pub fn of_option(option: &str) -> &str {
        if option == GPU_MEMORY_OPTION { Self::GPU_MEMORY_NAME } else { option }
    }

    /// What the option of a request calls it.
    pub fn as_option(&self) -> &str {
        if self.is_device_memory() { GPU_MEMORY_OPTION } else { self.as_str() }
    }

    /// `A100` of `accelerator_type:A100`; `None` for every other resource.
    pub fn as_accelerator_type(&self) -> Option<&str> {
        self.as_str().strip_prefix(ACCELERATOR_TYPE_PREFIX)
    }

    /// Whether every machine has one of it, though none offers it.
    pub fn is_implicit(&self) -> bool {
        matches!(&self.0, Text::Other(name) if name.starts_with(IMPLICIT_PREFIX))
    }

    /// What a machine has of it that does not name it.
    pub fn unnamed(&self) -> Quantity {
        if self.is_implicit() { Quantity::ONE } else { Quantity::ZERO }
    }

    /// Whether a program made it up: it is neither well known nor the type of an accelerator nor
    /// the mark of one machine (`node:10.0.0.1`).
    pub fn is_custom(&self) -> bool {
        let is_other = matches!(self.0, Text::Other(_));
        is_other && self.as_accelerator_type().is_none() && !self.as_str().starts_with("node:")
    }
}

impl PartialEq for ResourceName {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for ResourceName {}

impl PartialOrd for ResourceName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

// `Borrow<str>` promises the hash of the text, so that maps can be asked with a plain `&str`.
impl Hash for ResourceName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
