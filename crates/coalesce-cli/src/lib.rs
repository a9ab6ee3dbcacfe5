//! What the programs of this project have in common: a version that names the commit, manual pages and shell completions, all
//! from the definition of the command line; output of which a terminal obeys nothing, and counts with their nouns; and a connection
//! to the socket of another program that waits for a bounded time.

#[cfg(feature = "connect")]
mod connect;
#[cfg(feature = "clap")]
mod made;

#[cfg(feature = "connect")]
pub use connect::{connect, connect_to_new};
#[cfg(feature = "clap")]
pub use made::{Completions, Man};

use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write as _};

/// The version, and the commit if a checkout was built.
pub const VERSION: &str = env!("COALESCE_VERSION");

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

/// Prints to standard output. A part of the text may come from anywhere, so a terminal obeys none of it. A reader that has
/// closed the output is not an error.
///
/// # Errors
/// Writing fails.
pub fn print(text: &str) -> io::Result<()> {
    print_to_reader(text).map(drop)
}

/// [`print()`], for a program that prints again and again: whether there is still a reader.
///
/// # Errors
/// Writing fails.
pub fn print_to_reader(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(printable(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// Prints a line to standard error, of which a terminal obeys nothing, either. Ignores errors.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(&line.to_string()));
}

/// [`say`](fn@say) with the arguments of `format!`.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say(format_args!($($argument)*)) };
}

/// A count with its noun, which has an "s" unless there is one.
///
/// ```
/// # use coalesce_cli::counted;
/// assert_eq!([0_u64, 1, 2].map(|count| counted(count, "queue")), ["0 queues", "1 queue", "2 queues"]);
/// ```
#[must_use]
pub fn counted(count: impl Into<u64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
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
