//! The interrupts that a guest has taken, as its kernel counts them for /proc/interrupts.
//!
//! The guest's job answers on a serial line of its own: see `answer_irqs` in `guest/jobs/lib.sh`.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// A guest whose CPUs others have may be slow. Then it is asked again, so often at most.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 10;

/// A serial line to a guest.
#[derive(Debug)]
pub struct Taken(RefCell<Line>);

#[derive(Debug)]
struct Line {
    stream: BufReader<UnixStream>,
    /// The last question: an answer repeats it.
    question: u64,
    /// What has come of a line.
    begun: String,
}

impl Taken {
    /// The line at this socket of QEMU.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(RefCell::new(Line { stream: BufReader::new(stream), question: 0, begun: String::new() })))
    }

    /// The interrupts of all vectors of the disk's queues so far, over all CPUs.
    pub fn count(&self) -> Result<u64> {
        let mut line = self.0.borrow_mut();
        for _ in 0..ATTEMPTS {
            if let Some(count) = line.ask().context("the guest's count of its interrupts")? {
                return Ok(count);
            }
        }
        bail!("the guest does not say how many interrupts it has taken")
    }
}

impl Line {
    /// None: no answer in time.
    fn ask(&mut self) -> Result<Option<u64>> {
        self.question += 1;
        writeln!(self.stream.get_mut(), "{}", self.question)?;
        loop {
            match self.stream.read_line(&mut self.begun) {
                Ok(0) => bail!("it has closed its serial line"),
                Ok(_) => {
                    let answer = sum(&std::mem::take(&mut self.begun), self.question);
                    if answer.is_some() {
                        return Ok(answer);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The sum of an answer "QUESTION COUNT,COUNT COUNT,COUNT": of each vector, by CPU. None: it is no answer to this question, such as
/// the echo of it.
fn sum(line: &str, question: u64) -> Option<u64> {
    let (asked, counts) = line.trim().split_once(' ')?;
    let counts = counts.split([' ', ',']).map(|count| count.parse::<u64>().ok());
    counts.sum::<Option<u64>>().filter(|_| asked == question.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn an_answer_names_its_question() {
        assert_eq!(sum("7 10,2 5,0\r\n", 7), Some(17));
        for other in ["7\r\n", "6 10,2\n", "7 10,x\n", "", "\n"] {
            assert_eq!(sum(other, 7), None, "{other}");
        }
    }

    #[test]
    fn echoes_and_late_answers_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("line");
        let guest = UnixListener::bind(&socket).unwrap();
        let taken = Taken::connect(&socket).unwrap();
        let (guest, _) = guest.accept().unwrap();
        let (mut answers, mut questions) = (guest.try_clone().unwrap(), BufReader::new(guest).lines());
        writeln!(answers, "1\r\n0 9\n1 3,4").unwrap();
        assert_eq!(taken.count().unwrap(), 7);
        writeln!(answers, "1 3,4\n2 3,5").unwrap();
        assert_eq!(taken.count().unwrap(), 8);
        assert_eq!([questions.next(), questions.next()].map(|line| line.unwrap().unwrap()), ["1", "2"]);
        drop((questions, answers));
        assert!(taken.count().is_err());
    }
}
