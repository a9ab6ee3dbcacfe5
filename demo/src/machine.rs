//! What the numbers were measured on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use serde::Serialize;

/// The machine, and when.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor.
    pub cpu: String,
    /// CPUs this process may use.
    pub cores: usize,
    /// Operating system.
    pub kernel: String,
    /// Load average of the last minute at the start: others' work slows the runs down.
    pub load: String,
    /// UTC.
    pub date: String,
    /// Commit of the sources.
    pub commit: Option<String>,
    /// File system of the images.
    pub file_system: String,
    /// Version of this program.
    pub version: &'static str,
}

impl Machine {
    /// Looks around; `images` is where the images will be.
    pub fn look(images: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let path = images.canonicalize().unwrap_or_else(|_| images.into());
        Self {
            cpu: cpu_model(&read("/proc/cpuinfo")).unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            kernel: ["Linux", read("/proc/sys/kernel/osrelease").trim()].join(" "),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            date: Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            commit: commit(),
            file_system: file_system(&read("/proc/self/mountinfo"), &path).unwrap_or_else(unknown),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    // "model name" on x86; "Hardware" or "Model" on some ARM boards.
    let keys = ["model name", "Model", "Hardware"];
    let value = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    keys.into_iter().find_map(value)
}

/// Type and device of the file system that holds `path`.
fn file_system(mountinfo: &str, path: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (place, about) = line.split_once(" - ")?;
        let point = place.split(' ').nth(4)?.replace("\\040", " ");
        let mut about = about.split(' ');
        let (kind, device) = (about.next()?, about.next()?);
        let described = if device.starts_with('/') { format!("{kind} on {device}") } else { kind.to_owned() };
        path.starts_with(&point).then_some((point.len(), described))
    };
    // The longest mount point; of two at the same place the later one hides the other.
    mountinfo.lines().filter_map(mount).max_by_key(|(len, _)| *len).map(|(_, described)| described)
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain"])?;
    Some(if changed.is_empty() { hash } else { format!("{hash} with changes") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /tmp rw,x shared:1 - tmpfs tmpfs rw\n\
                      3 1 8:2 / /tmp/a\\040b rw - xfs /dev/vdb rw\n";
        for (path, described) in [
            ("/work", "ext4 on /dev/vda"),
            ("/tmp/x", "tmpfs"),
            ("/tmp/a b/c", "xfs on /dev/vdb"),
            ("/tmpx", "ext4 on /dev/vda"),
        ] {
            assert_eq!(file_system(mounts, Path::new(path)).as_deref(), Some(described), "{path}");
        }
    }

    #[test]
    fn processors() {
        let x86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A CPU @ 2 GHz\n";
        assert_eq!(cpu_model(x86).as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(cpu_model("processor : 0\n"), None);
    }
}
