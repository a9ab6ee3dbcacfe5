//! A request, whatever the device.

/// A request to submit.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub kind: Kind,
    /// Linux's I/O priority of the requester.
    pub ioprio: u32,
    /// In units of 512 bytes.
    pub sector: u64,
}

/// What a request does, with the numbers of virtio-blk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Read = 0,
    Write = 1,
    Flush = 4,
}
