//! The script of a job: it starts a node of the cluster, and ends with it.
//!
//! - SCRIPT-1: the join token is in the script, which `sbatch` reads from its standard input, and the node too: in no
//!   argument, in no variable and in no file of its own. Slurm keeps scripts where only its own user, root and the owner of
//!   the job can read them.
//! - SCRIPT-2: the shell outlives the SIGTERM that Slurm sends to all of the job: when it ends, Slurm kills what is left of
//!   the job, and the node is to have the time to end.

use super::settings::JobTemplate;
use crate::{GROUP_LABEL, INSTANCE_LABEL};
use oxiray_scheduler::NodeGroup;
use std::collections::BTreeMap;
use std::path::Path;

/// For how many seconds a node waits for a head that is away for a moment.
const JOIN_WAIT_S: u64 = 120;
/// What stands for the number of the job in the arguments of `oxiray start`; the shell puts it in.
const JOB: &str = "\u{1}";

/// Which cluster a job's node joins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joins<'job> {
    pub(super) address: &'job str,
    pub(super) token: &'job str,
    /// The program `oxiray`, where the group names no other.
    pub(super) program: &'job Path,
}

/// The script of a job of that group.
pub(super) fn script(group: &NodeGroup, template: &JobTemplate, joins: &Joins<'_>) -> String {
    let program = quoted(&template.program.as_deref().unwrap_or(joins.program).to_string_lossy());
    let arguments: Vec<String> = arguments(group, joins.address).iter().map(|argument| quoted(argument)).collect();
    let (token_file, token) = match &template.token_file {
        Some(path) => (quoted(&path.to_string_lossy()), String::new()),
        // SCRIPT-1
        None => ("-".to_owned(), format!(" <<'END'\n{}\nEND", joins.token.trim())),
    };
    let setup = template.setup.trim_end();
    format!(
        "#!/bin/bash\n\
         # A node of an Oxiray cluster, which the autoscaler asked for.\n\
         trap : TERM INT\n\
         {setup}\n\
         {program} start --block --token-file={token_file} {}{token}\n",
        arguments.join(" ")
    )
}

/// What the node is told: it offers what its group says, and nothing else, as far as the devices that Slurm granted go.
fn arguments(group: &NodeGroup, address: &str) -> Vec<String> {
    let mut offers: BTreeMap<String, f64> =
        group.first_host_offers().offers().map(|(name, total)| (name.to_string(), total.as_f64())).collect();
    let mut labels = group.labels.clone();
    labels.insert(GROUP_LABEL.to_owned(), group.name.clone());
    labels.insert(INSTANCE_LABEL.to_owned(), instance(&group.name, JOB));
    let mut arguments = vec![
        format!("--address={address}"),
        format!("--join-wait={JOIN_WAIT_S}"),
        format!("--node-name={}", instance(&group.name, JOB)),
        format!("--labels={}", serde_json::json!(labels)),
    ];
    for (name, option) in [("CPU", "--num-cpus"), ("GPU", "--num-gpus"), ("memory", "--memory")] {
        arguments.push(format!("{option}={}", offers.remove(name).unwrap_or_default()));
    }
    if let Some(bytes) = offers.remove("object_store_memory") {
        arguments.push(format!("--object-store-memory={}", bytes as u64));
    }
    if !offers.is_empty() {
        arguments.push(format!("--resources={}", serde_json::json!(offers)));
    }
    arguments
}

/// The name of a job's machine.
pub(super) fn instance(group: &str, job: impl std::fmt::Display) -> String {
    format!("{group}-{job}")
}

/// A text as one word of the shell, with the number of the job where [`JOB`] stands.
fn quoted(text: &str) -> String {
    let quoted = format!("'{}'", text.replace('\'', r"'\''"));
    // JSON writes the sign by its number.
    quoted.replace("\\u0001", JOB).replace(JOB, "'\"$SLURM_JOB_ID\"'")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupsFile, read_file};

    fn made(text: &str) -> String {
        let file = read_file(text).expect("groups");
        let GroupsFile { groups, jobs: Some(jobs) } = file else { panic!("no jobs") };
        let joins = Joins { address: "10.0.0.1:6379", token: "oxr1.a.b\n", program: Path::new("/opt/it's/oxiray") };
        script(&groups[0], &jobs.templates[&groups[0].name], &joins)
    }

    #[test]
    fn a_script_starts_a_node_that_offers_what_its_group_says() {
        let text = "
slurm: {setup: 'module load cuda'}
groups:
- name: gpu
  max: 2
  resources: {widgets: 2, object_store_memory: 1000000}
  labels: {zone: a'b}
  slurm: {gres: 'gpu:2', cpus: 4}
";
        let expected = r#"#!/bin/bash
# A node of an Oxiray cluster, which the autoscaler asked for.
trap : TERM INT
module load cuda
'/opt/it'\''s/oxiray' start --block --token-file=- '--address=10.0.0.1:6379' '--join-wait=120' '--node-name=gpu-'"$SLURM_JOB_ID"'' '--labels={"oxiray.io/instance":"gpu-'"$SLURM_JOB_ID"'","ray.io/node-group":"gpu","zone":"a'\''b"}' '--num-cpus=4' '--num-gpus=2' '--memory=0' '--object-store-memory=1000000' '--resources={"widgets":2.0}' <<'END'
oxr1.a.b
END
"#;
        assert_eq!(made(text), expected);
    }

    #[test]
    fn a_token_that_lies_on_the_nodes_is_in_no_script() {
        let told = made("groups: [{name: g, max: 1, slurm: {token_file: /shared/token, program: oxiray}}]");
        assert!(told.contains("'oxiray' start --block --token-file='/shared/token' "), "{told}");
        assert!(!told.contains("oxr1.") && !told.contains("<<"), "{told}");
    }
}
