//! How amounts of resources stand in messages.

use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_wire::message::Amount;

/// Amounts of resources as messages have them.
pub fn amounts<'a>(pairs: impl IntoIterator<Item = (&'a ResourceName, Quantity)>) -> Vec<Amount> {
    pairs.into_iter().map(|(name, amount)| Amount { resource: name.to_string(), units: amount.units() }).collect()
}

/// The demand that amounts on the wire are.
pub fn demand(amounts: &[Amount]) -> Option<Demand> {
    let named = amounts
        .iter()
        .map(|amount| Some((ResourceName::new(&amount.resource).ok()?, Quantity::from_units(amount.units))));
    Demand::new(named.collect::<Option<Vec<_>>>()?).ok()
}
