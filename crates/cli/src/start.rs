//! `oxiray start`.

use crate::arguments::StartOptions;
use crate::visit;
use crate::{autoscaler, called, dashboard, labels, say};
use anyhow::{Context as _, bail};
use oxiray_node::{
    Config, DevicePreferences, HeadConfig, MachineConfig, MemberConfig, Mode, Ready, RecordingConfig, StoreConfig,
    lease,
};
use oxiray_wire::session::logs_of;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(crate) fn run(options: &StartOptions) -> anyhow::Result<()> {
    let mut config = config(options)?;
    if let Some(address) =
        config.member.join.as_deref().filter(|address| *address == "auto" && config.member.token_file.is_none())
    {
        config.member.join = Some(visit::find(Some(address))?.description.address);
    }
    let switches = options.system_config.as_deref().map(configure_system).transpose()?.unwrap_or_default();
    tell_what_has_no_effect(options, &switches, dashboard::without_effect(options, &config.head));
    if let Some(path) = &options.autoscale {
        return start_growing(options, &config, path);
    }
    if options.block {
        oxiray_node::run(&config, Mode::Shared { keeps_output: true }, |ready| {
            tell(ready);
            say("It runs until this command is interrupted.");
        })?;
        return Ok(());
    }
    tell(&start_detached(&config)?);
    Ok(())
}

/// A head, and an autoscaler beside it.
fn start_growing(options: &StartOptions, config: &Config, path: &Path) -> anyhow::Result<()> {
    if !options.head || options.block || options.store.standby {
        bail!(
            "--autoscale is of use with --head, and neither with --block nor with --standby: start the head first, and \
             beside it `oxiray autoscaler run --groups={}`",
            path.display()
        );
    }
    let path = std::path::absolute(path)?;
    // What is wrong with the file is said before anything is started.
    let file = autoscaler::startable_groups(&path)?;
    if file.jobs.is_some() && options.port.is_none() {
        bail!(
            "the groups in {} are jobs of Slurm, which join over the network: say where the head listens, with --port and \
             --node-ip-address",
            path.display()
        );
    }
    let ready = start_detached(config)?;
    let log = autoscaler::start_detached(&path, &ready.address, Path::new(&ready.session))?;
    tell(&ready);
    say(&format!("  Autoscaler:       {} (log: {})", path.display(), log.display()));
    Ok(())
}

/// What a head does beside; `is_first` where it joins no cluster.
fn head_config(options: &StartOptions, is_first: bool) -> anyhow::Result<HeadConfig> {
    Ok(HeadConfig {
        listen: listen(options)?,
        keeps: is_first,
        fresh: options.fresh,
        store: store(options)?,
        standby: options.store.standby,
        keeps_cluster: options.keep_cluster,
        certificate_ms: options.node_certificate.as_deref().map(certificate_ms).transpose()?,
        authority_file: options.authority_file.as_deref().map(std::path::absolute).transpose()?,
        preemption: options.of_head.scheduling.preemption.clone(),
        preemption_grace_s: options.of_head.scheduling.preemption_grace_s,
        job_order: options.of_head.scheduling.job_order.clone(),
        dashboard: dashboard::config(options, |name| std::env::var(name).ok())?,
        recording: RecordingConfig {
            history: dashboard::history(options)?,
            spans: dashboard::spans(options)?,
            events: dashboard::events(options, |name| std::env::var(name).ok())?,
        },
        keeps_logs: options.of_head.keep_logs_at_head,
    })
}

/// What the machine offers, as far as it was said.
fn resources(options: &StartOptions) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut resources: BTreeMap<String, f64> =
        options.offer.resources.as_deref().map(labels::resources).transpose()?.unwrap_or_default();
    let given = [("CPU", options.offer.num_cpus), ("GPU", options.offer.num_gpus), ("memory", options.offer.memory)];
    resources.extend(given.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))));
    Ok(resources)
}

fn says_what_is_kept(options: &StartOptions) -> bool {
    options.keep_cluster || options.authority_file.is_some() || options.of_head.keep_logs_at_head
}

/// Options on what a head keeps are refused where they would have no effect.
fn check_what_is_kept(options: &StartOptions) -> anyhow::Result<()> {
    if options.store.store.is_some() && !options.head || options.store.standby && options.store.store.is_none() {
        bail!(
            "--store is of use with --head, and --standby with both: where a head keeps what must outlive it, and who waits to go on with that"
        );
    }
    if says_what_is_kept(options) && !options.head {
        bail!(
            "--keep-cluster, --keep-logs-at-head and --authority-file are of use with --head only: they say what it keeps"
        );
    }
    if options.fresh && (!options.head || options.store.store.is_some()) {
        bail!(
            "--fresh is of use with --head and without --store: it discards what a killed head left on this machine. For a new \
             cluster in etcd, name another one in --store"
        );
    }
    if options.authority_file.is_some() && options.port.is_none() {
        bail!("--authority-file is of use with --port only: without a port no other machine comes");
    }
    Ok(())
}

fn config(options: &StartOptions) -> anyhow::Result<Config> {
    let join = options.address.clone().filter(|_| !options.head);
    if !options.head && join.is_none() {
        bail!("say what to start: --head for a cluster, or --address=ADDRESS for one more node of a running cluster");
    }
    check_what_is_kept(options)?;
    if options.join_wait.is_some() && options.token_file.is_none() {
        bail!(
            "--join-wait is of use with --address=HOST:PORT and --token-file only: it waits for a head on another machine"
        );
    }
    if options.of_head.dashboard.is_asked() && !options.head {
        bail!(
            "--include-dashboard and what goes with it are of use with --head only: the head answers for the cluster"
        );
    }
    if options.token_file.is_some() && join.is_none() {
        bail!("--token-file is of use with --address=HOST:PORT only: it lets this machine into that cluster");
    }
    let machine = MachineConfig {
        resources: resources(options)?,
        labels: labels::of_node(options.labels.as_deref(), options.labels_file.as_deref())?,
        object_store_memory: options.offer.object_store_memory,
        spill_directory: options.object_spilling_directory.clone(),
        node_name: options.node_name.clone(),
        node_ip_address: options.node_ip_address.clone(),
        device_isolation: options.devices.device_isolation.clone(),
        device_violations: options.devices.device_violations.clone(),
        gpu_memory: options.devices.gpu_memory,
        gpu_memory_enforcement: options.devices.gpu_memory_enforcement.clone(),
        gpu_memory_library: options.devices.gpu_memory_library.clone(),
        choice: DevicePreferences {
            order: options.devices.device_order.clone(),
            visible: options.devices.visible_devices.clone(),
        },
        pin_cpus: options.devices.pin_cpus.clone(),
        share_memory: options.devices.share_memory.clone(),
        mig: options.devices.mig.clone(),
    };
    let head = head_config(options, join.is_none())?;
    let health_port = dashboard::health_port(options, &head)?;
    let member = MemberConfig {
        join,
        token_file: options.token_file.as_deref().map(token_file).transpose()?,
        node_manager_port: options.node_manager_port,
        lease_ms: options.node_lease.map(lease_ms).transpose()?,
        join_wait_ms: options.join_wait.map(|seconds| seconds.saturating_mul(1000)),
    };
    Ok(Config {
        machine,
        head,
        member,
        metrics: dashboard::metrics_config(&options.of_head.dashboard)?,
        health_port,
        temp_dir: options.temp_dir.clone(),
        port: options.port.filter(|_| options.head),
        interpreter: None,
        spare_workers: None,
        starter: None,
    })
}

/// The etcd that keeps what must outlive the head.
fn store(options: &StartOptions) -> anyhow::Result<Option<StoreConfig>> {
    let given = &options.store;
    let files = [&given.store_authority, &given.store_certificate, &given.store_key, &given.store_password_file];
    let Some(address) = given.store.clone() else {
        if given.store_user.is_some() || files.iter().any(|file| file.is_some()) {
            bail!(
                "--store-authority and what goes with it are of use with --store only: they say how etcd is spoken to"
            );
        }
        return Ok(None);
    };
    if given.store_user.is_some() != given.store_password_file.is_some() {
        bail!("--store-user and --store-password-file go together: etcd knows a user by a name and a password");
    }
    let [authority, certificate, key, password_file] =
        files.map(|file| file.as_deref().map(std::path::absolute).transpose());
    Ok(Some(StoreConfig {
        address,
        authority: authority?,
        certificate: certificate?,
        key: key?,
        user: given.store_user.clone(),
        password_file: password_file?,
    }))
}

/// Where a head listens for nodes of other machines: on this machine only, unless one of its addresses is named.
fn listen(options: &StartOptions) -> anyhow::Result<Option<SocketAddr>> {
    let Some(port) = options.port.filter(|_| options.head) else { return Ok(None) };
    let ip = match &options.node_ip_address {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text
            .parse()
            .with_context(|| format!("--node-ip-address takes an IP address of this machine, and `{text}` is none"))?,
    };
    Ok(Some(SocketAddr::new(ip, port)))
}

fn certificate_ms(text: &str) -> anyhow::Result<u64> {
    match crate::token::milliseconds(text) {
        Some(time) if time >= 1000 => Ok(time),
        _ => bail!("--node-certificate takes a time of a second or more, such as 30m, 24h or 7d, and `{text}` is none"),
    }
}

/// The file with the join token as the daemon finds it, which may have another current directory.
fn token_file(path: &Path) -> std::io::Result<PathBuf> {
    if is_standard_input(path) { Ok(path.to_owned()) } else { std::path::absolute(path) }
}

pub(crate) fn is_standard_input(path: &Path) -> bool {
    path == oxiray_node::STANDARD_INPUT
}

fn lease_ms(seconds: f64) -> anyhow::Result<u64> {
    let allowed = lease::LEASE_MIN.as_secs_f64()..=86_400.0;
    if !allowed.contains(&seconds) {
        bail!("--node-lease takes {} to {} seconds, and {seconds} is not within", allowed.start(), allowed.end());
    }
    Ok((seconds * 1000.0) as u64)
}

/// What becomes of a daemon when the command that started it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bond {
    LivesOn,
    EndsWithParent,
}

/// Starts the node that the options describe.
pub(crate) fn begin(options: &StartOptions, bond: Bond) -> anyhow::Result<(Child, Ready)> {
    let config = config(options)?;
    options.system_config.as_deref().map(configure_system).transpose()?;
    start_daemon(&config, bond)
}

fn start_detached(config: &Config) -> anyhow::Result<Ready> {
    Ok(start_daemon(config, Bond::LivesOn)?.1)
}

/// The daemon tells through its output that it serves: one line, and the end of the stream.
fn start_daemon(config: &Config, bond: Bond) -> anyhow::Result<(Child, Ready)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["daemon", "--config", &serde_json::to_string(config)?])
        .stdin(if config.member.token_file.as_deref().is_some_and(is_standard_input) {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if bond == Bond::EndsWithParent {
        // SAFETY: what runs between fork and exec is calls of the kernel.
        unsafe {
            command.pre_exec(|| {
                oxiray_processes::reset_signals_after_fork();
                Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?)
            });
        }
    }
    let mut child = command.spawn().context("the daemon cannot be started")?;
    let mut told = String::new();
    child.stdout.take().context("its output is a pipe")?.read_to_string(&mut told)?;
    if let Ok(ready) = serde_json::from_str(&told) {
        return Ok((child, ready));
    }
    let mut error = String::new();
    child.stderr.take().context("its errors are a pipe")?.read_to_string(&mut error)?;
    let status = child.wait()?;
    match error.trim().strip_prefix("error: ") {
        Some(reason) => bail!("{reason}"),
        None => bail!("the daemon did not start ({status}): {}", error.trim()),
    }
}

fn tell(ready: &Ready) {
    let Ready { address, session, warnings, standby, resumed, listens, token_file } = ready;
    let logs = logs_of(Path::new(session)).display().to_string();
    if *standby {
        return say(&format!(
            "Oxiray standby started: it waits to be the head of the cluster in {address}.\n\n  \
             To stop it:       oxiray stop\n  \
             Logs:             {logs}/daemon.log"
        ));
    }
    let command = called::command();
    let port = address.rsplit_once(':').map_or("6379", |(_, port)| port);
    for warning in warnings {
        say(&format!("warning: {warning}"));
    }
    say(&format!(
        "{} runtime started.{}\n\n  \
         From a program on this machine:\n    \
         import ray\n    \
         ray.init(address=\"auto\")            # or address=\"localhost:{port}\"\n\n  \
         To look at it:    {command} status\n  \
         To stop it:       {command} stop\n  \
         To add a node:    {command} start --address='{address}'\n\n  \
         Logs:             {logs}/daemon.log",
        called::product(),
        resumed.as_ref().map(|what| format!(" {what}")).unwrap_or_default()
    ));
    if let (Some(listens), Some(token_file)) = (listens, token_file) {
        let local = listens.starts_with("127.").then_some(
            "\n\n  It listens on this machine only: name an address that others reach with --node-ip-address.",
        );
        say(&format!(
            "\n  To add another machine, copy {token_file} there (it is a secret: keep it 0600), and run:\n    \
             oxiray start --address={listens} --token-file=FILE{}",
            local.unwrap_or_default()
        ));
    }
}

fn tell_what_has_no_effect(options: &StartOptions, switches: &[String], dashboard: Vec<String>) {
    let switches = switches.iter().map(|name| format!("{name} of --system-config"));
    let without: Vec<String> = options.without_effect.told().into_iter().chain(dashboard).chain(switches).collect();
    if !without.is_empty() {
        say(&format!("note: without effect in this version: {}", without.join(", ")));
    }
}

/// The switches that something acts on: `python/oxiray/_switches.py` says what each is.
const SWITCHES: [&str; 12] = [
    "allow_out_of_band_object_ref_serialization",
    "lineage_pinning_enabled",
    "local_fs_capacity_threshold",
    "max_lineage_bytes",
    "memory_monitor_refresh_ms",
    "memory_usage_threshold",
    "object_spilling_config",
    "object_spilling_directory",
    "record_ref_creation_sites",
    "task_oom_retries",
    "task_oom_retry_delay_base_ms",
    "task_retry_delay_ms",
];

/// Has the daemon's environment, and so its workers', say what `--system-config` says. Returns the switches that nothing
/// acts on.
fn configure_system(text: &str) -> anyhow::Result<Vec<String>> {
    let given: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)
        .with_context(|| format!("--system-config must be a JSON object of switches, but `{text}` is not"))?;
    let mut without_effect = Vec::new();
    for (name, value) in given {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !SWITCHES.contains(&name.as_str()) {
            without_effect.push(name);
        } else if value.contains('\0') {
            bail!("--system-config: the value of {name} has a zero byte, which no variable can have");
        } else {
            // SAFETY: this is the only thread so far: daemons are started later.
            unsafe { std::env::set_var(format!("RAY_{name}"), value) };
        }
    }
    Ok(without_effect)
}

#[cfg(test)]
mod tests {
    use super::configure_system;

    #[test]
    fn switches_that_nothing_acts_on_are_told_of_and_what_no_variable_can_have_is_refused() {
        assert_eq!(
            configure_system(r#"{"raylet_start_wait_time_s": 1, "a=b": 2}"#).expect("told"),
            ["a=b", "raylet_start_wait_time_s"]
        );
        for wrong in ["[]", "{", r#"{"task_retry_delay_ms": "1\u0000"}"#] {
            let error = configure_system(wrong).expect_err("it is no such object");
            assert!(error.to_string().starts_with("--system-config"), "{error}");
        }
    }
}
