//! Why a run has no result.

use std::fmt;
use std::io;

/// Why a run has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The options are out of bounds or contradict each other.
    Usage(String),
    /// The target could not be reached or refused the connection.
    Connect(String),
    /// The target does not offer what the options need.
    Missing(String),
    /// The target closed the connection while requests were running.
    Closed,
    /// The target broke the rules of the ring.
    Protocol(&'static str),
    /// A message to the target or a system call failed.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => f.write_str(what),
            Self::Connect(why) => write!(f, "cannot connect to the target: {why}"),
            Self::Missing(what) => write!(f, "the target does not offer {what}"),
            Self::Closed => f.write_str("the target closed the connection"),
            Self::Protocol(what) => write!(f, "protocol error: {what}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<nix::errno::Errno> for Error {
    fn from(errno: nix::errno::Errno) -> Self {
        Self::Io(errno.into())
    }
}
