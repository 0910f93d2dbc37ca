//! Which quantities of an accelerator one task or actor may ask for.

use std::fmt;

use crate::family::device_resource;

/// A family's rule for the quantity in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityRule {
    /// A share of one device, or a whole number of devices.
    Shares,
    /// A whole number of devices, for the device cannot be shared.
    Whole,
    /// One of a few numbers of devices, for only these form a working group.
    OneOf(&'static [u32]),
}

/// Why a quantity cannot be asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QuantityError {
    /// Below zero, or no number at all.
    #[error("{quantity} of `{resource}` cannot be asked for: ask for zero or more")]
    Negative {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
    },
    /// Between two whole numbers of devices, above one.
    #[error(
        "{quantity} of `{resource}` cannot be given: one process holds a share of one device or a whole number of \
         devices, so ask for {}, {}, or a share below 1", quantity.floor(), quantity.ceil()
    )]
    BetweenWholes {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
    },
    /// A share of a device that cannot be shared.
    #[error("{quantity} of `{resource}` cannot be given: its devices cannot be shared, so ask for a whole number")]
    NotShared {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
    },
    /// A number of devices that do not form a group.
    #[error(
        "{quantity} of `{resource}` cannot be given: its devices work together in groups of {}, so ask for one of these",
        Listed(allowed)
    )]
    NotAGroup {
        /// The resource.
        resource: String,
        /// What was asked for.
        quantity: f64,
        /// What may be asked for.
        allowed: &'static [u32],
    },
}

/// Checks what one task or actor asks of a resource. A resource that is no accelerator has no rule beyond its sign.
pub fn check_quantity(resource: &str, quantity: f64) -> Result<(), QuantityError> {
    let name = || resource.to_owned();
    if quantity.is_nan() || quantity < 0.0 {
        return Err(QuantityError::Negative { resource: name(), quantity });
    }
    let Some(device) = device_resource(resource) else { return Ok(()) };
    let whole = quantity.fract() == 0.0;
    match device.quantity {
        QuantityRule::Shares if !whole && quantity > 1.0 => {
            Err(QuantityError::BetweenWholes { resource: name(), quantity })
        }
        QuantityRule::Whole if !whole => Err(QuantityError::NotShared { resource: name(), quantity }),
        QuantityRule::OneOf(allowed)
            if !(whole && allowed.iter().any(|count| u64::from(*count) == quantity as u64)) =>
        {
            Err(QuantityError::NotAGroup { resource: name(), quantity, allowed })
        }
        _ => Ok(()),
    }
}

struct Listed<'a>(&'a [u32]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, number) in self.0.iter().enumerate() {
            let separator = match position {
                0 => "",
                _ if position + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(formatter, "{separator}{number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let refused: &[(&str, &[f64])] = &[
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
