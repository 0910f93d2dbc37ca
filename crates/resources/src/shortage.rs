//! Why a demand is not granted.

use thiserror::Error;

use crate::{FreeDevices, Quantity, ResourceName};

/// Why a machine does not grant a demand.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Shortage {
    /// It would on another day: others hold what is asked for, or devices are out of service.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// It could not with nothing running on it.
    #[error(transparent)]
    Never(#[from] Never),
}

/// The first resource of a demand of which too little is free.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.sentence())]
pub struct Busy {
    /// The resource.
    pub resource: ResourceName,
    /// How much was asked for.
    pub asked: Quantity,
    /// The most that a demand of this kind could get now ([`crate::FreeDevices::obtainable`]): of devices the wholly
    /// free ones where whole ones are asked for, and the free part of one device otherwise.
    pub free: Quantity,
    /// How much the machine has, devices out of service included.
    pub total: Quantity,
    /// What is not granted of its devices though nobody holds it.
    pub kept: KeptBack,
}

/// The devices of a machine that are not granted as others are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBack {
    /// How many are out of service.
    pub out_of_service: u32,
    /// How many are granted only one at a time, since their links to others are not to be used.
    pub single: u32,
}

impl KeptBack {
    /// Those among these devices.
    pub fn of(devices: &FreeDevices) -> Self {
        Self { out_of_service: devices.out_of_service(), single: devices.single() }
    }

    /// As the end of a sentence on a request, for several devices or for one.
    fn in_words(self, are_several: bool) -> String {
        let Self { out_of_service, single } = self;
        let out = (out_of_service > 0).then(|| format!(", {out_of_service} out of service"));
        let single = (single > 0 && are_several).then(|| {
            format!(", {single} granted only one at a time while the driver has links to other devices drained")
        });
        out.into_iter().chain(single).collect()
    }
}

/// The first resource of a demand of which a machine has too little, whatever runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", self.sentence())]
pub struct Never {
    /// The resource.
    pub resource: ResourceName,
    /// How much was asked for.
    pub asked: Quantity,
    /// How much the machine has.
    pub total: Quantity,
}

impl Never {
    fn sentence(&self) -> String {
        let Self { resource, asked, total } = self;
        if !resource.is_device_memory() {
            return format!("{asked} {resource} asked for, the machine has {total}: lower the request or offer more");
        }
        let (devices, asked) = (resource.source(), amount_in_words(resource, *asked));
        if total.is_zero() {
            return format!("{asked} of the memory of one {devices} asked for, and no {devices} here of a known size");
        }
        let total = amount_in_words(resource, *total);
        format!("{asked} of the memory of one {devices} asked for, the largest has {total}")
    }
}

/// An amount of a resource, for people.
pub fn amount_in_words(resource: &ResourceName, amount: Quantity) -> String {
    if resource.is_device_memory() { size_in_words(amount.wholes()) } else { amount.to_string() }
}

/// A size, for people.
pub fn size_in_words(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 1024.0 { format!("{mebibytes:.0} MiB") } else { format!("{:.2} GiB", mebibytes / 1024.0) }
}

/// Reads a size: a number of bytes, or one with a unit of 1,000 or of 1,024 (`8GB`, `8 GiB`, `8g`, the last of 1,024).
///
/// # Errors
/// Where it is no such size; the text says what is.
pub fn size_from_text(text: &str) -> Result<u64, String> {
    let refused = || format!("`{text}` is no size: give bytes, or a number with a unit as in `8GiB`, `8GB` or `8g`");
    let given = text.trim();
    let digits = given.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(given.len());
    let (number, unit) = given.split_at(digits);
    let number: f64 = number.parse().map_err(|_| refused())?;
    let unit = unit.trim().to_ascii_lowercase();
    let (prefix, base) = match unit.as_str() {
        "" | "b" => ("", 1.0),
        _ => match unit.strip_suffix("ib").or(if unit.len() == 1 { Some(&unit[..]) } else { None }) {
            Some(prefix) => (prefix, 1024.0),
            None => (unit.strip_suffix('b').ok_or_else(refused)?, 1000.0),
        },
    };
    let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == prefix).ok_or_else(refused)?;
    let bytes = number * f64::powi(base, power as i32);
    (bytes.fract() == 0.0 || power > 0)
        .then_some(bytes)
        .filter(|bytes| *bytes < 1e14)
        .map(|bytes| bytes as u64)
        .ok_or_else(refused)
}

impl Busy {
    fn sentence(&self) -> String {
        let Self { resource, asked, free, total, kept } = self;
        let fault = kept.in_words(resource.is_device() && *asked > Quantity::ONE);
        if resource.is_device_memory() {
            let [asked, free, total] = [asked, free, total].map(|amount| amount_in_words(resource, *amount));
            let devices = resource.source();
            format!(
                "{asked} of the memory of one {devices} asked for, the freest has {free} left of at most {total}{fault}"
            )
        } else if !resource.is_device() {
            format!("{asked} {resource} asked for, {free} of {total} free{fault}")
        } else if *asked >= Quantity::ONE {
            format!("{asked} {resource} asked for, {free} of {total} wholly free{fault}")
        } else {
            format!("{asked} of one {resource} asked for, the freest of {total} has {free} left{fault}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let read = [("8GiB", 8 << 30), (" 8 g ", 8 << 30), ("1.5GB", 1_500_000_000), ("12", 12), ("12B", 12)];
        for (text, bytes) in read.into_iter().chain([("3 MiB", 3 << 20), ("7kb", 7_000), ("0.5t", 1 << 39)]) {
            assert_eq!(size_from_text(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "8GiBs", "8x", "1.5", "1e20", "NaN", "999999999t"] {
            assert!(size_from_text(text).is_err(), "{text}");
        }
        assert_eq!([size_in_words(1 << 20), size_in_words(3 << 29)], ["1 MiB", "1.50 GiB"]);
    }
}
