//! `oxiray start`.

use crate::arguments::StartOptions;
use crate::visit;
use crate::{labels, say};
use anyhow::{Context as _, bail};
use oxiray_node::{Config, Mode, Ready};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::{Command, Stdio};

pub(crate) fn run(options: &StartOptions) -> anyhow::Result<()> {
    let mut config = config(options)?;
    if let Some(address) = config.join.as_deref().filter(|address| *address == "auto") {
        config.join = Some(visit::find(Some(address))?.description.address);
    }
    tell_what_has_no_effect(options);
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

fn config(options: &StartOptions) -> anyhow::Result<Config> {
    let join = options.address.clone().filter(|_| !options.head);
    if !options.head && join.is_none() {
        bail!("say what to start: --head for a cluster, or --address=ADDRESS for one more node of a running cluster");
    }
    let mut resources: BTreeMap<String, f64> =
        options.resources.as_deref().map(labels::resources).transpose()?.unwrap_or_default();
    let given = [("CPU", options.num_cpus), ("GPU", options.num_gpus), ("memory", options.memory)];
    resources.extend(given.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))));
    Ok(Config {
        resources,
        labels: options.labels.as_deref().map(labels::labels).transpose()?.unwrap_or_default(),
        object_store_memory: options.object_store_memory,
        spill_directory: options.object_spilling_directory.clone(),
        temp_dir: options.temp_dir.clone(),
        node_name: options.node_name.clone(),
        node_ip_address: options.node_ip_address.clone(),
        port: options.head.then_some(options.port),
        interpreter: None,
        spare_workers: None,
        join,
        starter: None,
    })
}

/// The daemon tells through its output that it serves: one line, and the end of the stream.
fn start_detached(config: &Config) -> anyhow::Result<Ready> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["daemon", "--config", &serde_json::to_string(config)?])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("the daemon cannot be started")?;
    let mut told = String::new();
    child.stdout.take().context("its output is a pipe")?.read_to_string(&mut told)?;
    if let Ok(ready) = serde_json::from_str(&told) {
        return Ok(ready);
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
    let Ready { address, session, warnings } = ready;
    let port = address.rsplit_once(':').map_or("6379", |(_, port)| port);
    for warning in warnings {
        say(&format!("warning: {warning}"));
    }
    say(&format!(
        "Oxiray runtime started.\n\n  \
         From a program on this machine:\n    \
         import ray\n    \
         ray.init(address=\"auto\")            # or address=\"localhost:{port}\"\n\n  \
         To look at it:    oxiray status\n  \
         To stop it:       oxiray stop\n\n  \
         Address:          --address='{address}'\n  \
         Logs:             {session}/daemon.log"
    ));
}

fn tell_what_has_no_effect(options: &StartOptions) {
    let dashboard = options.include_dashboard.as_deref().is_some_and(|value| !value.eq_ignore_ascii_case("false"));
    let given = [
        ("--include-dashboard", dashboard),
        ("--dashboard-host", options.dashboard_host.is_some()),
        ("--dashboard-port", options.dashboard_port.is_some()),
        ("--ray-client-server-port", options.ray_client_server_port.is_some()),
        ("--min-worker-port", options.min_worker_port.is_some()),
        ("--max-worker-port", options.max_worker_port.is_some()),
    ];
    let without: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    if !without.is_empty() {
        say(&format!("note: without effect in this version: {}", without.join(", ")));
    }
}
