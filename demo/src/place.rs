//! Where the jobs run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Place {
    /// A client on the host
    Native,
    /// A Linux guest with a virtio-blk disk
    Guest,
    /// A Linux guest with a virtio-blk disk, in an emulator that counts its instructions
    Counted,
    /// A Linux guest with an NVMe disk
    Nvme,
    /// A bare-metal guest with an NVMe disk
    Bare,
}

impl Place {
    /// Its name: of its disk, of its part of the page, of its part of the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Guest => "guest",
            Self::Counted => "counted",
            Self::Nvme => "nvme",
            Self::Bare => "bare",
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        coalesce_demo::figure::heading(self.name())
    }

    /// How many times longer than others its jobs are measured: counts need fewer turns, and a guest's turns are longer.
    pub const fn length(self) -> f64 {
        match self {
            Self::Native => 0.6,
            Self::Guest | Self::Nvme => 1.3,
            Self::Bare => 0.8,
            Self::Counted => 0.5,
        }
    }

    /// How many times longer than natively its turns are: an emulated CPU completes fewer requests.
    pub const fn turn_length(self) -> f64 {
        match self {
            Self::Native => 1.0,
            Self::Guest | Self::Counted | Self::Nvme | Self::Bare => 5.0,
        }
    }

    /// How long a policy that learns is in force before the first turn: `auto` has its first licence after 2700 completions where nothing
    /// disturbs its trials, in an emulated guest after half a second to three.
    pub const fn learning(self) -> Duration {
        match self {
            Self::Native => Duration::from_secs(1),
            Self::Guest | Self::Counted | Self::Nvme | Self::Bare => Duration::from_secs(4),
        }
    }

    /// Who is there.
    pub const fn who(self) -> &'static str {
        match self {
            Self::Native => "a program on the host",
            Self::Guest | Self::Counted | Self::Nvme => "a Linux guest",
            Self::Bare => "a bare-metal guest",
        }
    }

    /// The same in a table.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Native => "on the host",
            Self::Guest | Self::Counted => "in a Linux guest, virtio-blk",
            Self::Nvme => "in a Linux guest, NVMe",
            Self::Bare => "in a bare-metal guest, NVMe",
        }
    }

    /// Which numbers these are.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Native => {
                "The built-in client plays a guest's driver over vhost-user, and sleeps until it is interrupted. EVENT_IDX is \
                 off, as NVMe has nothing like it: the device alone decides. Client CPU is that of the client's process."
            }
            Self::Guest => {
                "An unmodified Linux under QEMU, with fio. EVENT_IDX is on, as Linux negotiates it, so the guest itself \
                 suppresses interrupts while it is busy, under none as well. Client CPU is that of the whole virtual machine."
            }
            Self::Counted => {
                "The guest with the virtio-blk disk again, under an emulator that counts the instructions of all its CPUs, and those of \
                 its interrupts among them: from an interrupt (the timer's, too) to the return from it, soft interrupts included. \
                 Counting slows it down, so no times are shown."
            }
            Self::Nvme => {
                "The same guest with a disk that is an NVMe controller: its driver cannot suppress an interrupt. Client CPU is that \
                 of the whole virtual machine."
            }
            Self::Bare => {
                "A driver without an operating system, with an NVMe disk: it works 2 µs for each read, compares the data, sleeps until it \
                 is interrupted, and cannot suppress an interrupt. It runs under KVM where no Linux does. Client CPU is that of the whole \
                 virtual machine."
            }
        }
    }
}

/// A program of the guests' kit.
pub fn kit(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest").join(program)
}
