//! `oxiray hardware`.

use crate::arguments::HardwareOptions;
use oxiray_accelerators::{Detected, Host, Pair, detect, report, to_json};
use oxiray_fence::{Means, Mechanism};
use oxiray_node::limits::Limits;
use serde_json::{Value, json};
use std::path::Path;

pub(crate) fn run(options: &HardwareOptions) -> anyhow::Result<()> {
    let host = match &options.host_root {
        Some(folder) => Host::recorded(folder)?,
        None => Host::from_environment()?,
    };
    let detection = detect(&host);
    let limits = Limits::under(host.root());
    // A recorded machine has no kernel to try.
    let fences = (host.root() == Path::new("/")).then(|| Means::probe(&format!("hardware-{}", std::process::id())));
    if options.json {
        let mut told = to_json(&detection, &host);
        told["limits"] = limits.map_or(Value::Null, |limits| limits.to_json());
        told["fences"] = fences.map_or(Value::Null, |fences| as_json(&fences));
        crate::say(&serde_json::to_string_pretty(&told)?);
    } else {
        crate::say(report(&detection, &host).trim_end());
        if options.topology {
            detection.families.iter().map(matrix).for_each(|text| crate::say(&text));
        }
        if let Some(limits) = limits {
            crate::say(&format!("\nLimits\n{}", limits.describe().trim_end()));
        }
        if let Some(fences) = fences {
            crate::say(&format!("\nWhat the kernel can refuse device nodes by\n{}", in_words(&fences)));
        }
    }
    Ok(())
}

/// How each two devices of a family are connected, as `nvidia-smi topo -m` shows it.
fn matrix(detected: &Detected) -> String {
    let name = detected.family.name;
    if detected.pairs.is_empty() {
        return format!("\nHow {name}s are connected is not known beyond their NUMA nodes");
    }
    let known = |one: usize, other: usize| {
        let is_it = |pair: &&Pair| (pair.one, pair.other) == (one.min(other), one.max(other));
        detected.pairs.iter().find(is_it).map_or_else(|| "?".to_owned(), ToString::to_string)
    };
    let places = 0..detected.devices.len();
    let cell = |text: String| format!("{text:>5}");
    let head: String = places.clone().map(|place| cell(format!("[{place}]"))).collect();
    let row = |one: usize| {
        let cells: String =
            places.clone().map(|other| cell(if one == other { "X".to_owned() } else { known(one, other) })).collect();
        format!("  {:>4}{cells}", format!("[{one}]"))
    };
    let rows: Vec<String> = places.clone().map(row).collect();
    format!("\nHow {name}s are connected\n      {head}\n{}", rows.join("\n"))
}

fn in_words(fences: &Means) -> String {
    let line = |mechanism: Mechanism| match fences.of(mechanism) {
        Ok(()) => format!("  {mechanism}: works"),
        Err(why) => format!("  {mechanism}: {why}"),
    };
    Mechanism::ALL.map(line).join("\n")
}

fn as_json(fences: &Means) -> Value {
    let told = Mechanism::ALL.into_iter().map(|mechanism| {
        let why = fences.of(mechanism).as_ref().err().map(ToString::to_string);
        (mechanism.to_string(), json!({"works": why.is_none(), "reason": why}))
    });
    Value::Object(told.collect())
}
