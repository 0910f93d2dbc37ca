//! The table of all families, and what is derived from it: which resources are devices, the options of tasks and actors in
//! Python and in Rust, what Kubernetes calls them, which variables show them to a process, and who watches them.

use crate::family::Family;
use crate::quantity::{QuantityError, QuantityRule};
use crate::resource::{DeviceResource, GPU};

/// Every family, in the order in which they are detected, reported and, among those of one resource, preferred.
pub static FAMILIES: &[&Family] = &[
    &crate::nvidia::FAMILY,
    &crate::amd::FAMILY,
    &crate::intel::FAMILY,
    &crate::neuron::FAMILY,
    &crate::tpu::FAMILY,
    &crate::gaudi::FAMILY,
    &crate::ascend::FAMILY,
    #[cfg(feature = "eighth-family")]
    &crate::eighth_family::FAMILY,
];

/// The families that a resource may stand for, preferred first; none for a resource that is no accelerator.
pub fn families_of(resource: &str) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied().filter(move |family| family.counted_as(resource).is_some())
}

/// The families of a node on which `GPU` stands for `gpu_family`: one for each resource.
pub fn families_on_node(gpu_family: &Family) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().copied().filter(move |family| *family.resource != GPU || *family == gpu_family)
}

/// Every resource whose units are devices, each once, in the order of [`FAMILIES`].
pub fn device_resources() -> impl Iterator<Item = &'static DeviceResource> {
    let is_first = |(place, family): &(usize, &&Family)| {
        FAMILIES[..*place].iter().all(|before| before.resource.name != family.resource.name)
    };
    FAMILIES.iter().enumerate().filter(is_first).map(|(_, family)| family.resource)
}

/// The device resource of this name; `None` for a resource that is no accelerator.
pub fn device_resource(name: &str) -> Option<&'static DeviceResource> {
    FAMILIES.iter().find_map(|family| family.counted_as(name))
}

/// The table, for those who cannot read Rust.
pub fn table() -> serde_json::Value {
    let families = FAMILIES.iter().map(|family| {
        let DeviceResource { name, option, quantity, torch } = family.resource;
        serde_json::json!({
            "key": family.key,
            "resource": name,
            "option": option,
            "is_shared": *quantity == QuantityRule::Shares,
            "torch": torch,
            "joined": family.visibility.joined,
            "nodes": family.nodes,
        })
    });
    families.collect()
}

/// Checks what one task or actor asks of a resource. A resource that is no accelerator has no rule beyond its sign.
pub fn check_quantity(resource: &str, quantity: f64) -> Result<(), QuantityError> {
    if quantity.is_nan() || quantity < 0.0 {
        return Err(QuantityError::Negative { resource: resource.to_owned(), quantity });
    }
    device_resource(resource).map_or(Ok(()), |device| device.quantity.check(resource, quantity))
}

/// Checks what one bundle of a placement group asks of a resource: several processes may run in it.
pub fn check_bundle(resource: &str, quantity: f64) -> Result<(), QuantityError> {
    match device_resource(resource) {
        Some(device) if device.quantity == QuantityRule::One => QuantityRule::Whole.check(resource, quantity),
        _ => check_quantity(resource, quantity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_a_key_of_its_own_and_each_resource_one_entry() {
        for (place, family) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES[..place].iter().all(|before| before != family), "{family:?} stands twice");
            let resource = device_resource(family.resource.name).unwrap();
            assert_eq!(resource, family.resource, "{} is described in two ways", resource.name);
        }
        let names: Vec<&str> = device_resources().map(|resource| resource.name).collect();
        assert_eq!(names[..5], ["GPU", "neuron_cores", "TPU", "HPU", "NPU"]);
    }

    #[test]
    fn the_rules_of_the_specification() {
        let allowed: &[(&str, &[f64])] = &[
            ("GPU", &[0.0, 0.0001, 0.25, 1.0, 2.0, 8.0]),
            ("NPU", &[0.0, 0.25, 1.0, 2.0]),
            ("neuron_cores", &[0.0, 1.0, 32.0]),
            ("HPU", &[0.0, 1.0, 8.0]),
            ("TPU", &[1.0, 2.0, 4.0, 8.0]),
            ("CPU", &[0.0, 1.5, 2.5]),
            ("custom", &[2.5]),
        ];
        for (resource, quantities) in allowed {
            for quantity in *quantities {
                assert_eq!(check_quantity(resource, *quantity), Ok(()), "{resource} {quantity}");
            }
        }
        assert_eq!([0.0, 1.0].map(|count| check_quantity("mig-1g.10gb", count)), [Ok(()), Ok(())]);
        assert_eq!([1.0, 7.0].map(|count| check_bundle("mig-1g.10gb", count)), [Ok(()), Ok(())]);
        assert!(check_bundle("mig-1g.10gb", 0.5).is_err() && check_bundle("GPU", 1.5).is_err());
        let refused: &[(&str, &[f64])] = &[
            ("mig-1g.10gb", &[0.5, 2.0, -1.0]),
            ("GPU", &[-1.0, 1.5, 2.0001, f64::NAN]),
            ("NPU", &[-0.5, 1.5]),
            ("neuron_cores", &[0.5, 1.5, -1.0]),
            ("HPU", &[0.5, 2.5]),
            ("TPU", &[0.0, 0.5, 3.0, 5.0, 16.0, f64::INFINITY]),
            ("CPU", &[-1.0]),
        ];
        for (resource, quantities) in refused {
            for quantity in *quantities {
                let error = check_quantity(resource, *quantity).unwrap_err().to_string();
                assert!(error.contains(resource) && error.contains("ask for"), "{error}");
            }
        }
    }

    #[test]
    fn a_refusal_says_what_to_ask_for() {
        assert_eq!(
            check_quantity("TPU", 3.0).unwrap_err().to_string(),
            "3 of `TPU` cannot be given: its devices work together in groups of 1, 2, 4 or 8, so ask for one of these"
        );
        assert_eq!(
            check_quantity("GPU", 1.5).unwrap_err().to_string(),
            "1.5 of `GPU` cannot be given: one process holds a share of one device or a whole number of devices, so ask \
             for 1, 2, or a share below 1"
        );
    }
}
