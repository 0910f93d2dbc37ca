//! Watching, killing and reaping whole process trees.
//!
//! ```text
//! daemon      ChildReaper: template processes; orphans of templates that died
//!   └─ template    ChildReaper: workers; orphans of workers that died
//!        └─ worker      subreaper, so that what it forks twice stays below it
//!             └─ whatever the user's code starts
//! ```
//!
//! Each level is a child subreaper: when a process dies, the kernel hands its children to the nearest
//! subreaper above *before* it tells anyone of the death. So at the moment a [`ChildReaper`] learns that one
//! of its own is dead, everything that one left behind is already its own child, and can be found,
//! killed and waited for without a race.

mod call;
mod child_reaper;
mod expand;
mod path;
mod start;
mod supervise;
mod switch;
mod tree;
mod working_set;

pub use call::{
    Peer, become_subreaper, describe_status, die_with_parent, enter_control_groups, go_first_where_memory_is_short,
    go_first_where_processors_are_short, kill_by_pidfd, peer_of, pidfd_of, reset_signals_after_fork, since_boot,
    stop_signals, unblock_signals,
};
pub use child_reaper::{ChildReaper, Companions, Departed, ReaperError};
pub use expand::expanded;
pub use path::{program, without_working_directory};
pub use start::Start;
pub use supervise::{leave_note, supervise, supervisor};
pub use switch::DeadMansSwitch;
pub use tree::{ancestors_of, children_of, descendants_of, name_of, pid_namespace, started_with};
pub use working_set::{WorkingSet, note_working_set};

#[cfg(test)]
mod tests;
