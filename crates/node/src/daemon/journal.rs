//! The head's journal: opened, gone on with, written to.
//!
//! - HEADS-1: every start of a head raises the epoch of its cluster, and this is safe before it serves anyone.

use super::Daemon;
use super::start::StartError;
use crate::config::Config;
use crate::core::Effect;
use crate::session::Session;
use bytes::Bytes;
use oxiray_journal::{Change, Fault, LogFile, Opened, Store, Table};
use oxiray_network::{Authority, AuthorityError, AuthorityParts};
use prost::Message as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The kind of the rows here.
const ABOUT: Table = 1;
/// The row of [`Identity`].
const IDENTITY: &[u8] = b"identity";
/// The row of the epoch: 8 bytes, the lowest first.
const EPOCH: &[u8] = b"epoch";

/// What a cluster is known by.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Identity {
    /// What lets a client of the head's machine in.
    #[prost(string, tag = "1")]
    pub(super) token: String,
    /// The port that its address ends with.
    #[prost(uint32, tag = "2")]
    pub(super) port: u32,
    /// Where the head listens for other machines, as `IP:PORT`; empty where it does not.
    #[prost(string, tag = "3")]
    pub(super) listens: String,
    #[prost(bytes = "bytes", tag = "4")]
    authority_certificate: Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    authority_key: Bytes,
    #[prost(bytes = "bytes", tag = "6")]
    join_secret: Bytes,
}

/// A journal that is open, and which head of the cluster this is.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) store: Box<dyn Store>,
    /// HEADS-1.
    pub(super) epoch: u64,
    /// What the cluster is known by, where there was one.
    pub(super) identity: Option<Identity>,
    /// What its user should know.
    pub(super) warning: Option<String>,
}

/// What was cut off the journal's end.
fn told_of(opened: &Opened) -> String {
    let dropped = format!("the last {} bytes of the journal were dropped", opened.torn);
    match &opened.kept {
        None => format!("{dropped}: writing them was cut short, so nobody was told"),
        Some(kept) => format!(
            "{dropped}, which are no part of it: the machine stopped while they were written, so that nobody was told, or \
             something else wrote them. They are kept in {}",
            kept.display()
        ),
    }
}

impl Keeping {
    /// Opens the journal, and makes it a new one where there is none.
    pub(super) fn open(config: &Config, session: &Session, stop: &OwnedFd) -> Result<Self, StartError> {
        let mut warning = None;
        let store: Box<dyn Store> = if let Some(store) = &config.store {
            super::standby::claim(config, store, session, stop)?
        } else {
            let opened = LogFile::open(&session.journal())?;
            warning = (opened.torn > 0).then(|| told_of(&opened));
            Box::new(opened.journal)
        };
        let row = |key: &'static [u8]| store.rows().get(&(ABOUT, Bytes::from_static(key)));
        let unread = || StartError::Rows(crate::core::NotRestored::Row(ABOUT));
        let identity = row(IDENTITY).map(|row| Identity::decode(row.clone())).transpose().map_err(|_| unread())?;
        let epoch = match row(EPOCH) {
            Some(row) => u64::from_le_bytes(row[..].try_into().map_err(|_| unread())?),
            None => 0,
        };
        Ok(Self { store, epoch: epoch + 1, identity, warning })
    }

    /// The cluster's authority, where it had one.
    pub(super) fn authority(&self) -> Result<Option<Authority>, AuthorityError> {
        let Some(known) = self.identity.as_ref().filter(|known| !known.authority_key.is_empty()) else {
            return Ok(None);
        };
        let parts = AuthorityParts {
            certificate: known.authority_certificate.to_vec(),
            key: known.authority_key.to_vec(),
            secret: known.join_secret.to_vec(),
        };
        Authority::from_parts(&parts).map(Some)
    }

    /// HEADS-1.
    pub(super) fn begin(
        &mut self,
        token: &str,
        port: u16,
        listens: Option<SocketAddr>,
        authority: Option<&AuthorityParts>,
    ) -> Result<(), Fault> {
        let before = self.identity.take().unwrap_or_default();
        let mut identity = Identity {
            token: token.to_owned(),
            port: port.into(),
            listens: listens.map(|at| at.to_string()).unwrap_or_default(),
            ..before
        };
        if let Some(parts) = authority {
            identity.authority_certificate = Bytes::copy_from_slice(&parts.certificate);
            identity.authority_key = Bytes::copy_from_slice(&parts.key);
            identity.join_secret = Bytes::copy_from_slice(&parts.secret);
        }
        let row = |key: &'static [u8], value: Vec<u8>| Change {
            table: ABOUT,
            key: Bytes::from_static(key),
            value: Some(value.into()),
        };
        self.store.commit(&[row(EPOCH, self.epoch.to_le_bytes().to_vec()), row(IDENTITY, identity.encode_to_vec())])
    }
}

impl Daemon {
    /// Makes safe what `effects` are about to tell (CORE-6); `false` where this is the head no more, and nothing is to be
    /// told.
    pub(super) fn write_down(&mut self, effects: &mut Vec<Effect>) -> bool {
        let Some(store) = &mut self.journal else { return true };
        let changes = self.core.unwritten();
        if changes.is_empty() {
            return true;
        }
        match store.commit(&changes) {
            Ok(()) => self.core.written(),
            Err(fault @ Fault::Fenced { .. }) => {
                self.lose_turn(&fault.to_string());
                return false;
            }
            Err(fault) => self.core.not_written(effects, &fault.to_string()),
        }
        true
    }
}
