//! What is deleted of a job that has ended, and when.

use crate::job::{RayJob, Stage};

/// What is deleted, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deleted {
    /// Nothing.
    Nothing,
    /// The pods of its cluster's groups.
    Workers,
    /// Its cluster.
    Cluster,
    /// The object, and its cluster with it.
    Itself,
}

const POLICIES: [(&str, Deleted); 4] = [
    ("DeleteNone", Deleted::Nothing),
    ("DeleteWorkers", Deleted::Workers),
    ("DeleteCluster", Deleted::Cluster),
    ("DeleteSelf", Deleted::Itself),
];

fn policy(name: &str) -> Option<Deleted> {
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, deleted)| *deleted)
}

/// What is wrong with the rules, each with the way out.
pub(crate) fn problems(job: &RayJob) -> Vec<String> {
    let strategy = &job.spec.deletion_strategy;
    let mut found = Vec::new();
    let older = strategy.on_success.iter().chain(&strategy.on_failure).map(|older| &older.policy);
    for name in strategy.deletion_rules.iter().map(|rule| &rule.policy).chain(older) {
        match policy(name) {
            None => found.push(format!(
                "deletionStrategy: policy `{name}` is none of DeleteCluster, DeleteWorkers, DeleteSelf and DeleteNone"
            )),
            Some(Deleted::Workers | Deleted::Cluster) if job.is_proxied() => found.push(format!(
                "deletionStrategy: {name} is for a cluster of the job's own, and clusterSelector found this one: use DeleteSelf or DeleteNone"
            )),
            Some(_) => {}
        }
    }
    for rule in &strategy.deletion_rules {
        if rule.condition.job_status.is_some() == rule.condition.job_deployment_status.is_some() {
            found.push(format!(
                "deletionStrategy: the condition of {} needs exactly one of jobStatus and jobDeploymentStatus",
                rule.policy
            ));
        }
    }
    let has_rules = !strategy.deletion_rules.is_empty();
    if has_rules
        && (job.spec.shutdown_after_job_finishes || strategy.on_success.is_some() || strategy.on_failure.is_some())
    {
        found.push(
            "deletionStrategy.deletionRules say what is deleted: leave shutdownAfterJobFinishes, onSuccess and onFailure out"
                .to_owned(),
        );
    }
    found
}

/// What is to be deleted by now, and after how many seconds it is to be looked at again.
pub(crate) fn due(job: &RayJob, ended: u64, now: u64) -> (Deleted, Option<u64>) {
    let (spec, status) = (&job.spec, &job.status);
    let has_failed = status.job_deployment_status == Stage::Failed;
    let stage = if has_failed { "Failed" } else { "Complete" };
    let rules = spec.deletion_strategy.deletion_rules.iter().filter_map(|rule| {
        let condition = &rule.condition;
        let of_job = condition.job_status.is_some() && condition.job_status == status.job_status;
        let holds = of_job || condition.job_deployment_status.as_deref() == Some(stage);
        holds.then_some((policy(&rule.policy)?, condition.ttl_seconds))
    });
    let strategy = &spec.deletion_strategy;
    let older = if has_failed { &strategy.on_failure } else { &strategy.on_success };
    let older = older.iter().filter_map(|older| Some((policy(&older.policy)?, spec.ttl_seconds_after_finished)));
    let plain = spec.shutdown_after_job_finishes && strategy.on_success.is_none() && strategy.on_failure.is_none();
    let plain = plain.then_some((Deleted::Cluster, spec.ttl_seconds_after_finished));
    let (mut deleted, mut again) = (Deleted::Nothing, None);
    for (what, ttl) in rules.chain(older).chain(plain) {
        let at = ended + u64::from(ttl);
        if at <= now {
            deleted = deleted.max(what);
        } else if what > Deleted::Nothing {
            again = Some(again.map_or(at - now, |known: u64| known.min(at - now)));
        }
    }
    (deleted, again)
}
