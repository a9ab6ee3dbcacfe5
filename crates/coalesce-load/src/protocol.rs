//! The part of virtio-blk that this driver needs: configuration space, request header.

use virtio_driver::{ByteValued, Le16, Le32, Le64, VhostUser};

/// The connection to a target, which owns the memory of the rings.
pub type Transport = VhostUser<BlkConfig, BlkRequest>;

/// `struct virtio_blk_config` up to the last field that is needed. Some targets refuse to read beyond their last field.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct BlkConfig {
    pub capacity_sectors: Le64,
    _limits_and_geometry: [Le32; 3],
    pub block_bytes: Le32,
    _topology: [Le32; 2],
    _cache: Le16,
    pub queues: Le16,
}

// SAFETY: every field is plain data, any bytes are a valid value of it, and a packed struct has no padding.
unsafe impl ByteValued for BlkConfig {}

/// Bytes of the request header that the device reads: everything before `status`.
pub const HEADER_BYTES: usize = 16;

/// The part of a virtio-blk request that the device sees, besides the data.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct BlkRequest {
    pub kind: u32,
    pub ioprio: u32,
    pub sector: u64,
    pub status: u8,
}

const _: () = assert!(std::mem::offset_of!(BlkRequest, status) == HEADER_BYTES);
