//! Kubernetes' quantities: `50Gi`, `500m`, `3`, `1e3`.

use serde_json::Value;

/// A text or number is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no quantity: write a number with one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei behind it, or none"
)]
pub struct NoQuantity(pub String);

/// Reads a quantity of a manifest, which may be a number there.
///
/// # Errors
/// Where it is none, or below zero.
pub fn quantity(value: &Value) -> Result<f64, NoQuantity> {
    let refused = || NoQuantity(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let amount = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => parse(text.trim()),
        _ => None,
    };
    amount.filter(|amount| amount.is_finite() && *amount >= 0.0).ok_or_else(refused)
}

fn parse(text: &str) -> Option<f64> {
    // A lone `E` is the unit; with digits behind it, the exponent, which the number's own parser reads.
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let end = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_as_manifests_have_them() {
        let cases = [
            (json!("50Gi"), 50.0 * 1024f64.powi(3)),
            (json!("500m"), 0.5),
            (json!("3"), 3.0),
            (json!(3), 3.0),
            (json!(0.5), 0.5),
            (json!("1e3"), 1000.0),
            (json!("1E"), 1e18),
            (json!("2k"), 2000.0),
            (json!("1.5Mi"), 1.5 * 1024.0 * 1024.0),
        ];
        for (given, expected) in cases {
            assert_eq!(quantity(&given), Ok(expected), "{given}");
        }
        for wrong in [json!("many"), json!("-1"), json!("5Q"), json!(true), json!(null), json!("Gi"), json!("inf")] {
            assert!(quantity(&wrong).is_err(), "{wrong}");
        }
    }
}
