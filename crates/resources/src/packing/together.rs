//! How many demands share the devices of one resource when they are to be granted together.
//!
//! Whole devices are alike but for their memory, so mostly shares below one are a puzzle: which goes onto which device so
//! that all find room. First all are placed one after the other by the ledger's own rule, which gives bundles their devices
//! in order; then the largest first; and only then all ways are tried, up to a limit.

use super::one_of;
use crate::{Capacity, DeviceShare, Quantity};

/// How many placements of one share are tried before the search gives up.
const STEPS_MAX: u32 = 10_000;

/// A device, and what is free of it.
type Free = (u32, Capacity);

/// There is no way, or none was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPacking {
    /// Whether every way was ruled out.
    pub is_proven: bool,
}

/// `free` is in the order of the numbers.
pub(super) fn pack(free: &[Free], asked: &[Capacity]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
    let in_order: Vec<usize> = (0..asked.len()).collect();
    if let Some(packed) = one_by_one(free, asked, &in_order) {
        return Ok(packed);
    }
    let mut largest_first = in_order;
    largest_first.sort_by_key(|index| std::cmp::Reverse(asked[*index]));
    if let Some(packed) = one_by_one(free, asked, &largest_first) {
        return Ok(packed);
    }
    all_ways(free, asked, &largest_first)
}

/// How many devices a demand takes.
fn count_of(asked: Capacity) -> u64 {
    asked.share.wholes().max(u64::from(!asked.share.is_zero()))
}

/// What a demand holds of a device that it takes (PACKING-1): of a whole one, all of its memory.
fn held_of(asked: Capacity, free: Capacity) -> Capacity {
    if asked.share >= Quantity::ONE { free } else { asked }
}

fn share_of(device: u32, Capacity { share, memory_bytes }: Capacity) -> DeviceShare {
    DeviceShare { device, share, memory_bytes }
}

/// Wholes take the first wholly free devices, a share the fullest device that has room.
fn one_by_one(free: &[Free], asked: &[Capacity], order: &[usize]) -> Option<Vec<Vec<DeviceShare>>> {
    let mut free = free.to_vec();
    let mut packed = vec![Vec::new(); asked.len()];
    for index in order {
        let amount = asked[*index];
        for _ in 0..count_of(amount) {
            let with_room = free.iter_mut().filter(|(_, left)| left.covers(one_of(amount)));
            let (device, left) = with_room.min_by_key(|(device, left)| (left.share, *device))?;
            let held = held_of(amount, *left);
            *left = left.checked_sub(held)?;
            packed[*index].push(share_of(*device, held));
        }
    }
    Some(packed)
}

/// `order` has the wholes first.
fn all_ways(free: &[Free], asked: &[Capacity], order: &[usize]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
    let (mut wholes, shares): (Vec<usize>, Vec<usize>) =
        order.iter().partition(|index| asked[**index].share >= Quantity::ONE);
    wholes.sort_by_key(|index| std::cmp::Reverse(asked[*index].memory_bytes));
    let mut left = free.to_vec();
    let mut packed = vec![Vec::new(); asked.len()];
    let counts_memory = asked.iter().any(|amount| amount.memory_bytes > 0);
    for index in wholes {
        let amount = asked[index];
        // Those that need most choose first, and take what has least and is enough: no other choice leaves more to others.
        let mut enough: Vec<Free> = left.iter().filter(|(_, left)| left.covers(one_of(amount))).copied().collect();
        enough.sort_by_key(|(device, left)| (if counts_memory { left.memory_bytes } else { 0 }, *device));
        enough.truncate(count_of(amount) as usize);
        if enough.len() as u64 != count_of(amount) {
            return Err(NoPacking { is_proven: true });
        }
        left.retain(|one| !enough.contains(one));
        packed[index] = enough.into_iter().map(|(device, free)| share_of(device, free)).collect();
    }
    let shares: Vec<usize> = shares.into_iter().filter(|index| !asked[*index].share.is_zero()).collect();
    let mut search = Search { free: left, chosen: Vec::new(), steps_left: STEPS_MAX };
    let amounts: Vec<Capacity> = shares.iter().map(|index| asked[*index]).collect();
    if !search.place(&amounts) {
        return Err(NoPacking { is_proven: search.steps_left > 0 });
    }
    for (index, device) in shares.into_iter().zip(search.chosen) {
        packed[index] = vec![share_of(device, asked[index])];
    }
    Ok(packed)
}

struct Search {
    free: Vec<Free>,
    chosen: Vec<u32>,
    steps_left: u32,
}

impl Search {
    /// Places the largest share on every device that differs, then the others.
    fn place(&mut self, amounts: &[Capacity]) -> bool {
        let Some((amount, others)) = amounts.split_first() else { return true };
        let mut tried = Vec::new();
        for position in 0..self.free.len() {
            let (device, left) = self.free[position];
            let Some(after) = left.checked_sub(*amount) else { continue };
            if tried.contains(&left) {
                continue;
            }
            tried.push(left);
            if self.steps_left == 0 {
                return false;
            }
            self.steps_left -= 1;
            self.free[position].1 = after;
            self.chosen.push(device);
            if self.place(others) {
                return true;
            }
            self.chosen.pop();
            self.free[position].1 = left;
        }
        false
    }
}
