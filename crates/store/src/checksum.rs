//! CRC-32C (Castagnoli), eight bytes a step: tells whether spilled bytes came back as they went.

const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        let mut table = 1;
        while table < 8 {
            let value = tables[table - 1][byte];
            tables[table][byte] = (value >> 8) ^ tables[0][(value & 0xff) as usize];
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// A sum in the making.
#[derive(Debug, Clone, Copy)]
pub struct Checksum(u32);

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}

impl Checksum {
    /// Of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(!0)
    }

    /// These bytes follow.
    pub fn update(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight) ^ u64::from(self.0);
            self.0 = 0;
            for (index, table) in TABLES.iter().rev().enumerate() {
                self.0 ^= table[(word >> (8 * index)) as usize & 0xff];
            }
        }
        for byte in rest {
            self.0 = (self.0 >> 8) ^ TABLES[0][(self.0 as u8 ^ byte) as usize];
        }
    }

    /// The sum of all bytes so far.
    #[must_use]
    pub const fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> u32 {
        let mut sum = Checksum::new();
        sum.update(bytes);
        sum.value()
    }

    #[test]
    fn known_sums() {
        // The check value of the CRC catalogue, and the vectors of RFC 3720, appendix B.4.
        assert_eq!(of(b"123456789"), 0xe306_9283);
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(of(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    }

    #[test]
    fn pieces_sum_like_the_whole() {
        let bytes: Vec<u8> = (0..1000_u32).map(|index| (index * 31) as u8).collect();
        let mut sum = Checksum::new();
        for piece in bytes.chunks(13) {
            sum.update(piece);
        }
        assert_eq!(sum.value(), of(&bytes));
    }
}
