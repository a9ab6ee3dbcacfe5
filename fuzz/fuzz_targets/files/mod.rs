//! Files that go along with a message: the right one, or another.

use arbitrary::Arbitrary;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A file that goes along with a message.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Gift {
    /// What belongs there.
    Right,
    Memory(u8),
    Eventfd {
        blocks: bool,
        full: bool,
    },
    PipeEnd(bool),
    Socket,
    Null,
    Directory,
    ReadOnly,
    None,
}

impl Gift {
    /// The file; `right` is what belongs there.
    pub fn file(self, right: RawFd) -> Option<OwnedFd> {
        let duplicate = |fd: RawFd| {
            // SAFETY: the descriptor is open.
            unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().unwrap()
        };
        Some(match self {
            Gift::Right => duplicate(right),
            Gift::Memory(pages) => memory(u64::from(pages % 32) * 4096).into(),
            Gift::Eventfd { blocks, full } => {
                let eventfd = eventfd(if blocks { EfdFlags::empty() } else { EfdFlags::EFD_NONBLOCK });
                if full {
                    eventfd.write(u64::MAX - 1).unwrap();
                }
                eventfd.into()
            }
            Gift::PipeEnd(write) => {
                let (reader, writer) = std::io::pipe().unwrap();
                if write { writer.into() } else { reader.into() }
            }
            Gift::Socket => UnixStream::pair().unwrap().0.into(),
            Gift::Null => File::open("/dev/null").unwrap().into(),
            Gift::Directory => File::open("/").unwrap().into(),
            Gift::ReadOnly => File::open("/proc/self/maps").unwrap().into(),
            Gift::None => return None,
        })
    }
}

/// A file in memory.
pub fn memory(len: u64) -> File {
    let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap());
    file.set_len(len).unwrap();
    file
}

pub fn eventfd(flags: EfdFlags) -> EventFd {
    EventFd::from_flags(flags | EfdFlags::EFD_CLOEXEC).unwrap()
}

/// The files that are open, without pipes: the fuzzer has some to what finds it the names of functions.
pub fn open_files() -> Vec<PathBuf> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let files = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    files.filter(|file| !file.to_string_lossy().starts_with("pipe:")).collect()
}
