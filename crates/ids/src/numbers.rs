//! Numbers by which one side names something to another. Each has a type, so that none is taken for the number of something
//! else, or for a count.

use std::fmt;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($of:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}

numbers! {
    /// A lease, as the head names it to its owner.
    LeaseNumber(u64);
    /// A request for a lease, as its owner counts them.
    LeaseRequestNumber(u64);
    /// A worker, or a client that a node speaks for, as that node counts its processes.
    WorkerNumber(u64);
    /// A bundle's place in its placement group, from 0.
    BundleNumber(u32);
}

impl BundleNumber {
    /// The bundle at that place in a list of all bundles of its group.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("a placement group has far fewer bundles than a number can say"))
    }

    /// Its place in a list of all bundles of its group.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
