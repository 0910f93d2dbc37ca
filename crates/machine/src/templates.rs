//! The templates that there are, and how many workers were wanted of each lately.

mod recent;

use crate::names::TemplateKey;
use crate::origin::Origin;
use oxiray_ids::JobId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

pub(crate) use recent::{Bursts, HALF_LIFE, QUIET, Recent};

#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) origin: Origin,
    pub(crate) is_started: bool,
    /// Started with the daemon, for whoever comes.
    pub(crate) is_kept: bool,
    /// Since when nobody uses a worker of it, as far as was looked.
    pub(crate) idle_since: Option<Instant>,
    /// Those who wait for workers of it, or had some.
    pub(crate) jobs: BTreeSet<JobId>,
    pub(crate) notice: String,
    pub(crate) bursts: Bursts,
    pub(crate) fitness: Fitness,
}

/// Whether workers are forked from a template: not where it has a device open, which a fork shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// As far as is known.
    Fit,
    /// It is in the place of one that was not fit. Where it is not either, no other would be.
    Successor,
    /// It is such a one, and workers are forked from it all the same. Whoever's it is, it ends when it has been idle: the device
    /// is free of it then, and the next one may be fit.
    Unfit,
    /// It ends with the last worker that is in use.
    Retired,
}

#[derive(Debug, Default)]
pub(crate) struct Templates {
    pub(crate) by_key: BTreeMap<TemplateKey, Template>,
    pub(crate) last_key: TemplateKey,
    pub(crate) is_armed: bool,
    pub(crate) recent: Recent,
}

impl Templates {
    /// Templates forget a job that is over.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.by_key.values_mut().for_each(|template| {
            template.jobs.remove(&job);
        });
    }

    /// What the templates are, oldest first.
    pub(crate) fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.by_key.values().map(|template| &template.origin)
    }
}
