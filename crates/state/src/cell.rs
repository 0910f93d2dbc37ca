//! One value of a column.

use oxiray_wire::state::Amounts;
use std::collections::BTreeMap;
use std::fmt;

/// A value as a list shows it, and as filters compare it.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Cell {
    /// Nothing is known, or nothing is there.
    #[default]
    Null,
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Any number.
    Real(f64),
    /// A text.
    Text(String),
    /// JSON that a user wrote, which is shown as what it says.
    Document(String),
    /// Several values.
    List(Vec<Cell>),
    /// Values by name.
    Map(BTreeMap<String, Cell>),
}

impl Cell {
    /// Values by name.
    pub fn map<'name>(entries: impl IntoIterator<Item = (&'name str, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(name, cell)| (name.to_owned(), cell)).collect())
    }

    /// What displays itself as a text.
    pub fn text(value: impl fmt::Display) -> Self {
        Self::Text(value.to_string())
    }
}

/// Values of Rust, each by the kind of cell that it is.
macro_rules! cells {
    ($($type:ty => |$value:ident| $cell:expr;)*) => {$(
        impl From<$type> for Cell {
            fn from($value: $type) -> Self { $cell }
        }
    )*};
}

cells! {
    bool => |value| Self::Flag(value);
    u32 => |value| Self::Whole(value.into());
    i32 => |value| Self::Whole(value.into());
    i64 => |value| Self::Whole(value);
    u64 => |value| Self::Whole(i64::try_from(value).unwrap_or(i64::MAX));
    f64 => |value| Self::Real(value);
    &str => |value| Self::Text(value.to_owned());
    &String => |value| Self::Text(value.clone());
    String => |value| Self::Text(value);
    &BTreeMap<String, f64> => |value| value.iter().map(|(name, amount)| (name.clone(), (*amount).into())).collect();
    &BTreeMap<String, u64> => |value| value.iter().map(|(name, count)| (name.clone(), (*count).into())).collect();
    &BTreeMap<String, String> => |value| value.iter().map(|(name, text)| (name.clone(), text.into())).collect();
    &Amounts => |value| (&value.by_name).into();
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl FromIterator<(String, Cell)> for Cell {
    fn from_iter<I: IntoIterator<Item = (String, Self)>>(entries: I) -> Self {
        Self::Map(entries.into_iter().collect())
    }
}

impl FromIterator<Cell> for Cell {
    fn from_iter<I: IntoIterator<Item = Self>>(cells: I) -> Self {
        Self::List(cells.into_iter().collect())
    }
}

/// One way to write each value, by which values that hold others are compared with a filter's text.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Real(number) => write!(f, "{number:?}"),
            Self::Text(text) | Self::Document(text) => write!(f, "{text:?}"),
            Self::List(cells) => {
                f.write_str("[")?;
                for (at, cell) in cells.iter().enumerate() {
                    write!(f, "{}{cell}", if at == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Map(cells) => {
                f.write_str("{")?;
                for (at, (name, cell)) in cells.iter().enumerate() {
                    write!(f, "{}{name:?}:{cell}", if at == 0 { "" } else { "," })?;
                }
                f.write_str("}")
            }
        }
    }
}
