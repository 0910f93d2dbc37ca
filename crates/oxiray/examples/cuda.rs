//! Computes on the GPU that a function or an actor was granted, with `cudarc`.
//!
//! ```text
//! cargo run --release --features cuda --example cuda
//! ```
//!
//! It is built without CUDA and finds the driver's library when it runs. `scripts/gpu-acceptance` runs it on a real GPU.

#![expect(unreachable_pub, reason = "the public methods of an actor are what its handle offers")]
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg as _, sys,
};
use cudarc::nvrtc::Ptx;
use oxiray::{Array, Builder, Error, Result, runtime_context};
use std::sync::Arc;

/// `y[i] += a * x[i]`, as the driver compiles it for whichever GPU it has.
const KERNEL: &str = r"
.version 7.0
.target sm_60
.address_size 64

.visible .entry add_scaled(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 count)
{
    .reg .pred %outside;
    .reg .f32 %factor, %from, %to;
    .reg .b32 %block, %size, %lane, %place, %limit;
    .reg .b64 %target, %source, %offset;

    ld.param.u64 %target, [y];
    ld.param.u64 %source, [x];
    ld.param.f32 %factor, [a];
    ld.param.u32 %limit, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %lane, %tid.x;
    mad.lo.u32 %place, %block, %size, %lane;
    setp.ge.u32 %outside, %place, %limit;
    @%outside bra done;
    cvta.to.global.u64 %target, %target;
    cvta.to.global.u64 %source, %source;
    mul.wide.u32 %offset, %place, 4;
    add.u64 %target, %target, %offset;
    add.u64 %source, %source, %offset;
    ld.global.f32 %from, [%source];
    ld.global.f32 %to, [%target];
    fma.rn.f32 %to, %factor, %from, %to;
    st.global.f32 [%target], %to;
done:
    ret;
}
";

/// The one device that this process sees, and the kernel on it.
struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    kernel: CudaFunction,
}

impl Device {
    /// Whichever device was granted is number 0 here: the variable shows this process no other.
    fn granted() -> std::result::Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        let stream = context.default_stream();
        let kernel = context.load_module(Ptx::from_src(KERNEL))?.load_function("add_scaled")?;
        Ok(Self { context, stream, kernel })
    }

    fn add_scaled(&self, y: &mut CudaSlice<f32>, x: &CudaSlice<f32>, a: f32) -> std::result::Result<(), DriverError> {
        let count = u32::try_from(y.len().min(x.len())).unwrap_or(u32::MAX);
        let mut call = self.stream.launch_builder(&self.kernel);
        call.arg(y).arg(x).arg(&a).arg(&count);
        // SAFETY: these are the kernel's parameters in its order, and it touches no place from `count` on.
        unsafe { call.launch(LaunchConfig::for_num_elems(count)) }.map(drop)
    }
}

/// `a * x + y`, computed on the device.
#[oxiray::remote(num_gpus = 0.5)]
fn scaled_sum(a: f32, x: Array<f32>, y: Array<f32>) -> std::result::Result<Array<f32>, DriverError> {
    let device = Device::granted()?;
    let from = device.stream.clone_htod(x.as_slice())?;
    let mut to = device.stream.clone_htod(y.as_slice())?;
    device.add_scaled(&mut to, &from, a)?;
    Ok(Array::from(device.stream.clone_dtoh(&to)?))
}

/// Numbers that stay on the device from call to call.
struct Model {
    device: Device,
    weights: CudaSlice<f32>,
}

#[oxiray::remote(num_gpus = 1)]
impl Model {
    pub fn new(size: usize) -> std::result::Result<Self, DriverError> {
        let device = Device::granted()?;
        let weights = device.stream.alloc_zeros(size)?;
        Ok(Self { device, weights })
    }

    pub fn learn(&mut self, rate: f32, gradient: Array<f32>) -> std::result::Result<(), DriverError> {
        let gradient = self.device.stream.clone_htod(gradient.as_slice())?;
        self.device.add_scaled(&mut self.weights, &gradient, -rate)
    }

    pub fn weights(&self) -> std::result::Result<Array<f32>, DriverError> {
        self.device.stream.clone_dtoh(&self.weights).map(Array::from)
    }

    /// The device as Oxiray granted it, checked against what the driver says of the one that is computed on.
    pub fn device(&self) -> Result<String> {
        let broken = |error: DriverError| Error::Invalid(format!("the driver tells nothing of its device: {error}"));
        let granted = runtime_context()?.accelerators()?;
        let [granted] = &granted[..] else {
            return Err(Error::Invalid(format!("one device was asked for, and {} were granted", granted.len())));
        };
        let count = CudaContext::device_count().map_err(broken)?;
        let uuid = uuid_text(&self.device.context.uuid().map_err(broken)?);
        let pci_address = pci_address(&self.device.context).map_err(broken)?;
        if count != 1 || granted.uuid.as_deref() != Some(&uuid) || granted.pci_address.as_deref() != Some(&pci_address)
        {
            let text = format!("granted was {granted:?}; the driver shows {count}, the first {uuid} at {pci_address}");
            return Err(Error::Invalid(text));
        }
        let index = granted.index.ok_or_else(|| Error::Invalid(format!("{granted:?} has no index")))?;
        Ok(format!("GPU {index}, {uuid} at {pci_address}"))
    }
}

/// As NVIDIA's tools write it.
fn uuid_text(uuid: &sys::CUuuid) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid.bytes.map(|byte| byte as u8)));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    format!("GPU-{}", parts.join("-"))
}

fn pci_address(context: &CudaContext) -> std::result::Result<String, DriverError> {
    let mut text = [0; 32];
    // SAFETY: the driver writes a text of at most this length, with the zero at its end.
    unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as i32, context.cu_device()) }.result()?;
    let letters = text.iter().map(|letter| *letter as u8).take_while(|letter| *letter != 0);
    Ok(letters.map(|letter| letter.to_ascii_lowercase() as char).collect())
}

const SIZE: usize = 1 << 20;

fn checked(is_right: bool, what: &str) -> Result<()> {
    if is_right {
        println!("{what}");
        return Ok(());
    }
    Err(Error::Invalid(format!("the device computed something else than this: {what}")))
}

#[oxiray::main]
fn main() -> Result<()> {
    let _cluster = Builder::new().address("local").init()?;
    let x = oxiray::put(&Array::from((0..SIZE).map(|n| n as f32).collect::<Vec<f32>>()))?;
    let y = oxiray::put(&Array::from(vec![1.0_f32; SIZE]))?;
    // Two tasks share a device.
    let sums = [2.0, 3.0].map(|a| scaled_sum::remote(a, &x, &y));
    for (sum, a) in sums.into_iter().zip([2.0_f32, 3.0]) {
        let sum = sum?.get()?;
        let expected: Vec<f32> = (0..SIZE).map(|n| a.mul_add(n as f32, 1.0)).collect();
        checked(sum.as_slice() == expected, &format!("a task computed {a} x + y of {SIZE} numbers"))?;
    }
    let model = Model::remote(SIZE)?;
    let gradient = oxiray::put(&Array::from(vec![0.5_f32; SIZE]))?;
    for _ in 0..4 {
        model.learn(0.25, &gradient)?;
    }
    let weights = model.weights()?.get()?;
    checked(weights.as_slice() == vec![-0.5; SIZE], "an actor kept its weights on the device")?;
    println!("{}", model.device()?.get()?);
    Ok(())
}
