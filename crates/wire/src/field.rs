//! How fields of messages are written, read and measured, by their types: what `#[derive(Fields)]` is made of.
//!
//! The format is that of protobuf. A number, text or list that is as if it were left out is left out, and an `Option` says
//! whether it was. An identifier has its number of bytes, or its frame is refused; where it is no `Option` it must be there.
//! One of a closed set of alternatives is read into its enum: a number or a word that stands for none of them is a refused
//! frame, and one that is left out is the first of them.

use crate::message::{
    AskedIsolation, CallError, DeviceAction, FailureCode, HoldingPhase, KeyValueAction, LabelOperator, LogAction,
    MetricKind, ObjectUse, OutOfMemory, PlacementStrategy, Stamp, StrategyKind, SubmissionAction, SubmissionState,
    TaskStage, TokenAction,
};
use crate::shape::{self, Shape};
use crate::state::{
    ActorPhase, ChronicleEvent, ChronicleKind, DemandKind, DeviceService, DeviceTier, ExitKind, GroupScheduling,
    GroupState, HealthState, IsolationMode, MemoryTier, ProcessRole, ProfileKind, ReplicaPhase, ServiceCause,
    StateKind, TaskKind, WorkerDuty,
};
use bytes::{Buf, BufMut, Bytes};
use oxiray_ids::{
    ActorId, BundleNumber, JobId, LeaseNumber, LeaseRequestNumber, NodeId, ObjectId, PlacementGroupId, TaskId,
    WorkerId, WorkerNumber,
};
use prost::DecodeError;
use prost::encoding::{self, DecodeContext, WireType};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Numbers of alternatives are below this.
const ALTERNATIVES_MAX: i32 = 64;
/// The most characters of an unknown word that an error shows.
const WORD_SHOWN_MAX: usize = 40;

/// What a field of a message may be.
pub(crate) trait Field {
    /// Appends it under that number; nothing where it is as if it were left out.
    fn encode(&self, number: u32, buffer: &mut impl BufMut);

    /// How many bytes that takes.
    fn length(&self, number: u32) -> usize;

    /// Reads what stands in a body, over or behind what there is.
    fn merge(&mut self, wire_type: WireType, buffer: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError>;

    /// How it stands in a body.
    fn shape() -> shape::Field;

    /// Whether it was left out and must not be.
    fn is_missing(&self) -> bool {
        false
    }
}

/// A message that may stand in another.
pub(crate) trait Nested: prost::Message + Default {
    /// Its fields.
    fn shape() -> Shape;

    /// Whether all is there that must be.
    fn check(&self) -> Result<(), DecodeError>;
}

/// What is wrong with a field.
fn wrong(why: impl Into<Cow<'static, str>>) -> DecodeError {
    #[expect(deprecated, reason = "there is no other way to say what is wrong with a body")]
    DecodeError::new(why)
}

/// A field was left out that must not be.
pub(crate) fn missing() -> DecodeError {
    wrong("it is missing")
}

/// Where an error is.
pub(crate) fn at(mut error: DecodeError, body: &'static str, field: &'static str) -> DecodeError {
    error.push(body, field);
    error
}

/// Types that stand for themselves, each by the module of prost that writes it.
macro_rules! scalars {
    ($($type:ty: $module:ident, $shape:ident, $is_default:expr;)*) => {$(
        impl Field for $type {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                if !$is_default(self) {
                    encoding::$module::encode(number, self, buffer);
                }
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                if $is_default(self) { 0 } else { encoding::$module::encoded_len(number, self) }
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                encoding::$module::merge(wire_type, self, buffer, context)
            }

            fn shape() -> shape::Field {
                shape::Field::$shape
            }
        }

        impl Field for Option<$type> {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                if let Some(value) = self {
                    encoding::$module::encode(number, value, buffer);
                }
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                self.as_ref().map_or(0, |value| encoding::$module::encoded_len(number, value))
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                encoding::$module::merge(wire_type, self.get_or_insert_default(), buffer, context)
            }

            fn shape() -> shape::Field {
                shape::Field::$shape
            }
        }
    )*};
}

scalars! {
    bool: bool, Number, |value: &bool| !*value;
    u32: uint32, Number, |value: &u32| *value == 0;
    u64: uint64, Number, |value: &u64| *value == 0;
    i32: int32, Number, |value: &i32| *value == 0;
    f64: double, Fixed, |value: &f64| *value == 0.0;
    String: string, Text, String::is_empty;
    Bytes: bytes, Bytes, Bytes::is_empty;
}

/// Numbers that name something.
macro_rules! names {
    ($($type:ident,)*) => {$(
        impl Field for $type {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                self.0.encode(number, buffer);
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                self.0.length(number)
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                self.0.merge(wire_type, buffer, context)
            }

            fn shape() -> shape::Field {
                shape::Field::Number
            }
        }
    )*};
}

names! { BundleNumber, LeaseNumber, LeaseRequestNumber, WorkerNumber, }

/// A bundle, counted from 1; 0 where it is any.
fn counted(bundle: Option<BundleNumber>) -> u32 {
    bundle.map_or(0, |bundle| bundle.0.saturating_add(1))
}

impl Field for Option<BundleNumber> {
    #[inline]
    fn encode(&self, number: u32, buffer: &mut impl BufMut) {
        counted(*self).encode(number, buffer);
    }

    #[inline]
    fn length(&self, number: u32) -> usize {
        counted(*self).length(number)
    }

    #[inline]
    fn merge(&mut self, wire_type: WireType, buffer: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        let mut counted = 0_u32;
        counted.merge(wire_type, buffer, context)?;
        *self = counted.checked_sub(1).map(BundleNumber);
        Ok(())
    }

    fn shape() -> shape::Field {
        shape::Field::Number
    }
}

/// Lists of numbers that name something.
macro_rules! lists_of_names {
    ($($type:ident: $number:ty,)*) => {$(
        impl Field for Vec<$type> {
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                self.iter().map(|named| named.0).collect::<Vec<_>>().encode(number, buffer);
            }

            fn length(&self, number: u32) -> usize {
                self.iter().map(|named| named.0).collect::<Vec<_>>().length(number)
            }

            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                let mut numbers: Vec<$number> = Vec::new();
                numbers.merge(wire_type, buffer, context)?;
                self.extend(numbers.into_iter().map($type));
                Ok(())
            }

            fn shape() -> shape::Field {
                shape::Field::Numbers
            }
        }
    )*};
}

lists_of_names! {
    BundleNumber: u32,
    LeaseNumber: u64,
    LeaseRequestNumber: u64,
}

impl Field for Stamp {
    #[inline]
    fn encode(&self, number: u32, buffer: &mut impl BufMut) {
        if self.0 != 0 {
            encoding::fixed64::encode(number, &self.0, buffer);
        }
    }

    #[inline]
    fn length(&self, number: u32) -> usize {
        if self.0 == 0 { 0 } else { encoding::fixed64::encoded_len(number, &self.0) }
    }

    #[inline]
    fn merge(&mut self, wire_type: WireType, buffer: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        encoding::fixed64::merge(wire_type, &mut self.0, buffer, context)
    }

    fn shape() -> shape::Field {
        shape::Field::Fixed
    }
}

/// Lists, each by the functions of prost that write and measure it.
macro_rules! lists {
    ($($type:ty: $module:ident, $shape:ident, $encode:ident, $length:ident;)*) => {$(
        impl Field for Vec<$type> {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                encoding::$module::$encode(number, self, buffer);
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                encoding::$module::$length(number, self)
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                encoding::$module::merge_repeated(wire_type, self, buffer, context)
            }

            fn shape() -> shape::Field {
                shape::Field::$shape
            }
        }
    )*};
}

lists! {
    String: string, Text, encode_repeated, encoded_len_repeated;
    Bytes: bytes, Bytes, encode_repeated, encoded_len_repeated;
    u32: uint32, Numbers, encode_packed, encoded_len_packed;
    u64: uint64, Numbers, encode_packed, encoded_len_packed;
    f64: double, FixedNumbers, encode_packed, encoded_len_packed;
}

/// Tables by text.
macro_rules! tables {
    ($($type:ty: $module:ident, $shape:ident;)*) => {$(
        impl Field for BTreeMap<String, $type> {
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                encoding::btree_map::encode(
                    encoding::string::encode,
                    encoding::string::encoded_len,
                    encoding::$module::encode,
                    encoding::$module::encoded_len,
                    number,
                    self,
                    buffer,
                );
            }

            fn length(&self, number: u32) -> usize {
                let (key, value) = (encoding::string::encoded_len, encoding::$module::encoded_len);
                encoding::btree_map::encoded_len(key, value, number, self)
            }

            fn merge(
                &mut self,
                _: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                encoding::btree_map::merge(encoding::string::merge, encoding::$module::merge, self, buffer, context)
            }

            fn shape() -> shape::Field {
                shape::Field::Message([(1, shape::Field::Text), (2, shape::Field::$shape)].into_iter().collect())
            }
        }
    )*};
}

tables! {
    String: string, Text;
    f64: double, Fixed;
    u32: uint32, Number;
    u64: uint64, Number;
}

impl<M: Nested> Field for BTreeMap<String, M>
where
    M: PartialEq,
{
    fn encode(&self, number: u32, buffer: &mut impl BufMut) {
        encoding::btree_map::encode(
            encoding::string::encode,
            encoding::string::encoded_len,
            encoding::message::encode,
            encoding::message::encoded_len,
            number,
            self,
            buffer,
        );
    }

    fn length(&self, number: u32) -> usize {
        let (key, value) = (encoding::string::encoded_len, encoding::message::encoded_len);
        encoding::btree_map::encoded_len(key, value, number, self)
    }

    fn merge(&mut self, _: WireType, buffer: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        let value = |wire_type, value: &mut M, buffer: &mut _, context| {
            encoding::message::merge(wire_type, value, buffer, context)?;
            value.check()
        };
        encoding::btree_map::merge(encoding::string::merge, value, self, buffer, context)
    }

    fn shape() -> shape::Field {
        let entry = [(1, shape::Field::Text), (2, shape::Field::Message(M::shape()))];
        shape::Field::Message(entry.into_iter().collect())
    }
}

impl<M: Nested> Field for Option<M> {
    #[inline]
    fn encode(&self, number: u32, buffer: &mut impl BufMut) {
        if let Some(message) = self {
            encoding::message::encode(number, message, buffer);
        }
    }

    #[inline]
    fn length(&self, number: u32) -> usize {
        self.as_ref().map_or(0, |message| encoding::message::encoded_len(number, message))
    }

    #[inline]
    fn merge(&mut self, wire_type: WireType, buffer: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        let message = self.get_or_insert_default();
        encoding::message::merge(wire_type, message, buffer, context)?;
        message.check()
    }

    fn shape() -> shape::Field {
        shape::Field::Message(M::shape())
    }
}

impl<M: Nested> Field for Vec<M> {
    #[inline]
    fn encode(&self, number: u32, buffer: &mut impl BufMut) {
        encoding::message::encode_repeated(number, self, buffer);
    }

    #[inline]
    fn length(&self, number: u32) -> usize {
        encoding::message::encoded_len_repeated(number, self)
    }

    #[inline]
    fn merge(&mut self, wire_type: WireType, buffer: &mut impl Buf, context: DecodeContext) -> Result<(), DecodeError> {
        encoding::message::merge_repeated(wire_type, self, buffer, context)?;
        self.last().map_or(Ok(()), Nested::check)
    }

    fn shape() -> shape::Field {
        shape::Field::Message(M::shape())
    }
}

/// Reads the number of one of a closed set of alternatives.
fn alternative<T: TryFrom<i32>>(
    name: &str,
    wire_type: WireType,
    buffer: &mut impl Buf,
    context: DecodeContext,
) -> Result<T, DecodeError> {
    let mut number = 0;
    encoding::uint64::merge(wire_type, &mut number, buffer, context)?;
    of_number(name, number)
}

/// The alternative with that number. All of it counts: none stands for what is left of it in fewer bits.
fn of_number<T: TryFrom<i32>>(name: &str, number: u64) -> Result<T, DecodeError> {
    let known = i32::try_from(number).ok().and_then(|number| T::try_from(number).ok());
    known.ok_or_else(|| wrong(format!("{number} is no {name}")))
}

/// The numbers of all alternatives.
fn numbers<T: TryFrom<i32>>() -> Vec<u64> {
    (0..ALTERNATIVES_MAX).filter(|number| T::try_from(*number).is_ok()).map(|number| number as u64).collect()
}

/// Enums of numbers.
macro_rules! numbered {
    ($($type:ident,)*) => {$(
        impl Field for $type {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                i32::from(*self).encode(number, buffer);
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                i32::from(*self).length(number)
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                *self = alternative(stringify!($type), wire_type, buffer, context)?;
                Ok(())
            }

            fn shape() -> shape::Field {
                shape::Field::Alternative(numbers::<Self>())
            }
        }
    )*};
}

numbered! {
    AskedIsolation, DeviceAction, KeyValueAction, LabelOperator, LogAction, MetricKind, ObjectUse, OutOfMemory, StrategyKind, SubmissionAction, SubmissionState,
    TaskStage, TokenAction, ActorPhase, ChronicleEvent, ChronicleKind, DemandKind, DeviceService, DeviceTier, ExitKind, GroupScheduling, GroupState, HealthState, ServiceCause,
    HoldingPhase, IsolationMode, MemoryTier, ProcessRole, ProfileKind, StateKind, TaskKind, WorkerDuty,
}

/// Lists of numbered alternatives.
macro_rules! lists_of_alternatives {
    ($($type:ident,)*) => {$(
        impl Field for Vec<$type> {
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                let numbers: Vec<i32> = self.iter().map(|kind| i32::from(*kind)).collect();
                encoding::int32::encode_packed(number, &numbers, buffer);
            }

            fn length(&self, number: u32) -> usize {
                let numbers: Vec<i32> = self.iter().map(|kind| i32::from(*kind)).collect();
                encoding::int32::encoded_len_packed(number, &numbers)
            }

            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                let mut numbers = Vec::new();
                encoding::uint64::merge_repeated(wire_type, &mut numbers, buffer, context)?;
                for number in numbers {
                    self.push(of_number(stringify!($type), number)?);
                }
                Ok(())
            }

            fn shape() -> shape::Field {
                shape::Field::Alternatives(numbers::<$type>())
            }
        }
    )*};
}

lists_of_alternatives! { ChronicleKind, DeviceTier, MemoryTier, StateKind, }

/// Reads the word of one of a closed set of alternatives.
fn of_word<T>(
    name: &str,
    from_name: impl FnOnce(&str) -> Option<T>,
    wire_type: WireType,
    buffer: &mut impl Buf,
    context: DecodeContext,
) -> Result<T, DecodeError> {
    let mut word = String::new();
    encoding::string::merge(wire_type, &mut word, buffer, context)?;
    from_name(&word).ok_or_else(|| {
        let shown: String = word.chars().take(WORD_SHOWN_MAX).collect();
        wrong(format!("{shown:?} is no {name}"))
    })
}

/// Enums of words.
macro_rules! worded {
    ($($type:ident,)*) => {$(
        impl Field for $type {
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                encode_bytes(number, self.name().as_bytes(), buffer);
            }

            fn length(&self, number: u32) -> usize {
                bytes_length(number, self.name().len())
            }

            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                *self = of_word(stringify!($type), Self::from_name, wire_type, buffer, context)?;
                Ok(())
            }

            fn shape() -> shape::Field {
                shape::Field::Word(Self::names())
            }
        }

        impl Field for Option<$type> {
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                if let Some(word) = self {
                    word.encode(number, buffer);
                }
            }

            fn length(&self, number: u32) -> usize {
                self.as_ref().map_or(0, |word| word.length(number))
            }

            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                *self = Some(of_word(stringify!($type), $type::from_name, wire_type, buffer, context)?);
                Ok(())
            }

            fn shape() -> shape::Field {
                $type::shape()
            }
        }
    )*};
}

worded! { CallError, FailureCode, PlacementStrategy, ReplicaPhase, }

/// Reads the bytes of an identifier.
#[inline]
fn identifier<const BYTES: usize>(wire_type: WireType, buffer: &mut impl Buf) -> Result<[u8; BYTES], DecodeError> {
    encoding::check_wire_type(WireType::LengthDelimited, wire_type)?;
    if encoding::decode_varint(buffer)? != BYTES as u64 || buffer.remaining() < BYTES {
        return Err(malformed());
    }
    let mut bytes = [0; BYTES];
    buffer.copy_to_slice(&mut bytes);
    Ok(bytes)
}

fn malformed() -> DecodeError {
    wrong("it is no identifier of its kind")
}

#[inline]
fn bytes_length(number: u32, bytes: usize) -> usize {
    encoding::key_len(number) + encoding::encoded_len_varint(bytes as u64) + bytes
}

#[inline]
fn encode_bytes(number: u32, bytes: &[u8], buffer: &mut impl BufMut) {
    encoding::encode_key(number, WireType::LengthDelimited, buffer);
    encoding::encode_varint(bytes.len() as u64, buffer);
    buffer.put_slice(bytes);
}

/// Appends identifiers under one number.
pub(crate) fn encode_identifiers(number: u32, ids: &[ObjectId], buffer: &mut impl BufMut) {
    for id in ids {
        encode_bytes(number, id.as_bytes(), buffer);
    }
}

/// How many bytes that takes.
pub(crate) fn identifiers_length(number: u32, ids: &[ObjectId]) -> usize {
    ids.len() * bytes_length(number, ObjectId::BYTES)
}

/// Identifiers. One that names nothing does not travel.
macro_rules! identifiers {
    ($($id:ident,)*) => {$(
        impl Field for $id {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                if !self.is_nil() {
                    encode_bytes(number, self.as_bytes(), buffer);
                }
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                if self.is_nil() { 0 } else { bytes_length(number, Self::BYTES) }
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                _: DecodeContext,
            ) -> Result<(), DecodeError> {
                *self = Self::new(identifier(wire_type, buffer)?);
                if self.is_nil() { Err(malformed()) } else { Ok(()) }
            }

            fn shape() -> shape::Field {
                shape::Field::Identifier { bytes: $id::BYTES, is_required: true }
            }

            #[inline]
            fn is_missing(&self) -> bool {
                self.is_nil()
            }
        }

        impl Field for Option<$id> {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                self.unwrap_or_default().encode(number, buffer);
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                self.unwrap_or_default().length(number)
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                _: DecodeContext,
            ) -> Result<(), DecodeError> {
                *self = Some($id::new(identifier(wire_type, buffer)?)).filter(|id| !id.is_nil());
                Ok(())
            }

            fn shape() -> shape::Field {
                shape::Field::Identifier { bytes: $id::BYTES, is_required: false }
            }
        }

        impl Field for Vec<$id> {
            #[inline]
            fn encode(&self, number: u32, buffer: &mut impl BufMut) {
                for id in self {
                    encode_bytes(number, id.as_bytes(), buffer);
                }
            }

            #[inline]
            fn length(&self, number: u32) -> usize {
                self.len() * bytes_length(number, $id::BYTES)
            }

            #[inline]
            fn merge(
                &mut self,
                wire_type: WireType,
                buffer: &mut impl Buf,
                context: DecodeContext,
            ) -> Result<(), DecodeError> {
                let mut id = $id::NIL;
                id.merge(wire_type, buffer, context)?;
                self.push(id);
                Ok(())
            }

            fn shape() -> shape::Field {
                shape::Field::Identifier { bytes: $id::BYTES, is_required: false }
            }
        }
    )*};
}

identifiers! { ActorId, JobId, NodeId, ObjectId, PlacementGroupId, TaskId, WorkerId, }
