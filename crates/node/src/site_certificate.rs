//! The certificate of a dashboard that other machines reach, made by the cluster's own authority where none was given.
//!
//! It is made anew by each head that starts, when half of its time is over, and when the machine has other addresses. Whoever asks
//! over HTTPS verifies it with the authority's certificate, which lies beside it in the session's directory and stays the same as long
//! as the cluster's journal does.

use crate::config::{DashboardConfig, HeadConfig};
use crate::session;
use crate::start_error::{StartError, Step as _};
use oxiray_network::{Authority, SiteCertificate};
use oxiray_processes::since_boot;
use oxiray_wire::session::{DASHBOARD_AUTHORITY, DASHBOARD_CERTIFICATE, DASHBOARD_KEY};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the machine's addresses are looked at.
const LOOK_PERIOD: Duration = Duration::from_secs(3600);
/// The most addresses of the machine that a certificate names.
const ADDRESSES_MAX: usize = 200;
/// The scope of an IPv6 address that is of one link only, as the kernel writes it: nobody asks for it without naming the link.
const LINK_SCOPE: &str = "20";

/// The certificate that there is, and when another is made.
#[derive(Debug)]
pub(crate) struct SiteCertificates {
    dashboard: DashboardConfig,
    /// The address of the head's machine.
    ip: String,
    directory: PathBuf,
    names: BTreeSet<String>,
    /// When it is looked at, and when it is made anew at the latest, as time since the machine was started.
    look_at: Duration,
    renew_at: Duration,
}

impl SiteCertificates {
    /// Those of a head's dashboard; nothing where it needs none.
    pub(crate) fn for_head(
        authority: &Authority,
        head: &HeadConfig,
        ip: &str,
        directory: &Path,
    ) -> Result<Option<Self>, StartError> {
        let dashboard = head.dashboard.as_ref().filter(|of| of.needs_certificate());
        dashboard.map(|dashboard| Self::make(authority, dashboard, ip, directory)).transpose()
    }

    /// Makes the files that the dashboard is started with.
    fn make(
        authority: &Authority,
        dashboard: &DashboardConfig,
        ip: &str,
        directory: &Path,
    ) -> Result<Self, StartError> {
        let names = names(dashboard, ip, &addresses());
        let now = since_boot();
        let made = authority.certify_site(names.iter().cloned().collect())?;
        write_all(&made, directory).step("write the dashboard's certificate")?;
        Ok(Self {
            dashboard: dashboard.clone(),
            ip: ip.to_owned(),
            directory: directory.to_owned(),
            names,
            look_at: now + LOOK_PERIOD,
            renew_at: now + made.lifetime / 2,
        })
    }

    /// When it is to be looked at, as time since the machine was started.
    pub(crate) fn look_at(&self) -> Duration {
        self.look_at
    }

    /// Makes the files anew where it is time to; nothing where it is not. What fails is tried again in a while.
    pub(crate) fn keep(&mut self, authority: &Authority, now: Duration) -> Option<Result<(), String>> {
        if now < self.look_at {
            return None;
        }
        self.keep_for(authority, now, &addresses())
    }

    fn keep_for(&mut self, authority: &Authority, now: Duration, own: &[IpAddr]) -> Option<Result<(), String>> {
        self.look_at = now + LOOK_PERIOD;
        let names = names(&self.dashboard, &self.ip, own);
        if names == self.names && now < self.renew_at {
            return None;
        }
        let made = match authority.certify_site(names.iter().cloned().collect()) {
            Ok(made) => made,
            Err(error) => return Some(Err(error.to_string())),
        };
        let written = write_all(&made, &self.directory);
        if written.is_ok() {
            (self.names, self.renew_at) = (names, now + made.lifetime / 2);
        }
        Some(written.map_err(|error| error.to_string()))
    }
}

/// The names and addresses by which the dashboard may be asked, `own` being those of the machine.
fn names(dashboard: &DashboardConfig, ip: &str, own: &[IpAddr]) -> BTreeSet<String> {
    let listens_at = |own: &IpAddr| match dashboard.host {
        // The system lets IPv4 in there, too.
        Some(IpAddr::V6(host)) if host.is_unspecified() => true,
        Some(IpAddr::V4(host)) if host.is_unspecified() => own.is_ipv4(),
        _ => false,
    };
    let host = dashboard.host.filter(|host| !host.is_unspecified()).map(|host| host.to_string());
    let always = [ip, "127.0.0.1", "::1", "localhost"].map(str::to_owned);
    let allowed = dashboard.allow_hosts.iter().filter(|name| !name.contains('*')).cloned();
    let own = own.iter().filter(|own| listens_at(own)).take(ADDRESSES_MAX).map(IpAddr::to_string);
    host.into_iter().chain(always).chain(allowed).chain(own).filter(|name| !name.is_empty()).collect()
}

/// The addresses of this machine, as far as the kernel tells of them.
fn addresses() -> Vec<IpAddr> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut found: Vec<IpAddr> = fourth(&read("/proc/net/fib_trie")).map(IpAddr::from).collect();
    found.extend(sixth(&read("/proc/net/if_inet6")).map(IpAddr::from));
    found.sort_unstable();
    found.dedup();
    found
}

/// The addresses for which the machine takes packets, from the kernel's table of routes of IPv4: each a leaf, and below it what it is.
fn fourth(trie: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut leaf = None;
    trie.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
            return None;
        }
        if line == "/32 host LOCAL" { leaf } else { None }
    })
}

/// The addresses of interfaces, from the kernel's list of those of IPv6: 32 digits, the interface's number, the prefix's length, the
/// scope, flags and the interface's name.
fn sixth(list: &str) -> impl Iterator<Item = Ipv6Addr> {
    list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let digits = words.next().filter(|digits| digits.len() == 32)?;
        let address = u128::from_str_radix(digits, 16).ok()?;
        let scope = words.nth(2)?;
        (scope != LINK_SCOPE).then(|| Ipv6Addr::from_bits(address))
    })
}

fn write_all(made: &SiteCertificate, directory: &Path) -> io::Result<()> {
    let written = [
        (DASHBOARD_CERTIFICATE, &made.certificate),
        (DASHBOARD_KEY, &made.key),
        (DASHBOARD_AUTHORITY, &made.authority),
    ];
    written.into_iter().try_for_each(|(name, text)| write(&directory.join(name), text))
}

/// Writes a file that its user alone reads. Who reads it meanwhile finds the one before or this one, and never a part.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    session::create(&new)?.write_all(text.as_bytes())?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn listening(host: &str) -> DashboardConfig {
        let allow_hosts = vec!["head.example".to_owned(), "*-head-svc.team.svc".to_owned()];
        let host = Some(host.parse().expect("an address"));
        DashboardConfig { host, allow_hosts, ..DashboardConfig::default() }
    }

    fn own() -> Vec<IpAddr> {
        ["10.0.0.1", "172.17.0.1", "fd00::7"].map(|address| address.parse().expect("an address")).to_vec()
    }

    #[test]
    fn it_is_of_every_name_that_requests_may_bear() {
        let of = |host: &str| names(&listening(host), "10.0.0.1", &own()).into_iter().collect::<Vec<_>>();
        let common = ["10.0.0.1", "127.0.0.1", "::1", "head.example", "localhost"];
        assert_eq!(of("10.0.0.1"), common);
        assert_eq!(of("10.9.9.9").len(), common.len() + 1);
        let fourth = ["10.0.0.1", "127.0.0.1", "172.17.0.1", "::1", "head.example", "localhost"];
        assert_eq!(of("0.0.0.0"), fourth);
        assert_eq!(of("::").len(), fourth.len() + 1, "of both families");
    }

    #[test]
    fn the_kernel_tells_the_machines_addresses() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.0.0.0/24 2 0 2\n\
                    \x20       |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.5\n           /32 host LOCAL\n\
                    \x20       |-- 10.0.0.255\n           /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(fourth(trie).map(|address| address.to_string()).collect::<Vec<_>>(), ["10.0.0.5", "127.0.0.1"]);
        let list = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    fd000000000000000000000000000007 02 40 00 80     eth0\n\
                    fe800000000000000000000000000007 02 40 20 80     eth0\nno address\n";
        assert_eq!(sixth(list).map(|address| address.to_string()).collect::<Vec<_>>(), ["::1", "fd00::7"]);
        assert!(addresses().contains(&IpAddr::from(Ipv4Addr::LOCALHOST)), "of this machine");
    }

    #[test]
    fn it_is_made_anew_ahead_of_its_end_and_for_other_addresses() {
        let authority = Authority::make().expect("an authority");
        let directory = std::env::temp_dir().join(format!("oxiray-site-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a folder");
        let mut site =
            SiteCertificates::make(&authority, &listening("0.0.0.0"), "10.0.0.1", &directory).expect("a certificate");
        let shown = || fs::read(directory.join(DASHBOARD_CERTIFICATE)).expect("a certificate");
        let (first, now) = (shown(), site.look_at());
        assert!(site.keep(&authority, now.saturating_sub(Duration::from_secs(1))).is_none());
        assert_eq!(site.keep_for(&authority, now, &own()), Some(Ok(())), "it has other addresses");
        let second = shown();
        assert_ne!(second, first);
        assert_eq!((site.keep_for(&authority, now, &own()), site.look_at()), (None, now + LOOK_PERIOD));
        let day = Duration::from_secs(24 * 3600);
        let half = now + day * 365 / 2;
        assert_eq!((site.keep_for(&authority, now + day * 181, &own()), shown()), (None, second.clone()));
        assert_eq!(site.keep_for(&authority, half, &own()), Some(Ok(())), "half of its time is over");
        assert_ne!(shown(), second);
        let mode = fs::metadata(directory.join(DASHBOARD_KEY)).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).expect("a folder").count(), 3, "nothing else is left there");
        fs::remove_dir_all(&directory).expect("removed");
        assert!(matches!(site.keep_for(&authority, half + day * 365, &own()), Some(Err(_))));
    }
}
