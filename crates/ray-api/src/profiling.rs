//! Whether processes are profiled, and how where nothing is said.

use crate::answer::RayAnswer;
use crate::ordered::Ordered;

/// For how many seconds processor time is measured.
pub const CPU_SECONDS: u32 = 5;
/// For how many seconds memory is traced.
pub const MEMORY_SECONDS: u32 = 10;

/// `/api/profiling_enabled`, for who may or may not take profiles, which take at most so many seconds. Frames of native code
/// are not sampled.
pub fn enabled(may_profile: bool, longest_s: u32) -> RayAnswer {
    let off = ["native", "subprocesses", "idle", "leaks", "tracePythonAllocators"].map(|name| (name, false.into()));
    let usual = [
        ("cpuDuration", CPU_SECONDS.into()),
        ("memoryDuration", MEMORY_SECONDS.into()),
        ("maxDuration", longest_s.into()),
        ("cpuFormat", "flamegraph".into()),
        ("memoryFormat", "flamegraph".into()),
        ("pyspyNativeSupported", false.into()),
    ];
    let defaults = Ordered::map(off.into_iter().chain(usual));
    RayAnswer::of(200, "", Ordered::map([("profilingEnabled", may_profile.into()), ("profilingDefaults", defaults)]))
}
