//! Objects that stand for placement groups.

use crate::core::awaited_groups::AwaitedGroups;
use crate::core::fresh_groups::FreshGroups;

/// Objects that stand for placement groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// By the question that their value answers.
    pub(crate) awaited: AwaitedGroups,
    pub(crate) fresh: FreshGroups,
}
