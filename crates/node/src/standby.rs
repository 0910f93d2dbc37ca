//! A head whose journal lies in etcd: it waits for its turn.

use crate::config::{Config, StoreConfig};
use crate::machine;
use crate::session::{self, Session};
use crate::start_error::{StartError, Step as _};
use oxiray_journal::{Claim, EtcdAccess, EtcdAddress, EtcdStore};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often a standby looks whether there is a head.
const LOOK_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// For how long a head that was not started as a standby waits for a dead one's lease to be over.
const TURN_LIMIT: Duration = Duration::from_secs(6);

/// Becomes the head that writes to the store of that name.
pub(crate) fn claim(
    config: &Config,
    store: &StoreConfig,
    session: &Session,
    stop: &OwnedFd,
) -> Result<Box<EtcdStore>, StartError> {
    let address = EtcdAddress::parse(&store.address).map_err(StartError::Store)?;
    let access = EtcdAccess::read(&store.files())?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let own = format!("{} on {} (boot {})", session.directory().display(), machine::hostname(), boot.trim());
    // Whoever has a session's lock knows that the daemon is dead that had it before.
    let dead = if session.is_resumed() { own.as_str() } else { "" };
    let until = Instant::now() + TURN_LIMIT;
    loop {
        let holder = match EtcdStore::claim(&address, &access, &own, dead, !config.head.standby) {
            Ok(Claim::Won(store)) => {
                let marked = session::create(&session.journal()).and_then(|mut file| writeln!(file, "{address}"));
                marked.step("say in its session's directory where its journal is")?;
                return Ok(store);
            }
            Ok(Claim::Over) => return Err(StartError::Over { store: address.to_string() }),
            Ok(Claim::Held(holder)) => holder,
            // One that waits goes on waiting while etcd is away.
            Err(_) if config.head.standby => String::new(),
            Err(fault) => return Err(fault.into()),
        };
        if !config.head.standby && Instant::now() >= until {
            return Err(StartError::HeadElsewhere { store: address.to_string(), holder });
        }
        let mut watched = [PollFd::new(stop, PollFlags::IN)];
        if matches!(poll(&mut watched, Some(&LOOK_PERIOD)), Ok(ready) if ready > 0) {
            return Err(StartError::Stopped);
        }
    }
}
