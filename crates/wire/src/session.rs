//! The session directory: where the daemon's socket and secret lie, and how they are found.
//!
//! ```text
//! <root>/                   0700, the user's own: $OXIRAY_TMPDIR, $RAY_TMPDIR, or /tmp/oxiray-<uid>
//!   current                 names the session that `address="auto"` means
//!   <session>/              0700; a link to such a directory where the session was told to lie elsewhere
//!     socket                0600, the daemon listens here
//!     session.json          0600, address, token and process id
//!     journal               0600, what a head writes down to outlive it
//!     dashboard.json        where the dashboard is asked, while there is one
//!     http-token            0600, by whose content it knows who may do everything
//!     http-token-read       0600, and who may only look
//!     uploads/              0700; what clients of the dashboard put there for jobs
//!   cache/packages/         0700; what programs ship: NAME.zip, and under their names the programs that are workers
//!   logs/                   0700
//!     <session>/            0700; stays when the session ends, until it is one of too many, too old or too large
//!       daemon.log          0600
//!       worker-<worker>-<job>-<pid>.out, .err
//!       runtime_env_setup-<number>.log
//!       submitted-<job>.log
//!     latest                leads to the logs of the session that was begun last
//! ```
//!
//! A root that belongs to someone else, or that others may enter, is refused: whoever could plant a
//! socket there could pose as the daemon.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where in its directory the daemon listens.
pub const SOCKET: &str = "socket";
/// The description of a session in its directory.
pub const DESCRIPTION: &str = "session.json";
/// Where the dashboard of a session is asked, in the session's directory.
pub const DASHBOARD: &str = "dashboard.json";
/// In the same place, the certificate of a dashboard for which none was given, its key, and the certificate of the cluster's authority,
/// which made it; each as PEM.
pub const DASHBOARD_CERTIFICATE: &str = "dashboard-certificate.pem";
/// See [`DASHBOARD_CERTIFICATE`].
pub const DASHBOARD_KEY: &str = "dashboard-key.pem";
/// See [`DASHBOARD_CERTIFICATE`].
pub const DASHBOARD_AUTHORITY: &str = "dashboard-authority.pem";
/// Where the session's history is recorded, as JSON, where it is.
pub const HISTORY: &str = "history.json";
/// In the same place, the secret that opens all of it.
pub const HTTP_TOKEN: &str = "http-token";
/// In the same place, the secret that opens what changes nothing.
pub const HTTP_TOKEN_READ: &str = "http-token-read";
/// In the root, the file that names the current session.
pub const CURRENT: &str = "current";

/// In the root, the directory of the logs of all sessions.
pub const LOGS: &str = "logs";
/// In that, the link to the logs of the session that was begun last.
pub const LATEST: &str = "latest";

/// What the names of packages begin with that are programs; the digest of the file follows.
pub const PROGRAM_PREFIX: &str = "program";

/// Where the packages lie that programs ship, in the directory of all sessions.
pub fn packages_in(root: &Path) -> PathBuf {
    root.join("cache").join("packages")
}

/// The file of a package among those.
pub fn package_file(packages: &Path, name: &str) -> PathBuf {
    if name.starts_with(PROGRAM_PREFIX) { packages.join(name) } else { packages.join(format!("{name}.zip")) }
}

/// Where the logs are of the session with this directory.
pub fn logs_of(session: &Path) -> PathBuf {
    let root = session.parent().unwrap_or(session);
    root.join(LOGS).join(session.file_name().unwrap_or_default())
}

/// Where it is kept what a submitted job prints, in a directory of logs.
pub fn printed_by(logs: &Path, submission: &str) -> PathBuf {
    logs.join(format!("submitted-{submission}.log"))
}

/// The file of a head's session by which Prometheus finds the nodes that export metrics; named as by Ray.
pub const PROMETHEUS_TARGETS: &str = "prom_metrics_service_discovery.json";

/// The directory of all sessions of this user, made with mode 0700 where it is missing.
///
/// # Errors
/// Where it cannot be made, belongs to another user, is a link, or is open to others.
pub fn root(variable: impl Fn(&str) -> Option<String>) -> io::Result<PathBuf> {
    let chosen = ["OXIRAY_TMPDIR", "RAY_TMPDIR"].iter().find_map(|name| variable(name).filter(|dir| !dir.is_empty()));
    let uid = rustix::process::geteuid().as_raw();
    let root = match chosen {
        Some(dir) => PathBuf::from(dir).join(format!("oxiray-{uid}")),
        None => PathBuf::from(format!("/tmp/oxiray-{uid}")),
    };
    private_directory(&root)?;
    Ok(root)
}

/// Makes `path` with mode 0700, or checks that it is a directory of ours that nobody else may enter.
pub fn private_directory(path: &Path) -> io::Result<()> {
    let named = |error: io::Error, place: &Path| {
        let text =
            format!("{}: {error}; name a folder that is writable with OXIRAY_TMPDIR or --temp-dir", place.display());
        io::Error::new(error.kind(), text)
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| named(error, parent))?;
    }
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(named(error.into(), path)),
    }
    let found = rustix::fs::lstat(path)?;
    let is_directory = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    let uid = rustix::process::geteuid().as_raw();
    if !is_directory || found.st_uid != uid || Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} must be a directory of user {uid} with mode 0700, so that nobody else can pose as the daemon: \
                 remove it, or name another with OXIRAY_TMPDIR",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// Connects to the daemon of a session.
///
/// # Errors
/// Where there is no such session, or nobody listens.
pub fn connect(directory: &Path) -> io::Result<UnixStream> {
    let opened = rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    UnixStream::connect(within(&opened, SOCKET))
}

/// A path to what is in a directory, by the directory's descriptor: socket addresses are short, and temporary directories
/// are not.
pub fn within(directory: &impl AsFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd()))
}
