//! `oxiray hardware`.

use crate::arguments::HardwareOptions;
use oxiray_accelerators::{Host, detect, report, to_json};

pub(crate) fn run(options: &HardwareOptions) -> anyhow::Result<()> {
    let host = match &options.host_root {
        Some(folder) => Host::recorded(folder)?,
        None => Host::from_environment()?,
    };
    let detection = detect(&host);
    if options.json {
        crate::say(&serde_json::to_string_pretty(&to_json(&detection, &host))?);
    } else {
        crate::say(report(&detection, &host).trim_end());
    }
    Ok(())
}
