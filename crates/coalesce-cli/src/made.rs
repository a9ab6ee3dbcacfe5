//! What is made from the definition of a command line.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io;
use std::path::PathBuf;

/// Write the manual pages of this program: one, and one for each subcommand
#[derive(Args, Debug)]
pub struct Man {
    /// Existing directory for them, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    /// Writes the pages of the command line `C`.
    ///
    /// # Errors
    /// A page cannot be written.
    pub fn run<C: CommandFactory>(&self) -> io::Result<()> {
        clap_mangen::generate_to(C::command(), &self.directory)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.directory.display())))
    }
}

/// Print what completes the command line of this program in a shell
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    /// The script for the command line `C`.
    #[must_use]
    pub fn script<C: CommandFactory>(&self) -> String {
        let mut command = C::command();
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}
