//! What whoever runs the operator decides for all clusters.

use crate::capacity::Catalogue;
use std::collections::BTreeMap;

/// What whoever runs the operator decides for all clusters, and what the API has.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Images in place of others: an image's name, without its tag, to the image that is used.
    pub images: BTreeMap<String, String>,
    /// The domain of the cluster's services; `cluster.local` where it is left out.
    pub domain: Option<String>,
    /// The version of `scheduling.k8s.io` that has pod groups, where the API has one.
    pub pod_groups: Option<String>,
    /// Devices beside those of the table, and what claims refer to.
    pub catalogue: Catalogue,
}

impl Settings {
    /// The image to use for one that a template names.
    pub(crate) fn image(&self, named: &str) -> Option<&str> {
        let slash = named.rfind('/').map_or(0, |at| at + 1);
        let tag = named[slash..].find([':', '@']).map_or(named.len(), |at| slash + at);
        self.images.get(&named[..tag]).map(String::as_str)
    }
}
