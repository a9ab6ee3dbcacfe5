//! Plans as text, and where in it a mistake is.

use super::{Plan, Wrong};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The longest text of a plan, in bytes: every simulation has a copy of the plan.
pub const PLAN_BYTES_MAX: usize = 64 << 10;

/// What is wrong with a plan's text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanError {
    /// The file, as it was named.
    pub file: String,
    /// From 1; `None`: the file could not be read.
    pub line: Option<usize>,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for PlanError {}

/// A plan's file, as it was read: it says where in it a mistake is that is found later.
#[derive(Clone, Debug)]
pub struct PlanFile {
    path: PathBuf,
    text: String,
}

impl PlanFile {
    /// Reads it, and checks nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(PLAN_BYTES_MAX as u64 + 1).read_to_string(&mut text));
        match read {
            Ok(_) => Ok(Self { path: path.to_owned(), text }),
            Err(error) => Err(PlanError { file: path.display().to_string(), line: None, message: error.to_string() }),
        }
    }

    /// The plan, checked with all points of its sweep.
    ///
    /// # Errors
    /// The first mistake.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let directory = self.path.parent().map(Path::to_owned).unwrap_or_default();
        Plan::parse(&self.path.display().to_string(), &self.text).map(|plan| Plan { directory, ..plan })
    }

    /// What is `wrong` with the plan, with its file and line.
    #[must_use]
    pub fn error(&self, wrong: &Wrong) -> PlanError {
        error_at(&self.path.display().to_string(), &self.text, wrong)
    }
}

impl Plan {
    /// Reads and checks a plan and all points of its sweep.
    ///
    /// # Errors
    /// The first mistake.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        PlanFile::read(path)?.plan()
    }

    /// As [`read`](Self::read), of a text that is called `file`.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(file: &str, text: &str) -> Result<Self, PlanError> {
        let at = |span: Option<Range<usize>>, message: String| PlanError {
            file: file.to_owned(),
            line: Some(span.map_or(1, |span| line_of(text, span.start))),
            message,
        };
        if text.len() > PLAN_BYTES_MAX {
            return Err(at(None, format!("the plan is longer than the {PLAN_BYTES_MAX} bytes that are allowed")));
        }
        let plan: Self = toml::from_str(text).map_err(|error| at(error.span(), error.message().to_owned()))?;
        plan.points().map_err(|wrong| error_at(file, text, &wrong))?;
        Ok(plan)
    }
}

fn error_at(file: &str, text: &str, wrong: &Wrong) -> PlanError {
    let line = locate(text, wrong).map_or(1, |span| line_of(text, span.start));
    PlanError { file: file.to_owned(), line: Some(line), message: wrong.to_string() }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Where the value is that `wrong` names, or the innermost table around it.
fn locate(text: &str, wrong: &Wrong) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let mut place = None;
    let mut value = &DeValue::Table(table.into_inner());
    for key in &wrong.path {
        let next = match value {
            DeValue::Table(table) => {
                let Some((name, next)) = table.iter().find(|(name, _)| name.get_ref() == key) else { return place };
                place = Some(name.span());
                next
            }
            DeValue::Array(array) => {
                let next = array.get(key.parse::<usize>().ok()?);
                match next {
                    Some(next) => {
                        place = Some(next.span());
                        next
                    }
                    None => return place,
                }
            }
            _ => return place,
        };
        value = next.get_ref();
    }
    place
}
