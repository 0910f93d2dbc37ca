//! The Kubernetes controller of `RayCluster` objects.
//!
//! A binary of its own, so that nobody else has to compile a Kubernetes client; `oxiray operator` runs it.

mod api;
mod autoscale;
mod head;
mod jobs;
mod leader;
mod machines;
mod metrics;
mod reconcile;
mod services;
mod show;
mod yaml;

use api::{Api, Kind};
use autoscale::{Autoscalers, Line};
use clap::{Args, Parser, Subcommand};
use futures::StreamExt as _;
use kube::Client;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::controller::{Config as ControllerConfig, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher;
use leader::Election;
use metrics::Metrics;
use oxiray_kubernetes::{API_GROUP, API_VERSION, CREATED_BY, CREATED_BY_LABEL, Catalogue, Settings};
use reconcile::{Context, after_error, reconcile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// For how long changes of one cluster are gathered before it is looked at.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How many clusters are looked at at once.
const CLUSTERS_AT_ONCE: u16 = 8;
/// How often it is asked again for an API that does not answer at the start.
const API_PERIOD: Duration = Duration::from_secs(2);

/// Makes the pods of RayCluster objects, keeps them as they are wanted, and says what they offer.
#[derive(Debug, Parser)]
#[command(name = "oxiray-operator", version, about)]
struct Arguments {
    #[command(subcommand)]
    order: Option<Order>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Prints the definitions of RayCluster, RayJob and RayService, for a cluster that has none of KubeRay's.
    Crd,
    /// Shows what would be made for the clusters in a file, and what their pods would offer; asks no API.
    Show {
        /// The file, YAML or JSON.
        file: PathBuf,
        /// Prints the objects as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Options {
    /// A namespace whose clusters are looked after; all where it is left out. May be given several times.
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Where `/metrics`, `/healthz` and `/readyz` are answered.
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// The namespace of the lease that the acting operator holds.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    lease_namespace: String,
    /// The name of that lease.
    #[arg(long, default_value = "oxiray-operator")]
    lease_name: String,
    /// For how long it lasts when it is not renewed; its holder ends after two thirds of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=3600))]
    lease_duration: u32,
    /// Acts without a lease: only where it is certain that there is no other.
    #[arg(long)]
    no_lease: bool,
    /// This operator's name in the lease.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// An image to use for another, whatever its tag, as `rayproject/ray=ghcr.io/me/oxiray:1`. May be given several times.
    #[arg(long = "image", value_name = "IMAGE=IMAGE", value_parser = pair)]
    images: Vec<(String, String)>,
    /// What a resource or device class that is in no table is to programs, as `example.com/npu=NPU`. May be given several times.
    #[arg(long = "device", value_name = "NAME=RESOURCE", value_parser = pair)]
    devices: Vec<(String, String)>,
    /// For how long a pod of an autoscaled cluster may find no machine before another group is tried.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    unschedulable_wait: u32,
    /// The domain of services.
    #[arg(long, env = "CLUSTER_DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let split = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    split.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| format!("`{text}` is no NAME=VALUE"))
}

/// A line of the log. Where it cannot be written there is nobody to tell.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let settings = settings(&arguments.options);
    let result = match arguments.order {
        Some(Order::Crd) => {
            // A reader that went away has seen enough.
            let definitions: Vec<String> = oxiray_kubernetes::definitions().iter().map(yaml::text).collect();
            let _ = write!(std::io::stdout(), "{}", definitions.join("---\n"));
            Ok(())
        }
        Some(Order::Show { file, json }) => show::run(&file, json, &settings),
        None => run(&arguments.options, settings),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn settings(options: &Options) -> Settings {
    let more = options.devices.iter().cloned().collect::<BTreeMap<_, _>>();
    Settings {
        images: options.images.iter().cloned().collect(),
        domain: Some(options.cluster_domain.clone()),
        pod_groups: None,
        catalogue: Catalogue { more, ..Catalogue::default() },
    }
}

fn run(options: &Options, settings: Settings) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve(options, settings))
}

async fn serve(options: &Options, mut settings: Settings) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::default());
    let listener = TcpListener::bind(options.listen).await?;
    let served = Arc::clone(&metrics);
    let client = Client::try_default().await?;
    let identity = options.identity.clone().unwrap_or_else(|| format!("oxiray-operator-{}", std::process::id()));
    let election = Election {
        client: client.clone(),
        namespace: options.lease_namespace.clone(),
        name: options.lease_name.clone(),
        identity: identity.clone(),
        lasts: Duration::from_secs(options.lease_duration.into()),
        metrics: Arc::clone(&metrics),
    };
    let api = Api::new(client.clone(), Arc::clone(&metrics));
    let reporter = Reporter { controller: CREATED_BY.to_owned(), instance: Some(identity) };
    let recorder = Recorder::new(client.clone(), reporter);
    let line = Line { api: api.clone(), recorder: recorder.clone(), runtime: tokio::runtime::Handle::current() };
    let placing_limit = Duration::from_secs(options.unschedulable_wait.into());
    let autoscalers = Arc::new(Autoscalers::new(line, placing_limit));
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let act = async {
        if !options.no_lease {
            election.win().await;
        }
        say("this operator acts");
        metrics.set_leader(true);
        settings.pod_groups = pod_groups(&api, options.namespaces.first().map(String::as_str)).await;
        let shared = (recorder.clone(), Arc::clone(&metrics), Arc::clone(&autoscalers));
        let context = Arc::new(Context::new(api.clone(), settings, shared.0, shared.1, shared.2));
        if options.namespaces.is_empty() {
            control(None, context).await;
        } else {
            let named = options.namespaces.iter().collect::<BTreeSet<_>>().into_iter();
            futures::future::join_all(named.map(|namespace| control(Some(namespace), Arc::clone(&context)))).await;
        }
    };
    let keep = async {
        while !metrics.is_leader() {
            tokio::time::sleep(API_PERIOD).await;
        }
        if options.no_lease { std::future::pending().await } else { election.keep().await }
    };
    tokio::select! {
        () = served.serve(listener) => {}
        () = act => {}
        () = keep => anyhow::bail!("the lease may be another's by now: this operator ends"),
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    autoscalers.end();
    if metrics.is_leader() && !options.no_lease {
        election.leave().await;
    }
    Ok(())
}

/// Looks at every cluster and every job, of one namespace or of all, whenever it or what is made for it changes.
async fn control(namespace: Option<&String>, context: Arc<Context>) {
    let client = context.api.client().clone();
    let resource =
        |group: &str, version: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let ours = |kind: &str| resource(API_GROUP, API_VERSION, kind);
    let (clusters, pods) = (ours("RayCluster"), resource("", "v1", "Pod"));
    let (jobs, services) = (ours("RayJob"), ours("RayService"));
    let objects = |resource: &ApiResource| -> kube::Api<DynamicObject> {
        match namespace {
            Some(namespace) => kube::Api::namespaced_with(client.clone(), namespace, resource),
            None => kube::Api::all_with(client.clone(), resource),
        }
    };
    let all = watcher::Config::default;
    let own = all().labels(&format!("{CREATED_BY_LABEL}={CREATED_BY}"));
    let settings = || ControllerConfig::default().debounce(DEBOUNCE).concurrency(CLUSTERS_AT_ONCE);
    let of_clusters = Controller::new_with(objects(&clusters), all(), clusters.clone())
        .owns_with(objects(&pods), pods.clone(), own)
        .with_config(settings())
        .run(reconcile, after_error, Arc::clone(&context));
    let of_jobs = Controller::new_with(objects(&jobs), all(), jobs.clone())
        .owns_with(objects(&clusters), clusters.clone(), all())
        .with_config(settings())
        .run(jobs::reconcile, after_error, Arc::clone(&context));
    let of_services = Controller::new_with(objects(&services), all(), services.clone()).with_config(settings()).run(
        services::reconcile,
        after_error,
        context,
    );
    futures::future::join3(of_clusters.for_each(note), of_jobs.for_each(note), of_services.for_each(note)).await;
}

/// Says where a watch broke.
async fn note<T, E>(result: Result<T, kube::runtime::controller::Error<E, watcher::Error>>)
where
    E: std::error::Error + 'static,
{
    if let Err(error @ kube::runtime::controller::Error::QueueError(_)) = result {
        say(&format!("the API is watched anew: {error}"));
    }
}

/// The newest version of the scheduler's own pod groups that the API has, asked for where this operator may ask.
async fn pod_groups(api: &Api, namespace: Option<&str>) -> Option<String> {
    let known = ["v1", "v1beta1", "v1alpha3", "v1alpha2"];
    for version in known {
        let found = api.list(&Kind::new(&format!("scheduling.k8s.io/{version}"), "podgroups"), namespace, "").await;
        if found.is_ok() {
            return Some(version.to_owned());
        }
    }
    None
}
