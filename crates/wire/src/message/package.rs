//! Files that programs ship, from the machine that has one to the machine that needs it, by way of the head.

use bytes::Bytes;
use oxiray_fields::Fields;

/// member → head, head → member: a piece of a package's file is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct PackageWanted {
    /// The package.
    #[field(1)]
    pub name: String,
    /// Where in its file the piece begins.
    #[field(2)]
    pub offset: u64,
}

/// The answer to a [`PackageWanted`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Fields)]
pub struct PackagePiece {
    /// The package.
    #[field(1)]
    pub name: String,
    /// Where in its file the piece begins.
    #[field(2)]
    pub offset: u64,
    /// Bytes of the whole file; 0 where it is not there.
    #[field(3)]
    pub total: u64,
    /// The piece.
    #[field(4)]
    pub bytes: Bytes,
}
