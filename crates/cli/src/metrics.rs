//! `oxiray metrics`.

use crate::arguments::MetricsOptions;
use crate::visit::{self, Visit};
use oxiray_wire::plain;
use std::io::Write as _;

pub(crate) fn run(options: &MetricsOptions) -> anyhow::Result<()> {
    let report = Visit::begin(&visit::find(options.address.as_deref())?)?.metrics()?;
    // Readers that went away have seen enough.
    let _ = std::io::stdout().write_all(report.text.as_bytes());
    for note in report.notes {
        let _ = writeln!(std::io::stderr(), "note: {}", plain(&note));
    }
    Ok(())
}
