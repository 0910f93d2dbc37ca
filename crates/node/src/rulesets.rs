//! Rulesets of Landlock for workers: one for each list of device nodes that they are refused, made once and passed to each
//! worker with its assignment.
//!
//! - RULESETS-1: a ruleset is passed only while one that is made now would be the same: after something was mounted, or a
//!   directory on the way to what it refuses has changed, it is made anew.

use oxiray_fence::{FenceError, Ruleset};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

/// How many are kept: each takes a descriptor. Beyond, the one that was used longest ago goes.
const KEPT_MAX: usize = 64;

/// The rulesets that were made.
#[derive(Debug, Default)]
pub(crate) struct Rulesets {
    /// With the number of the use that was its last.
    by_paths: BTreeMap<Vec<String>, (u64, Ruleset)>,
    uses: u64,
}

impl Rulesets {
    /// A descriptor of the ruleset that refuses what is at these paths.
    pub(crate) fn of(&mut self, paths: &[String]) -> Result<OwnedFd, FenceError> {
        self.uses += 1;
        let uses = self.uses;
        if !self.by_paths.get(paths).is_some_and(|(_, ruleset)| ruleset.is_current()) {
            self.by_paths.remove(paths);
            let refused: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            let made = Ruleset::all_but(&refused)?;
            while self.by_paths.len() >= KEPT_MAX {
                let longest_ago =
                    self.by_paths.iter().min_by_key(|(_, (used, _))| *used).map(|(paths, _)| paths.clone());
                self.by_paths.remove(&longest_ago.expect("there are some"));
            }
            self.by_paths.insert(paths.to_vec(), (uses, made));
        }
        let (used, ruleset) = self.by_paths.get_mut(paths).expect("it was just found or made");
        *used = uses;
        ruleset
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| FenceError::of_file("pass a ruleset of Landlock to a worker".to_owned(), error))
    }
}
