//! `oxiray device`: takes a device out of service, has it checked, and puts it back.

use crate::arguments::{DeviceCommand, DeviceOrderOptions, DeviceVerb};
use crate::say;
use crate::visit;
use anyhow::{Context as _, bail};
use oxiray_wire::message::{DeviceAction, DeviceAsked};

pub(crate) fn run(options: &DeviceCommand) -> anyhow::Result<()> {
    match &options.verb {
        DeviceVerb::Drain { order, reason } => {
            let reason = reason.clone().unwrap_or_default();
            let asked = DeviceAsked { action: DeviceAction::Drain, reason, ..DeviceAsked::default() };
            ask(order, asked, "is given to nobody any more; who has it keeps it. `oxiray device undrain` puts it back")
        }
        DeviceVerb::Undrain { device, all, force, address } => {
            let asked = DeviceAsked { action: DeviceAction::Undrain, is_forced: *force, ..DeviceAsked::default() };
            let told = "is put back into service";
            let checked = format!("{told} when it has passed a check: see `oxiray status`");
            let told = if *force { told } else { &checked };
            let device = device.clone().unwrap_or_default();
            let address = address.clone();
            if *all {
                return undrain_all(&device, address.as_deref(), asked, told);
            }
            ask(&DeviceOrderOptions { device, address }, asked, told)
        }
        DeviceVerb::Check { order } => {
            let asked = DeviceAsked { action: DeviceAction::Check, ..DeviceAsked::default() };
            ask(order, asked, "is being checked; where it does not pass it stays out of service: see `oxiray status`")
        }
    }
}

fn ask(order: &DeviceOrderOptions, asked: DeviceAsked, told: &str) -> anyhow::Result<()> {
    let Some((node, device)) = order.device.rsplit_once('/') else {
        bail!(
            "`{}` names no device of a node: give NODE/DEVICE, such as 127.0.0.1/0, where NODE is the identifier of a node or \
             the beginning of it, its name or its address (`oxiray list nodes`), and DEVICE a number, RESOURCE:NUMBER, or a UUID \
             or the beginning of it",
            order.device
        );
    };
    let asked = DeviceAsked { node: node.to_owned(), device: device.to_owned(), ..asked };
    let found = visit::find(order.address.as_deref())?;
    let report = visit::state(&mut visit::begin(&found)?, asked, visit::LIST_LIMIT)?;
    let device = report.device.context("the daemon does not say which device it ordered: it is of another version")?;
    say(&format!("{} {} of node {} {told}.", device.resource, device.slot, device.node_id));
    Ok(())
}

/// `node` is empty for all of them.
fn undrain_all(node: &str, address: Option<&str>, asked: DeviceAsked, told: &str) -> anyhow::Result<()> {
    if node.contains('/') {
        bail!("`{node}` names one device: give it without --all, or with --all the node alone");
    }
    let asked = DeviceAsked { node: node.to_owned(), is_all: true, ..asked };
    let found = visit::find(address)?;
    let report = visit::state(&mut visit::begin(&found)?, asked, visit::LIST_LIMIT)?;
    if report.devices.is_empty() {
        say("No device is out of service: there is nothing to undo.");
    }
    for device in report.devices {
        say(&format!("{} {} of node {} {told}.", device.resource, device.slot, device.node_id));
    }
    Ok(())
}
