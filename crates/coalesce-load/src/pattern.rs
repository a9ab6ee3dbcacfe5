//! The data pattern of --verify: how a write fills a block, and how a read is checked.

use std::fmt;

const SECTOR_BYTES: usize = 512;

/// How data that was read is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// It belongs to an earlier write to the same place.
    Stale,
    /// It was written to another place.
    Misplaced,
    /// No write of this run wrote it.
    Foreign,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "read returned stale data (of an earlier write to this place)",
            Self::Misplaced => "read returned misplaced data (written to another place)",
            Self::Foreign => "read returned foreign data (not written by this run)",
        })
    }
}

/// Writes offset, generation and run into every sector. The other bytes are derived from these three.
pub fn fill(data: &mut [u8], offset: u64, generation: u64, run: u64) {
    for (index, sector) in data.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let place = offset + (index * SECTOR_BYTES) as u64;
        for (word, bytes) in sector.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&pattern_word(word, place, generation, run).to_le_bytes());
        }
    }
}

/// Checks the data of a block that should hold `generation`.
pub fn check(data: &[u8], offset: u64, generation: u64, run: u64) -> Result<(), Mismatch> {
    for (index, sector) in data.chunks_exact(SECTOR_BYTES).enumerate() {
        let place = offset + (index * SECTOR_BYTES) as u64;
        let found: Vec<u64> = sector.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
        let is =
            |place, generation| (0..found.len()).all(|word| found[word] == pattern_word(word, place, generation, run));
        if is(place, generation) {
            continue;
        }
        return Err(match (found[0], found[1]) {
            (at, old) if at == place && is(place, old) => Mismatch::Stale,
            (at, other) if is(at, other) => Mismatch::Misplaced,
            _ => Mismatch::Foreign,
        });
    }
    Ok(())
}

fn pattern_word(word: usize, place: u64, generation: u64, run: u64) -> u64 {
    match word {
        0 => place,
        1 => generation,
        2 => run,
        // Multiplying by an odd number is enough to make neighbouring words, places and generations differ.
        _ => (place ^ generation.rotate_left(32) ^ run).wrapping_add(word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_misplaced_and_foreign_data_are_distinguished() {
        let mut data = vec![0; 4096];
        assert_eq!(check(&data, 8192, 3, 9), Err(Mismatch::Foreign));
        fill(&mut data, 8192, 3, 9);
        assert_eq!(check(&data, 8192, 3, 9), Ok(()));
        assert_eq!(check(&data, 8192, 4, 9), Err(Mismatch::Stale));
        assert_eq!(check(&data, 4096, 3, 9), Err(Mismatch::Misplaced));
        assert_eq!(check(&data, 8192, 3, 8), Err(Mismatch::Foreign));
        data[4095] ^= 1;
        assert_eq!(check(&data, 8192, 3, 9), Err(Mismatch::Foreign));
    }

    #[test]
    fn one_misplaced_sector_is_detected() {
        let (mut data, mut other) = (vec![0; 4096], vec![0; 4096]);
        fill(&mut data, 0, 1, 9);
        fill(&mut other, 4096, 2, 9);
        data[3584..].copy_from_slice(&other[3584..]);
        assert_eq!(check(&data, 0, 1, 9), Err(Mismatch::Misplaced));
    }
}
