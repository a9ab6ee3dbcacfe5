//! Hints without a change of any driver: reads of an NVMe disk by io_uring passthrough, with a hint in each command.
//!
//! ```text
//! nvme_hints /dev/ngXnY urgent|barrier|plain COUNT
//! ```
//!
//! Reads 4 KiB each from the start of a disk with blocks of 512 bytes, in batches of 16. A barrier is on the last of a batch.
//! `linux/examples/passthrough.c` is the same in C. Linux 5.19 or newer.

use io_uring::{IoUring, cqueue, opcode::UringCmd80, squeue, types::Fd};
use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;

const BATCH: u32 = 16;
const BYTES: u32 = 4096;
const BLOCK: u32 = 512;
const NVME_READ: u8 = 2;
/// `_IO('N', 0x40)`, the namespace of an open device.
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
/// `_IOWR('N', 0x80, struct nvme_uring_cmd)`
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;

/// `struct nvme_uring_cmd` of a read, in 72 bytes.
fn read(nsid: u32, buffer: &mut [u8], lba: u64, hint: u32) -> [u8; 80] {
    let mut command = [0; 80];
    let mut put = |at: usize, bytes: &[u8]| command[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[NVME_READ]);
    put(4, &nsid.to_ne_bytes());
    put(24, &(buffer.as_mut_ptr() as u64).to_ne_bytes());
    put(36, &(buffer.len() as u32).to_ne_bytes());
    put(40, &lba.to_ne_bytes()); // dwords 10 and 11
    put(48, &((BYTES / BLOCK - 1) | hint).to_ne_bytes());
    command
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, hint, count] = arguments.as_slice() else {
        return Err("nvme_hints /dev/ngXnY urgent|barrier|plain COUNT".into());
    };
    // Bits 17:16 of command dword 12, of a command and of the last one of a batch.
    let (each, last) = match hint.as_str() {
        "urgent" => (1 << 16, 1 << 16),
        "barrier" => (0, 2 << 16),
        "plain" => (0, 0),
        other => return Err(format!("hint {other}: urgent, barrier and plain are allowed").into()),
    };
    let count: u32 = count.parse()?;
    let file = File::open(path)?;
    // SAFETY: the call takes no argument.
    let nsid = u32::try_from(unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) })?;
    let mut buffers = vec![[0_u8; BYTES as usize]; BATCH as usize];
    let mut ring: IoUring<squeue::Entry128, cqueue::Entry32> = IoUring::builder().build(BATCH)?;

    for first in (0..count).step_by(BATCH as usize) {
        let n = BATCH.min(count - first);
        for (i, buffer) in (0..n).zip(&mut buffers) {
            let lba = u64::from(first + i) * u64::from(BYTES / BLOCK);
            let command = read(nsid, buffer, lba, if i + 1 == n { last } else { each });
            let entry = UringCmd80::new(Fd(file.as_raw_fd()), NVME_URING_CMD_IO).cmd(command).build();
            // SAFETY: the buffer outlives the command, as all are waited for below.
            unsafe { ring.submission().push(&entry)? };
        }
        ring.submit_and_wait(n as usize)?;
        for done in ring.completion() {
            // An errno below 0, an NVMe status above.
            if done.result() != 0 {
                return Err(format!("a read failed: {}", done.result()).into());
            }
        }
    }
    println!("{count} reads");
    Ok(())
}
