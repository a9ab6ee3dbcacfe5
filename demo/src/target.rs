//! The served process: images, configuration, start, statistics, end.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use coalesce_target::config::Device;
use coalesce_target::supervision::control_client;
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::options::Options;
use crate::place::Place;
use crate::policies::Policy;
use crate::process::{Group, Stop};
use crate::progress::Progress;

/// Opening disks takes milliseconds; this is for machines that are very busy.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// What the images are filled with is random, so that no file system stores less than it seems to; the seed of it.
pub const FILL_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A running coalesce-target with a disk for each place.
#[derive(Debug)]
pub struct Target {
    // Dropped in this order: the process first, then what it has open.
    process: Group,
    work: TempDir,
    #[expect(dead_code, reason = "removes the images when it is dropped")]
    images: TempDir,
}

#[derive(Debug, Serialize)]
struct Disk {
    name: &'static str,
    device: Device,
    socket: PathBuf,
    file: PathBuf,
    /// One: all requests of a load share an interrupt, which is what a policy decides about.
    queues: u16,
    direct: bool,
}

#[derive(Serialize)]
struct Configuration<'a> {
    control: PathBuf,
    disk: &'a [Disk],
}

impl Target {
    /// Makes the images and starts to serve them: a disk for each place.
    pub fn start(options: &Options, stop: &Arc<Stop>) -> Result<Self> {
        let program = options.target_path()?;
        // Sockets have short names (108 bytes), so they are not in --image-dir, which may have a long one.
        let work = tempdir(&std::env::temp_dir())?;
        let images = tempdir(&options.image_dir.clone().unwrap_or_else(std::env::temp_dir))?;
        let progress = Progress::begin("making disk images")?;
        let mut disks = Vec::new();
        let places = Place::value_variants().iter().filter(|place| options.places.contains(place));
        for (done, place) in places.enumerate() {
            stop.check()?;
            let name = place.name();
            progress.at(done as f64 / options.places.len() as f64, name);
            let file = images.path().join(name);
            make_image(&file, options.image_size.0, FILL_SEED)?;
            let is_nvme = matches!(place, Place::Nvme | Place::Bare);
            let device = if is_nvme { Device::Nvme } else { Device::VirtioBlk };
            disks.push(Disk {
                name,
                device,
                socket: socket(work.path(), name),
                file,
                queues: 1,
                direct: options.direct,
            });
        }
        drop(progress);
        let process = serve(&program, work.path(), &disks, stop)?;
        Ok(Self { process, work, images })
    }

    /// Socket of a disk.
    pub fn socket(&self, disk: &str) -> PathBuf {
        socket(self.work.path(), disk)
    }

    /// A directory for files of this run.
    pub fn work_dir(&self) -> &Path {
        self.work.path()
    }

    /// The socket of the plugin that counts a guest's instructions.
    pub fn counter(&self) -> PathBuf {
        socket(self.work.path(), "counter")
    }

    fn call(&self, method: &str, params: &Value) -> Result<Value> {
        control_client::request(&control_socket(self.work.path()), method, params)
    }

    /// What the queues of a disk have counted so far.
    pub fn stats(&self, disk: &str) -> Result<Vec<Value>> {
        let answer = self.call("get_stats", &json!({ "ctrlr": disk, "idle": true }))?;
        let queues = answer.pointer("/0/queues").and_then(Value::as_array);
        queues.cloned().with_context(|| format!("the target's statistics of {disk}: {answer}"))
    }

    /// Changes the policy of a disk. `keep_learned`: this one goes on with what it had learned, and so will the one before; else all of
    /// them begin anew.
    pub fn set_policy(&self, disk: &str, policy: &Policy, keep_learned: bool) -> Result<()> {
        let params = json!({ "ctrlr": disk, "policy": policy.text, "keep_learned": keep_learned });
        self.call("set_policy", &params).map(drop)
    }

    /// The process of a disk.
    pub fn pid(&self, disk: &str) -> Result<Pid> {
        let disks = self.call("list", &json!({}))?;
        let about = disks.as_array().into_iter().flatten().find(|about| about["ctrlr"] == disk);
        let pid = about.and_then(|about| i32::try_from(about["pid"].as_u64()?).ok());
        pid.map(Pid::from_raw).with_context(|| format!("the target's list has no process of {disk}"))
    }

    /// Ends the target. It must go without a complaint.
    pub fn finish(mut self) -> Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("coalesce-target ended by itself ({status}): {}", last_line(&log_file(self.work.path())));
        }
        self.process.end();
        let status = self.process.wait()?;
        if !status.success() {
            bail!("coalesce-target: {status}: {}", last_line(&log_file(self.work.path())));
        }
        Ok(())
    }
}

fn tempdir(parent: &Path) -> Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("coalesce-demo.").tempdir_in(parent);
    dir.with_context(|| format!("cannot make a directory in {}", parent.display()))
}

fn socket(work: &Path, disk: &str) -> PathBuf {
    work.join(disk)
}

fn control_socket(work: &Path) -> PathBuf {
    work.join("control")
}

fn log_file(work: &Path) -> PathBuf {
    work.join("target.log")
}

/// Starts the target; returns when it answers.
fn serve(program: &Path, work: &Path, disks: &[Disk], stop: &Arc<Stop>) -> Result<Group> {
    let control = control_socket(work);
    let configuration = Configuration { control: control.clone(), disk: disks };
    let config_file = work.join("target.toml");
    fs::write(&config_file, toml::to_string(&configuration)?).with_context(|| config_file.display().to_string())?;
    let log = log_file(work);
    let stderr = File::create(&log).with_context(|| log.display().to_string())?;
    let mut command = Command::new(program);
    command.args(["serve", "--config"]).arg(&config_file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    let mut process = Group::spawn(&mut command, stop)?;
    let begin = Instant::now();
    while control_client::request(&control, "list", &json!({})).is_err() {
        stop.check()?;
        if let Some(status) = process.try_wait()? {
            bail!("coalesce-target serve: {status}: {}", last_line(&log));
        }
        if begin.elapsed() > START_TIMEOUT {
            bail!("coalesce-target does not serve after {} s: {}", START_TIMEOUT.as_secs(), last_line(&log));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

/// The last line of a log that is not empty.
pub fn last_line(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    line.unwrap_or("it said nothing").trim().to_owned()
}

/// Writes an image: filled, because what was never written is read without the device. Blocks of 4 KiB begin with their number plus
/// one, and end with its complement, by which the bare-metal guest knows them.
fn make_image(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let fill = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        let mut state = seed | 1;
        let mut block = vec![0; 1 << 20];
        let mut number = 0_u64;
        for _ in 0..bytes >> 20 {
            for word in block.chunks_exact_mut(8) {
                // xorshift64: a period far beyond any disk, and fast enough for a debug build.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            for block in block.chunks_exact_mut(4096) {
                number += 1;
                block[..8].copy_from_slice(&number.to_le_bytes());
                block[4088..].copy_from_slice(&(!number).to_le_bytes());
            }
            file.write_all(&block)?;
        }
        file.sync_all() // or the write-back would go on during the measurement
    };
    fill().with_context(|| format!("cannot write {bytes} bytes to {} (--image-dir chooses the place)", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn images_are_filled() {
        let dir = tempdir(&std::env::temp_dir()).unwrap();
        let path = dir.path().join("image");
        make_image(&path, 2 << 20, FILL_SEED).unwrap();
        let about = fs::metadata(&path).unwrap();
        assert_eq!(about.len(), 2 << 20);
        assert!(about.blocks() * 512 >= 2 << 20, "sparse: {} blocks", about.blocks());
        let bytes = fs::read(&path).unwrap();
        assert_ne!(bytes[8..4088], bytes[4104..8184]);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(4096), !word((2 << 20) - 8)), (1, 2, 512));
    }

    #[test]
    fn the_last_line_is_not_empty() {
        let dir = tempdir(&std::env::temp_dir()).unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_line(&log), "it said nothing");
        fs::write(&log, "one\n two \n\n").unwrap();
        assert_eq!(last_line(&log), "two");
    }
}
