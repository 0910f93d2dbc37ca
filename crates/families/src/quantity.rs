//! Which quantities of an accelerator one task or actor may ask for.

use std::fmt;

/// A family's rule for the quantity in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityRule {
    /// A share of one device, or a whole number of devices.
    Shares,
    /// A whole number of devices, for the device cannot be shared.
    Whole,
    /// One at most, for a process can use no more.
    One,
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
    /// More than a process can use.
    #[error("{quantity} of `{resource}` cannot be given: a process can use one of them, whole, so ask for 1")]
    NotOne {
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

impl QuantityRule {
    /// Checks what one task or actor asks of a resource that has this rule.
    pub(crate) fn check(self, resource: &str, quantity: f64) -> Result<(), QuantityError> {
        let name = || resource.to_owned();
        let whole = quantity.fract() == 0.0;
        match self {
            Self::Shares if !whole && quantity > 1.0 => {
                Err(QuantityError::BetweenWholes { resource: name(), quantity })
            }
            Self::Whole if !whole => Err(QuantityError::NotShared { resource: name(), quantity }),
            Self::One if !whole || quantity > 1.0 => Err(QuantityError::NotOne { resource: name(), quantity }),
            Self::OneOf(allowed) if !(whole && allowed.iter().any(|count| u64::from(*count) == quantity as u64)) => {
                Err(QuantityError::NotAGroup { resource: name(), quantity, allowed })
            }
            Self::Shares | Self::Whole | Self::One | Self::OneOf(_) => Ok(()),
        }
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
