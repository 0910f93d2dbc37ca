//! All paths.

use crate::page::{acts, views};
use crate::routes::{Route, route};
use crate::{cluster, jobs, logs, metrics, packages, page_api, profiles, state, tail};

/// Ray's paths, and the page's.
pub(crate) const TABLES: &[&[Route]] = &[
    RAY,
    logs::ROUTES,
    profiles::ROUTES,
    state::ROUTES,
    metrics::ROUTES,
    page_api::ROUTES,
    views::ROUTES,
    acts::ROUTES,
];
/// What is answered where metrics are exported and nothing else.
pub(crate) const EXPORT: &[&[Route]] = &[metrics::EXPORTED];

/// Ray's paths.
const RAY: &[Route] = &[
    route!("GET", "/api/version", cluster::version),
    route!("GET", "/api/component_activities", cluster::activities),
    route!("GET", "/timezone", cluster::timezone),
    route!("GET", "/api/jobs/", jobs::list),
    route!("POST", "/api/jobs/", jobs::submit),
    route!("GET", "/api/jobs/{}", jobs::get),
    route!("DELETE", "/api/jobs/{}", jobs::delete),
    route!("POST", "/api/jobs/{}/stop", jobs::stop),
    route!("GET", "/api/jobs/{}/logs", jobs::logs),
    route!("GET", "/api/jobs/{}/logs/tail", tail::tail),
    route!("GET", "/api/packages/{}/{}", packages::get),
    route!("PUT", "/api/packages/{}/{}", packages::put),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_rows_are_for_one_request() {
        let all: Vec<_> = TABLES.iter().copied().flatten().map(|Route(method, path, _)| (method, path)).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
