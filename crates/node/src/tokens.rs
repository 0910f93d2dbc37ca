//! Who may join, and for how long: the join tokens of a cluster, and the nodes that are shut out. No I/O and no clock.
//!
//! - TOKEN-1: a token lets nobody in after its end, after its last use, or when it was revoked.
//! - TOKEN-2: a change is made only when its row is safe: each method returns what there is to be, beside the row.
//! - TOKEN-3: the first token, which is as old as the cluster's authority, does not come back once it was revoked.

use bytes::Bytes;
use oxiray_head::table::{REVOKED, TOKEN};
use oxiray_ids::NodeId;
use oxiray_journal::{Change, Table};
use prost::Message as _;
use std::collections::BTreeMap;

/// How many tokens there may be.
pub(crate) const TOKENS_MAX: usize = 256;
/// For how long a token is remembered that holds no longer, so that who shows it is told so.
const REMEMBERED_MS: u64 = 7 * 24 * 3600 * 1000;

/// A token. It is not printed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct TokenRow {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) secret: Bytes,
    /// In milliseconds since 1970, as all times here.
    #[prost(uint64, tag = "2")]
    pub(crate) created_ms: u64,
    /// Nothing where it has no end.
    #[prost(uint64, optional, tag = "3")]
    pub(crate) ends_ms: Option<u64>,
    /// How many more may join with it; nothing where any number may.
    #[prost(uint32, optional, tag = "4")]
    pub(crate) uses_left: Option<u32>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) revoked_ms: Option<u64>,
    /// TOKEN-3.
    #[prost(bool, tag = "6")]
    pub(crate) is_first: bool,
}

impl std::fmt::Debug for TokenRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenRow(…)")
    }
}

impl TokenRow {
    /// TOKEN-1.
    pub(crate) fn state(&self, now_ms: u64) -> &'static str {
        if self.revoked_ms.is_some() {
            "revoked"
        } else if self.ends_ms.is_some_and(|ends| ends <= now_ms) {
            "expired"
        } else if self.uses_left == Some(0) {
            "used up"
        } else {
            "valid"
        }
    }

    pub(crate) fn is_valid(&self, now_ms: u64) -> bool {
        self.state(now_ms) == "valid"
    }

    /// Whether it is of no use even for saying why it is refused.
    fn is_forgotten(&self, now_ms: u64) -> bool {
        let ended = self.revoked_ms.into_iter().chain(self.ends_ms).min();
        !self.is_first && ended.is_some_and(|ended| ended.saturating_add(REMEMBERED_MS) <= now_ms)
    }
}

/// A token cannot be made, or there is none of the name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenFault {
    #[error(
        "there are {TOKENS_MAX} tokens already, and the oldest of those that hold no longer are forgotten only after a week: revoke what is not needed"
    )]
    TooMany,
    #[error("no token has the name `{0}`: see `oxiray token list`")]
    Unknown(String),
}

/// All tokens, by name, and the nodes that are shut out, until when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    rows: BTreeMap<String, TokenRow>,
    revoked: BTreeMap<NodeId, u64>,
}

impl Tokens {
    /// What a row says that was written down; `false` where it cannot be read.
    pub(crate) fn restore(&mut self, table: Table, key: &[u8], value: Bytes) -> bool {
        match table {
            TOKEN => match (std::str::from_utf8(key), TokenRow::decode(value)) {
                (Ok(id), Ok(row)) => self.rows.insert(id.to_owned(), row).is_none(),
                _ => false,
            },
            REVOKED => match (NodeId::from_slice(key), value[..].try_into()) {
                (Some(node), Ok(until)) => self.revoked.insert(node, u64::from_le_bytes(until)).is_none(),
                _ => false,
            },
            _ => true,
        }
    }

    /// All tokens that are known, with their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &TokenRow)> {
        self.rows.iter()
    }

    /// The first token, unless it is known (TOKEN-3).
    pub(crate) fn begin(&self, id: &str, secret: &[u8], now_ms: u64) -> Option<(Self, Vec<Change>)> {
        let row = TokenRow {
            secret: Bytes::copy_from_slice(secret),
            created_ms: now_ms,
            is_first: true,
            ..TokenRow::default()
        };
        (!self.rows.contains_key(id)).then(|| self.with(id, row, now_ms))
    }

    pub(crate) fn create(&self, id: &str, row: TokenRow, now_ms: u64) -> Result<(Self, Vec<Change>), TokenFault> {
        let made = self.with(id, row, now_ms);
        if made.0.rows.len() > TOKENS_MAX { Err(TokenFault::TooMany) } else { Ok(made) }
    }

    /// Somebody joins with the token; nothing where it does not hold (TOKEN-1).
    pub(crate) fn spend(&self, id: &str, now_ms: u64) -> Option<(Self, Vec<Change>)> {
        let row = self.rows.get(id).filter(|row| row.is_valid(now_ms))?;
        let Some(uses) = row.uses_left else { return Some((self.clone(), Vec::new())) };
        Some(self.with(id, TokenRow { uses_left: Some(uses - 1), ..row.clone() }, now_ms))
    }

    pub(crate) fn revoke(&self, id: &str, now_ms: u64) -> Result<(Self, Vec<Change>), TokenFault> {
        let row = self.rows.get(id).ok_or_else(|| TokenFault::Unknown(id.to_owned()))?;
        let revoked_ms = Some(row.revoked_ms.unwrap_or(now_ms));
        Ok(self.with(id, TokenRow { revoked_ms, ..row.clone() }, now_ms))
    }

    /// Shuts a node out for as long as its certificate may be valid.
    pub(crate) fn revoke_node(&self, node: NodeId, until_ms: u64, now_ms: u64) -> (Self, Vec<Change>) {
        let (mut next, mut changes) = self.forgetting(now_ms);
        next.revoked.insert(node, until_ms);
        changes.push(change(REVOKED, node.as_bytes(), Some(until_ms.to_le_bytes().to_vec())));
        (next, changes)
    }

    pub(crate) fn is_revoked(&self, node: NodeId) -> bool {
        self.revoked.contains_key(&node)
    }

    fn with(&self, id: &str, row: TokenRow, now_ms: u64) -> (Self, Vec<Change>) {
        let (mut next, mut changes) = self.forgetting(now_ms);
        changes.push(change(TOKEN, id.as_bytes(), Some(row.encode_to_vec())));
        next.rows.insert(id.to_owned(), row);
        (next, changes)
    }

    /// What is over long since goes with the next change.
    fn forgetting(&self, now_ms: u64) -> (Self, Vec<Change>) {
        let (mut next, mut changes) = (self.clone(), Vec::new());
        next.rows.retain(|id, row| {
            let is_forgotten = row.is_forgotten(now_ms);
            changes.extend(is_forgotten.then(|| change(TOKEN, id.as_bytes(), None)));
            !is_forgotten
        });
        next.revoked.retain(|node, until| {
            changes.extend((*until <= now_ms).then(|| change(REVOKED, node.as_bytes(), None)));
            *until > now_ms
        });
        (next, changes)
    }
}

fn change(table: Table, key: &[u8], value: Option<Vec<u8>>) -> Change {
    Change { table, key: Bytes::copy_from_slice(key), value: value.map(Bytes::from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(changes: &[Change]) -> Tokens {
        let mut tokens = Tokens::default();
        for change in changes {
            assert!(tokens.restore(change.table, &change.key, change.value.clone().expect("a row")));
        }
        tokens
    }

    #[test]
    fn a_token_lets_in_as_many_as_it_says_and_until_its_end() {
        let row = TokenRow { ends_ms: Some(100), uses_left: Some(2), ..TokenRow::default() };
        let (tokens, _) = Tokens::default().create("a", row, 0).expect("there is room");
        let (tokens, _) = tokens.spend("a", 1).expect("it holds");
        assert!(tokens.spend("a", 100).is_none(), "its time is over");
        let (tokens, changes) = tokens.spend("a", 99).expect("it holds");
        assert!(tokens.spend("a", 99).is_none(), "its uses are spent");
        assert!(restored(&changes).spend("a", 99).is_none(), "for the next head, too");
        assert!(tokens.spend("b", 1).is_none());
    }

    #[test]
    fn the_first_token_stays_revoked() {
        let (tokens, _) = Tokens::default().begin("first", b"secret", 0).expect("it is new");
        assert!(tokens.begin("first", b"secret", 1).is_none());
        let (tokens, changes) = tokens.revoke("first", 5).expect("it is known");
        assert!(tokens.spend("first", 6).is_none());
        assert!(restored(&changes).begin("first", b"secret", 7).is_none());
        let (tokens, _) = tokens.create("b", TokenRow::default(), 10 * REMEMBERED_MS).expect("there is room");
        assert!(tokens.begin("first", b"secret", 11 * REMEMBERED_MS).is_none(), "it is remembered for ever");
        assert!(matches!(tokens.revoke("c", 0), Err(TokenFault::Unknown(_))));
    }

    #[test]
    fn what_is_over_is_forgotten_and_makes_room() {
        let mut tokens = Tokens::default();
        for number in 0..TOKENS_MAX {
            let row = TokenRow { ends_ms: Some(1), ..TokenRow::default() };
            (tokens, _) = tokens.create(&number.to_string(), row, 0).expect("there is room");
        }
        assert!(matches!(tokens.create("x", TokenRow::default(), 1), Err(TokenFault::TooMany)));
        let (tokens, changes) = tokens.create("x", TokenRow::default(), REMEMBERED_MS + 1).expect("there is room");
        assert_eq!((tokens.all().count(), changes.len()), (1, TOKENS_MAX + 1));
    }

    #[test]
    fn a_node_is_shut_out_as_long_as_its_certificate_may_be_valid() {
        let node = NodeId::generate();
        let (tokens, changes) = Tokens::default().revoke_node(node, 100, 0);
        assert!(tokens.is_revoked(node) && restored(&changes).is_revoked(node));
        let (tokens, _) = tokens.create("a", TokenRow::default(), 100).expect("there is room");
        assert!(!tokens.is_revoked(node));
    }
}
