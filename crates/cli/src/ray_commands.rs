//! Commands of `ray` that are not there: what to do instead.

use crate::{called, python_commands};

/// Names of commands, each group with its way out.
const ADVICE: &[(&[&str], &str)] = &[
    (
        &[
            "attach",
            "exec",
            "submit",
            "rsync-up",
            "rsync-down",
            "up",
            "down",
            "get-head-ip",
            "get-worker-ips",
            "monitor",
        ],
        "Oxiray has no cluster launcher: start nodes with `oxiray start` over ssh or by your scheduler, or use Kubernetes \
         (`oxiray operator`); `oxiray job submit` runs a program on a cluster, and `oxiray status` shows its nodes",
    ),
    (
        &["history-server"],
        "`oxiray start --head --history=DIRECTORY` records a cluster, `oxiray dashboard --history=DIRECTORY` shows the page of what was \
         recorded, and `oxiray report` writes one job of it into one file",
    ),
    (
        &["cluster-dump", "local-dump"],
        "`oxiray logs` lists and prints files of logs on any node; they lie below the session's directory, which \
         `oxiray start` names",
    ),
    (
        &["kill-random-node"],
        "`oxiray drain NODE --deadline=0` ends a node that you choose; `oxiray list nodes` shows those that there are",
    ),
    (
        &["global-gc"],
        "an object is freed with its last reference, so that there is nothing to collect: `oxiray memory` shows who holds what",
    ),
    (
        &["enable-usage-stats", "disable-usage-stats"],
        "Oxiray reports nothing to anybody, so that there is nothing to switch",
    ),
    (
        &["get-auth-token"],
        "`oxiray dashboard token` prints the token for requests over HTTP, and `oxiray token create` makes one that lets a \
         machine join",
    ),
    (
        &["check-open-ports"],
        "`oxiray doctor` says which ports of this machine are free and who has the others, and whether those of a cluster can be \
         reached",
    ),
    (
        &["launch-prometheus", "shutdown-prometheus"],
        "`oxiray start --metrics-export-port=PORT` exports the metrics of a node: name that port in the configuration of your \
         Prometheus",
    ),
    (
        &["kuberay-autoscaler"],
        "on Kubernetes, `oxiray operator` scales clusters; elsewhere `oxiray start --head --autoscale=GROUPS.YAML` does",
    ),
    (&["sanity-check"], "`oxiray doctor` checks the installation and this machine"),
    (&["microbenchmark"], "`make bench` of Oxiray's repository measures it beside Ray"),
    (&["cpp"], "Oxiray has no C++ API; its Rust API is the crate `oxiray`"),
    (
        &["install-nightly"],
        "Oxiray has no nightly builds: `make wheel` in its repository builds the wheel of what stands there",
    ),
    (
        &["serve"],
        "Ray Serve runs on Oxiray unmodified: `oxiray ray install serve` installs it with its own command, `serve`",
    ),
];

/// What a user of `ray` does where the native program has no such command; nothing for names that Ray does not have either.
pub(crate) fn advice(command: &str) -> Option<String> {
    if python_commands::is_one(command) {
        return Some(format!(
            "`{command}` is a command of the Python package `oxiray`: run the `oxiray` of the environment that the package \
             is installed in"
        ));
    }
    if command == "version" {
        return Some(format!("`version` is no command: `{} --version` prints the version", called::command()));
    }
    let (_, advice) = ADVICE.iter().find(|(names, _)| names.contains(&command))?;
    Some(format!("`{command}` is a command of Ray's that Oxiray does not have: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory as _;

    #[test]
    fn no_command_is_advised_against_that_is_there() {
        let command = Arguments::command();
        let there: Vec<&str> =
            command.get_subcommands().flat_map(|one| one.get_all_aliases().chain([one.get_name()])).collect();
        for (names, _) in ADVICE {
            assert!(names.iter().all(|name| !there.contains(name)), "{names:?} beside {there:?}");
        }
        assert_eq!(advice("statsu"), None);
        assert_eq!(
            advice("version").as_deref(),
            Some("`version` is no command: `oxiray --version` prints the version")
        );
    }

    /// Every command of Ray 2.60, its hidden ones among them, as its own program lists them.
    const OF_RAY: &str = "attach check-open-ports cluster-dump cpp dashboard debug disable-usage-stats down drain-node \
        enable-usage-stats exec get get-auth-token get-head-ip get-worker-ips global-gc health-check job kill-actor \
        kill-random-node kuberay-autoscaler list local-dump logs memory metrics microbenchmark monitor rsync-down rsync-up \
        sanity-check serve stack start status stop submit summary symmetric-run timeline up";
    /// What stands below some of them.
    const BELOW: &str = "job delete;job list;job logs;job status;job stop;job submit;metrics launch-prometheus;\
        metrics shutdown-prometheus";

    #[test]
    fn every_command_of_ray_is_there_or_says_what_to_do_instead() {
        let ours = Arguments::command();
        let is_there = |command: &clap::Command, name: &str| command.find_subcommand(name).is_some();
        for name in OF_RAY.split_whitespace() {
            assert!(is_there(&ours, name) != advice(name).is_some(), "{name}: either there, or answered");
        }
        for words in BELOW.split(';') {
            let (command, name) = words.split_once(' ').expect("two words");
            let command = ours.find_subcommand(command).expect("it is there");
            assert!(is_there(command, name) || advice(name).is_some(), "{words}");
        }
    }
}
