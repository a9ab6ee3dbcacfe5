//! Image formats that are not raw, by their marks. A guest that had such a file as its disk would overwrite what it stands for.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// A mark: the name of its format, as `qemu-img` has it; where it is; its bytes. QEMU's source has them, one in each
/// `block/*.c`. LUKS is not among them: a guest that encrypts its whole disk leaves its mark in a raw image.
const MARKS: [(&str, Place, &[u8]); 16] = [
    ("qcow", Place::Start(0), b"QFI\xfb\0\0\0\x01"),
    ("qcow2", Place::Start(0), b"QFI\xfb"),
    ("qed", Place::Start(0), b"QED\0"),
    ("vmdk", Place::Start(0), b"KDMV"),
    ("vmdk", Place::Start(0), b"COWD"),
    ("vmdk", Place::Start(0), b"# Disk DescriptorFile"),
    ("vdi", Place::Start(0x40), b"\x7f\x10\xda\xbe"),
    ("vhdx", Place::Start(0), b"vhdxfile"),
    ("vpc", Place::Start(0), b"conectix"), // a VHD that grows
    ("vpc", Place::End(512), b"conectix"), // and one of a fixed size
    ("parallels", Place::Start(0), b"WithoutFreeSpace"),
    ("parallels", Place::Start(0), b"WithouFreSpacExt"),
    ("bochs", Place::Start(0), b"Bochs Virtual HD Image"),
    ("cloop", Place::Start(0), b"#!/bin/sh\n#V2.0 Format\n"),
    ("dmg", Place::Start(0), b"koly"),
    ("dmg", Place::End(512), b"koly"),
];

/// Bytes from the start, or before the end.
#[derive(Clone, Copy)]
enum Place {
    Start(u64),
    End(u64),
}

/// The format of an image of `size` bytes; `None`: it is raw, as far as can be told.
///
/// # Errors
/// The image cannot be read.
pub(super) fn format(image: &File, size: u64) -> io::Result<Option<&'static str>> {
    for (name, place, mark) in MARKS {
        let offset = match place {
            Place::Start(offset) => offset,
            Place::End(distance) => size.saturating_sub(distance),
        };
        let mut bytes = vec![0; mark.len()];
        match image.read_exact_at(&mut bytes, offset) {
            Ok(()) if bytes == mark => return Ok(Some(name)),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}
