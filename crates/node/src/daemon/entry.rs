//! Who may join a cluster, and for how long: tokens, identities, certificates and their renewal ([decision 22]).
//!
//! - ENTRY-1: whatever lets a newcomer in, or shuts one out, is safe in the journal before anybody is told.
//! - ENTRY-2: nobody gets the identity of another node, or has its work ended, without having shown that node's key.
//!
//! [decision 22]: ../../../../docs/decisions/0022-tokens-and-certificates-end.md

use super::Daemon;
use super::network::Network;
use super::start::{StartError, Step as _};
use crate::session::{self, Session};
use crate::tokens::{TokenFault, TokenRow, Tokens};
use bytes::Bytes;
use oxiray_ids::NodeId;
use oxiray_journal::{Change, Store};
use oxiray_machine::Key;
use oxiray_network::{Authority, Certified, Credentials, JoinToken, Refusal, Renewal};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{
    CertificateIssued, CertificateWanted, Failure, TokenAction, TokenAsked, TokenRow as TokenTellable, TokenTold,
};
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Why there is nothing to be said of tokens.
const NOT_LISTENING: &str = "this cluster lets no other machine in: it was started without --port";

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
    /// What is to be when it is safe, and what is done then.
    change: Option<(Tokens, Then)>,
    /// What is wished for meanwhile: what tokens there are to be follows from those that there are.
    wishes: VecDeque<Wish>,
}

/// What somebody wants of tokens.
#[derive(Debug)]
enum Wish {
    /// To join as `node`, having proven that it has a token's secret or a node's key.
    Join { number: u64, node: NodeId, token: Option<String>, before: Option<NodeId> },
    /// An answer to the command line.
    Answer { to: Key, asked: TokenAsked },
    /// That a node which ended for good lets nobody in any more.
    ShutOut { node: NodeId },
}

/// What is done when a change is safe (ENTRY-1).
#[derive(Debug)]
enum Then {
    /// Lets in who asked under that number.
    Admit { number: u64 },
    /// Tells the command line of the token, which it made or revoked.
    Tell { to: Key, request: u64, id: String, text: String },
    /// Gives up a node that was shut out, and tells who asked for it.
    GiveUp { living: Option<Key>, asked: Option<(Key, u64)>, node: NodeId },
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
                return Err(StartError::Rows(oxiray_head::NotRestored::Row(*table)));
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
        Ok(Self {
            authority: Arc::new(authority.with_lifetime(lifetime)),
            lifetime,
            tokens,
            token_file,
            change: None,
            wishes: VecDeque::new(),
        })
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

    /// Somebody has proven that it has a token's secret or a node's key, and wants to join as `node`.
    pub(super) fn asks_to_join(&mut self, number: u64, node: NodeId, token: Option<String>, before: Option<NodeId>) {
        self.wish(Wish::Join { number, node, token, before });
    }

    /// A node that ended for good, or is to: its certificate lets nobody in any more.
    pub(super) fn shut_out(&mut self, node: NodeId) {
        self.wish(Wish::ShutOut { node });
    }

    /// The command line asks about tokens.
    pub(super) fn token_asked(&mut self, key: Key, asked: &TokenAsked) {
        if self.entry().is_none() {
            return self.tell_of_tokens(key, asked.request, Err(NOT_LISTENING.to_owned()));
        }
        self.wish(Wish::Answer { to: key, asked: asked.clone() });
    }

    fn wish(&mut self, wish: Wish) {
        let Some(entry) = self.entry() else { return };
        entry.wishes.push_back(wish);
        self.grant_wishes();
    }

    /// One after the other, each by what is safe of those before.
    fn grant_wishes(&mut self) {
        while let Some(entry) = self.entry().filter(|entry| entry.change.is_none())
            && let Some(wish) = entry.wishes.pop_front()
        {
            match wish {
                Wish::Join { number, node, token, before } => self.join_wished(number, node, token.as_deref(), before),
                Wish::Answer { to, asked } => self.answer_wished(to, &asked),
                Wish::ShutOut { node } => {
                    self.revoke(node, Then::GiveUp { living: None, asked: None, node });
                }
            }
        }
    }

    /// ENTRY-1.
    fn change_tokens(&mut self, (next, changes): (Tokens, Vec<Change>), then: Then) {
        if let Some(entry) = self.entry() {
            entry.change = Some((next, then));
            self.write_tokens(changes);
        }
    }

    /// The change is safe, or it is not, for this reason, and is none.
    pub(super) fn tokens_written(&mut self, result: Result<(), String>) {
        let Some(network) = &mut self.network else { return };
        let Some(entry) = &mut network.entry else { return };
        let Some((next, then)) = entry.change.take() else { return };
        if result.is_ok() {
            entry.tokens = next;
            network.gateway.set_tokens(entry.known());
        }
        match then {
            Then::Admit { number } => match &result {
                Ok(()) => network.gateway.admit(number),
                Err(fault) => {
                    self.log.line(fault);
                    network.gateway.refuse(number, Refusal::Unwritten);
                }
            },
            Then::Tell { to, request, id, text } => {
                let told = result.map(|()| self.token_changed(&id, text));
                self.tell_of_tokens(to, request, told);
            }
            Then::GiveUp { living, asked, node } => {
                if let (Err(fault), None) = (&result, asked) {
                    self.log.line(&format!("the certificate of node {node} cannot be revoked: {fault}"));
                }
                if let (Ok(()), Some(key)) = (&result, living) {
                    self.give_up(key, "its certificate was revoked");
                }
                if let Some((to, request)) = asked {
                    self.tell_of_tokens(to, request, result.map(|()| TokenTold::default()));
                }
            }
        }
        self.grant_wishes();
    }

    fn join_wished(&mut self, number: u64, node: NodeId, token: Option<&str>, before: Option<NodeId>) {
        match self.may_join(node, token, before) {
            Ok(Some(spent)) => self.change_tokens(spent, Then::Admit { number }),
            Ok(None) => {
                if let Some(network) = &self.network {
                    network.gateway.admit(number);
                }
            }
            Err(refusal) => {
                if let Some(network) = &self.network {
                    network.gateway.refuse(number, refusal);
                }
            }
        }
    }

    /// What tokens there are to be where the newcomer is let in; nothing where it needs none.
    fn may_join(
        &self,
        node: NodeId,
        token: Option<&str>,
        before: Option<NodeId>,
    ) -> Result<Option<(Tokens, Vec<Change>)>, Refusal> {
        let network = self.network.as_ref().ok_or(Refusal::Secret)?;
        let entry = network.entry.as_ref().ok_or(Refusal::Secret)?;
        let comes = network.remotes.values().any(|remote| remote.node == node);
        let is_known = node.is_nil() || node == self.core.own_node() || comes || self.core.knows_node(node);
        let is_shut_out = before.is_some_and(|before| entry.tokens.is_revoked(before));
        // ENTRY-2.
        if before != Some(node) && (is_known || entry.tokens.is_revoked(node)) {
            return Err(Refusal::Taken);
        }
        if before.is_some() && !is_shut_out {
            return Ok(None);
        }
        let token = token.ok_or(Refusal::Revoked)?;
        if before == Some(node) {
            // It may come again, but not as who it was.
            return Err(Refusal::Revoked);
        }
        entry.tokens.spend(token, now_ms()).map(Some).ok_or(Refusal::Ended)
    }

    fn revoke(&mut self, node: NodeId, then: Then) {
        let now = now_ms();
        let Some(entry) = self.entry() else { return };
        let until = now.saturating_add(entry.lifetime.as_millis() as u64);
        let next = entry.tokens.revoke_node(node, until, now);
        self.change_tokens(next, then);
    }

    fn answer_wished(&mut self, to: Key, asked: &TokenAsked) {
        match self.token_wished(to, asked) {
            Ok(Some(told)) => self.tell_of_tokens(to, asked.request, Ok(told)),
            Ok(None) => {}
            Err(text) => self.tell_of_tokens(to, asked.request, Err(text)),
        }
    }

    /// The answer, where there is one already.
    fn token_wished(&mut self, to: Key, asked: &TokenAsked) -> Result<Option<TokenTold>, String> {
        let (now, request) = (now_ms(), asked.request);
        let entry = self.entry().ok_or(NOT_LISTENING)?;
        let fault = |fault: TokenFault| fault.to_string();
        let (next, id, text) = match asked.action {
            TokenAction::Unknown => {
                return Err("the head does not know what is to be done: it is of another build".to_owned());
            }
            TokenAction::List => return Ok(Some(TokenTold { rows: entry.told(None), ..TokenTold::default() })),
            TokenAction::Create => {
                let token = entry.authority.token().sibling(oxiray_ids::random());
                let row = TokenRow {
                    secret: Bytes::copy_from_slice(token.secret()),
                    created_ms: now,
                    ends_ms: asked.ttl_ms.map(|ttl| now.saturating_add(ttl)),
                    uses_left: asked.uses,
                    ..TokenRow::default()
                };
                (entry.tokens.create(&token.id(), row, now).map_err(fault)?, token.id(), token.to_text())
            }
            TokenAction::Revoke => {
                (entry.tokens.revoke(&asked.id, now).map_err(fault)?, asked.id.clone(), String::new())
            }
            TokenAction::RevokeNode => {
                let (node, living) = self.node_to_shut_out(&asked.node)?;
                self.revoke(node, Then::GiveUp { living, asked: Some((to, request)), node });
                return Ok(None);
            }
        };
        self.change_tokens(next, Then::Tell { to, request, id, text });
        Ok(None)
    }

    /// What is told of a token that was made, with its text, or revoked.
    fn token_changed(&mut self, id: &str, text: String) -> TokenTold {
        let what = if text.is_empty() { "revoked" } else { "made" };
        self.log.line(&format!("join token {id} was {what}"));
        let Some(entry) = self.entry() else { return TokenTold::default() };
        let rows = entry.told(Some(id));
        if rows.iter().any(|row| row.is_first && row.state != "valid") {
            // Nobody is to copy it any more; where it is gone already, that is as good.
            let _ = std::fs::remove_file(&entry.token_file);
        }
        TokenTold { text, rows, ..TokenTold::default() }
    }

    fn tell_of_tokens(&mut self, to: Key, request: u64, told: Result<TokenTold, String>) {
        let told = told.unwrap_or_else(|text| {
            let failure = Failure { code: "token".into(), text, cause: Bytes::new() };
            TokenTold { failure: Some(failure), ..TokenTold::default() }
        });
        self.queue(to, &TokenTold { request, ..told }.into(), Vec::new());
    }

    /// The node of that name or identifier, and its key where it lives.
    fn node_to_shut_out(&self, named: &str) -> Result<(NodeId, Option<Key>), String> {
        let (node, living) = match self.core.drainable(named) {
            Ok((key, node)) => (node, Some(key)),
            Err(text) => (NodeId::from_hex(named).map_err(|_| text)?, None),
        };
        if node == self.core.own_node() {
            return Err("the head cannot be shut out: `oxiray stop` ends the cluster".to_owned());
        }
        Ok((node, living))
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
