//! Memory that the driver shares with the device: queues, and the data of requests.

use std::fs::File;
use std::sync::atomic::{AtomicU16, AtomicU32};

use memmap2::{MmapMut, MmapOptions};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::Error;

pub const PAGE: usize = 4096;

/// The first address that a device sees. Not 0, which would hide a forgotten address.
pub const FIRST_ADDRESS: u64 = 1 << 20;

/// A new file of zeroes, to be shared with the device. Nobody else has it.
pub fn file(bytes: usize) -> Result<File, Error> {
    let file = File::from(memfd_create("coalesce-load", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Whole pages, as the driver and the device see them.
pub struct Memory {
    map: MmapMut,
    address: u64,
}

impl Memory {
    /// Maps a part of a [`file`], from `at` on, which the device sees from `address` on. All are multiples of [`PAGE`].
    pub fn map(file: &File, at: usize, len: usize, address: u64) -> Result<Self, Error> {
        // SAFETY: only this process and the target have the file, and it never shrinks. The target writes only to data of
        // requests in flight, which nobody reads until they are complete, and to words that are read as atomics.
        let map = unsafe { MmapOptions::new().offset(at as u64).len(len).map_mut(file) }?;
        Ok(Self { map, address })
    }

    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// The device's address of a place.
    pub fn address(&self, at: usize) -> u64 {
        self.address + at as u64
    }

    /// 16 bits that the device may change, or read, at any time. `at` is a multiple of 2, and inside.
    pub fn half(&self, at: usize) -> &AtomicU16 {
        assert!(at.is_multiple_of(2) && at + 2 <= self.map.len());
        // SAFETY: it is inside and aligned, and nobody changes it but as an atomic.
        unsafe { AtomicU16::from_ptr(self.map.as_ptr().wrapping_add(at).cast_mut().cast()) }
    }

    /// 32 bits that the device may change, or read, at any time. `at` is a multiple of 4, and inside.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len());
        // SAFETY: as in `half`.
        unsafe { AtomicU32::from_ptr(self.map.as_ptr().wrapping_add(at).cast_mut().cast()) }
    }

    /// Bytes that the device does not change now.
    pub fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.map[at..at + len]
    }
}
