//! Who may join, and for how long: join tokens, and the certificates of nodes.

use super::Failure;
use bytes::Bytes;
use oxiray_fields::Fields;

/// command line → head: make, list or revoke join tokens, or shut a node out. Answered by [`TokenAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TokenAsked {
    /// Names the question.
    #[field(1)]
    pub request: u64,
    /// What is to be done.
    #[field(2)]
    pub action: TokenAction,
    /// Create: for how many milliseconds it holds; for ever where it is left out.
    #[field(3)]
    pub ttl_ms: Option<u64>,
    /// Create: how many nodes may join with it; any number where it is left out.
    #[field(4)]
    pub uses: Option<u32>,
    /// Revoke: the token's name.
    #[field(5)]
    pub id: String,
    /// Revoke a node: its identifier, or the beginning of it, its name or its address.
    #[field(6)]
    pub node: String,
}

/// What is done with join tokens. A question that does not say changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
pub enum TokenAction {
    /// Tell of all, without their secrets.
    List = 2,
    /// Make one.
    Create = 1,
    /// Have one let nobody in any more.
    Revoke = 3,
    /// Have a node end, and its certificate let nobody in any more.
    RevokeNode = 4,
}

/// A join token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct TokenRow {
    /// Its name.
    #[field(1)]
    pub id: String,
    /// Whether it holds: `valid`, or why not.
    #[field(2)]
    pub state: String,
    /// When it was made, in milliseconds since 1970.
    #[field(3)]
    pub created_ms: u64,
    /// When it ends; nothing where it does not.
    #[field(4)]
    pub ends_ms: Option<u64>,
    /// How many more nodes may join with it; nothing where there is no limit.
    #[field(5)]
    pub uses_left: Option<u32>,
    /// Whether it is the one that the head made at its first start.
    #[field(6)]
    pub is_first: bool,
}

/// head → command line: the answer to a [`TokenAsked`]. It is not printed.
#[derive(Clone, PartialEq, Eq, Default, Fields)]
pub struct TokenAnswer {
    /// The question.
    #[field(1)]
    pub request: u64,
    /// Create: the text for the token's file, a secret.
    #[field(2)]
    pub text: String,
    /// The token that was made or revoked, or all.
    #[field(3)]
    pub rows: Vec<TokenRow>,
    /// Why it was not done.
    #[field(4)]
    pub failure: Option<Failure>,
}

impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenAnswer").field("rows", &self.rows).field("failure", &self.failure).finish_non_exhaustive()
    }
}

/// member → head: its certificate is to be renewed, for another key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CertificateWanted {
    /// An uncompressed point on the curve P-256.
    #[field(1)]
    pub public_key: Bytes,
}

/// head → member: its next certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct CertificateIssued {
    /// In DER.
    #[field(1)]
    pub certificate: Bytes,
    /// When it was made, in seconds since 1970.
    #[field(2)]
    pub now_s: u64,
    /// For how many seconds from then on it is valid.
    #[field(3)]
    pub lifetime_s: u32,
}
