//! What is remembered for people and programs that ask.

use crate::census::Census;
use crate::chronicle::{Chronicle, Readers};
use crate::ended_tasks::EndedTasks;
use crate::ends::Ends;
use crate::following::Following;
use crate::metrics::Metrics;
use crate::training::Training;

/// What is counted, how processes ended, and who asks for more.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) metrics: Metrics,
    pub(crate) ends: Ends,
    pub(crate) ended_tasks: EndedTasks,
    pub(crate) census: Census,
    pub(crate) following: Following,
    pub(crate) chronicle: Chronicle,
    pub(crate) readers: Readers,
    pub(crate) training: Training,
}
