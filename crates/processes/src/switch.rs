//! A dead man's switch: the kernel kills this process unless it says in time that it goes on.
//!
//! A process that is stopped, or hangs, cannot end itself when it must. The kernel can: the switch is a timer of its
//! whose signal is SIGKILL. What descends from the process dies with it, as each level asked the kernel to see to.
//! A supervisor knows by the time which the switch was set to that this was the reason (`supervise.rs`).

use crate::call::since_boot;
use crate::supervise::{Lifeline, lifeline};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::time::Duration;

/// Kills this process when its time is over, also where the process is stopped or the machine was suspended meanwhile.
#[derive(Debug)]
pub struct DeadMansSwitch {
    timer: libc::timer_t,
    /// Whoever is to know why this process ended.
    told: Option<&'static Lifeline>,
}

// SAFETY: the handle is a number of the kernel's, the same in every thread of the process.
unsafe impl Send for DeadMansSwitch {}

impl DeadMansSwitch {
    /// A switch that is not set.
    ///
    /// # Errors
    /// Where the kernel has no more timers for this user.
    pub fn new() -> Result<Self, Errno> {
        let mut event = MaybeUninit::<libc::sigevent>::zeroed();
        let mut timer = MaybeUninit::<libc::timer_t>::uninit();
        // SAFETY: all zeros are a valid `sigevent`; the two fields written make it ask for a signal to this process; the
        // kernel reads it and writes the timer's handle, which is read only where the call says that it did.
        unsafe {
            let wish = event.assume_init_mut();
            wish.sigev_notify = libc::SIGEV_SIGNAL;
            wish.sigev_signo = libc::SIGKILL;
            if libc::timer_create(libc::CLOCK_BOOTTIME, event.as_mut_ptr(), timer.as_mut_ptr()) != 0 {
                return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN));
            }
            Ok(Self { timer: timer.assume_init(), told: lifeline() })
        }
    }

    /// Sets it, or sets it anew: the process dies when that much time has passed.
    ///
    /// # Errors
    /// Where the kernel refuses; the switch then stands as before.
    pub fn set(&self, left: Duration) -> Result<(), Errno> {
        // Nothing at all would unset it.
        let left = left.max(Duration::from_millis(1));
        // What is told is never later than the end itself, at which it must hold.
        let end = since_boot() + left;
        self.arm(libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() })?;
        if let Some(told) = self.told {
            told.set_end(Some(end));
        }
        Ok(())
    }

    fn arm(&self, value: libc::timespec) -> Result<(), Errno> {
        let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the timer is this switch's own; the kernel only reads the time, and is asked for nothing back.
        let result = unsafe { libc::timer_settime(self.timer, 0, &raw const once, std::ptr::null_mut()) };
        if result == 0 {
            Ok(())
        } else {
            Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
        }
    }
}

impl Drop for DeadMansSwitch {
    fn drop(&mut self) {
        // SAFETY: the timer is this switch's own, and nobody can name it any more.
        unsafe { libc::timer_delete(self.timer) };
        if let Some(told) = self.told {
            told.set_end(None);
        }
    }
}
