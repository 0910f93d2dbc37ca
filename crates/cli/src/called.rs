//! The name that the command was called by: `oxiray`, or `ray` through the alias, whose words scripts look for.

use std::path::Path;
use std::sync::LazyLock;

static IS_RAY: LazyLock<bool> = LazyLock::new(|| {
    let name = std::env::args_os().next().unwrap_or_default();
    Path::new(&name).file_name().is_some_and(|name| name == "ray")
});

/// Whether it was called as `ray`.
pub(crate) fn is_ray() -> bool {
    *IS_RAY
}

/// The command, as one types it.
pub(crate) fn command() -> &'static str {
    if is_ray() { "ray" } else { "oxiray" }
}

/// The product, as sentences name it.
pub(crate) fn product() -> &'static str {
    if is_ray() { "Ray" } else { "Oxiray" }
}
