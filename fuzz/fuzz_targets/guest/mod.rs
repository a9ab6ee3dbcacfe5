//! A guest that does nearly what it should: requests in their usual framing with now and then one thing wrong, in memory
//! of a known layout.

#[path = "../rarely/mod.rs"]
mod rarely;

use arbitrary::Arbitrary;
pub use rarely::Rarely;

// Guest memory: two regions side by side, and one elsewhere.
pub const START: u64 = 0x1000;
pub const REGION_LEN: u64 = 0x8000;
pub const ELSEWHERE: [u64; 2] = [0x10_0000, 1 << 62];

// The usual place of the rings, and of what requests are made of.
pub const RINGS: [u64; 3] = [START, START + 0x2000, START + 0x3000];
const REQUESTS: u64 = START + 0x5000;
const DATA: u64 = START + 0x6000;

/// Length of the disk that the requests are for.
pub const DISK_LEN: u64 = 16 << 10;

/// Where something is.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Place {
    Data(u16),
    Requests(u8),
    BetweenRegions(i8),
    AtTheEnd(i8),
    Rings(u16),
    Elsewhere(bool, u8),
    Any(u64),
}

impl Place {
    pub fn address(self) -> u64 {
        match self {
            Self::Data(at) => DATA + u64::from(at) % 0x4000,
            Self::Requests(at) => REQUESTS + u64::from(at),
            Self::BetweenRegions(by) => (START + REGION_LEN).wrapping_add_signed(by.into()),
            Self::AtTheEnd(by) => (START + 2 * REGION_LEN).wrapping_add_signed(by.into()),
            Self::Rings(at) => START + u64::from(at) % 0x4000,
            Self::Elsewhere(high, at) => ELSEWHERE[usize::from(high)] + u64::from(at),
            Self::Any(address) => address,
        }
    }
}

/// A descriptor that is not what it should be.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Flaw {
    at: u8,
    what: FlawKind,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum FlawKind {
    Address(Place),
    Len(u32),
    Flags(u8),
    Next(u16),
}

/// A request in its usual framing.
#[derive(Arbitrary, Clone, Debug)]
pub struct Request {
    head: u8,
    kind: u8,
    ioprio: u16,
    sector: u8,
    far: Rarely<u64>,
    /// Places and lengths of its data.
    data: [Option<(Rarely<Place>, u8)>; 4],
    /// Lengths count in sectors.
    is_whole: bool,
    range: (u8, Rarely<u32>),
    is_indirect: bool,
    status: Rarely<Place>,
    flaw: Rarely<Flaw>,
}

impl Request {
    /// Its first descriptor, in a ring of `ring_size` entries.
    pub fn head(&self, ring_size: u16) -> u16 {
        u16::from(self.head) % ring_size
    }

    /// Writes its chain into the descriptor table of a ring.
    pub fn lay_out(&self, table: u64, ring_size: u16, write: &dyn Fn(u64, &[u8])) {
        let head = self.head(ring_size);
        const KINDS: [u32; 8] = [0, 0, 1, 1, 4, 8, 11, 13];
        const NEXT: u16 = 1;
        const WRITE: u16 = 2;
        const INDIRECT: u16 = 4;
        let kind = if self.kind < 248 { KINDS[usize::from(self.kind) % 8] } else { self.kind.into() };
        let at = REQUESTS + 64 * u64::from(head % 32);
        let sector = self.far.get().unwrap_or_else(|| u64::from(self.sector) % (DISK_LEN / 512 + 1));
        let mut header = kind.to_le_bytes().to_vec();
        header.extend(u32::from(self.ioprio).to_le_bytes());
        header.extend(sector.to_le_bytes());
        let sectors = self.range.1.get().unwrap_or_else(|| u32::from(self.range.0 % 16));
        header.extend(sector.to_le_bytes());
        header.extend(sectors.to_le_bytes());
        header.extend(u32::from(self.range.0 >> 7).to_le_bytes());
        write(at, &header);

        let header_len = if kind >= 11 { 32 } else { 16 };
        let flags = if matches!(kind, 0 | 8) { WRITE } else { 0 };
        let mut chain = vec![(at, header_len, 0)];
        let mut data_at = DATA + 0x400 * u64::from(head % 16);
        for (place, len) in self.data.iter().flatten().filter(|_| kind < 4 || kind == 8) {
            let len = if self.is_whole { 512 * u32::from(len % 4) } else { u32::from(*len) };
            chain.push((place.get().map_or(data_at, Place::address), len, flags));
            data_at += u64::from(len);
        }
        chain.push((self.status.get().map_or(at + 48, Place::address), 1, WRITE));

        let (chain_table, first, mask) = if self.is_indirect {
            (DATA + 0x4000 + 0x100 * u64::from(head % 16), 0, u16::MAX)
        } else {
            (table, head, ring_size - 1)
        };
        let last = chain.len() - 1;
        for (i, &(mut address, mut len, flags)) in chain.iter().enumerate() {
            let index = first.wrapping_add(i as u16) & mask;
            let mut next = index.wrapping_add(1) & mask;
            let mut flags = if i < last { flags | NEXT } else { flags };
            if let Some(flaw) = self.flaw.get().filter(|flaw| usize::from(flaw.at) % chain.len() == i) {
                match flaw.what {
                    FlawKind::Address(place) => address = place.address(),
                    FlawKind::Len(other) => len = other,
                    FlawKind::Flags(other) => flags = u16::from(other) & 7,
                    FlawKind::Next(other) => next = other,
                }
            }
            descriptor(chain_table, index, address, len, flags, next, write);
        }
        if self.is_indirect {
            descriptor(table, head, chain_table, 16 * chain.len() as u32, INDIRECT, 0, write);
        }
    }
}

fn descriptor(table: u64, index: u16, address: u64, len: u32, flags: u16, next: u16, write: &dyn Fn(u64, &[u8])) {
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(next.to_le_bytes());
    write(table.wrapping_add(16 * u64::from(index)), &bytes);
}
