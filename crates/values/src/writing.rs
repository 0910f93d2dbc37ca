//! Rust's types as common values.

use crate::array::ARRAY;
use crate::blob::{BUFFER, Blob};
use crate::{ACTOR, Common, REFERENCE, RawActor, RawArray, RawReference, ValueError};
use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Makes a [`Common`] of what is serialized with it.
pub(crate) struct Writer;

type Written = Result<Common, ValueError>;

/// Entries gathered one by one, and the variant that they are the content of.
pub(crate) struct Gathered<T> {
    entries: Vec<T>,
    variant: Option<&'static str>,
    key: Option<Common>,
}

impl<T> Gathered<T> {
    fn new(variant: Option<&'static str>) -> Self {
        Self { entries: Vec::new(), variant, key: None }
    }
}

fn wrapped(variant: Option<&'static str>, content: Common) -> Common {
    match variant {
        Some(variant) => Common::record([(variant, content)]),
        None => content,
    }
}

fn whole<T: TryInto<i64> + std::fmt::Display + Copy>(number: T) -> Written {
    let too_large =
        |_| ValueError::Unfit(format!("{number} has more than 64 bits, and no other language is sure to have it"));
    number.try_into().map(Common::Int).map_err(too_large)
}

/// An array as it writes itself: `[kind, shape, memory]`.
fn array(parts: Common) -> Option<Common> {
    let Common::List(parts) = parts else { return None };
    let [Common::Text(kind), Common::List(axes), Common::Bytes(memory)]: [Common; 3] = parts.try_into().ok()? else {
        return None;
    };
    let axis = |axis: Common| match axis {
        Common::Int(axis) => u64::try_from(axis).ok(),
        _ => None,
    };
    Some(Common::Array(RawArray { kind, shape: axes.into_iter().map(axis).collect::<Option<_>>()?, memory }))
}

fn reference(parts: Common) -> Option<Common> {
    let Common::List(parts) = parts else { return None };
    let [Common::Bytes(object), Common::Bytes(owner)]: [Common; 2] = parts.try_into().ok()? else { return None };
    Some(Common::Reference(RawReference { object, owner }))
}

fn actor(parts: Common) -> Option<Common> {
    let Common::List(parts) = parts else { return None };
    let [Common::Bytes(actor), Common::Bytes(handle), Common::Bool(keeps)]: [Common; 3] = parts.try_into().ok()? else {
        return None;
    };
    Some(Common::Actor(RawActor { actor, handle, keeps }))
}

impl Serializer for Writer {
    type Ok = Common;
    type Error = ValueError;
    type SerializeSeq = Gathered<Common>;
    type SerializeTuple = Gathered<Common>;
    type SerializeTupleStruct = Gathered<Common>;
    type SerializeTupleVariant = Gathered<Common>;
    type SerializeMap = Gathered<(Common, Common)>;
    type SerializeStruct = Gathered<(Common, Common)>;
    type SerializeStructVariant = Gathered<(Common, Common)>;

    fn serialize_bool(self, value: bool) -> Written {
        Ok(Common::Bool(value))
    }

    fn serialize_i8(self, value: i8) -> Written {
        whole(value)
    }

    fn serialize_i16(self, value: i16) -> Written {
        whole(value)
    }

    fn serialize_i32(self, value: i32) -> Written {
        whole(value)
    }

    fn serialize_i64(self, value: i64) -> Written {
        whole(value)
    }

    fn serialize_u8(self, value: u8) -> Written {
        whole(value)
    }

    fn serialize_u16(self, value: u16) -> Written {
        whole(value)
    }

    fn serialize_u32(self, value: u32) -> Written {
        whole(value)
    }

    fn serialize_u64(self, value: u64) -> Written {
        whole(value)
    }

    fn serialize_i128(self, value: i128) -> Written {
        whole(value)
    }

    fn serialize_u128(self, value: u128) -> Written {
        whole(value)
    }

    fn serialize_f32(self, value: f32) -> Written {
        Ok(Common::Float(value.into()))
    }

    fn serialize_f64(self, value: f64) -> Written {
        Ok(Common::Float(value))
    }

    fn serialize_char(self, value: char) -> Written {
        Ok(Common::Text(value.to_string()))
    }

    fn serialize_str(self, value: &str) -> Written {
        Ok(Common::Text(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        Ok(Common::Bytes(value.into()))
    }

    fn serialize_none(self) -> Written {
        Ok(Common::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        Ok(Common::Null)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        Ok(Common::Null)
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Written {
        Ok(Common::Text(variant.to_owned()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Written {
        let content = value.serialize(Self)?;
        match name {
            BUFFER => Ok(Common::Bytes(Blob::take_handed().unwrap_or_default().into())),
            ARRAY => array(content).ok_or(ValueError::Malformed),
            REFERENCE => reference(content).ok_or(ValueError::Malformed),
            ACTOR => actor(content).ok_or(ValueError::Malformed),
            _ => Ok(content),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        Ok(wrapped(Some(variant), value.serialize(Self)?))
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Gathered<Common>, ValueError> {
        Ok(Gathered::new(None))
    }

    fn serialize_tuple(self, _length: usize) -> Result<Gathered<Common>, ValueError> {
        Ok(Gathered::new(None))
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Gathered<Common>, ValueError> {
        Ok(Gathered::new(None))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Gathered<Common>, ValueError> {
        Ok(Gathered::new(Some(variant)))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Self::SerializeMap, ValueError> {
        Ok(Gathered::new(None))
    }

    fn serialize_struct(self, _name: &'static str, _length: usize) -> Result<Self::SerializeStruct, ValueError> {
        Ok(Gathered::new(None))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Self::SerializeStructVariant, ValueError> {
        Ok(Gathered::new(Some(variant)))
    }
}

macro_rules! gathers_items {
    ($($way:ident :: $method:ident),*) => {
        $(impl $way for Gathered<Common> {
            type Ok = Common;
            type Error = ValueError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
                self.entries.push(value.serialize(Writer)?);
                Ok(())
            }

            fn end(self) -> Written {
                Ok(wrapped(self.variant, Common::List(self.entries)))
            }
        })*
    };
}

gathers_items!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

macro_rules! gathers_fields {
    ($($way:ident),*) => {
        $(impl $way for Gathered<(Common, Common)> {
            type Ok = Common;
            type Error = ValueError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), ValueError> {
                self.entries.push((Common::Text(name.to_owned()), value.serialize(Writer)?));
                Ok(())
            }

            fn end(self) -> Written {
                Ok(wrapped(self.variant, Common::Map(self.entries)))
            }
        })*
    };
}

gathers_fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Gathered<(Common, Common)> {
    type Ok = Common;
    type Error = ValueError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ValueError> {
        self.key = Some(key.serialize(Writer)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        let key = self.key.take().unwrap_or(Common::Null);
        self.entries.push((key, value.serialize(Writer)?));
        Ok(())
    }

    fn end(self) -> Written {
        Ok(Common::Map(self.entries))
    }
}
