//! The certificate of a dashboard that other machines reach, made by the cluster's own authority where none was given.
//!
//! It is made anew by each head that starts. Whoever asks over HTTPS verifies it with the authority's certificate, which lies beside
//! it in the session's directory and stays the same as long as the cluster's journal does.

use crate::config::DashboardConfig;
use crate::session::{self, Session};
use crate::start_error::{StartError, Step as _};
use oxiray_network::Authority;
use oxiray_wire::session::{DASHBOARD_AUTHORITY, DASHBOARD_CERTIFICATE, DASHBOARD_KEY};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Makes the files that the dashboard is started with. `ip` is the address of the head's machine.
pub(crate) fn make(
    authority: &Authority,
    dashboard: &DashboardConfig,
    ip: &str,
    session: &Session,
) -> Result<(), StartError> {
    let made = authority.certify_site(names(dashboard, ip))?;
    let written = [
        (DASHBOARD_CERTIFICATE, &made.certificate),
        (DASHBOARD_KEY, &made.key),
        (DASHBOARD_AUTHORITY, &made.authority),
    ];
    for (name, text) in written {
        write(&session.directory().join(name), text).step("write the dashboard's certificate")?;
    }
    Ok(())
}

/// The names and addresses by which the dashboard may be asked.
fn names(dashboard: &DashboardConfig, ip: &str) -> Vec<String> {
    let host = dashboard.host.filter(|host| !host.is_unspecified()).map(|host| host.to_string());
    let own = [ip, "127.0.0.1", "::1", "localhost"].map(str::to_owned);
    let allowed = dashboard.allow_hosts.iter().filter(|name| !name.contains('*')).cloned();
    let mut names: Vec<String> = host.into_iter().chain(own).chain(allowed).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Writes a file that its user alone reads; what a killed head left is replaced.
fn write(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    session::create(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_every_name_that_requests_may_bear() {
        let allow_hosts = vec!["head.example".to_owned(), "*-head-svc.team.svc".to_owned()];
        let of = |host: &str| {
            let host = Some(host.parse().expect("an address"));
            names(&DashboardConfig { host, allow_hosts: allow_hosts.clone(), ..DashboardConfig::default() }, "10.0.0.1")
        };
        let common = ["10.0.0.1", "127.0.0.1", "::1", "head.example", "localhost"];
        assert_eq!(of("0.0.0.0"), common);
        assert_eq!(of("10.0.0.1"), common);
        assert_eq!(of("10.9.9.9").len(), common.len() + 1);
    }
}
