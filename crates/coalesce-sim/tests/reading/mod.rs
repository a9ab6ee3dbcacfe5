//! Reading traces in tests.

use coalesce_sim::trace::{Counts, Options, Step, Trace};
use std::io::Cursor;
use std::path::PathBuf;

pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

pub fn of_text(text: &str, options: Options) -> Trace {
    Trace::new(Box::new(Cursor::new(text.to_owned().into_bytes())), options)
}

pub fn steps(trace: &mut Trace) -> Vec<Step> {
    std::iter::from_fn(|| trace.step().unwrap()).collect()
}

pub fn counts(text: &str) -> Counts {
    let mut trace = of_text(text, Options::default());
    steps(&mut trace);
    trace.counts()
}

/// The message of the first error; empty: there is none.
pub fn error(text: &str) -> String {
    let mut trace = of_text(text, Options::default());
    loop {
        match trace.step() {
            Ok(Some(_)) => {}
            Ok(None) => return String::new(),
            Err(error) => return error.to_string(),
        }
    }
}
