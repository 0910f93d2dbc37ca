//! The GPUs of a machine as they are built, whatever the nodes there make of them: how much memory each has, and into which
//! instances (MIG) it is cut.

use oxiray_accelerators::Detection;
use oxiray_families::mig::MigInstance;
use oxiray_families::{Detected, Device, FAMILIES, GPU};

/// How much memory a GPU usually has: no multiple of a ten-thousandth.
pub(crate) const GPU_BYTES: u64 = (16 << 30) + 12_345;

/// One GPU.
#[derive(Debug, Clone)]
pub(crate) struct Gpu {
    pub(crate) bytes: u64,
    /// The profiles of its instances; nothing where it is whole.
    pub(crate) instances: Option<&'static [&'static str]>,
}

/// A whole GPU of a machine, or an instance of one, by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unit {
    pub(crate) gpu: usize,
    pub(crate) instance: Option<usize>,
}

impl Unit {
    fn uuid(self) -> String {
        let Self { gpu, instance } = self;
        instance.map_or_else(|| format!("GPU-{gpu}"), |instance| format!("MIG-{gpu}-{instance}"))
    }
}

/// The GPUs of a machine.
#[derive(Debug, Default)]
pub(crate) struct Gpus(Vec<Gpu>);

impl Gpus {
    pub(crate) fn new(gpus: Vec<Gpu>) -> Self {
        Self(gpus)
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Whether some are cut.
    pub(crate) fn are_cut(&self) -> bool {
        self.0.iter().any(|gpu| gpu.instances.is_some())
    }

    /// Whether each instance can be offered as a GPU: all are cut, and alike.
    pub(crate) fn are_alike(&self) -> bool {
        let mut profiles = self.0.iter().flat_map(|gpu| gpu.instances.unwrap_or_default());
        let first = profiles.next();
        first.is_some()
            && profiles.all(|profile| Some(profile) == first)
            && self.0.iter().all(|gpu| gpu.instances.is_some())
    }

    /// What is found of them; nothing where all are whole, since those are only counted.
    pub(crate) fn detection(&self) -> Detection {
        let nvidia = FAMILIES.iter().find(|family| family.key == "nvidia").expect("there is such a family");
        let devices = self.0.iter().enumerate().map(|(index, gpu)| Device {
            index,
            uuid: Some(Unit { gpu: index, instance: None }.uuid()),
            memory_bytes: Some(gpu.bytes),
            instances: gpu.instances.map(|profiles| (0..).zip(profiles).map(|of| instance(index, of)).collect()),
            ..Device::default()
        });
        let found = self.are_cut().then(|| Detected::of_devices(nvidia, devices.collect(), "simulated")).flatten();
        Detection { families: found.into_iter().collect(), warnings: Vec::new(), ruled_out: Vec::new() }
    }

    /// Which one a process was told of: by its unique id, or where nobody knows those by its number.
    pub(crate) fn unit(&self, uuid: &str, slot: u32) -> Unit {
        let whole = |gpu| Unit { gpu, instance: None };
        if uuid.is_empty() {
            return whole(slot as usize);
        }
        self.units().find(|unit| unit.uuid() == uuid).expect("it is a device of the machine")
    }

    /// Everything that there is: each GPU as a whole, and all instances.
    fn units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.0.iter().enumerate().flat_map(|(gpu, built)| {
            let instances = (0..built.instances.map_or(0, <[_]>::len)).map(Some);
            std::iter::once(None).chain(instances).map(move |instance| Unit { gpu, instance })
        })
    }

    /// How much memory it has.
    pub(crate) fn bytes(&self, unit: Unit) -> u64 {
        let gpu = &self.0[unit.gpu];
        let instance = unit.instance.map(|number| gpu.instances.unwrap_or_default()[number]);
        instance.map_or(gpu.bytes, bytes_of)
    }

    /// The memory of each that is offered as one `GPU`: instances where these are, and else what is whole.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let are_instances_gpus = self.are_alike();
        let is_one =
            |unit: &Unit| unit.instance.is_some() == are_instances_gpus && (are_instances_gpus || !self.is_cut(*unit));
        self.units().filter(is_one).map(|unit| self.bytes(unit)).collect()
    }

    fn is_cut(&self, unit: Unit) -> bool {
        self.0[unit.gpu].instances.is_some()
    }
}

/// The memory of an instance, as its profile says.
fn bytes_of(profile: &str) -> u64 {
    if profile.starts_with("2g") { (20 << 30) - 4_321 } else { (10 << 30) - 1_234 }
}

fn instance(gpu: usize, (number, profile): (usize, &&str)) -> MigInstance {
    MigInstance {
        uuid: Some(Unit { gpu, instance: Some(number) }.uuid()),
        profile: (*profile).to_owned(),
        memory_bytes: Some(bytes_of(profile)),
        ..MigInstance::default()
    }
}

/// Whether what a process was granted is of no use to it: of instances it can use one, and nothing beside it.
pub(crate) fn is_too_much(granted: &[Unit]) -> bool {
    granted.len() > 1 && granted.iter().any(|unit| unit.instance.is_some())
}

/// The GPUs of which both the whole and an instance are among these.
pub(crate) fn used_twice(units: &[Unit]) -> Option<usize> {
    let is_whole = |gpu: usize| units.contains(&Unit { gpu, instance: None });
    units.iter().find(|unit| unit.instance.is_some() && is_whole(unit.gpu)).map(|unit| unit.gpu)
}

/// The resource that GPUs are counted as.
pub(crate) fn resource() -> &'static str {
    GPU.name
}
