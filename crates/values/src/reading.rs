//! Rust's types from common values.

use crate::array::ARRAY;
use crate::blob::{BUFFER, Blob};
use crate::{ACTOR, Common, REFERENCE, ValueError};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected, VariantAccess, Visitor,
};

/// Reads from a [`Common`].
pub(crate) struct Reader(pub(crate) Common);

impl IntoDeserializer<'_, ValueError> for Reader {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn list<'de, V: Visitor<'de>>(items: Vec<Common>, visitor: V) -> Result<V::Value, ValueError> {
    let mut items = SeqDeserializer::new(items.into_iter().map(Reader));
    let value = visitor.visit_seq(&mut items)?;
    items.end()?;
    Ok(value)
}

fn bytes(blob: Blob) -> Common {
    Common::Bytes(blob)
}

impl<'de> Deserializer<'de> for Reader {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Common::Null => visitor.visit_unit(),
            Common::Bool(value) => visitor.visit_bool(value),
            Common::Int(value) => visitor.visit_i64(value),
            Common::Float(value) => visitor.visit_f64(value),
            Common::Text(text) => visitor.visit_string(text),
            Common::Bytes(blob) => visitor.visit_byte_buf(blob.to_vec()),
            Common::List(items) => list(items, visitor),
            Common::Map(entries) => {
                let mut entries =
                    MapDeserializer::new(entries.into_iter().map(|(key, value)| (Reader(key), Reader(value))));
                let value = visitor.visit_map(&mut entries)?;
                entries.end()?;
                Ok(value)
            }
            other @ (Common::Array(_) | Common::Reference(_) | Common::Actor(_)) => {
                Err(ValueError::invalid_type(Unexpected::Other(other.kind()), &visitor))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Common::Null => visitor.visit_none(),
            value => visitor.visit_some(Self(value)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match (name, self.0) {
            (BUFFER, Common::Bytes(blob)) => {
                Blob::hand(blob.into());
                visitor.visit_newtype_struct(Self(Common::Null))
            }
            (ARRAY, Common::Array(array)) => {
                let shape = array.shape.into_iter().map(|axis| Common::Int(axis as i64)).collect();
                let parts = vec![Common::Text(array.kind), Common::List(shape), bytes(array.memory)];
                visitor.visit_newtype_struct(Self(Common::List(parts)))
            }
            (REFERENCE, Common::Reference(reference)) => {
                let parts = vec![bytes(reference.object), bytes(reference.owner)];
                visitor.visit_newtype_struct(Self(Common::List(parts)))
            }
            (ACTOR, Common::Actor(actor)) => {
                let parts = vec![bytes(actor.actor), bytes(actor.handle), Common::Bool(actor.keeps)];
                visitor.visit_newtype_struct(Self(Common::List(parts)))
            }
            (BUFFER | ARRAY | REFERENCE | ACTOR, other) => {
                Err(ValueError::invalid_type(Unexpected::Other(other.kind()), &visitor))
            }
            (_, value) => visitor.visit_newtype_struct(Self(value)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.0 {
            Common::Text(variant) => visitor.visit_enum(Chosen { variant, content: Common::Null }),
            Common::Map(mut entries) if entries.len() == 1 => match entries.remove(0) {
                (Common::Text(variant), content) => visitor.visit_enum(Chosen { variant, content }),
                (key, _) => Err(ValueError::invalid_type(Unexpected::Other(key.kind()), &"the name of a variant")),
            },
            other => Err(ValueError::invalid_type(Unexpected::Other(other.kind()), &"a variant by its name")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit seq tuple tuple_struct
        map struct identifier ignored_any
    }
}

/// A variant of an enum, and what it holds.
struct Chosen {
    variant: String,
    content: Common,
}

impl<'de> EnumAccess<'de> for Chosen {
    type Error = ValueError;
    type Variant = Reader;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Reader), ValueError> {
        Ok((seed.deserialize(Reader(Common::Text(self.variant)))?, Reader(self.content)))
    }
}

impl<'de> VariantAccess<'de> for Reader {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        serde::Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ValueError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_any(visitor)
    }
}
