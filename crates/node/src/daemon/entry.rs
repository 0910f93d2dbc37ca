//! Who may join a cluster, and for how long: tokens, identities, certificates and their renewal ([decision 22]).
//!
//! - ENTRY-1: whatever lets a newcomer in, or shuts one out, is safe in the journal before anybody is told.
//! - ENTRY-2: nobody gets the identity of another node, or has its work ended, without having shown that node's key.
//!
//! [decision 22]: ../../../../docs/decisions/0022-tokens-and-certificates-end.md

use super::Daemon;
use super::network::Network;
use super::start::{StartError, Step as _};
use crate::core::Key;
use crate::session::{self, Session};
use crate::tokens::{TokenFault, TokenRow, Tokens};
use bytes::Bytes;
use oxiray_ids::NodeId;
use oxiray_journal::{Change, Fault, Store};
use oxiray_network::{Authority, Certified, Credentials, JoinToken, Refusal, Renewal};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{
    CertificateIssued, CertificateWanted, Failure, TokenAction, TokenAsked, TokenRow as TokenTellable, TokenTold,
};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a member waits for its next certificate before it asks again.
const RENEWAL_PERIOD: Duration = Duration::from_secs(10);

/// What a head that listens knows of who may join.
#[derive(Debug)]
pub(super) struct Entry {
    authority: Arc<Authority>,
    lifetime: Duration,
    tokens: Tokens,
    /// The file of the first token.
    token_file: PathBuf,
}

/// What a node shows of itself, and what becomes of it.
#[derive(Debug)]
pub(super) struct Badge {
    pub(super) credentials: Credentials,
    /// The key that is being certified.
    renewal: Option<Renewal>,
    /// When there is something to do for it, as time since the machine was started.
    due: Duration,
}

impl Badge {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { due: credentials.renew_at(), credentials, renewal: None }
    }
}

/// The wall clock, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

impl Entry {
    /// Reads what was written down of tokens, and adds the first one where it is new. Its file is written as long as it
    /// holds.
    pub(super) fn open(
        authority: Authority,
        lifetime: Duration,
        store: Option<&mut Box<dyn Store>>,
        session: &Session,
    ) -> Result<Self, StartError> {
        let mut tokens = Tokens::default();
        for ((table, key), value) in store.iter().flat_map(|store| store.rows()) {
            if !tokens.restore(*table, key, value.clone()) {
                return Err(StartError::Rows(crate::core::NotRestored::Row(*table)));
            }
        }
        let (first, now) = (authority.token().clone(), now_ms());
        if let Some((next, changes)) = tokens.begin(&first.id(), first.secret(), now) {
            store.map_or(Ok(()), |store| store.commit(&changes))?;
            tokens = next;
        }
        let token_file = super::arrival::token_path(session.directory());
        // A killed head's, which is the same or less.
        let _ = std::fs::remove_file(&token_file);
        if tokens.all().any(|(id, row)| *id == first.id() && row.is_valid(now)) {
            let written = session::create(&token_file).and_then(|mut file| writeln!(file, "{}", first.to_text()));
            written.step("write the token for other machines")?;
        }
        Ok(Self { authority: Arc::new(authority.with_lifetime(lifetime)), lifetime, tokens, token_file })
    }

    pub(super) fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// What certifies newcomers, and by what they are known.
    pub(super) fn for_gateway(&self) -> (Arc<Authority>, Vec<JoinToken>) {
        (self.authority.clone(), self.known())
    }

    /// Those that hold no longer are known too, so that who shows one is told so.
    fn known(&self) -> Vec<JoinToken> {
        let first = self.authority.token();
        let secret = |row: &TokenRow| Some(first.sibling(row.secret[..].try_into().ok()?));
        self.tokens.all().filter_map(|(_, row)| secret(row)).collect()
    }

    fn told(&self, wanted: Option<&str>) -> Vec<TokenTellable> {
        let now = now_ms();
        let rows = self.tokens.all().filter(|(id, _)| wanted.is_none_or(|wanted| wanted == *id));
        rows.map(|(id, row)| TokenTellable {
            id: id.clone(),
            state: row.state(now).to_owned(),
            created_ms: row.created_ms,
            ends_ms: row.ends_ms,
            uses_left: row.uses_left,
            is_first: row.is_first,
        })
        .collect()
    }
}

impl Daemon {
    fn entry(&mut self) -> Option<&mut Entry> {
        self.network.as_mut()?.entry.as_mut()
    }

    /// ENTRY-1.
    fn keep_tokens(&mut self, (next, changes): (Tokens, Vec<Change>)) -> Result<(), Fault> {
        if let Some(store) = self.journal.as_mut().filter(|_| !changes.is_empty()) {
            store.commit(&changes)?;
        }
        let Some(network) = &mut self.network else { return Ok(()) };
        if let Some(entry) = &mut network.entry {
            entry.tokens = next;
            network.gateway.set_tokens(entry.known());
        }
        Ok(())
    }

    /// Somebody has proven that it has a token's secret or a node's key, and wants to join as `node`.
    pub(super) fn asks_to_join(&mut self, number: u64, node: NodeId, token: Option<&str>, before: Option<NodeId>) {
        let verdict = self.may_join(node, token, before);
        let Some(network) = &self.network else { return };
        match verdict {
            Ok(()) => network.gateway.admit(number),
            Err(refusal) => network.gateway.refuse(number, refusal),
        }
    }

    fn may_join(&mut self, node: NodeId, token: Option<&str>, before: Option<NodeId>) -> Result<(), Refusal> {
        let network = self.network.as_ref().ok_or(Refusal::Secret)?;
        let entry = network.entry.as_ref().ok_or(Refusal::Secret)?;
        let comes = network.remotes.values().any(|remote| remote.node == node);
        let is_known = node.is_nil() || node == self.core.own_node() || comes || self.core.knows_node(node);
        let now = now_ms();
        let is_shut_out = before.is_some_and(|before| entry.tokens.is_revoked(before));
        // ENTRY-2.
        if before != Some(node) && (is_known || entry.tokens.is_revoked(node)) {
            return Err(Refusal::Taken);
        }
        if before.is_some() && !is_shut_out {
            return Ok(());
        }
        let token = token.ok_or(Refusal::Revoked)?;
        if before == Some(node) {
            // It may come again, but not as who it was.
            return Err(Refusal::Revoked);
        }
        let spent = entry.tokens.spend(token, now).ok_or(Refusal::Ended)?;
        self.keep_tokens(spent).map_err(|fault| {
            self.log.line(&fault.to_string());
            Refusal::Unwritten
        })
    }

    /// A node that ended for good, or is to: its certificate lets nobody in any more.
    pub(super) fn shut_out(&mut self, node: NodeId) -> Result<(), Fault> {
        let now = now_ms();
        let Some(entry) = self.entry() else { return Ok(()) };
        let until = now.saturating_add(entry.lifetime.as_millis() as u64);
        let next = entry.tokens.revoke_node(node, until, now);
        self.keep_tokens(next)
    }

    /// The command line asks about tokens.
    pub(super) fn token_asked(&mut self, key: Key, asked: &TokenAsked) {
        let request = asked.request;
        let told = self.token_told(asked).unwrap_or_else(|text| {
            let failure = Failure { code: "token".into(), text, cause: Bytes::new() };
            TokenTold { failure: Some(failure), ..TokenTold::default() }
        });
        self.queue(key, &TokenTold { request, ..told }.into(), Vec::new());
    }

    fn token_told(&mut self, asked: &TokenAsked) -> Result<TokenTold, String> {
        let now = now_ms();
        let Some(entry) = self.entry() else {
            return Err("this cluster lets no other machine in: it was started without --port".to_owned());
        };
        let fault = |fault: TokenFault| fault.to_string();
        let mut text = String::new();
        let (id, next) = match asked.action() {
            TokenAction::Unknown => {
                return Err("the head does not know what is to be done: it is of another build".to_owned());
            }
            TokenAction::List => return Ok(TokenTold { rows: entry.told(None), ..TokenTold::default() }),
            TokenAction::Create => {
                let token = entry.authority.token().sibling(oxiray_ids::random());
                let row = TokenRow {
                    secret: Bytes::copy_from_slice(token.secret()),
                    created_ms: now,
                    ends_ms: asked.ttl_ms.map(|ttl| now.saturating_add(ttl)),
                    uses_left: asked.uses,
                    ..TokenRow::default()
                };
                text = token.to_text();
                (token.id(), entry.tokens.create(&token.id(), row, now).map_err(fault)?)
            }
            TokenAction::Revoke => (asked.id.clone(), entry.tokens.revoke(&asked.id, now).map_err(fault)?),
            TokenAction::RevokeNode => return self.revoke_node(&asked.node),
        };
        self.keep_tokens(next).map_err(|fault| fault.to_string())?;
        let Some(entry) = self.entry() else { return Err("the cluster ends".to_owned()) };
        let rows = entry.told(Some(&id));
        if rows.iter().any(|row| row.is_first && row.state != "valid") {
            // Nobody is to copy it any more; where it is gone already, that is as good.
            let _ = std::fs::remove_file(&entry.token_file);
        }
        let what = if text.is_empty() { "revoked" } else { "made" };
        self.log.line(&format!("join token {id} was {what}"));
        Ok(TokenTold { text, rows, ..TokenTold::default() })
    }

    fn revoke_node(&mut self, named: &str) -> Result<TokenTold, String> {
        let living = self.core.drainable(named);
        let node = match &living {
            Ok((_, node)) => *node,
            Err(text) => NodeId::from_hex(named).map_err(|_| text.clone())?,
        };
        if node == self.core.own_node() {
            return Err("the head cannot be shut out: `oxiray stop` ends the cluster".to_owned());
        }
        self.shut_out(node).map_err(|fault| fault.to_string())?;
        if let Ok((key, _)) = living {
            self.give_up(key, "its certificate was revoked");
        }
        Ok(TokenTold::default())
    }

    // --- renewal ---

    /// When something is to be done for this node's certificate, as time since the machine was started.
    pub(super) fn certificate_due(&self) -> Option<Duration> {
        Some(self.network.as_ref()?.badge.due)
    }

    /// Renews this node's certificate, where it is time: half of what it is valid for is left.
    pub(super) fn renew_certificate(&mut self, now: Duration) {
        let Some(network) = self.network.as_mut().filter(|network| network.badge.due <= now) else { return };
        network.badge.due = now + RENEWAL_PERIOD;
        let own = self.core.own_node();
        let renewed = match &network.entry {
            Some(entry) => entry.authority.head_credentials(own, &protocol()).map_err(|error| error.to_string()),
            None => return self.ask_for_certificate(),
        };
        match renewed {
            Ok(credentials) => network.show(credentials),
            Err(error) => self.log.line(&format!("this head's certificate cannot be renewed: {error}")),
        }
    }

    fn ask_for_certificate(&mut self) {
        let renewal = match Renewal::begin() {
            Ok(renewal) => renewal,
            Err(error) => return self.log.line(&error.to_string()),
        };
        let public_key = Bytes::copy_from_slice(renewal.public_key());
        if let (Some(network), Some(head)) = (&mut self.network, self.core.head_key()) {
            network.badge.renewal = Some(renewal);
            self.queue(head, &CertificateWanted { public_key }.into(), Vec::new());
        }
    }

    /// A member asks for its next certificate, on its own stream.
    pub(super) fn certificate_wanted(&mut self, from: Key, asked: &CertificateWanted) {
        let Some(Network { entry: Some(entry), remotes, .. }) = &self.network else { return };
        let Some(node) = remotes.get(&from).map(|remote| remote.node) else { return };
        match entry.authority.certify(node, &asked.public_key) {
            Ok(Certified { certificate, now_s, lifetime_s }) => {
                let issued = CertificateIssued { certificate: certificate.into(), now_s, lifetime_s };
                self.queue(from, &issued.into(), Vec::new());
            }
            Err(error) => self.log.line(&format!("the certificate of node {node} cannot be renewed: {error}")),
        }
    }

    /// The head has certified this member's other key.
    pub(super) fn certificate_issued(&mut self, said: &CertificateIssued) {
        let Some(network) = &mut self.network else { return };
        let Some(renewal) = network.badge.renewal.take() else { return };
        let CertificateIssued { certificate, now_s, lifetime_s } = said.clone();
        let certified = Certified { certificate: certificate.to_vec(), now_s, lifetime_s };
        match renewal.finish(&network.badge.credentials, certified, &protocol()) {
            Ok(credentials) => {
                network.show(credentials);
                self.log.line("this node's certificate was renewed");
                self.leave_note();
            }
            Err(error) => self.log.line(&format!("this node's certificate cannot be renewed: {error}")),
        }
    }
}
