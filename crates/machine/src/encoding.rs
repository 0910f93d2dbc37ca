//! How identifiers, amounts and homes stand in messages.

use bytes::Bytes;
use oxiray_resources::{Demand, Quantity, ResourceName};
use oxiray_wire::message::Amount;

/// An identifier as messages have it.
pub fn bytes_of(id: &[u8]) -> Bytes {
    Bytes::copy_from_slice(id)
}

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
