//! Programs that the kernel runs at each attempt to open or make a device node by a process of a cgroup.

use crate::node::NodeKind;
use crate::{DenyList, FenceError};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

/// How many loaded programs are kept for the next cgroup with the same realm.
const CACHED_MAX: usize = 64;

/// The operations that are used: a word of memory, `and` of 32 bits, a jump where a register differs, a constant, the
/// end.
const LOAD_WORD: u8 = 0x61;
const AND_WORD: u8 = 0x54;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const SET: u8 = 0xb7;
const EXIT: u8 = 0x95;

/// Registers: what is returned, what is given, and copies of its three words.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const MAJOR: u8 = 3;
const MINOR: u8 = 4;

/// The kernel's numbers for kinds of nodes, in the lower half of the context's first word.
const BLOCK: i32 = 1;
const CHAR: i32 = 2;

/// One instruction as the kernel reads it, on machines whose low bytes come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    operation: u8,
    /// The destination in the lower half, the source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(operation: u8, destination: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { operation, registers: destination, offset, immediate }
}

const fn load(destination: u8, offset: i16) -> Instruction {
    Instruction { operation: LOAD_WORD, registers: destination | CONTEXT << 4, offset, immediate: 0 }
}

/// The program that refuses what is in a list and lets all else through.
pub(crate) fn instructions(denied: &DenyList) -> Vec<Instruction> {
    let mut program = vec![load(KIND, 0), instruction(AND_WORD, KIND, 0, 0xffff), load(MAJOR, 4), load(MINOR, 8)];
    for rule in denied.rules() {
        let kind = if rule.kind == NodeKind::Char { CHAR } else { BLOCK };
        // No device has a number of more than 20 bits, so that none becomes negative.
        let minor = rule.minor.map(|minor| (MINOR, minor as i32));
        let tests = [Some((KIND, kind)), Some((MAJOR, rule.major as i32)), minor];
        let mut following = tests.iter().flatten().count() as i16;
        for (register, value) in tests.into_iter().flatten() {
            following -= 1;
            // Past the other tests and the two instructions that refuse.
            program.push(instruction(JUMP_UNLESS_EQUAL, register, following + 2, value));
        }
        program.extend([instruction(SET, RESULT, 0, 0), instruction(EXIT, 0, 0, 0)]);
    }
    program.extend([instruction(SET, RESULT, 0, 1), instruction(EXIT, 0, 0, 0)]);
    program
}

const PROGRAM_LOAD: libc::c_int = 5;
const PROGRAM_ATTACH: libc::c_int = 8;
const PROGRAM_DETACH: libc::c_int = 9;
const PROGRAM_QUERY: libc::c_int = 16;
const OF_CGROUP_DEVICE: u32 = 15;
const AT_CGROUP_DEVICE: u32 = 6;
/// Beside others, in the same cgroup and in those below.
const ALLOW_MULTI: u32 = 2;
const REPLACE: u32 = 4;
/// A query about what is in force, those of cgroups above included.
const EFFECTIVE: u32 = 1;

#[repr(C)]
struct LoadAttributes {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attached_at: u32,
}

#[repr(C)]
struct AttachAttributes {
    cgroup: i32,
    program: i32,
    attached_at: u32,
    flags: u32,
    replaced: i32,
}

#[repr(C)]
struct QueryAttributes {
    cgroup: i32,
    attached_at: u32,
    query: u32,
    flags: u32,
    programs: u64,
    count: u32,
    rest: u32,
}

/// # Safety
/// The attributes are laid out as the kernel expects them for this command, and what they point to lives.
unsafe fn bpf<Attributes>(command: libc::c_int, attributes: &mut Attributes) -> Result<libc::c_long, Errno> {
    let size = size_of::<Attributes>() as libc::c_uint;
    // SAFETY: the caller vouches for the attributes; the kernel reads and writes `size` bytes of them at most.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), size) };
    if result < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(result)
    }
}

/// A program that the kernel has accepted.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    fn load(denied: &DenyList) -> Result<Self, FenceError> {
        let program = instructions(denied);
        let mut attributes = LoadAttributes {
            kind: OF_CGROUP_DEVICE,
            instruction_count: program.len() as u32,
            instructions: program.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *b"oxiray_fence\0\0\0\0",
            interface: 0,
            attached_at: 0,
        };
        // SAFETY: these are the attributes of the command; program and license live until it returns.
        let descriptor = unsafe { bpf(PROGRAM_LOAD, &mut attributes) }.map_err(not_loaded)?;
        // SAFETY: the kernel has made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor as i32) }))
    }

    /// Puts the program in force for a cgroup and those below, beside those that are (FENCE-3).
    pub(crate) fn attach(&self, cgroup: BorrowedFd<'_>, directory: &Path) -> Result<(), FenceError> {
        let failed = |error| not_attached(directory, error);
        let before = in_force(cgroup).map_err(failed)?;
        self.apply(PROGRAM_ATTACH, cgroup, ALLOW_MULTI, None).map_err(failed)?;
        if in_force(cgroup).map_err(failed)? == before + 1 {
            return Ok(());
        }
        self.apply(PROGRAM_DETACH, cgroup, 0, None).map_err(failed)?;
        Err(FenceError::WouldOverride { directory: directory.to_owned() })
    }

    /// Puts the program in force in the place of another, in one step (FENCE-2).
    pub(crate) fn replace(&self, old: &Self, cgroup: BorrowedFd<'_>, directory: &Path) -> Result<(), FenceError> {
        self.apply(PROGRAM_ATTACH, cgroup, ALLOW_MULTI | REPLACE, Some(old))
            .map_err(|error| not_attached(directory, error))
    }

    fn apply(&self, command: libc::c_int, cgroup: BorrowedFd<'_>, flags: u32, old: Option<&Self>) -> Result<(), Errno> {
        let mut attributes = AttachAttributes {
            cgroup: cgroup.as_raw_fd(),
            program: self.0.as_raw_fd(),
            attached_at: AT_CGROUP_DEVICE,
            flags,
            replaced: old.map_or(0, |old| old.0.as_raw_fd()),
        };
        // SAFETY: these are the attributes of both commands, and they point to nothing.
        unsafe { bpf(command, &mut attributes) }.map(drop)
    }
}

/// How many programs decide on devices for processes of a cgroup.
fn in_force(cgroup: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut attributes = QueryAttributes {
        cgroup: cgroup.as_raw_fd(),
        attached_at: AT_CGROUP_DEVICE,
        query: EFFECTIVE,
        flags: 0,
        programs: 0,
        count: 0,
        rest: 0,
    };
    // SAFETY: these are the attributes of the command; without a list of programs the kernel writes only their number.
    unsafe { bpf(PROGRAM_QUERY, &mut attributes) }?;
    Ok(attributes.count)
}

fn not_loaded(error: Errno) -> FenceError {
    match error {
        Errno::PERM => FenceError::not_permitted(
            "loading a device program",
            &[(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN")],
            "start as root, or in a systemd unit with `Delegate=yes` and `AmbientCapabilities=CAP_BPF CAP_NET_ADMIN`",
        ),
        _ => FenceError::Refused {
            action: "load a device program".to_owned(),
            error,
            way: match error {
                Errno::NOSYS => Some("this kernel, or the sandbox that stands for it, has no bpf(2)"),
                Errno::INVAL => Some("that takes Linux 4.15 with CONFIG_CGROUP_BPF"),
                _ => None,
            },
        },
    }
}

fn not_attached(directory: &Path, error: Errno) -> FenceError {
    let way = match error {
        Errno::PERM => Some("a device program further up allows none beside it"),
        Errno::INVAL => Some("to exchange one in place takes Linux 5.6"),
        _ => None,
    };
    FenceError::Refused { action: format!("attach a device program to {}", directory.display()), error, way }
}

/// Programs that are loaded, one for each list, as far as they were wanted lately.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// The one that was wanted last comes last.
    loaded: Vec<(DenyList, Arc<Program>)>,
}

impl Programs {
    /// The program of a list, loaded where it is not.
    pub(crate) fn of(&mut self, denied: &DenyList) -> Result<Arc<Program>, FenceError> {
        let known = self.loaded.iter().position(|(list, _)| list == denied);
        let entry = match known {
            Some(position) => self.loaded.remove(position),
            None => (denied.clone(), Arc::new(Program::load(denied)?)),
        };
        let program = entry.1.clone();
        if self.loaded.len() == CACHED_MAX {
            self.loaded.remove(0);
        }
        self.loaded.push(entry);
        Ok(program)
    }
}

#[cfg(test)]
mod tests;
