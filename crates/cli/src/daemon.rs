//! `oxiray daemon`: what `init()` and `oxiray start` run.

use crate::arguments::DaemonOptions;
use anyhow::{Context as _, bail};
use oxiray_node::{Config, Mode};
use std::os::fd::{FromRawFd as _, OwnedFd};

pub(crate) fn run(options: &DaemonOptions) -> anyhow::Result<()> {
    let config: Config = serde_json::from_str(&options.config).context("--config cannot be read")?;
    let Some(descriptor) = options.driver_fd.filter(|_| options.private) else {
        // `oxiray start` reads this line.
        oxiray_node::run(&config, Mode::Shared { keeps_output: false }, |ready| {
            crate::say(&serde_json::to_string(ready).expect("texts can be written as JSON"));
        })?;
        return Ok(());
    };
    if descriptor < 3 {
        bail!("--driver-fd is {descriptor}; it must be a stream of its own, 3 or above");
    }
    // SAFETY: whoever started this process passed the descriptor to it for this, and nothing else uses it.
    let driver = unsafe { OwnedFd::from_raw_fd(descriptor) };
    oxiray_node::run(&config, Mode::Private(driver), |_| {})?;
    Ok(())
}
