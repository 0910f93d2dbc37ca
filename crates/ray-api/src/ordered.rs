//! JSON whose objects keep the order of their keys, which readers of Ray's answers may see.

use oxiray_state::Cell;
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

/// A value of JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Ordered {
    /// Nothing is known, or nothing is there.
    #[default]
    Null,
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A whole number that may be larger than any that has a sign.
    Natural(u64),
    /// Any number; null where it is not finite.
    Real(f64),
    /// A text.
    Text(String),
    /// JSON that a user wrote; null where it is none.
    Document(String),
    /// Several values.
    List(Vec<Self>),
    /// Values by name, in this order.
    Map(Vec<(String, Self)>),
}

impl Ordered {
    /// Values by name, in this order.
    pub fn map<'name>(entries: impl IntoIterator<Item = (&'name str, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Nothing by name.
    pub(crate) fn empty_map() -> Self {
        Self::Map(Vec::new())
    }

    /// What displays itself as a text.
    pub(crate) fn text(value: impl std::fmt::Display) -> Self {
        Self::Text(value.to_string())
    }

    /// As it is sent.
    pub fn body(&self) -> String {
        serde_json::to_string(self).expect("the keys of all objects are texts")
    }
}

impl Serialize for Ordered {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Whole(number) => serializer.serialize_i64(*number),
            Self::Natural(number) => serializer.serialize_u64(*number),
            Self::Real(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Document(text) => {
                serde_json::from_str::<serde_json::Value>(text).unwrap_or_default().serialize(serializer)
            }
            Self::List(values) => serializer.collect_seq(values),
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (name, value) in entries {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl From<Cell> for Ordered {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::Flag(flag) => Self::Flag(flag),
            Cell::Whole(number) => Self::Whole(number),
            Cell::Real(number) => Self::Real(number),
            Cell::Text(text) => Self::Text(text),
            Cell::Document(text) => Self::Document(text),
            Cell::List(cells) => Self::List(cells.into_iter().map(Self::from).collect()),
            Cell::Map(cells) => Self::Map(cells.into_iter().map(|(name, cell)| (name, cell.into())).collect()),
        }
    }
}

/// Values of Rust, each by the kind of JSON that it is.
macro_rules! values {
    ($($type:ty => |$value:ident| $ordered:expr;)*) => {$(
        impl From<$type> for Ordered {
            fn from($value: $type) -> Self { $ordered }
        }
    )*};
}

values! {
    bool => |value| Self::Flag(value);
    i32 => |value| Self::Whole(value.into());
    u32 => |value| Self::Whole(value.into());
    u64 => |value| Self::Natural(value);
    usize => |value| Self::Natural(value as u64);
    f64 => |value| Self::Real(value);
    &str => |value| Self::Text(value.to_owned());
    &String => |value| Self::Text(value.clone());
    String => |value| Self::Text(value);
    Vec<Self> => |value| Self::List(value);
}

impl<T: Into<Self>> From<Option<T>> for Ordered {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl FromIterator<Self> for Ordered {
    fn from_iter<I: IntoIterator<Item = Self>>(values: I) -> Self {
        Self::List(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_where_they_are_and_numbers_what_they_are() {
        let value = Ordered::map([
            ("z", u64::MAX.into()),
            ("a", 2.0.into()),
            ("n", f64::NAN.into()),
            ("d", Ordered::Document("{\"k\": 1}".into())),
            ("broken", Ordered::Document("{".into())),
            ("list", vec![1_u32.into(), "two\n".into()].into()),
            ("none", None::<bool>.into()),
        ]);
        let written =
            r#"{"z":18446744073709551615,"a":2.0,"n":null,"d":{"k":1},"broken":null,"list":[1,"two\n"],"none":null}"#;
        assert_eq!(value.body(), written);
    }
}
