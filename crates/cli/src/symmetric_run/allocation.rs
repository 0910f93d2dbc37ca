//! Which part this node has: from the variables of Slurm's step, or from the head's address.

use super::handover::Handover;
use crate::arguments::{HeadOptions, StartOptions, SymmetricRunOptions};
use crate::start::is_standard_input;
use anyhow::{Context as _, bail};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::time::Duration;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Head,
    Member,
}

/// This node among those of the allocation.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) role: Role,
    /// How many nodes the program waits for, this one included.
    pub(super) nodes: usize,
    /// Where the head listens; on a member of a Slurm step nothing is known of that until it is handed over.
    pub(super) address: Option<SocketAddr>,
    /// How address and token get from the head to the others.
    pub(super) handover: Handover,
}

/// The part of the node with these variables.
pub(super) fn find(variable: impl Fn(&str) -> Option<String>, options: &SymmetricRunOptions) -> anyhow::Result<Place> {
    match (&options.start.address, Step::read(&variable)?) {
        (Some(address), _) => by_address(address, options),
        (None, Some(step)) => by_step(&step, options),
        (None, None) if variable("SLURM_JOB_ID").is_some() && options.min_nodes.is_none_or(|nodes| nodes > 1) => bail!(
            "this is a Slurm job, but no step of it: run `srun oxiray symmetric-run -- PROGRAM`, so that each node runs it"
        ),
        (None, None) if options.min_nodes == Some(1) => Ok(alone()),
        (None, None) => bail!(
            "no Slurm step says which nodes take part: run it with `srun`, or name the head with --address=HOST:PORT and \
             the number of nodes with --min-nodes"
        ),
    }
}

fn alone() -> Place {
    Place { role: Role::Head, nodes: 1, address: None, handover: Handover::None }
}

/// A step of a Slurm job, as it looks from one of its tasks.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    name: String,
    node: usize,
    nodes: usize,
    tasks: usize,
    /// Where `srun` runs.
    launcher: Option<String>,
}

impl Step {
    fn read(variable: &impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Self>> {
        let (Some(job), Some(step)) = (variable("SLURM_JOB_ID"), variable("SLURM_STEP_ID")) else { return Ok(None) };
        let number = |name: &str| -> anyhow::Result<usize> {
            let text = variable(name).with_context(|| format!("Slurm's variable {name} is missing in this step"))?;
            text.parse().with_context(|| format!("Slurm's variable {name} is {text:?}, which is no number"))
        };
        if ![&job, &step].iter().all(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            bail!("Slurm's variables SLURM_JOB_ID and SLURM_STEP_ID are {job:?} and {step:?}, which are no numbers");
        }
        Ok(Some(Self {
            name: format!("{job}.{step}"),
            node: number("SLURM_NODEID")?,
            nodes: number("SLURM_STEP_NUM_NODES")?,
            tasks: number("SLURM_STEP_NUM_TASKS")?,
            launcher: variable("SLURM_SRUN_COMM_HOST").filter(|host| !host.is_empty()),
        }))
    }
}

fn by_step(step: &Step, options: &SymmetricRunOptions) -> anyhow::Result<Place> {
    let Step { name, node, nodes, tasks, launcher } = step;
    if tasks != nodes {
        bail!(
            "this step has {tasks} tasks on {nodes} nodes, and symmetric-run starts one node of the cluster in each: run it \
             with `srun --ntasks-per-node=1`, and give that task all processors and devices (--cpus-per-task, --gpus-per-task)"
        );
    }
    if *nodes == 1 {
        return Ok(alone());
    }
    let role = if *node == 0 { Role::Head } else { Role::Member };
    let address = match role {
        Role::Head => Some(SocketAddr::new(own_address(options, launcher.as_deref())?, 0)),
        Role::Member => None,
    };
    let wanted = options.min_nodes.unwrap_or(*nodes);
    if wanted > *nodes {
        bail!(
            "--min-nodes is {wanted}, and this step has {nodes} nodes: ask for more with `srun --nodes`, or for fewer"
        );
    }
    let handover = match &options.start.token_file {
        Some(path) => shared_file(path)?,
        None => Handover::Broadcast(name.clone()),
    };
    Ok(Place { role, nodes: wanted, address, handover })
}

/// By which address the others reach this machine: the one from which it reaches `srun`.
fn own_address(options: &SymmetricRunOptions, launcher: Option<&str>) -> anyhow::Result<IpAddr> {
    if let Some(text) = &options.start.node_ip_address {
        return text.parse().with_context(|| format!("--node-ip-address takes an IP address, and `{text}` is none"));
    }
    let host = launcher.context("Slurm's variable SLURM_SRUN_COMM_HOST is missing: say --node-ip-address")?;
    let reached = resolve(host, 9)?;
    let local = UdpSocket::bind(SocketAddr::new(any_of(reached.ip()), 0))
        .and_then(|socket| socket.connect(reached).and_then(|()| socket.local_addr()))
        .with_context(|| format!("no address of this machine reaches {host}: say --node-ip-address"))?;
    Ok(local.ip())
}

fn shared_file(path: &Path) -> anyhow::Result<Handover> {
    if is_standard_input(path) {
        bail!(
            "--token-file={} is for `oxiray start`: symmetric-run needs the name of a file that all nodes see",
            path.display()
        );
    }
    Ok(Handover::SharedFile(std::path::absolute(path)?))
}

fn any_of(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED) }
}

fn by_address(address: &str, options: &SymmetricRunOptions) -> anyhow::Result<Place> {
    let split = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let Some((host, port)) = split.filter(|(host, port)| !host.is_empty() && *port > 0) else {
        bail!("Invalid address: {address}. Must be in format <host>:<port>");
    };
    let resolved = resolve(host.trim_matches(['[', ']']), port)?;
    let nodes = options.min_nodes.unwrap_or(1);
    let is_own = TcpListener::bind(SocketAddr::new(resolved.ip(), 0)).is_ok();
    if nodes > 1 && resolved.ip().is_loopback() {
        bail!(
            "{address} is an address of every machine, so that no other node could find the head by it: name one that the others reach"
        );
    }
    let handover = match &options.start.token_file {
        Some(path) => shared_file(path)?,
        None if nodes == 1 && is_own => Handover::None,
        None => bail!(
            "outside of Slurm, say with --token-file=FILE where the head leaves the token that lets the others in: a file that \
             all nodes see, such as one below your home directory"
        ),
    };
    let role = if is_own { Role::Head } else { Role::Member };
    Ok(Place { role, nodes, address: Some(resolved), handover })
}

fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("Could not resolve hostname: {host}"))?;
    found.next().with_context(|| format!("Could not resolve hostname: {host}"))
}

impl Place {
    /// How the head is started: it listens where others can come.
    pub(super) fn head_options(&self, given: &StartOptions) -> StartOptions {
        let mut options = given.clone();
        (options.head, options.address, options.token_file) = (true, None, None);
        if let Some(address) = self.address.filter(|_| self.handover != Handover::None) {
            options.port = Some(address.port());
            options.node_ip_address = Some(address.ip().to_string());
        }
        options
    }
}

/// How a member is started.
pub(super) fn member_options(
    given: &StartOptions,
    address: &str,
    token_file: &Path,
    patience: Duration,
) -> StartOptions {
    let mut options = given.clone();
    options.address = Some(address.to_owned());
    options.token_file = Some(token_file.to_owned());
    options.join_wait = Some(patience.as_secs());
    // All nodes are given the same options, and these are the head's.
    let metrics = std::mem::take(&mut options.of_head.dashboard);
    options.of_head = HeadOptions::default();
    options.of_head.dashboard.metrics_export_port = metrics.metrics_export_port;
    options.of_head.dashboard.metrics_host = metrics.metrics_host;
    options.of_head.dashboard.metrics_open = metrics.metrics_open;
    options.authority_file = None;
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Order};
    use clap::Parser as _;

    const STEP: Variables<'_> = &[
        ("SLURM_JOB_ID", "71"),
        ("SLURM_STEP_ID", "2"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_NUM_NODES", "3"),
        ("SLURM_STEP_NUM_TASKS", "3"),
        ("SLURM_SRUN_COMM_HOST", "127.0.0.1"),
    ];

    /// Names of variables with their values.
    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn found(variables: Variables<'_>, arguments: &str) -> Result<Place, String> {
        let words = ["oxiray", "symmetric-run"].into_iter().chain(arguments.split_whitespace()).chain(["--", "true"]);
        let Order::SymmetricRun(options) = Arguments::try_parse_from(words).unwrap().order else { panic!("another") };
        // What is said later replaces what was said before.
        let variable =
            |name: &str| variables.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        find(variable, &options).map_err(|error| error.to_string())
    }

    fn with<'a>(changed: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
        STEP.iter().copied().chain([changed]).collect()
    }

    #[test]
    fn the_first_node_of_a_step_is_the_head_and_the_others_join() {
        let member = found(STEP, "").unwrap();
        assert_eq!((member.role, member.nodes, member.address), (Role::Member, 3, None));
        assert_eq!(member.handover, Handover::Broadcast("71.2".to_owned()));
        let head = found(&with(("SLURM_NODEID", "0")), "--min-nodes=2 --token-file=/shared/token").unwrap();
        assert_eq!((head.role, head.nodes), (Role::Head, 2));
        assert_eq!(head.address, Some("127.0.0.1:0".parse().unwrap()));
        assert_eq!(head.handover, Handover::SharedFile("/shared/token".into()));
    }

    #[test]
    fn what_is_said_to_the_head_is_not_said_to_members() {
        let line = "oxiray symmetric-run --include-dashboard=true --preemption=on --metrics-export-port=9 --num-cpus=3 -- true";
        let Order::SymmetricRun(options) = Arguments::try_parse_from(line.split(' ')).unwrap().order else { panic!() };
        let member = member_options(&options.start, "10.0.0.1:6379", Path::new("/token"), Duration::from_secs(5));
        assert_eq!((member.of_head.dashboard.include_dashboard, &member.of_head.scheduling.preemption), (None, &None));
        assert_eq!((member.of_head.dashboard.metrics_export_port, member.offer.num_cpus), (Some(9), Some(3.0)));
        assert_eq!((member.address.as_deref(), member.join_wait), (Some("10.0.0.1:6379"), Some(5)));
    }

    #[test]
    fn one_node_needs_nobody() {
        let alone = [("SLURM_STEP_NUM_NODES", "1"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NODEID", "0")];
        let step: Vec<_> = STEP.iter().copied().chain(alone).collect();
        for place in [found(&step, ""), found(&[], "--min-nodes=1"), found(&[], "--address=127.0.0.1:6379")] {
            let place = place.unwrap();
            assert_eq!((place.role, place.nodes, place.handover), (Role::Head, 1, Handover::None));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_way_out() {
        let cases: &[(Variables<'_>, &str, &str)] = &[
            (&with(("SLURM_STEP_NUM_TASKS", "6")), "", "--ntasks-per-node=1"),
            (&with(("SLURM_STEP_NUM_NODES", "many")), "", "which is no number"),
            (&with(("SLURM_STEP_ID", "../x")), "", "which are no numbers"),
            (&with(("SLURM_NODEID", "0")), "--min-nodes=4", "this step has 3 nodes"),
            (&[("SLURM_JOB_ID", "71")], "", "srun oxiray symmetric-run"),
            (&[], "", "--address=HOST:PORT"),
            (&[], "--address=nowhere", "Must be in format <host>:<port>"),
            (&[], "--address=127.0.0.1:6379 --min-nodes=2", "an address of every machine"),
            (&[], "--address=192.0.2.1:6379 --min-nodes=2", "--token-file=FILE"),
        ];
        for (variables, arguments, way_out) in cases {
            let refused = found(variables, arguments).unwrap_err();
            assert!(refused.contains(way_out), "{arguments}: {refused}");
        }
    }
}
