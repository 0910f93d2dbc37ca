//! `oxiray hardware`.

use crate::arguments::HardwareOptions;
use oxiray_accelerators::{BusWay, Detected, Host, LinkKind, Pair, detect, report, to_json};
use oxiray_fence::{Means, Mechanism};
use oxiray_node::limits::Limits;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const EXPECT: &str = "writing to a string does not fail";

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
            detection.families.iter().map(topology).for_each(|text| crate::say(&text));
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

/// How each two devices of a family are connected, as `nvidia-smi topo -m` shows it, and how near that is.
fn topology(detected: &Detected) -> String {
    let name = detected.family.name;
    if detected.pairs.is_empty() {
        return format!("\nHow {name}s are connected is not known beyond their NUMA nodes");
    }
    let ways = matrix(detected, |pair| pair.to_string() + if pair.fault.is_some() { "*" } else { "" });
    let scores = matrix(detected, |pair| pair.nearness().to_string());
    let mut text = format!("\nHow {name}s are connected\n{ways}\n{}", meanings(&detected.pairs));
    for pair in &detected.pairs {
        if let Some(fault) = pair.fault {
            let (one, other) = (pair.one, pair.other);
            write!(text, "\n  * [{one}] and [{other}] do not reach each other's memory over their links: {fault}")
                .expect(EXPECT);
        }
    }
    text + &format!(
        "\n\nHow near they are: of several that are free, those with the largest scores go together\n{scores}"
    )
}

/// A row and a column for each device of a family; `?` where nothing is known of two.
fn matrix(detected: &Detected, cell: impl Fn(&Pair) -> String) -> String {
    let known = |one: usize, other: usize| {
        let is_it = |pair: &&Pair| (pair.one, pair.other) == (one.min(other), one.max(other));
        detected.pairs.iter().find(is_it).map_or_else(|| "?".to_owned(), &cell)
    };
    let places = 0..detected.devices.len();
    let wide = |text: String| format!("{text:>7}");
    let head: String = places.clone().map(|place| wide(format!("[{place}]"))).collect();
    let row = |one: usize| {
        let cells: String =
            places.clone().map(|other| wide(if one == other { "X".to_owned() } else { known(one, other) })).collect();
        format!("  {:>4}{cells}", format!("[{one}]"))
    };
    let rows: Vec<String> = places.clone().map(row).collect();
    format!("      {head}\n{}", rows.join("\n"))
}

/// What the words stand for that are in a matrix.
fn meanings(pairs: &[Pair]) -> String {
    let ways: BTreeSet<BusWay> = pairs.iter().filter(|pair| pair.links == 0).map(|pair| pair.way).collect();
    let links: BTreeSet<LinkKind> = pairs.iter().filter(|pair| pair.links > 0).map(|pair| pair.kind).collect();
    let of_links = links.into_iter().map(|kind| match kind {
        LinkKind::NvLink => "NV4: four NVLinks".to_owned(),
        LinkKind::Xgmi => "XGMI1: one xGMI link, without another device between".to_owned(),
    });
    let of_ways = ways.into_iter().map(|way| format!("{}: {}", way.word(), way.meaning()));
    format!("  {}", of_links.chain(of_ways).collect::<Vec<_>>().join("; "))
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
