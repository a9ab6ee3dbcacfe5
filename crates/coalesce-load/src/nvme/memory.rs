//! Memory that the driver shares with the controller.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicU32;

use memmap2::MmapMut;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::client::Client;
use crate::Error;

pub const PAGE: usize = 4096;

/// Whole pages of zeroes, as the driver and the controller see them.
pub struct Memory {
    map: MmapMut,
    address: u64,
}

impl Memory {
    /// Shares memory with the controller, whose addresses of it begin at `address`.
    pub fn new(client: &Client, address: u64, bytes: usize) -> Result<Self, Error> {
        let len = bytes.next_multiple_of(PAGE);
        let file = File::from(memfd_create("coalesce-load", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(len as u64)?;
        // SAFETY: only this process and the target have the file, and it never shrinks. The target writes only to data of
        // commands in flight, which nobody reads until they are complete, and to words that are read as atomics.
        let map = unsafe { MmapMut::map_mut(&file) }?;
        client.map(address, file.as_fd(), len as u64)?;
        Ok(Self { map, address })
    }

    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// The controller's address of a place.
    pub fn address(&self, at: usize) -> u64 {
        self.address + at as u64
    }

    /// A word that the controller may change at any time. `at` is a multiple of 4, and inside.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len());
        // SAFETY: it is inside and aligned, and nobody changes it but as an atomic.
        unsafe { AtomicU32::from_ptr(self.map.as_ptr().wrapping_add(at).cast_mut().cast()) }
    }

    /// Bytes that the controller does not change now.
    pub fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        &mut self.map[at..at + len]
    }
}
