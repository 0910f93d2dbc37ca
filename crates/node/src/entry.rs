//! Who may join a cluster, and for how long: tokens, identities, certificates and their renewal ([decision 22]).
//!
//! - ENTRY-1: whatever lets a newcomer in, or shuts one out, is safe in the journal before anybody is told.
//! - ENTRY-2: nobody gets the identity of another node, or has its work ended, without having shown that node's key.
//!
//! [decision 22]: ../../../docs/decisions/0022-tokens-and-certificates-end.md

use crate::session::{self, Session};
use crate::site_certificate::SiteCertificates;
use crate::start_error::{StartError, Step as _};
use crate::token_file;
use crate::tokens::{TokenFault, TokenRow, Tokens};
use crate::turn::now_ms;
use bytes::Bytes;
use oxiray_ids::NodeId;
use oxiray_journal::{Change, Store};
use oxiray_machine::Key;
use oxiray_network::{Authority, Certified, Credentials, JoinToken, Refusal, Renewal, RenewalError};
use oxiray_wire::frame::protocol;
use oxiray_wire::message::{TokenAnswer, TokenAsked, TokenRow as TokenTellable};
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a member waits for its next certificate before it asks again.
const RENEWAL_PERIOD: Duration = Duration::from_secs(10);

/// What a head that listens knows of who may join.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) authority: Arc<Authority>,
    lifetime: Duration,
    tokens: Tokens,
    /// The file of the first token.
    token_file: PathBuf,
    /// What is to be when it is safe, and what is done then.
    change: Option<(Tokens, Then)>,
    /// What is wished for meanwhile: what tokens there are to be follows from those that there are.
    questions: VecDeque<TokenQuestion>,
    /// The dashboard's certificate, where the authority makes it.
    pub(crate) site: Option<SiteCertificates>,
}

/// What somebody wants of tokens.
#[derive(Debug)]
pub(crate) enum TokenQuestion {
    /// To join as `node`, having proven that it has a token's secret or a node's key.
    Join { number: u64, node: NodeId, token: Option<String>, before: Option<NodeId> },
    /// An answer to the command line.
    Answer { to: Key, asked: TokenAsked },
    /// That a node which ended for good lets nobody in any more.
    ShutOut { node: NodeId },
}

/// What is done when a change is safe (ENTRY-1).
#[derive(Debug)]
pub(crate) enum Then {
    /// Lets in who asked under that number.
    Admit { number: u64 },
    /// Tells the command line of the token, which it made or revoked.
    Tell { to: Key, request: u64, id: String, text: String },
    /// Gives up a node that was shut out, and tells who asked for it.
    GiveUp { living: Option<Key>, asked: Option<(Key, u64)>, node: NodeId },
}

/// What a node shows of itself, and what becomes of it.
#[derive(Debug)]
pub(crate) struct NodeProof {
    pub(crate) credentials: Credentials,
    /// The key that is being certified.
    renewal: Option<Renewal>,
    /// When there is something to do for it, as time since the machine was started.
    due: Duration,
}

impl NodeProof {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self { due: credentials.renew_at(), credentials, renewal: None }
    }

    /// When something is to be done for it, as time since the machine was started.
    pub(crate) fn due(&self) -> Duration {
        self.due
    }

    /// Whether it is to be renewed now. What fails is tried again in a while.
    pub(crate) fn take_due(&mut self, now: Duration) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.due = now + RENEWAL_PERIOD;
        }
        is_due
    }

    /// A key is made, and is to be certified by the head. Returns its public half.
    pub(crate) fn begin_renewal(&mut self) -> Result<Bytes, RenewalError> {
        let renewal = Renewal::begin()?;
        let public_key = Bytes::copy_from_slice(renewal.public_key());
        self.renewal = Some(renewal);
        Ok(public_key)
    }

    /// The key is certified; nothing where none was to be.
    pub(crate) fn finish_renewal(&mut self, certified: Certified) -> Option<Result<Credentials, RenewalError>> {
        Some(self.renewal.take()?.finish(&self.credentials, certified, &protocol()))
    }
}

impl Entry {
    /// Reads what was written down of tokens, and adds the first one where it is new. Its file is written as long as it
    /// holds.
    pub(crate) fn open(
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
        let token_file = token_file::path_in(session.directory());
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
            questions: VecDeque::new(),
            site: None,
        })
    }

    pub(crate) fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// What certifies newcomers, and by what they are known.
    pub(crate) fn for_gateway(&self) -> (Arc<Authority>, Vec<JoinToken>) {
        (self.authority.clone(), self.known())
    }

    /// Those that hold no longer are known too, so that who shows one is told so.
    pub(crate) fn known(&self) -> Vec<JoinToken> {
        let first = self.authority.token();
        let secret = |row: &TokenRow| Some(first.sibling(row.secret[..].try_into().ok()?));
        self.tokens.all().filter_map(|(_, row)| secret(row)).collect()
    }

    /// Somebody wants something of tokens.
    pub(crate) fn question(&mut self, question: TokenQuestion) {
        self.questions.push_back(question);
    }

    /// The request that is granted next: one after the other, each by what is safe of those before.
    pub(crate) fn next_wish(&mut self) -> Option<TokenQuestion> {
        if self.change.is_some() { None } else { self.questions.pop_front() }
    }

    /// There are to be these tokens as soon as they are safe, and then that is done (ENTRY-1).
    pub(crate) fn begin_change(&mut self, next: Tokens, then: Then) {
        self.change = Some((next, then));
    }

    /// The change is safe, or is none. Returns what is to be done then.
    pub(crate) fn end_change(&mut self, is_safe: bool) -> Option<Then> {
        let (next, then) = self.change.take()?;
        if is_safe {
            self.tokens = next;
        }
        Some(then)
    }

    /// What tokens there are to be where a newcomer is let in; nothing where it needs none. `is_known`: another node has its
    /// name, or had it.
    pub(crate) fn may_join(
        &self,
        node: NodeId,
        is_known: bool,
        token: Option<&str>,
        before: Option<NodeId>,
    ) -> Result<Option<(Tokens, Vec<Change>)>, Refusal> {
        let is_shut_out = before.is_some_and(|before| self.tokens.is_revoked(before));
        // ENTRY-2.
        if before != Some(node) && (is_known || self.tokens.is_revoked(node)) {
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
        self.tokens.spend(token, now_ms()).map(Some).ok_or(Refusal::Ended)
    }

    /// What tokens there are to be without a node that lets nobody in any more.
    pub(crate) fn without_node(&self, node: NodeId) -> (Tokens, Vec<Change>) {
        let now = now_ms();
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        self.tokens.revoke_node(node, now.saturating_add(lifetime), now)
    }

    /// What tokens there are to be with one more, and that one.
    pub(crate) fn with_token(
        &self,
        ttl_ms: Option<u64>,
        uses: Option<u32>,
    ) -> Result<((Tokens, Vec<Change>), JoinToken), TokenFault> {
        let (token, now) = (self.authority.token().sibling(oxiray_ids::random()), now_ms());
        let row = TokenRow {
            secret: Bytes::copy_from_slice(token.secret()),
            created_ms: now,
            ends_ms: ttl_ms.map(|ttl| now.saturating_add(ttl)),
            uses_left: uses,
            ..TokenRow::default()
        };
        Ok((self.tokens.create(&token.id(), row, now)?, token))
    }

    /// What tokens there are to be without this one.
    pub(crate) fn without_token(&self, id: &str) -> Result<(Tokens, Vec<Change>), TokenFault> {
        self.tokens.revoke(id, now_ms())
    }

    /// What is told of a token that was made, with its text, or revoked.
    pub(crate) fn token_changed(&self, id: &str, text: String) -> TokenAnswer {
        let rows = self.told(Some(id));
        if rows.iter().any(|row| row.is_first && row.state != "valid") {
            // Nobody is to copy it any more; where it is gone already, that is as good.
            let _ = std::fs::remove_file(&self.token_file);
        }
        TokenAnswer { text, rows, ..TokenAnswer::default() }
    }

    /// What is told of one token, or of all.
    pub(crate) fn told(&self, wanted: Option<&str>) -> Vec<TokenTellable> {
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
