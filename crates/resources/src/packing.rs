//! How many demands share the devices of one resource when they are to be granted together.
//!
//! Whole devices are alike, so only shares below one are a puzzle: which goes onto which device so that all find room.
//! First they are placed one after the other by the ledger's own rule, which gives bundles their devices in order; then
//! the largest first; and only then all ways are tried, up to a limit.

use crate::{DeviceShare, Quantity};

/// How many placements of one share are tried before the search gives up.
const STEPS_MAX: u32 = 10_000;

/// A device, and what is free of it.
type Free = (u32, Quantity);

/// There is no way, or none was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPacking {
    /// Whether every way was ruled out.
    pub is_proven: bool,
}

/// Which devices meet all of `asked` at once, each entry in the place of its demand; zeros get none. `free` is what each
/// device in service has free, in the order of the numbers.
pub fn pack(free: &[Free], asked: &[Quantity]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
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

/// Wholes take the first wholly free devices, a share the fullest device that has room.
fn one_by_one(free: &[Free], asked: &[Quantity], order: &[usize]) -> Option<Vec<Vec<DeviceShare>>> {
    let mut free = free.to_vec();
    let mut packed = vec![Vec::new(); asked.len()];
    for index in order {
        let amount = asked[*index];
        let share = amount.min(Quantity::ONE);
        for _ in 0..amount.wholes().max(u64::from(!amount.is_zero())) {
            let with_room = free.iter_mut().filter(|(_, left)| *left >= share);
            let (device, left) = with_room.min_by_key(|(device, left)| (*left, *device))?;
            *left = left.checked_sub(share)?;
            packed[*index].push(DeviceShare { device: *device, share });
        }
    }
    Some(packed)
}

/// `order` has the wholes first.
fn all_ways(free: &[Free], asked: &[Quantity], order: &[usize]) -> Result<Vec<Vec<DeviceShare>>, NoPacking> {
    let (wholes, shares): (Vec<usize>, Vec<usize>) = order.iter().partition(|index| asked[**index] >= Quantity::ONE);
    let wanted = wholes.iter().map(|index| asked[*index].wholes() as usize).sum();
    let whole_devices: Vec<u32> =
        free.iter().filter(|(_, left)| *left == Quantity::ONE).map(|(device, _)| *device).take(wanted).collect();
    if whole_devices.len() < wanted {
        return Err(NoPacking { is_proven: true });
    }
    let rest = free.iter().filter(|(device, _)| !whole_devices.contains(device)).copied().collect();
    let shares: Vec<usize> = shares.into_iter().filter(|index| !asked[*index].is_zero()).collect();
    let mut search = Search { free: rest, chosen: Vec::new(), steps_left: STEPS_MAX };
    let amounts: Vec<Quantity> = shares.iter().map(|index| asked[*index]).collect();
    if !search.place(&amounts) {
        return Err(NoPacking { is_proven: search.steps_left > 0 });
    }
    let mut packed = vec![Vec::new(); asked.len()];
    for (index, device) in shares.into_iter().zip(search.chosen) {
        packed[index] = vec![DeviceShare { device, share: asked[index] }];
    }
    let mut devices = whole_devices.into_iter();
    for index in wholes {
        let own = devices.by_ref().take(asked[index].wholes() as usize);
        packed[index] = own.map(|device| DeviceShare { device, share: Quantity::ONE }).collect();
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
    fn place(&mut self, amounts: &[Quantity]) -> bool {
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
