//! The few calls of CUDA's driver API that a check needs, by the names and types of its documentation.

use crate::CheckError;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;

/// `CUdeviceptr`.
type Address = u64;
/// `CUresult`; 0 is success.
type Status = c_int;

/// CUDA's word for there being no device.
const NO_DEVICE: Status = 100;

/// Memory of the device.
#[derive(Debug)]
pub(crate) struct Memory(Address);

/// The driver's library.
#[derive(Debug)]
pub(crate) struct Cuda(Library);

/// Calls a function of the library: its name, the types of its arguments, and those.
macro_rules! call {
    ($cuda:expr, $name:literal, ($($type:ty),*), ($($argument:expr),*)) => {{
        // SAFETY: the name has this type in CUDA's documentation; pointers among the arguments are valid while it runs.
        let status = unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn($($type),*) -> Status> =
                $cuda.0.get(concat!($name, "\0").as_bytes()).map_err(|error| {
                    CheckError::NotMade(format!("the library of its driver has no {}: {error}", $name))
                })?;
            function($($argument),*)
        };
        $cuda.checked($name, status)
    }};
}

impl Cuda {
    pub(crate) fn load(library: &Path) -> Result<Self, CheckError> {
        // SAFETY: loading it runs its initialisers, which are the driver's.
        let loaded = unsafe { Library::new(library) };
        let cuda = loaded.map(Self).map_err(|error| {
            CheckError::NotMade(format!("the library of its driver cannot be loaded ({}): {error}", library.display()))
        })?;
        call!(cuda, "cuInit", (c_uint), (0))?;
        Ok(cuda)
    }

    fn checked(&self, name: &str, status: Status) -> Result<(), CheckError> {
        match status {
            0 => Ok(()),
            NO_DEVICE => Err(CheckError::Failed(format!("CUDA does not find the device ({name})"))),
            other => Err(CheckError::Failed(format!("{name} failed with {other}{}", self.meaning(other)))),
        }
    }

    /// What an error means, where the library says so.
    fn meaning(&self, status: Status) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the function has this type in CUDA's documentation, and `text` is valid for a write.
        let found = unsafe {
            let function: Result<
                libloading::Symbol<'_, unsafe extern "C" fn(Status, *mut *const c_char) -> Status>,
                libloading::Error,
            > = self.0.get(b"cuGetErrorString\0");
            function.map(|function| function(status, &raw mut text))
        };
        if !matches!(found, Ok(0)) || text.is_null() {
            return String::new();
        }
        // SAFETY: the library says that it is a C string, which lives as long as the library.
        format!(" ({})", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }

    /// Has this thread use the first device.
    pub(crate) fn use_first_device(&self) -> Result<(), CheckError> {
        let (mut device, mut context): (c_int, *mut c_void) = (0, std::ptr::null_mut());
        call!(self, "cuDeviceGet", (*mut c_int, c_int), (&raw mut device, 0))?;
        call!(self, "cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), (&raw mut context, device))?;
        call!(self, "cuCtxSetCurrent", (*mut c_void), (context))
    }

    /// Bytes of its memory that are free.
    pub(crate) fn free_memory(&self) -> Result<u64, CheckError> {
        let (mut free, mut total): (usize, usize) = (0, 0);
        call!(self, "cuMemGetInfo_v2", (*mut usize, *mut usize), (&raw mut free, &raw mut total))?;
        Ok(free as u64)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Memory, CheckError> {
        let mut address: Address = 0;
        call!(self, "cuMemAlloc_v2", (*mut Address, usize), (&raw mut address, bytes))?;
        Ok(Memory(address))
    }

    pub(crate) fn free(&self, memory: &Memory) -> Result<(), CheckError> {
        call!(self, "cuMemFree_v2", (Address), (memory.0))
    }

    /// Sets all words to 0.
    pub(crate) fn clear(&self, memory: &Memory, bytes: usize) -> Result<(), CheckError> {
        call!(self, "cuMemsetD32_v2", (Address, c_uint, usize), (memory.0, 0, bytes / 4))
    }

    /// Writes words to its beginning.
    pub(crate) fn write(&self, memory: &Memory, words: &[u32]) -> Result<(), CheckError> {
        let from = words.as_ptr().cast::<c_void>();
        call!(self, "cuMemcpyHtoD_v2", (Address, *const c_void, usize), (memory.0, from, size_of_val(words)))
    }

    pub(crate) fn copy_within(&self, memory: &Memory, from: usize, to: usize, bytes: usize) -> Result<(), CheckError> {
        let at = |offset: usize| memory.0 + offset as Address;
        call!(self, "cuMemcpyDtoD_v2", (Address, Address, usize), (at(to), at(from), bytes))
    }

    pub(crate) fn read(&self, memory: &Memory, from: usize, words: &mut [u32]) -> Result<(), CheckError> {
        let (to, bytes) = (words.as_mut_ptr().cast::<c_void>(), size_of_val(words));
        call!(self, "cuMemcpyDtoH_v2", (*mut c_void, Address, usize), (to, memory.0 + from as Address, bytes))
    }
}
