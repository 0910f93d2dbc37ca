//! How a node's memory is divided between tasks and objects.

/// The share of the memory there is that the object store may take where nothing is said.
const STORE_SHARE: f64 = 0.3;
/// The share that the object store and tasks together may take; the rest is for the daemon, for drivers and for bursts.
const OFFERED_SHARE: f64 = 0.9;
/// The share that tasks may ask for at least, however large an object store was asked for: it shrinks as they use memory.
const MEMORY_SHARE_MIN: f64 = 0.3;
/// The least that the object store may take where nothing is said and there is so much: 64 MiB.
const STORE_BYTES_UNASKED: u64 = 64 << 20;

/// What a node offers of its memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryShares {
    /// The most that the object store may take.
    pub store: u64,
    /// What tasks and actors may ask for as `memory`.
    pub memory: u64,
}

impl MemoryShares {
    /// Divides the bytes there are. Where the size of one is given, the other is what that leaves.
    pub fn of(bytes: u64, store: Option<u64>, memory: Option<u64>) -> Self {
        let part = |share: f64| (bytes as f64 * share) as u64;
        let beside = |other: u64| part(OFFERED_SHARE).saturating_sub(other);
        let most = part(STORE_SHARE);
        let unasked = || memory.map_or(most, |memory| beside(memory).clamp(STORE_BYTES_UNASKED.min(most), most));
        let store = store.unwrap_or_else(unasked);
        Self { store, memory: memory.unwrap_or_else(|| beside(store).max(part(MEMORY_SHARE_MIN))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_left_and_what_is_given_stands() {
        let shares = |store: Option<u64>, memory: Option<u64>| {
            let mebibytes = |size: u64| size << 20;
            let shares = MemoryShares::of(1000 << 20, store.map(mebibytes), memory.map(mebibytes));
            (shares.store >> 20, shares.memory >> 20)
        };
        assert_eq!(shares(None, None), (300, 600));
        assert_eq!(shares(None, Some(700)), (200, 700));
        assert_eq!(shares(None, Some(950)), (64, 950));
        assert_eq!(shares(Some(100), None), (100, 800));
        assert_eq!(shares(Some(4000), None), (4000, 300));
        assert_eq!(shares(Some(5), Some(6)), (5, 6));
        assert_eq!(MemoryShares::of(0, None, None), MemoryShares { store: 0, memory: 0 });
    }
}
