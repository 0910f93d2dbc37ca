//! CUDA's driver API in the machine's own memory, as far as the check of a device asks it. `cuda=sound` in the file makes a
//! device that remembers, `cuda=forgets` one of which a word differs; without either there is none.

use crate::{Answers, Handle};
use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;

const SUCCESS: c_int = 0;
const NO_DEVICE: c_int = 100;
const NOT_INITIALIZED: c_int = 3;
/// What the device has.
const BYTES: usize = 256 << 20;

fn cuda() -> Option<String> {
    Answers::read()?.cuda
}

/// Whether there is a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    if cuda().is_some() { SUCCESS } else { NO_DEVICE }
}

/// # Safety
/// As in CUDA: `device` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, _ordinal: c_int) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { device.write(0) };
    SUCCESS
}

/// # Safety
/// As in CUDA: `context` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, _device: c_int) -> c_int {
    // SAFETY: the caller vouches for it.
    unsafe { context.write(1 as Handle) };
    SUCCESS
}

/// Whether it is the context that there is.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: Handle) -> c_int {
    if context as usize == 1 { SUCCESS } else { NOT_INITIALIZED }
}

/// # Safety
/// As in CUDA: `free` and `total` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    // SAFETY: the caller vouches for them.
    unsafe {
        free.write(BYTES);
        total.write(BYTES);
    }
    SUCCESS
}

/// # Safety
/// As in CUDA: `address` must be valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    let mut memory = ManuallyDrop::new(vec![0_u8; bytes]);
    // SAFETY: the caller vouches for it.
    unsafe { address.write(memory.as_mut_ptr() as u64) };
    SUCCESS
}

/// Keeps the memory: the process of a check ends next.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(_address: u64) -> c_int {
    SUCCESS
}

/// # Safety
/// As in CUDA: `address` must be one of `cuMemAlloc_v2`, with so many words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD32_v2(address: u64, word: c_uint, count: usize) -> c_int {
    // SAFETY: the caller vouches for so many words.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u32, count) }.fill(word);
    SUCCESS
}

/// # Safety
/// As in CUDA: both must have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { std::ptr::copy(from.cast::<u8>(), to as *mut u8, bytes) };
    SUCCESS
}

/// # Safety
/// As in CUDA: both must have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    SUCCESS
}

/// # Safety
/// As in CUDA: both must have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> c_int {
    // SAFETY: the caller vouches for both.
    unsafe {
        std::ptr::copy(from as *const u8, to.cast::<u8>(), bytes);
        if cuda().as_deref() == Some("forgets") {
            *to.cast::<u8>().add(40) ^= 1;
        }
    }
    SUCCESS
}
