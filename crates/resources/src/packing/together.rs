//! How many demands share the devices of one resource when they are to be granted together.
//!
//! Whole devices are alike but for their size, so mostly parts of devices are a puzzle: which goes onto which device so that
//! all find room. First all are placed one after the other by the ledger's own rule, which gives bundles their devices
//! in order; then the largest first; and only then all ways are tried, up to a limit.

use crate::capacity::share_of;
use crate::{DeviceShare, Quantity, ResourceNeed, Room};

/// How many placements of one share are tried before the search gives up.
const STEPS_MAX: u32 = 10_000;

/// A device, and what is free of it.
type Free = (u32, Room);

/// There is no way, or none was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPacking {
    /// Whether every way was ruled out.
    pub is_proven: bool,
}

/// `free` is in the order of the numbers.
pub(super) fn pack(free: &[Free], asked: &[ResourceNeed]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
    let in_order: Vec<usize> = (0..asked.len()).collect();
    if let Some(packed) = one_by_one(free, asked, &in_order) {
        return Ok(packed);
    }
    let mut largest_first = in_order;
    let size_bytes = free.iter().map(|(_, room)| room.size_bytes).max().unwrap_or_default();
    largest_first.sort_by_key(|index| std::cmp::Reverse(share(asked[*index], size_bytes)));
    if let Some(packed) = one_by_one(free, asked, &largest_first) {
        return Ok(packed);
    }
    all_ways(free, asked, &largest_first)
}

/// How much of a device of that size is asked for.
fn share(asked: ResourceNeed, size_bytes: u64) -> Quantity {
    match asked {
        ResourceNeed::Amount(amount) => amount,
        ResourceNeed::Memory(bytes) => share_of(bytes, size_bytes),
    }
}

/// Wholes take the first wholly free devices, everything else the fullest device that has room.
fn one_by_one(free: &[Free], asked: &[ResourceNeed], order: &[usize]) -> Option<Vec<Vec<DeviceShare>>> {
    let mut free = free.to_vec();
    let mut packed = vec![Vec::new(); asked.len()];
    for index in order {
        let asked = asked[*index];
        for _ in 0..asked.devices() {
            let with_room = free.iter_mut().filter(|(_, room)| room.part(asked).is_some());
            let (device, room) = with_room.min_by_key(|(device, room)| (room.free.share, *device))?;
            let part = room.part(asked)?;
            *room = room.without(part)?;
            packed[*index].push(part.of(*device));
        }
    }
    Some(packed)
}

fn all_ways(free: &[Free], asked: &[ResourceNeed], order: &[usize]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
    let (wholes, parts): (Vec<usize>, Vec<usize>) = order.iter().partition(|index| asked[**index].is_of_wholes());
    let mut left = free.to_vec();
    let mut packed = vec![Vec::new(); asked.len()];
    let counts_memory = asked.iter().any(|asked| matches!(asked, ResourceNeed::Memory(_)));
    for index in wholes {
        let count = asked[index].devices();
        let mut enough: Vec<Free> =
            left.iter().filter(|(_, room)| room.part(asked[index]).is_some()).copied().collect();
        // The smallest ones: no other choice leaves more to who asks for memory.
        enough.sort_by_key(|(device, room)| (if counts_memory { room.size_bytes } else { 0 }, *device));
        enough.truncate(count as usize);
        if enough.len() as u64 != count {
            return Err(NoPacking { is_proven: true });
        }
        left.retain(|one| !enough.contains(one));
        packed[index] = enough.into_iter().map(|(device, room)| room.free.of(device)).collect();
    }
    let parts: Vec<usize> = parts.into_iter().filter(|index| asked[*index].devices() > 0).collect();
    let mut search = Search { free: left, chosen: Vec::new(), steps_left: STEPS_MAX };
    let wanted: Vec<ResourceNeed> = parts.iter().map(|index| asked[*index]).collect();
    if !search.place(&wanted) {
        return Err(NoPacking { is_proven: search.steps_left > 0 });
    }
    for (index, chosen) in parts.into_iter().zip(search.chosen) {
        packed[index] = vec![chosen];
    }
    Ok(packed)
}

struct Search {
    free: Vec<Free>,
    chosen: Vec<DeviceShare>,
    steps_left: u32,
}

impl Search {
    /// Places the largest part on every device that differs, then the others.
    fn place(&mut self, wanted: &[ResourceNeed]) -> bool {
        let Some((asked, others)) = wanted.split_first() else { return true };
        let mut tried = Vec::new();
        for position in 0..self.free.len() {
            let (device, room) = self.free[position];
            let Some(part) = room.part(*asked) else { continue };
            if tried.contains(&room) {
                continue;
            }
            tried.push(room);
            if self.steps_left == 0 {
                return false;
            }
            self.steps_left -= 1;
            self.free[position].1 = room.without(part).expect("a room has its parts");
            self.chosen.push(part.of(device));
            if self.place(others) {
                return true;
            }
            self.chosen.pop();
            self.free[position].1 = room;
        }
        false
    }
}
