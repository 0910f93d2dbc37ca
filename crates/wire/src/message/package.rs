//! Files that programs ship, from the machine that has one to the machine that needs it, by way of the head.

use bytes::Bytes;

/// member → head, head → member: a piece of a package's file is wanted.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PackageWanted {
    /// The package.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Where in its file the piece begins.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

/// The answer to a [`PackageWanted`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PackagePiece {
    /// The package.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Where in its file the piece begins.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes of the whole file; 0 where it is not there.
    #[prost(uint64, tag = "3")]
    pub total: u64,
    /// The piece.
    #[prost(bytes = "bytes", tag = "4")]
    pub bytes: Bytes,
}
