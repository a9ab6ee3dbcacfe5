//! The configuration of `serve`, from the command line or a TOML file.

use crate::disk::{QUEUES_MAX, SERIAL_LEN};
use crate::os::shared_memory::PAGE;
use crate::os::socket::{OWNER_ONLY, inherited};
use crate::throttle::{IOPS_MAX, Rates, no_iops};
use anyhow::{Context as _, Result, bail};
use coalesce_policy::Spec;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The configuration of one `serve` process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of the control socket (JSON-RPC).
    pub control: Option<PathBuf>,
    /// Address at which Prometheus reads metrics.
    pub metrics: Option<Address>,
    /// Whether that address may be one that other machines reach.
    #[serde(default)]
    pub metrics_remote: bool,
    /// File to which requests, completions and interrupts are recorded.
    pub record: Option<PathBuf>,
    /// User that each disk's process switches to once its image is open.
    pub user: Option<String>,
    /// Whether each disk's process is confined to what serving needs.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// The longest time of an orderly stop.
    #[serde(default)]
    pub stop_timeout: StopTimeout,
    /// The disks.
    #[serde(rename = "disk", default)]
    pub disks: Vec<DiskConfig>,
}

/// Whether a disk's process is confined to what serving needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    /// Confined
    #[default]
    On,
    /// Not confined: for debugging only
    Off,
}

/// One disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// Its name on the control socket; the socket's file name if not given, or that of the image if the socket is inherited.
    pub name: Option<String>,
    /// What the guest sees.
    #[serde(default)]
    pub device: Device,
    /// Socket to which the front end connects; `/dev/fd/N`: the socket that is inherited as descriptor N.
    pub socket: PathBuf,
    /// Mode of the socket.
    #[serde(default)]
    pub socket_mode: Mode,
    /// Group of the socket; that of the process if not given.
    pub socket_group: Option<String>,
    /// The image.
    pub file: Option<PathBuf>,
    /// Size of a memory disk, instead of an image.
    pub memory: Option<Size>,
    /// Time that each operation of a memory disk takes; none if not given.
    pub latency: Option<Latency>,
    /// Number of queues that a front end may use.
    #[serde(default = "most", deserialize_with = "queues")]
    pub queues: u16,
    /// Policy of every queue.
    #[serde(default = "auto", deserialize_with = "from_text", serialize_with = "to_text")]
    pub policy: Spec,
    /// Whether writes are refused.
    #[serde(default)]
    pub read_only: bool,
    /// Whether an image is served as it is, also where it has the mark of another format.
    #[serde(default)]
    pub raw: bool,
    /// Whether to bypass the page cache (direct I/O).
    #[serde(default)]
    pub direct: bool,
    /// Whether the guest may be migrated to another target that serves the same image.
    #[serde(default)]
    pub migratable: bool,
    /// Serial number that the guest sees; the name if not given.
    pub serial: Option<String>,
    /// Block size that the guest sees; the image's own if not given.
    pub block_size: Option<Size>,
    /// Longest time that a queue polls for its guest before it sleeps, a quarter of it for the disk; that of [`Device::poll`] if not
    /// given.
    pub poll: Option<Poll>,
    /// Whether EVENT_IDX is offered.
    #[serde(default = "yes")]
    pub event_idx: bool,
    /// The most guest memory that a front end may share, in bytes.
    #[serde(default = "max_memory")]
    pub max_memory: Size,
    /// The most requests per second; 0: no limit.
    #[serde(default)]
    pub iops: u64,
    /// The most bytes per second; 0: no limit.
    #[serde(default)]
    pub bytes_per_second: Size,
}

/// The device that the guest sees, and the protocol of the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// virtio-blk, over vhost-user
    #[default]
    VirtioBlk,
    /// An NVMe controller, over vfio-user
    Nvme,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::VirtioBlk => "virtio-blk",
            Self::Nvme => "nvme",
        })
    }
}

impl Device {
    /// The usual [`DiskConfig::poll`]: of virtio-blk that of `qemu-storage-daemon`. A doorbell that is a message passes two
    /// more threads than a kick does, so sparing it is worth a longer poll.
    #[must_use]
    pub const fn poll(self) -> Poll {
        match self {
            Self::VirtioBlk => Poll(32_000),
            Self::Nvme => Poll(200_000),
        }
    }

    /// Checks that a policy fits.
    ///
    /// # Errors
    /// It needs what the device does not have.
    pub fn check_policy(self, policy: &Spec) -> Result<()> {
        if self != Self::Nvme && policy.is_by_host() {
            bail!("policy {policy}: only an NVMe disk has the Feature 08h with which its host decides");
        }
        Ok(())
    }
}

/// The least guest memory: a page.
const MEMORY_MIN: u64 = PAGE as u64;

fn max_memory() -> Size {
    Size(1 << 40)
}

fn most() -> u16 {
    QUEUES_DEFAULT
}

fn yes() -> bool {
    true
}

fn auto() -> Spec {
    "auto".parse().expect("a policy")
}

/// The duration in `text`, in ns. `allowed` is the range in words.
pub(crate) fn parse_duration(name: &str, text: &str, range: RangeInclusive<u64>, allowed: &str) -> Result<u64, String> {
    let ns = coalesce_policy::parse_duration(text).map_err(|problem| format!("{name} {text} {problem}"))?;
    if range.contains(&ns) { Ok(ns) } else { Err(format!("{name} {text} is out of range; allowed: {allowed}")) }
}

fn from_text<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error>
where
    T::Err: fmt::Display,
{
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn to_text<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

fn queues<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    parse_queues(&i64::deserialize(deserializer)?.to_string()).map_err(serde::de::Error::custom)
}

/// QEMU asks for one queue for each CPU of its guest, and refuses a disk that has fewer. A queue that nobody uses costs a
/// sleeping thread and 0.2 MiB.
pub const QUEUES_DEFAULT: u16 = QUEUES_MAX as u16;

/// A number of queues.
///
/// # Errors
/// It is not a number, or out of range.
pub fn parse_queues(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=QUEUES_MAX).contains(&usize::from(*number)));
    number.ok_or_else(|| format!("queues is {text}; allowed: 1 to {QUEUES_MAX}"))
}

/// A limit on requests per second.
///
/// # Errors
/// It is not a number, or too high.
pub fn parse_iops(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number <= IOPS_MAX);
    number.ok_or_else(|| no_iops(text))
}

/// A size in bytes: `4096`, `64K`, `64M`, `2G`, `1T` (powers of 1024).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = &text[digits.len()..];
        let shift = match unit.strip_suffix("iB").filter(|unit| !unit.is_empty()).unwrap_or(unit) {
            "" => 0,
            "K" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            unit => return Err(format!("size {text}: unknown unit {unit}; allowed: K, M, G, T")),
        };
        let number =
            Some(digits).filter(|digits| !digits.starts_with('+')).and_then(|digits| digits.parse::<u64>().ok());
        let number = number.ok_or_else(|| format!("size {text} is not a number with K, M, G or T"))?;
        number
            .checked_shl(shift)
            .filter(|size| size >> shift == number)
            .map(Self)
            .ok_or(format!("size {text} is too large"))
    }
}

impl fmt::Display for Size {
    /// In the largest unit of which it is a multiple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(shift, _)| self.0 > 0 && self.0.is_multiple_of(1 << shift)) {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size is a number of bytes, or a text such as \"64M\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        to_text(&self.0, serializer)
    }
}

/// The mode of a socket. Connecting needs write permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Default for Mode {
    /// Only the owner can connect.
    fn default() -> Self {
        Self(OWNER_ONLY)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
        mode.map(Self).ok_or_else(|| format!("mode {text} is not an octal number such as 660; allowed: 0 to 777"))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        to_text(&format!("{:o}", self.0), serializer)
    }
}

/// The longest time that a queue polls before it sleeps, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll(pub u64);

impl FromStr for Poll {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration("poll", text, 0..=10_000_000, "0 to 10ms").map(Self)
    }
}

impl<'de> Deserialize<'de> for Poll {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl Serialize for Poll {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        to_text(&format!("{}ns", self.0), serializer)
    }
}

/// The time that each operation of a memory disk takes, or the bounds between which it differs, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ns = |part| coalesce_policy::parse_duration(part).map_err(|problem| format!("latency {part} {problem}"));
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let latency = Self { min_ns: ns(min)?, max_ns: ns(max)? };
        if latency.min_ns > latency.max_ns {
            return Err(format!("latency {text}: {max} is less than {min}"));
        }
        if latency.max_ns > 1_000_000_000 {
            return Err(format!("latency {text} is out of range; allowed: 0 to 1s, as 1ms or as 500us..2ms"));
        }
        Ok(latency)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        to_text(&format!("{}ns..{}ns", self.min_ns, self.max_ns), serializer)
    }
}

/// The longest time of an orderly stop, in ns. It is bounded because a medium may be stuck. The default is below the 90
/// s that service managers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopTimeout(pub u64);

impl Default for StopTimeout {
    fn default() -> Self {
        Self(20_000_000_000)
    }
}

impl FromStr for StopTimeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration("stop_timeout", text, 1_000_000..=3_600_000_000_000, "1ms to 3600s").map(Self)
    }
}

impl<'de> Deserialize<'de> for StopTimeout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// An address for TCP, with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            format!(
                "{text} is not ADDR:PORT, such as 127.0.0.1:9600 or [::1]:9600; a name instead of ADDR is not looked up"
            )
        })
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl Config {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// The file cannot be read or is invalid; the error names the file and the line.
    pub fn read(path: &Path) -> Result<Self> {
        let name = format!("configuration {}", path.display());
        let text = std::fs::read_to_string(path).with_context(|| name.clone())?;
        Self::parse(&text, &name)
    }

    /// Parses TOML. Errors call it `name`.
    ///
    /// # Errors
    /// The text is invalid; the error names the line.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).with_context(|| name.to_owned())?;
        if config.disks.is_empty() {
            bail!("{name} has no disk: add a [[disk]] table for each");
        }
        config
            .check_disks()
            .map_err(|(disk, problem)| problem.context(format!("{name}, line {}", line_of_disk(text, disk))))?;
        Ok(config)
    }

    /// Checks the rules that involve several options.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<()> {
        self.check_disks().map_err(|(_, problem)| problem)?;
        self.check_metrics()?;
        self.disks.iter().try_for_each(|disk| disk.check_control(self.control.as_deref()))
    }

    /// Metrics are for this machine, if nobody says otherwise.
    fn check_metrics(&self) -> Result<()> {
        match self.metrics {
            Some(Address(address)) if !address.ip().is_loopback() && !self.metrics_remote => bail!(
                "metrics {address} is not a loopback address; allowed: 127.0.0.0/8 and [::1], and with --metrics-remote (metrics_remote = true) every other, whose metrics are for whoever reaches it: there is neither TLS nor a password"
            ),
            None if self.metrics_remote => bail!("metrics_remote is about the address of metrics: give one"),
            _ => Ok(()),
        }
    }

    /// The first invalid disk, and why it is invalid.
    fn check_disks(&self) -> Result<(), (usize, anyhow::Error)> {
        for (i, disk) in self.disks.iter().enumerate() {
            let outcome = disk.check().and_then(|()| disk.check_against(&self.disks[..i]));
            outcome.map_err(|problem| (i, problem.context(format!("disk {}", disk.name().escape_debug()))))?;
        }
        Ok(())
    }
}

/// The line at which a disk's table begins, in a configuration that parses.
fn line_of_disk(text: &str, index: usize) -> usize {
    #[derive(Deserialize)]
    struct Places {
        disk: Vec<toml::Spanned<IgnoredAny>>,
    }
    let places = toml::from_str::<Places>(text).ok();
    let start = places.and_then(|places| places.disk.get(index).map(|disk| disk.span().start));
    text[..start.unwrap_or(0)].lines().count() + 1
}

impl DiskConfig {
    /// The disk's name.
    #[must_use]
    pub fn name(&self) -> String {
        let image = self.file.as_ref().filter(|_| inherited(&self.socket).is_some()); // a number is no name
        let named = image.unwrap_or(&self.socket);
        let stem = || named.file_stem().unwrap_or(named.as_os_str()).to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(stem)
    }

    /// How much it may do in a second.
    #[must_use]
    pub const fn rates(&self) -> Rates {
        Rates { iops: self.iops, bytes_per_second: self.bytes_per_second.0 }
    }

    /// Checks the disk beside `others` that are served, and the socket `control`.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check_beside(&self, others: &[Self], control: Option<&Path>) -> Result<()> {
        self.check()?;
        self.check_against(others)?;
        self.check_control(control)
    }

    fn check_control(&self, control: Option<&Path>) -> Result<()> {
        if control == Some(&self.socket) {
            bail!("socket {} serves both a disk and control: give each a socket of its own", self.socket.display());
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.rates().check()?;
        if self.file.is_some() == self.memory.is_some() {
            bail!("needs either a file or memory");
        }
        let name = self.name();
        if name.is_empty() || name.contains(char::is_control) {
            bail!("name is {name:?}; allowed: one or more printable characters");
        }
        if self.direct && self.memory.is_some() {
            bail!("direct is for files: a memory disk has no page cache to bypass");
        }
        if self.raw && self.memory.is_some() {
            bail!("raw is for files: a memory disk has no format");
        }
        if self.latency.is_some() && self.memory.is_none() {
            bail!("latency is for memory disks: a file takes the time of its medium");
        }
        if self.migratable && (self.memory.is_some() || self.device == Device::Nvme) {
            bail!(
                "migratable is for virtio-blk disks over a file: no other target can reach a memory disk, and NVMe has no dirty log"
            );
        }
        if self.device == Device::Nvme && !self.event_idx {
            bail!("EVENT_IDX is a part of virtio: an NVMe disk has none to refuse");
        }
        self.device.check_policy(&self.policy)?;
        if let Some(Size(size)) = self.block_size
            && !(size.is_power_of_two() && (512..=65536).contains(&size))
        {
            bail!("block_size is {size}; allowed: powers of two from 512 to 65536");
        }
        if self.max_memory.0 < MEMORY_MIN {
            bail!(
                "max_memory is {}; allowed: {MEMORY_MIN} or more bytes, with which a guest can be served",
                self.max_memory.0
            );
        }
        match &self.serial {
            Some(serial) if serial.len() > SERIAL_LEN => {
                bail!("serial has {} bytes; allowed: at most {SERIAL_LEN}", serial.len())
            }
            _ => Ok(()),
        }
    }

    fn check_against(&self, others: &[Self]) -> Result<()> {
        if others.iter().any(|other| other.name() == self.name()) {
            bail!("another disk has the same name: give each a name of its own");
        }
        if let Some(other) = others.iter().find(|other| other.socket == self.socket) {
            bail!("socket {} belongs to disk {}: give each a socket of its own", self.socket.display(), other.name());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units_and_refuse_overflow() {
        for (text, size) in
            [("0", 0), ("512", 512), ("64K", 65536), ("2MiB", 2 << 20), ("3G", 3 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(text.parse(), Ok(Size(size)), "{text}");
        }
        for text in ["0", "512", "1023", "64K", "1025K", "2M", "3G", "1T", "1025T"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!(Size(1024 << 30).to_string(), "1T");
        for text in ["", "K", "-1", "+1", "1.5G", "1X", "1KB", "1iB", "1KiBiB", "16777216T"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_may_be_written_as_a_number_of_bytes() {
        for text in ["65536", "\"65536\"", "\"64K\""] {
            assert_eq!(serde_json::from_str::<Size>(text).unwrap(), Size(65536), "{text}");
        }
        for (text, problem) in
            [("-1", "a number of bytes, or a text"), ("1.5", "a number of bytes"), ("\"1X\"", "unknown unit X")]
        {
            let error = serde_json::from_str::<Size>(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn modes_are_octal() {
        for (text, mode) in [("660", Some(0o660)), ("0600", Some(0o600)), ("0", Some(0)), ("888", None), ("1777", None)]
        {
            assert_eq!(text.parse().ok(), mode.map(Mode), "{text}");
        }
    }

    /// The supervisor sends a disk's process its configuration in the form that configurations are read from.
    #[test]
    fn a_disk_survives_serialization() {
        let text = "
            socket = '/run/b.sock'
            socket_mode = '660'
            memory = '64M'
            latency = '500us..1ms'
            policy = 'vic:cif_threshold=2'
            poll = '20us'
            queues = 3
            block_size = '4K'
            iops = 1000
            bytes_per_second = '100M'
        ";
        let disk: DiskConfig = toml::from_str(text).unwrap();
        let again: DiskConfig = serde_json::from_str(&serde_json::to_string(&disk).unwrap()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{disk:?}"));
    }

    #[test]
    fn metrics_are_for_this_machine_unless_others_are_asked_for() {
        let check = |lines: &str| {
            let text = format!("{lines}\n[[disk]]\nsocket = 's'\nmemory = '1M'\n");
            toml::from_str::<Config>(&text).unwrap().check().map_err(|error| error.to_string())
        };
        for (address, is_local) in [
            ("127.0.0.1:9100", true),
            ("127.1.2.3:0", true),
            ("[::1]:1", true),
            ("0.0.0.0:9100", false),
            ("[::]:1", false),
        ] {
            let outcome = check(&format!("metrics = '{address}'"));
            assert_eq!(outcome.is_ok(), is_local, "{address}");
            let says = |why: String| {
                ["metrics ", address, "127.0.0.0/8", "--metrics-remote"].iter().all(|part| why.contains(part))
            };
            assert!(outcome.err().is_none_or(says), "{address}");
            check(&format!("metrics = '{address}'\nmetrics_remote = true")).unwrap();
        }
        assert!(check("metrics_remote = true").unwrap_err().contains("metrics_remote is about the address"));
        assert!(
            toml::from_str::<Config>("metrics = '9100'").unwrap_err().to_string().contains("9100 is not ADDR:PORT")
        );
    }

    #[test]
    fn a_file_configures_several_disks_and_defaults() {
        let config: Config = toml::from_str(
            r#"
            control = "/run/c.sock"
            metrics = "127.0.0.1:9100"
            [[disk]]
            socket = "/run/a.sock"
            file = "a.img"
            queues = 4
            policy = "vic:cif_threshold=2"
            [[disk]]
            name = "scratch"
            device = "nvme"
            socket = "/run/b.sock"
            memory = "64M"
            poll = "0"
            "#,
        )
        .unwrap();
        config.check().unwrap();
        assert_eq!(config.disks[0].name(), "a");
        assert_eq!((config.disks[1].name(), config.disks[1].poll), ("scratch".into(), Some(Poll(0))));
        assert_eq!(config.disks[1].policy.name(), "auto");
        assert_eq!([config.disks[0].device, config.disks[1].device], [Device::VirtioBlk, Device::Nvme]);
    }

    #[test]
    fn errors_name_the_problem_and_its_line() {
        for (text, parts) in [
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\npolicy = \"vix\"", ["line 4", "unknown policy \"vix\""]),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\nqueue = 2", ["line 4", "unknown field `queue`"]),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1Z\"", ["line 3", "unknown unit Z"]),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\nqueues = 17", ["line 4", "queues is 17; allowed: 1 to 16"]),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\npoll = \"1\"", ["line 4", "has no unit"]),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\nlatency = \"2s\"", ["line 4", "allowed: 0 to 1s"]),
        ] {
            let error = toml::from_str::<Config>(text).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        for (text, part) in [
            ("[[disk]]\nsocket = \"s\"", "either a file or memory"),
            ("[[disk]]\nsocket = \"s\"\nfile = \"f\"\nlatency = \"1ms\"", "takes the time of its medium"),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\ndevice = \"nvme\"\nevent_idx = false", "a part of virtio"),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\npolicy = \"nvme:host=on\"", "only an NVMe disk has"),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\nblock_size = \"1000\"", "powers of two"),
            ("[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\nmax_memory = \"0\"", "max_memory is 0; allowed: 4096 or more"),
            (
                "[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\niops = 1000000001",
                "iops is 1000000001; allowed: 1 to 1000000000",
            ),
            (
                "[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\nbytes_per_second = \"2T\"",
                "allowed: 1 to 1099511627776, or 0",
            ),
            (
                "[[disk]]\nsocket = \"s\"\nmemory = \"1M\"\n[[disk]]\nsocket = \"x/s\"\nmemory = \"1M\"",
                "another disk has the same name",
            ),
        ] {
            let error = toml::from_str::<Config>(text).unwrap().check().unwrap_err();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
    }
}
