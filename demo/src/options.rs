//! The command line, and the list of policies it carries.

use std::path::{Path, PathBuf};

use clap::Parser;
use coalesce_charts::series::{STYLES, styles};
use coalesce_policy::Spec;
use coalesce_target::config::Size;

/// Show what interrupt coalescing costs and saves on this machine
///
/// Serves one disk image per policy with coalesce-target, runs the same jobs on each, first with the built-in client,
/// then in a Linux guest under QEMU, prints two tables and writes a report that opens without network.
#[derive(Clone, Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Options {
    /// HTML report: one file that needs no network
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,

    /// All measurements as JSON (fio's names, times in ns)
    #[arg(long, value_name = "FILE", default_value = "report.json")]
    pub json: PathBuf,

    /// Seconds per native run, may be fractional; there are 3 rounds of 6 jobs under each policy
    #[arg(long, value_name = "SECONDS", default_value_t = 0.7, value_parser = parse_seconds)]
    pub seconds: f64,

    /// Seconds per run in the guest; there are as many runs as natively
    #[arg(long, value_name = "SECONDS", default_value_t = 0.4, value_parser = parse_seconds)]
    pub guest_seconds: f64,

    /// Policies to compare, in any text form: none,vic,vic:cif_threshold=2,epoch=100ms (see coalesce-target policies)
    #[arg(long, value_name = "LIST", default_value = "none,nvme,vic,cint,auto", value_parser = parse_policies)]
    pub policies: Policies,

    /// Skip the guest
    #[arg(long, conflicts_with = "no_native")]
    pub no_guest: bool,

    /// Skip the native client
    #[arg(long)]
    pub no_native: bool,

    /// Directory for the disk images [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub image_dir: Option<PathBuf>,

    /// Bypass the page cache where the file system allows it, to measure this machine's disk [default: use the page cache,
    /// which is as fast as a fast drive]
    #[arg(long)]
    pub direct: bool,

    /// Size of each disk image: 128M, 1G; the guest needs 64M
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub image_size: Size,

    /// The coalesce-target to run [default: the one next to this program]
    #[arg(long, value_name = "PATH")]
    pub target: Option<PathBuf>,
}

const EXAMPLES: &str = "\
EXAMPLES
  Everything, in three to four minutes; then open report.html:
      coalesce-demo
  Only the native part, quickly (the percentiles beyond p99 then mean little):
      coalesce-demo --no-guest --seconds 0.2
  How much does vIC's threshold matter? Texts with commas need no quotes:
      coalesce-demo --policies none,vic,vic:cif_threshold=2,vic:cif_threshold=8,max_skip=4
  The disk itself, without the page cache:
      coalesce-demo --image-dir /mnt/nvme --direct --image-size 1G --seconds 5

WHAT IS RUN
  depth1, depth8, depth32   4 KiB random reads with 1, 8 and 32 in flight
  mixed                     one synchronous reader with real-time priority beside one with 32 in flight
  batch4                    four reads at a time, the next four when all have completed
  fsync                     4 KiB random writes one at a time, a flush after each
  Natively EVENT_IDX is off, as with NVMe: the device alone decides. In the guest it is on, as Linux negotiates it.

Exit status: 0, also if the guest part was SKIPPED because something it needs is missing; 1 if anything failed.
Needs coalesce-target (cargo build --release) and, for the guest part, what guest/packages.sh installs.";

/// Below this the kit's guest jobs would read past the end of the disk.
const GUEST_IMAGE_BYTES_MIN: u64 = 64 << 20;

impl Options {
    /// Checks what depends on several options.
    pub fn check(&self) -> anyhow::Result<()> {
        let bytes = self.image_size.0;
        if bytes == 0 || !bytes.is_multiple_of(1 << 20) {
            anyhow::bail!("--image-size must be whole MiB");
        }
        if !self.no_guest && bytes < GUEST_IMAGE_BYTES_MIN {
            anyhow::bail!("--image-size must be at least 64M for the guest, or give --no-guest");
        }
        Ok(())
    }

    /// Where coalesce-target is.
    pub fn target_path(&self) -> anyhow::Result<PathBuf> {
        let path = match &self.target {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.parent().unwrap_or(Path::new("/")).join("coalesce-target"),
        };
        if !path.is_file() {
            anyhow::bail!("{} is missing: cargo build --release -p coalesce-target, or --target PATH", path.display());
        }
        Ok(path)
    }
}

/// One policy that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Short and unique: its name, numbered if the name comes twice.
    pub label: String,
    /// Its whole text form.
    pub text: String,
    /// Number of its colour and marker, the same in every report.
    pub style: usize,
}

/// The policies that are compared, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies(pub Vec<Policy>);

impl Policies {
    /// What the others are compared to: `none`, or the first if that is not there.
    pub fn baseline(&self) -> usize {
        self.0.iter().position(|policy| policy.text == "none").unwrap_or(0)
    }
}

/// A comma separates policies as well as the keys of one; a piece `key=value` goes on with the policy before it.
fn parse_policies(list: &str) -> Result<Policies, String> {
    let mut texts: Vec<String> = Vec::new();
    for piece in list.split(',').map(str::trim) {
        let goes_on = piece.find([':', '=']).is_some_and(|at| piece[at..].starts_with('='));
        match texts.last_mut() {
            Some(text) if goes_on => *text += &format!(",{piece}"),
            _ => texts.push(piece.into()),
        }
    }
    let specs = texts.iter().map(|text| text.parse::<Spec>().map_err(|error| error.to_string()));
    let specs: Vec<_> = specs.collect::<Result<_, _>>()?;
    if specs.len() > STYLES {
        return Err(format!("at most {STYLES} policies"));
    }
    let names: Vec<_> = specs.iter().map(Spec::name).collect();
    let styles = styles(&names).ok_or("too many policies of the same name: at most three more")?;
    let mut policies: Vec<Policy> = Vec::new();
    for (spec, (label, style)) in specs.iter().zip(styles) {
        let text = spec.to_string();
        if policies.iter().any(|policy| policy.text == text) {
            return Err(format!("{text} is given twice"));
        }
        policies.push(Policy { label, text, style });
    }
    Ok(Policies(policies))
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
    fn commas_separate_policies_and_keys() {
        let Policies(list) =
            parse_policies("none, nvme:time=200us,thr=3,vic:cif_threshold=2,vic:epoch=100ms,auto").unwrap();
        let texts: Vec<_> = list.iter().map(|policy| policy.text.as_str()).collect();
        assert_eq!(texts, ["none", "nvme:thr=3,time=200us", "vic:cif_threshold=2", "vic:epoch=100ms", "auto"]);
        let labels: Vec<_> = list.iter().map(|policy| policy.label.as_str()).collect();
        assert_eq!(labels, ["none", "nvme", "vic", "vic#2", "auto"]);
        let mut styles: Vec<_> = list.iter().map(|policy| policy.style).collect();
        assert_eq!((styles[0], styles[4]), (0, 4));
        styles.dedup();
        assert_eq!(styles.len(), 5);
    }

    #[test]
    fn wrong_lists_are_refused() {
        for (list, part) in [
            ("none,vix", "unknown policy \"vix\""),
            ("none,auto,none", "none is given twice"),
            ("thr=3", "unknown policy"),
            ("none,vic:epoch=5", "no unit"),
            ("dim,batch,none,nvme,vic:margin=1us,vic:margin=2us,vic:margin=3us,vic:margin=4us,vic:margin=5us", "more"),
        ] {
            let error = parse_policies(list).unwrap_err();
            assert!(error.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn the_baseline_is_none_wherever_it_stands() {
        assert_eq!(parse_policies("auto,none").unwrap().baseline(), 1);
        assert_eq!(parse_policies("auto,vic").unwrap().baseline(), 0);
    }

    #[test]
    fn seconds_have_bounds() {
        assert!(parse_seconds("0.1").is_ok() && parse_seconds("3600").is_ok());
        assert!(parse_seconds("0").is_err() && parse_seconds("NaN").is_err() && parse_seconds("1s").is_err());
    }
}
