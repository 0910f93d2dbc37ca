use super::*;
use proptest::prelude::*;

fn file(bytes: &[u8]) -> Arc<File> {
    let memory = rustix::fs::memfd_create(c"freight", rustix::fs::MemfdFlags::CLOEXEC).expect("a memory file");
    let file = File::from(memory);
    file.write_all_at(bytes, 0).expect("it has room");
    Arc::new(file)
}

fn contents(file: &File, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    file.read_exact_at(&mut bytes, 0).expect("it is that long");
    bytes
}

/// All that goes out where the local socket gives `local` in reads of `read` bytes.
fn sent(freight: &Arc<Freight>, local: &[u8], read: usize) -> Vec<u8> {
    let (mut parcels, mut out, mut room) = (Parcels::new(freight.clone()), Vec::new(), vec![0; 7]);
    let mut local = local.chunks(read);
    loop {
        if let Some((header, count)) = parcels.due(&mut room).expect("it can be read") {
            out.extend_from_slice(&header);
            out.extend_from_slice(&room[..count]);
            continue;
        }
        let Some(bytes) = parcels.take_held().or_else(|| local.next().map(<[u8]>::to_vec)) else { return out };
        let (header, now) = parcels.pack(&bytes);
        if !now.is_empty() {
            out.extend_from_slice(&header);
            out.extend_from_slice(now);
        }
    }
}

#[test]
fn nothing_is_written_out_of_bounds_or_once_it_is_closed() {
    let (freight, target) = (Freight::default(), file(&[9; 8]));
    freight.open(3, target.clone(), 8);
    freight.write(4, 0, &[1; 8]);
    freight.write(3, 0, &[2; 4]);
    freight.close(3);
    freight.write(3, 4, &[3; 4]);
    assert_eq!(contents(&target, 8), [2, 2, 2, 2, 9, 9, 9, 9]);
    freight.open(5, target.clone(), 8);
    freight.write(5, 5, &[4; 4]);
    assert!(!freight.is_open(5), "who opened it learns that it is not whole");
    freight.open(6, target.clone(), 8);
    freight.write(6, u64::MAX, &[4; 4]);
    assert!(!freight.is_open(6));
    assert_eq!(contents(&target, 8), [2, 2, 2, 2, 9, 9, 9, 9]);
}

#[test]
fn what_is_recalled_is_read_no_more() {
    let freight = Arc::new(Freight::default());
    freight.load(0, Load { tag: 3, file: file(&[7; 4]), offset: 0, bytes: 4 });
    freight.recall(3);
    assert_eq!(sent(&freight, &[], 1)[HEADER_BYTES..], [0; 4]);
}

proptest! {
    #[test]
    fn loads_arrive_in_their_place_however_all_is_cut(
        local in proptest::collection::vec(any::<u8>(), 0..200),
        mut loads in proptest::collection::vec((0_usize..200, 0_usize..40, 0_usize..40), 0..6),
        (read, came) in (1_usize..50, 1_usize..50),
    ) {
        loads.sort_unstable();
        let source: Vec<u8> = (0..100).collect();
        let (giving, taking) = (Arc::new(Freight::default()), Arc::new(Freight::default()));
        let mut targets = Vec::new();
        for (tag, (position, offset, bytes)) in (1..).zip(&loads) {
            let position = (*position).min(local.len()) as u64;
            giving.load(position, Load { tag, file: file(&source), offset: *offset as u64, bytes: *bytes as u64 });
            let target = file(&[255; 100]);
            taking.open(tag, target.clone(), 100);
            targets.push((tag, position as usize, target));
        }
        let (mut parcels, mut heard) = (Parcels::new(taking.clone()), Vec::new());
        for bytes in sent(&giving, &local, read).chunks(came) {
            parcels.unpack(bytes, &mut heard).expect("it is well formed");
            for ((_, position, target), (_, offset, bytes)) in targets.iter().zip(&loads) {
                // FREIGHT-1: whoever hears what follows a load finds it written.
                if heard.len() > *position {
                    prop_assert_eq!(&contents(target, 100)[*offset..offset + bytes], &source[*offset..offset + bytes]);
                }
            }
        }
        prop_assert_eq!(heard, local);
        for ((tag, _, target), (_, offset, bytes)) in targets.iter().zip(&loads) {
            prop_assert!(taking.is_open(*tag));
            let written = contents(target, 100);
            prop_assert_eq!(&written[*offset..offset + bytes], &source[*offset..offset + bytes]);
            prop_assert_eq!(written.iter().filter(|byte| **byte != 255).count(), *bytes);
        }
    }

    #[test]
    fn no_bytes_of_a_peer_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (freight, target) = (Arc::new(Freight::default()), file(&[9; 8]));
        freight.open(0x0101_0101_0101_0101, target, 8);
        let mut parcels = Parcels::new(freight);
        let mut heard = Vec::new();
        parcels.unpack(&bytes, &mut heard).expect("every header is one");
        prop_assert!(heard.len() <= bytes.len());
    }
}
