//! The command line.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, ValueEnum as _};
use coalesce_target::config::Size;

use crate::jobs::Job;
use crate::place::Place;
use crate::policies::{Further, Policies, Policy, parse_further, parse_policies};

/// Show what interrupt coalescing costs and saves on this machine
///
/// Serves one disk per place with coalesce-target, loads it with one job after another, natively and in a Linux guest under QEMU,
/// and changes its policy in place, in short turns and random order. The first policy runs twice: it shows how far anything may differ
/// from itself. Prints a verdict, and writes a page that opens without network.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Options {
    /// HTML report: one file that needs no network
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,

    /// All measurements as JSON
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    pub json: PathBuf,

    /// Directory for the pictures of the report as files of their own: native-depth32-interrupts.svg
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,

    /// Six minutes: --policies none,nvme,vic,cint,auto --frontier auto:budget=2%,auto:budget=20% --jobs depth1,depth32,compute,sqlite
    /// --places native,guest,counted,nvme,bare --seconds 15
    #[arg(long, conflicts_with_all = ["policies", "frontier", "jobs", "places", "seconds"])]
    pub long: bool,

    /// Seconds for each job, times 1.5 for depth32 and 2 for sqlite, times .6 natively and 1.3 in a Linux guest; a job ends earlier if
    /// every interval is narrow
    #[arg(long, value_name = "SECONDS", default_value_t = 9.0, value_parser = parse_seconds)]
    pub seconds: f64,

    /// Seconds of one turn of the native client; five times that in a guest
    #[arg(long, value_name = "SECONDS", default_value_t = 0.03, value_parser = parse_seconds)]
    pub turn: f64,

    /// Policies to compare, in any text form: none,vic,vic:cif_threshold=2,epoch=100ms (see coalesce-target policies)
    #[arg(long, value_name = "LIST", default_value = "none,nvme,auto", value_parser = parse_policies)]
    pub policies: Policies,

    /// More policies, compared with 32 in flight alone: further points of the picture
    #[arg(long, value_name = "LIST", value_parser = parse_further)]
    pub frontier: Option<Further>,

    /// Jobs to run
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "depth1,depth32")]
    pub jobs: Vec<Job>,

    /// Where to run them
    #[arg(long, value_name = "LIST", value_enum, value_delimiter = ',', default_value = "native,nvme")]
    pub places: Vec<Place>,

    /// Directory for the disk images [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub image_dir: Option<PathBuf>,

    /// Bypass the page cache where the file system allows it, to measure this machine's disk [default: use the page cache,
    /// which is as fast as a fast drive]
    #[arg(long)]
    pub direct: bool,

    /// Size of each disk image: 128M, 1G; the guest needs 128M
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub image_size: Size,

    /// Seed of the random order of turns
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// The coalesce-target to run; coalesce-bench is beside it [default: those next to this program]
    #[arg(long, value_name = "PATH")]
    pub target: Option<PathBuf>,
}

const EXAMPLES: &str = "\
EXAMPLES
  In a minute; then open report.html:
      coalesce-demo
  Everything, in six:
      coalesce-demo --long
  A guest with a virtio-blk disk, which needs no newer QEMU than the system's:
      coalesce-demo --places native,guest
  A guest that needs no kernel and runs under KVM wherever that runs anything:
      coalesce-demo --places native,bare
  How much does vIC's threshold matter? Texts with commas need no quotes:
      coalesce-demo --policies none,vic,vic:cif_threshold=2,vic:cif_threshold=8,max_skip=4
  The disk itself, without the page cache:
      coalesce-demo --image-dir /mnt/nvme --direct --image-size 1G --seconds 60

WHAT IS RUN
  depth1, depth8, depth32   4 KiB random reads with 1, 8 and 32 in flight
  mixed                     one synchronous reader with real-time priority beside one with 32 in flight
  batch4                    four reads at a time, the next four when all have completed
  fsync                     4 KiB random writes one at a time, a flush after each
  compute                   bursts of 32 reads and a pause after each, and a loop that computes on the client's CPU when that has nothing to do
  sqlite                    in the guest: SQLite transactions beside a reader with 32 in flight
  Natively EVENT_IDX is off, as with NVMe: the device alone decides. In the guest it is on, as Linux negotiates it.
  With an NVMe disk, which carries no I/O priority, the guest runs those of depth1, depth8, depth32 and compute that are
  among the jobs; the bare-metal guest those of the first three.

Exit status: 0, also if a guest was SKIPPED because something it needs is missing; 1 if anything failed.
Needs coalesce-target and coalesce-bench (cargo build --release) and, for the guests, what guest/packages.sh installs.";

/// The policies of --long, and the further points of its picture.
const LONG: (&str, &str) = ("none,nvme,vic,cint,auto", "auto:budget=2%,auto:budget=20%");

/// The guest's jobs read the first 64 MiB, or the next 64 MiB beside a file system.
const GUEST_IMAGE_BYTES_MIN: u64 = 128 << 20;

fn refuse(error: &str) -> ! {
    Options::command().error(ErrorKind::ValueValidation, error).exit()
}

impl Options {
    /// The command line, with what --long stands for.
    pub fn read() -> Self {
        let mut options = Self::parse();
        if options.long {
            let policies = parse_policies(LONG.0).unwrap_or_else(|error| refuse(&error));
            let frontier = parse_further(LONG.1).unwrap_or_else(|error| refuse(&error));
            let jobs = vec![Job::Depth1, Job::Depth32, Job::Compute, Job::Sqlite];
            let places = Place::value_variants().to_vec();
            options = Self { policies, frontier: Some(frontier), jobs, places, seconds: 15.0, ..options };
        }
        if let Some(further) = &options.frontier {
            options.policies = options.policies.and_further(further).unwrap_or_else(|error| refuse(&error));
        }
        options
    }

    /// Checks what depends on several options.
    pub fn check(&self) -> anyhow::Result<()> {
        let bytes = self.image_size.0;
        if bytes == 0 || !bytes.is_multiple_of(1 << 20) {
            anyhow::bail!("--image-size must be whole MiB");
        }
        if self.places != [Place::Native] && bytes < GUEST_IMAGE_BYTES_MIN {
            anyhow::bail!("--image-size must be at least 128M for a guest, or give --places native");
        }
        if self.places.contains(&Place::Native) {
            self.client_path()?;
        }
        Ok(())
    }

    /// The jobs of a place.
    pub fn jobs_at(&self, place: Place) -> Vec<Job> {
        let fits = |job: &Job| match place {
            Place::Native => job.bench_arguments().is_some(),
            Place::Guest => *job != Job::Compute, // EVENT_IDX makes one interrupt of a burst
            Place::Counted | Place::Bare => matches!(job, Job::Depth1 | Job::Depth8 | Job::Depth32),
            Place::Nvme => matches!(job, Job::Depth1 | Job::Depth8 | Job::Depth32 | Job::Compute),
        };
        self.jobs.iter().copied().filter(fits).collect()
    }

    /// The policies of a job: where instructions are counted, the baseline and the one that the headline is about.
    pub fn policies_at(&self, place: Place, job: Job) -> Policies {
        match (place, self.policies.judged()) {
            (Place::Counted, Some((_, judged))) => Policies(vec![self.policies.baseline().clone(), judged.clone()]),
            _ => {
                let is_compared = |policy: &&Policy| job == Job::Depth32 || !policy.is_further;
                Policies(self.policies.0.iter().filter(is_compared).cloned().collect())
            }
        }
    }

    /// Where coalesce-target is.
    pub fn target_path(&self) -> anyhow::Result<PathBuf> {
        let path = match &self.target {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.parent().unwrap_or(Path::new("/")).join("coalesce-target"),
        };
        found(path, "cargo build --release -p coalesce-target, or --target PATH")
    }

    /// Where coalesce-bench is.
    pub fn client_path(&self) -> anyhow::Result<PathBuf> {
        found(self.target_path()?.with_file_name("coalesce-bench"), "cargo build --release -p coalesce-load")
    }
}

/// A program that is there, or else how to get it.
fn found(path: PathBuf, how: &str) -> anyhow::Result<PathBuf> {
    if !path.is_file() {
        anyhow::bail!("{} is missing: {how}", path.display());
    }
    Ok(path)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "expected 0.01 to 3600 seconds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory as _;
        Options::command().debug_assert();
    }

    #[test]
    fn seconds_have_bounds() {
        assert!(parse_seconds("0.1").is_ok() && parse_seconds("3600").is_ok());
        assert!(parse_seconds("0").is_err() && parse_seconds("NaN").is_err() && parse_seconds("1s").is_err());
    }
}
