//! Commands of `ray` that are not there: what to do instead.

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
        "a cluster's past is not kept in this version: `oxiray status`, `oxiray list`, `oxiray explain` and `oxiray memory` show \
         what it does, and `oxiray dashboard` opens its page",
    ),
    (
        &["cluster-dump", "local-dump"],
        "`oxiray logs` lists and prints files of logs on any node; they lie below the session's directory, which \
         `oxiray start` names",
    ),
    (&["timeline"], "call `ray.timeline(\"timeline.json\")` in a program that is connected to the cluster"),
    (
        &["debug"],
        "`oxiray stack` shows where a process is: of a task, an actor, or a process id that `oxiray list workers` names",
    ),
    (
        &["kill-actor", "kill-random-node"],
        "call `ray.kill(ray.get_actor(name, namespace))` in a program; `oxiray drain` empties a node and ends it",
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
        "the file that `oxiray start --head --port=PORT` names holds the token that lets machines in",
    ),
    (&["check-open-ports"], "a cluster opens no TCP port but the one that `oxiray start --port` asks for"),
    (&["microbenchmark"], "`make bench` of Oxiray's repository measures it beside Ray"),
    (&["cpp", "install-nightly"], "Oxiray has no C++ API and no nightly builds; its Rust API is the crate `oxiray`"),
    (&["serve"], "Ray Serve is not there in this version"),
];

/// What a user of `ray` does where this command is not there; nothing for names that Ray does not have either.
pub(crate) fn advice(command: &str) -> Option<String> {
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
        assert!(advice("timeline").is_some_and(|text| text.contains("ray.timeline(")));
        assert_eq!(advice("statsu"), None);
    }
}
