//! How far a large file is read, on a terminal.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::fs::File;
use std::io::{IsTerminal as _, Read};

/// A file that is smaller is read before anybody asks.
const LARGE: u64 = 16 << 20;

struct Watched {
    file: File,
    bar: ProgressBar,
}

/// The file; standard error, where it is a terminal and the file is large, shows how much of it is read.
pub fn watched(file: File) -> Box<dyn Read> {
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    if len < LARGE || !std::io::stderr().is_terminal() {
        return Box::new(file);
    }
    let style = "{bar:40} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
    let bar = ProgressBar::new(len).with_finish(ProgressFinish::AndClear);
    bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
    Box::new(Watched { file, bar })
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let len = self.file.read(into)?;
        match len {
            0 => self.bar.finish_and_clear(),
            _ => self.bar.inc(len as u64),
        }
        Ok(len)
    }
}
