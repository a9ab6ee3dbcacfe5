//! What the programs of this project have in common: a version that names the commit, manual pages and shell completions, all
//! from the definition of the command line; and text that a terminal only shows.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

/// The version, and the commit if a checkout was built.
pub const VERSION: &str = env!("COALESCE_VERSION");

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

/// A text without characters that a terminal obeys: each is escaped as JSON escapes it. Newlines and tabs stay.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let escape = |c: char| if is_obeyed(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_nothing_else() {
        for (text, shown) in [
            ("", ""),
            ("Größe \u{2014} 4 µs\n\tnext", "Größe \u{2014} 4 µs\n\tnext"),
            ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
            ("a\rb\x7f\u{9b}31m", "a\\u000db\\u007f\\u009b31m"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
