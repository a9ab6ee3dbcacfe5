//! The command line that QEMU's documents ask of a vhost-user backend, so that management software can start it: "Backend
//! program conventions" in docs/interop/vhost-user.rst, and docs/interop/vhost-user.json. It is `serve` in other words.

use clap::{ArgGroup, Args};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// What `--print-capabilities` prints.
pub const CAPABILITIES: &str = "{\n  \"type\": \"block\",\n  \"features\": [\"read-only\", \"blk-file\"]\n}\n";

/// The options of a vhost-user backend of type `block`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Conventions of vhost-user backends, instead of a command")]
#[command(group = ArgGroup::new("how").required(true).multiple(true).args(["socket_path", "fd", "print_capabilities"]))]
pub struct Backend {
    /// Serve at this socket
    #[arg(long, value_name = "PATH", conflicts_with = "fd")]
    pub socket_path: Option<PathBuf>,

    /// Serve on the socket that is open as this descriptor; if it is connected, until the front end leaves
    #[arg(long, value_name = "FDNUM")]
    pub fd: Option<RawFd>,

    /// Print what this backend can do, as JSON, and exit
    #[arg(long)]
    pub print_capabilities: bool,

    /// Serve this raw image or block device
    #[arg(long, value_name = "PATH", required_unless_present = "print_capabilities")]
    pub blk_file: Option<PathBuf>,

    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,
}

impl Backend {
    /// The same as arguments of `serve`.
    #[must_use]
    pub fn serve(&self) -> Vec<OsString> {
        let fd = || self.fd.map(|fd| format!("/dev/fd/{fd}").into());
        let socket = self.socket_path.clone().map(OsString::from).or_else(fd);
        let file = self.blk_file.clone().map(OsString::from);
        let valued = [("--socket=", socket), ("--file=", file)];
        let joined = |(name, value): (&str, Option<OsString>)| {
            let mut argument = OsString::from(name);
            argument.push(value?);
            Some(argument)
        };
        valued.into_iter().filter_map(joined).chain(self.read_only.then(|| "--read-only".into())).collect()
    }
}
