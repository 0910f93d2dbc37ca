use super::*;

/// Memory of this process alone.
#[derive(Debug)]
pub(crate) struct Bytes(Mutex<Vec<u8>>);

impl Bytes {
    pub(crate) fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(bytes.to_vec())))
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        self.0.lock().expect("nobody panicked").clone()
    }
}

impl Memory for Bytes {
    fn edit(&self, range: Range<usize>, with: &mut dyn FnMut(&mut [u8])) {
        if let Some(bytes) = self.0.lock().expect("nobody panicked").get_mut(range) {
            with(bytes);
        }
    }
}

fn write(direct_transfer: &DirectTransfer, tag: u64, offset: u64, bytes: &[u8]) -> bool {
    direct_transfer.receive(tag, offset, bytes.len(), &mut |place| place.copy_from_slice(bytes))
}

#[test]
fn nothing_is_written_out_of_bounds_or_once_it_is_closed() {
    let (direct_transfer, target) = (DirectTransfer::default(), Bytes::new(&[9; 8]));
    direct_transfer.open(3, target.clone(), 8);
    assert!(!write(&direct_transfer, 4, 0, &[1; 8]));
    assert!(write(&direct_transfer, 3, 0, &[2; 4]));
    direct_transfer.close(3);
    assert!(!write(&direct_transfer, 3, 4, &[3; 4]));
    assert_eq!(target.contents(), [2, 2, 2, 2, 9, 9, 9, 9]);
    for (tag, offset, size) in [(5, 5, 8), (6, u64::MAX, 8), (7, 4, 6), (8, 6, 100)] {
        direct_transfer.open(tag, target.clone(), size);
        assert!(!write(&direct_transfer, tag, offset, &[4; 4]));
        assert!(!direct_transfer.is_open(tag), "who opened it learns that it is not whole");
    }
    assert_eq!(target.contents(), [2, 2, 2, 2, 9, 9, 9, 9]);
}

#[test]
fn what_is_recalled_is_read_no_more() {
    let direct_transfer = DirectTransfer::default();
    direct_transfer.load(0, Load { tag: 3, memory: Bytes::new(&[7; 4]), offset: 0, bytes: 4 });
    let mut sent = Vec::new();
    assert!(direct_transfer.send(2, &mut |bytes| sent.extend_from_slice(bytes)));
    direct_transfer.recall(3);
    assert!(direct_transfer.send(2, &mut |bytes| sent.extend_from_slice(bytes)));
    assert_eq!(sent, [7, 7, 0, 0]);
    assert!(direct_transfer.next().is_none());
}

#[test]
fn a_load_that_is_not_where_it_is_said_to_be_is_not_sent() {
    let direct_transfer = DirectTransfer::default();
    direct_transfer.load(0, Load { tag: 3, memory: Bytes::new(&[7; 4]), offset: 2, bytes: 4 });
    assert!(!direct_transfer.send(4, &mut |_| panic!("there is nothing")));
}
