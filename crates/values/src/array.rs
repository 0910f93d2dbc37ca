//! Numbers in memory that travels without being copied.

use crate::Blob;
use bytes::Bytes;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// What marks an array for the common encoding: `(kind, shape, memory)`.
pub(crate) const ARRAY: &str = "$oxiray::array";

mod sealed {
    pub trait Sealed {}
}

/// A number that an [`Array`] may be made of.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// Its kind, as numpy writes it: byte order, kind, bytes.
    const KIND: &'static str;
}

macro_rules! elements {
    ($($number:ty => $kind:literal),*) => {
        $(impl sealed::Sealed for $number {}
        impl Element for $number {
            const KIND: &'static str = $kind;
        })*
    };
}

elements!(
    i8 => "|i1", u8 => "|u1", i16 => "<i2", u16 => "<u2", i32 => "<i4", u32 => "<u4", i64 => "<i8", u64 => "<u8",
    f32 => "<f4", f64 => "<f8"
);

#[cfg(target_endian = "big")]
compile_error!("arrays travel as little-endian numbers");

/// The numbers do not fill the shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given} numbers were given for the shape {shape:?}, which has {wanted}")]
pub struct ShapeError {
    /// How many numbers there are.
    pub given: usize,
    /// How many the shape has.
    pub wanted: usize,
    /// The shape.
    pub shape: Vec<usize>,
}

/// Numbers with a shape, last axis fastest, read where they lie: numpy's arrays in Python.
#[derive(Clone, PartialEq)]
pub struct Array<T> {
    shape: Vec<usize>,
    memory: Blob,
    numbers: PhantomData<T>,
}

/// A vector's memory as bytes.
struct Owner<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: elements are plain numbers without padding, so that all their bytes may be read.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), std::mem::size_of_val(self.0.as_slice())) }
    }
}

fn product(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, axis| product.checked_mul(*axis))
}

impl<T: Element> Array<T> {
    /// Numbers and their shape; the memory is taken over.
    pub fn new(shape: impl Into<Vec<usize>>, numbers: Vec<T>) -> Result<Self, ShapeError> {
        let shape = shape.into();
        let wanted = product(&shape).unwrap_or(usize::MAX);
        if wanted != numbers.len() {
            return Err(ShapeError { given: numbers.len(), wanted, shape });
        }
        let memory = Bytes::from_owner(Owner(numbers)).into();
        Ok(Self { shape, memory, numbers: PhantomData })
    }

    /// The length of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The numbers, in place.
    pub fn as_slice(&self) -> &[T] {
        let count = self.memory.len() / size_of::<T>();
        if count == 0 {
            return &[];
        }
        // SAFETY: the memory is aligned for `T`, see `from_parts` and `new`; any bytes are numbers; it lives as long as
        // `self.memory`, which nobody writes to.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), count) }
    }

    /// Takes memory over, which is copied only where it is not aligned: in small values that came with a message.
    fn from_parts(shape: Vec<usize>, memory: Blob) -> Option<Self> {
        if product(&shape)?.checked_mul(size_of::<T>())? != memory.len() {
            return None;
        }
        if memory.as_ptr().align_offset(align_of::<T>()) == 0 {
            return Some(Self { shape, memory, numbers: PhantomData });
        }
        let mut numbers = Vec::with_capacity(memory.len() / size_of::<T>());
        for bytes in memory.chunks_exact(size_of::<T>()) {
            // SAFETY: there are as many bytes as a number has, and any are one.
            numbers.push(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() });
        }
        Self::new(shape, numbers).ok()
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Array({}, {:?})", T::KIND, self.shape)
    }
}

impl<T: Element> From<Vec<T>> for Array<T> {
    fn from(numbers: Vec<T>) -> Self {
        let memory = Bytes::from_owner(Owner(numbers));
        Self { shape: vec![memory.len() / size_of::<T>()], memory: memory.into(), numbers: PhantomData }
    }
}

/// How an array is written: its kind, its shape, its memory.
#[derive(Serialize, Deserialize)]
struct Written(String, Vec<u64>, Blob);

impl<T: Element> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = self.shape.iter().map(|axis| *axis as u64).collect();
        serializer.serialize_newtype_struct(ARRAY, &Written(T::KIND.to_owned(), shape, self.memory.clone()))
    }
}

impl<'de, T: Element> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArrayVisitor<T>(PhantomData<T>);
        impl<'de, T: Element> Visitor<'de> for ArrayVisitor<T> {
            type Value = Array<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "an array of {}", T::KIND)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Array<T>, D::Error> {
                let Written(kind, shape, memory) = Written::deserialize(deserializer)?;
                if kind != T::KIND {
                    let text = format!("an array of {kind} came where one of {} is expected", T::KIND);
                    return Err(D::Error::custom(text));
                }
                let shape = shape.into_iter().map(|axis| axis as usize).collect();
                Array::from_parts(shape, memory)
                    .ok_or_else(|| D::Error::custom("an array's shape is not that of its memory"))
            }
        }
        deserializer.deserialize_newtype_struct(ARRAY, ArrayVisitor(PhantomData))
    }
}

#[cfg(feature = "ndarray")]
mod with_ndarray {
    use super::{Array, Element};
    use ndarray::{ArrayViewD, Dimension};

    impl<T: Element> Array<T> {
        /// The numbers as `ndarray` sees them, in place.
        pub fn view(&self) -> ArrayViewD<'_, T> {
            ArrayViewD::from_shape(self.shape(), self.as_slice()).expect("an array's shape is that of its memory")
        }
    }

    impl<T: Element, D: Dimension> From<ndarray::Array<T, D>> for Array<T> {
        /// Takes the memory over where it is in standard order, and copies it into that otherwise.
        fn from(array: ndarray::Array<T, D>) -> Self {
            let shape = array.shape().to_vec();
            let numbers = if array.is_standard_layout() {
                let (numbers, offset) = array.into_raw_vec_and_offset();
                let count = shape.iter().product();
                match offset {
                    None | Some(0) if numbers.len() == count => numbers,
                    offset => numbers[offset.unwrap_or(0)..][..count].to_vec(),
                }
            } else {
                array.iter().copied().collect()
            };
            Self::new(shape, numbers).expect("an array has as many numbers as its shape")
        }
    }
}
