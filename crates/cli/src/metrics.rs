//! `oxiray metrics`.

use crate::arguments::MetricsOptions;
use crate::visit;
use oxiray_wire::message::MetricsQuery;
use oxiray_wire::plain;
use std::io::Write as _;

pub(crate) fn run(options: &MetricsOptions) -> anyhow::Result<()> {
    let report = visit::ask(options.address.as_deref(), MetricsQuery::default())?;
    // Readers that went away have seen enough.
    let _ = std::io::stdout().write_all(report.text.as_bytes());
    for note in report.notes {
        let _ = writeln!(std::io::stderr(), "note: {}", plain(&note));
    }
    Ok(())
}
