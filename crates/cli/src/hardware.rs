//! `oxiray hardware`.

use crate::arguments::HardwareOptions;
use oxiray_accelerators::{Host, detect, report, to_json};
use oxiray_node::limits::Limits;

pub(crate) fn run(options: &HardwareOptions) -> anyhow::Result<()> {
    let host = match &options.host_root {
        Some(folder) => Host::recorded(folder)?,
        None => Host::from_environment()?,
    };
    let detection = detect(&host);
    let limits = Limits::under(host.root());
    if options.json {
        let mut told = to_json(&detection, &host);
        told["limits"] = limits.map_or(serde_json::Value::Null, |limits| limits.to_json());
        crate::say(&serde_json::to_string_pretty(&told)?);
    } else {
        crate::say(report(&detection, &host).trim_end());
        if let Some(limits) = limits {
            crate::say(&format!("\nLimits\n{}", limits.describe().trim_end()));
        }
    }
    Ok(())
}
