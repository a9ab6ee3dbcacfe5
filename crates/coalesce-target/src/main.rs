//! The command line.

mod backend_program;

use anyhow::{Context as _, Result, bail};
use backend_program::{self as backend, Backend};
use clap::{ArgGroup, Args, FromArgMatches as _, Parser, Subcommand};
use coalesce_cli::{print, say};
use coalesce_policy::Spec;
use coalesce_target::config::{
    Address, Config, Device, DiskConfig, Latency, Mode, Poll, QUEUES_DEFAULT, Sandbox, Size, StopTimeout, parse_iops,
    parse_queues,
};
use coalesce_target::os::signals;
use coalesce_target::supervision::supervisor::Supervisor;
use coalesce_target::supervision::{control, control_client, log, metrics, worker};
use coalesce_target::top::{self, Top};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::sysinfo::sysinfo;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;

/// Serve block devices to virtual machines over vhost-user or vfio-user, with a choice of interrupt coalescing policies
#[derive(Parser)]
#[command(version = coalesce_cli::VERSION, propagate_version = true, arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXPLAIN)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    backend: Backend,
}

#[derive(Subcommand)]
enum Command {
    /// Serve disks over vhost-user or vfio-user
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// List every policy with its keys
    Policies,
    /// Show what running targets do: requests, interrupts, why they were delivered, and the latency that holding added
    Top(Top),
    /// Call a method of a running target over its control socket
    #[command(after_help = CALL_EXAMPLES)]
    Call(Call),
    Man(coalesce_cli::Man),
    Completions(coalesce_cli::Completions),
    /// Serve one disk: `serve` starts this process for each disk
    #[command(hide = true)]
    Worker,
    /// Another program does this
    #[command(hide = true)]
    Explain(Elsewhere),
    /// Another program does this
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Bench(Elsewhere),
}

#[derive(Args)]
struct Elsewhere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

const EXPLAIN: &str = "\
What a policy decided about each completion of a trace that `serve --record FILE` wrote, and why:
    coalesce-sim explain FILE --policy auto";

const SERVE_EXAMPLES: &str = "\
EXAMPLES
  A memory disk of 1 GiB:
      coalesce-target serve --socket /tmp/s --memory 1G
  An image with direct I/O, and a control socket to change the policy at run
  time:
      coalesce-target serve --socket /tmp/s --file disk.img --direct \\
          --policy auto --control /tmp/control
  A virtual machine that boots from that disk:
      qemu-system-x86_64 -smp 4 -m 1G -machine q35,memory-backend=m \\
          -object memory-backend-memfd,id=m,size=1G,share=on \\
          -chardev socket,id=d,path=/tmp/s \\
          -device vhost-user-blk-pci,chardev=d
  The chardev takes reconnect-ms=500 (before QEMU 9.2: reconnect=1), for a
  target that is restarted. Rings are split: with packed=on the device
  negotiates them back.
  A disk as an NVMe controller, for QEMU 10.1 or newer:
      coalesce-target serve --device nvme --socket /tmp/n --memory 1G
      qemu-system-x86_64 -smp 4 -m 1G -machine q35,memory-backend=m \\
          -object memory-backend-memfd,id=m,size=1G,share=on \\
          -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/n\"}}'

On SIGTERM, SIGINT, SIGHUP or SIGQUIT the target completes the requests in
flight, delivers held completions, and removes its sockets. A second SIGTERM or
SIGINT, 100 ms after the first or later, ends it at once. It ignores all other
signals, such as SIGUSR1, and those that it is started with as ignored, as
nohup does with SIGHUP.";

const CALL_EXAMPLES: &str = "\
EXAMPLES
      coalesce-target call --control /tmp/control list
      coalesce-target call --control /tmp/control get_stats
      coalesce-target call --control /tmp/control set_policy \\
          '{\"ctrlr\": \"s\", \"policy\": \"vic:cif_threshold=2\"}'
      coalesce-target call --control /tmp/control reset_stats
  get_stats leaves out queues that have done nothing, and says how many
  (idle_queues). One queue, whatever it has done; and all of them:
      coalesce-target call --control /tmp/control get_stats \\
          '{\"ctrlr\": \"s\", \"queue\": 0}'
      coalesce-target call --control /tmp/control get_stats '{\"idle\": true}'
  The disk's process is restarted with the policy that was set. Where
  policy_since_us is later than counted_since_us, the counts are of more than
  one policy. If the process is stuck, the error says whether the policy may
  still change. A policy begins anew each time; to compare policies in turns,
  \"keep_learned\": true keeps what auto has learned until it is set again so:
      coalesce-target call --control /tmp/control set_policy \\
          '{\"ctrlr\": \"s\", \"policy\": \"none\", \"keep_learned\": true}'
  An image that was made longer, and its guest is told. To shorten one, set the
  size first, and shorten the file after that. A memory disk is given its size:
      truncate --size 20G disk.img
      coalesce-target call --control /tmp/control resize '{\"ctrlr\": \"s\"}'
      coalesce-target call --control /tmp/control resize \\
          '{\"ctrlr\": \"s\", \"size\": \"10G\"}'
  A disk that may do no more than this in a second, until it is set again; what
  is not named stays, and 0 is no limit:
      coalesce-target call --control /tmp/control set_limits \\
          '{\"ctrlr\": \"s\", \"iops\": 5000, \"bytes_per_second\": \"100M\"}'
  One more disk, with the keys that it would have in a TOML file; and none any
  more, once what it has in flight is done:
      coalesce-target call --control /tmp/control add_disk \\
          '{\"socket\": \"/tmp/s2\", \"file\": \"disk2.img\"}'
      coalesce-target call --control /tmp/control remove_disk '{\"ctrlr\": \"s2\"}'
  The guest has its CPU for the next 5 ms, of which policy vic makes use; with
  \"running\": false it has lost it. After that time, at most 1 s, the target
  knows nothing about it again:
      coalesce-target call --control /tmp/control set_running \\
          '{\"ctrlr\": \"s\", \"running\": true, \"for_us\": 5000}'";

#[derive(Args)]
#[command(group = ArgGroup::new("disks").required(true).args(["socket", "config"]))]
struct Serve {
    /// Device that the guest sees, and protocol of the socket
    #[arg(long, value_name = "DEVICE", value_enum, default_value_t, conflicts_with = "config")]
    device: Device,

    /// Socket to which the virtual machine monitor connects; /dev/fd/N: the one that is open as descriptor N
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Mode of that socket; connecting needs write permission
    #[arg(long, value_name = "OCTAL", default_value = "600", conflicts_with = "config")]
    socket_mode: Mode,

    /// Group of that socket, by name or number [default: that of the process]
    #[arg(long, value_name = "GROUP", conflicts_with = "config")]
    socket_group: Option<String>,

    /// Serve this raw image or block device
    #[arg(long, value_name = "IMG", conflicts_with_all = ["memory", "config"])]
    file: Option<PathBuf>,

    /// Serve a memory disk of this size instead: 64M, 1G; its data is lost when its process ends
    #[arg(long, value_name = "SIZE", conflicts_with = "config")]
    memory: Option<Size>,

    /// Time that each operation of a memory disk takes, many at once, up to 1s: 500us; 500us..2ms: spread evenly [default: none]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["file", "config"])]
    latency: Option<Latency>,

    /// Queues that a front end may use, 1 to 16; QEMU asks for one for each CPU of its guest
    #[arg(long, value_name = "N", default_value_t = QUEUES_DEFAULT, value_parser = parse_queues, conflicts_with = "config")]
    queues: u16,

    /// Interrupt coalescing policy; `coalesce-target policies` lists them
    #[arg(long, value_name = "TEXT", default_value = "auto", conflicts_with = "config")]
    policy: Spec,

    /// Refuse writes
    #[arg(long, conflicts_with = "config")]
    read_only: bool,

    /// Serve an image as it is, also where it begins or ends as one of another format, such as qcow2
    #[arg(long, conflicts_with_all = ["memory", "config"])]
    raw: bool,

    /// Bypass the page cache (O_DIRECT)
    #[arg(long, conflicts_with = "config")]
    direct: bool,

    /// Let the guest be migrated: log the memory that it writes, and lock the image only while a guest uses it
    #[arg(long, conflicts_with = "config")]
    migratable: bool,

    /// Serial number that the guest sees, up to 20 bytes [default: the name of the socket]
    #[arg(long, value_name = "TEXT", conflicts_with = "config")]
    serial: Option<String>,

    /// Block size that the guest sees: 512 to 64K [default: what the image needs]
    #[arg(long, value_name = "BYTES", conflicts_with = "config")]
    block_size: Option<Size>,

    /// Longest time that a queue polls for its guest before it sleeps, if polling pays; a quarter of it for the disk; 0: never poll
    /// [default: 32us; nvme: 200us]
    #[arg(long, value_name = "TIME", conflicts_with = "config")]
    poll: Option<Poll>,

    /// Do not offer EVENT_IDX: the guest can then only switch interrupts on and off
    #[arg(long, conflicts_with = "config")]
    no_event_idx: bool,

    /// Upper limit of the guest memory that a front end may share
    #[arg(long, value_name = "SIZE", default_value = "1T", conflicts_with = "config")]
    max_memory: Size,

    /// Most requests per second, after a burst of 100 ms of them; further ones wait. 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_iops, conflicts_with = "config")]
    iops: u64,

    /// Most bytes per second that are read, written or zeroed, after a burst of 100 ms of them: 100M. 0: no limit
    #[arg(long, value_name = "SIZE", default_value = "0", conflicts_with = "config")]
    bytes_per_second: Size,

    /// Serve the disks of a TOML file: a [[disk]] table for each, with these options as keys
    #[arg(long, value_name = "TOML")]
    config: Option<PathBuf>,

    /// Control socket (JSON-RPC): statistics, and policy changes at run time
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Serve Prometheus metrics at this loopback address, such as 127.0.0.1:9600
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<Address>,

    /// Let that address be one that other machines reach. There is neither TLS nor a password: use a proxy where the network is not trusted
    #[arg(long)]
    metrics_remote: bool,

    /// Record every request, completion and interrupt as JSON lines, for `coalesce-sim replay`; overwrites an older record, and nothing else
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// User that each disk's process becomes once its image is open; needs root
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Confine each disk's process to the privileges, files, network and system calls that serving needs [default: on]
    #[arg(long, value_name = "ON_OFF", value_enum)]
    sandbox: Option<Sandbox>,

    /// Longest time of an orderly stop after SIGTERM; requests still in flight are then abandoned [default: 20s]
    #[arg(long, value_name = "TIME")]
    stop_timeout: Option<StopTimeout>,

    /// Log level on standard error: error, warn, info, debug, off
    #[arg(long, value_name = "LEVEL", default_value = "info", env = LOG_VARIABLE, value_parser = parse_level)]
    log: LevelFilter,
}

const LOG_VARIABLE: &str = "COALESCE_LOG";

/// The parser's own errors name the option, also if the text is the variable's.
fn parse_level(text: &str) -> Result<LevelFilter, String> {
    let is_of_variable = std::env::var(LOG_VARIABLE).is_ok_and(|value| value == text);
    let name = if is_of_variable { LOG_VARIABLE } else { "log level" };
    let allowed = ["error", "warn", "info", "debug", "off"];
    match text.parse() {
        Ok(level) if allowed.contains(&text.to_ascii_lowercase().as_str()) => Ok(level),
        _ => Err(format!("{name} is {text}; allowed: {}", allowed.join(", "))),
    }
}

#[derive(Args)]
struct Call {
    /// The control socket
    #[arg(long, value_name = "PATH")]
    control: PathBuf,

    /// list, get_policy, set_policy, set_running, get_stats, reset_stats, resize, set_limits, add_disk, remove_disk, vhost_controller_set_coalescing
    method: String,

    /// Parameters, as a JSON object
    #[arg(default_value = "{}")]
    params: String,
}

fn main() -> ExitCode {
    let Cli { command, backend } = Cli::parse();
    let outcome = match command {
        Some(Command::Serve(options)) => serve(*options),
        Some(Command::Policies) => print(&policies()).context("standard output"),
        Some(Command::Top(options)) => top::top(&options),
        Some(Command::Call(options)) => call(&options),
        Some(Command::Man(options)) => options.run::<Cli>().map_err(Into::into),
        Some(Command::Completions(options)) => print(&options.script::<Cli>()).context("standard output"),
        Some(Command::Worker) => worker::run(),
        Some(Command::Explain(elsewhere)) => elsewhere.error("coalesce-sim explain"),
        Some(Command::Bench(elsewhere)) => elsewhere.error("coalesce-bench"),
        None if backend.print_capabilities => print(backend::CAPABILITIES).context("standard output"),
        None => serve(Serve::from(&backend)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!("coalesce-target: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Elsewhere {
    fn error(&self, program: &str) -> Result<()> {
        let command = [&[program.to_owned()], &self.arguments[..]].concat().join(" ");
        bail!("another program does this: {command}")
    }
}

impl From<&Backend> for Serve {
    fn from(backend: &Backend) -> Self {
        let matches =
            Self::augment_args(clap::Command::new("serve")).no_binary_name(true).get_matches_from(backend.serve());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

impl Serve {
    fn into_config(self) -> Result<Config> {
        let mut config = match (self.config, self.socket) {
            (Some(path), _) => Config::read(&path)?,
            (None, Some(socket)) => {
                let disk = DiskConfig {
                    name: None,
                    device: self.device,
                    socket,
                    socket_mode: self.socket_mode,
                    socket_group: self.socket_group,
                    file: self.file,
                    memory: self.memory,
                    latency: self.latency,
                    queues: self.queues,
                    policy: self.policy,
                    read_only: self.read_only,
                    raw: self.raw,
                    direct: self.direct,
                    migratable: self.migratable,
                    serial: self.serial,
                    block_size: self.block_size,
                    poll: self.poll,
                    event_idx: !self.no_event_idx,
                    max_memory: self.max_memory,
                    iops: self.iops,
                    bytes_per_second: self.bytes_per_second,
                };
                Config {
                    control: None,
                    metrics: None,
                    metrics_remote: false,
                    record: None,
                    user: None,
                    sandbox: Sandbox::On,
                    stop_timeout: StopTimeout::default(),
                    disks: vec![disk],
                }
            }
            (None, None) => bail!("needs --socket or --config"),
        };
        config.control = self.control.or(config.control);
        config.metrics = self.metrics.or(config.metrics);
        config.metrics_remote |= self.metrics_remote;
        config.record = self.record.or(config.record);
        config.user = self.user.or(config.user);
        config.stop_timeout = self.stop_timeout.unwrap_or(config.stop_timeout);
        config.sandbox = self.sandbox.unwrap_or(config.sandbox);
        config.check()?;
        Ok(config)
    }
}

fn serve(options: Serve) -> Result<()> {
    let level = options.log;
    log::start(level);
    let config = options.into_config()?;
    // Block the signals before any thread starts, so that every thread inherits the mask.
    let stops = SigSet::from_iter(signals::stops());
    // The parent process may have set SIGCHLD to be ignored. Then no signal would report that a disk's process ended.
    // SAFETY: no handler runs.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }.context("signals")?;
    stops.iter().chain([Signal::SIGCHLD]).collect::<SigSet>().thread_block().context("signals")?;
    signals::ignore_foreign().context("signals")?;
    let mut supervisor = Supervisor::start(&config, level.to_string())?;
    let disks = supervisor.disks().clone();
    if let Some(Address(address)) = config.metrics {
        metrics::listen(address, disks.clone())?;
    }
    let control = config.control.as_deref().map(|path| control::listen(path, disks.clone())).transpose()?;
    for disk in disks.list() {
        let Some(about) = disk.about() else { continue };
        let memory = sysinfo().context("memory of this machine")?.ram_total();
        if about.file.is_none() && about.size > memory {
            warn!(
                disk = about.ctrlr,
                "the machine has {memory} bytes of memory: a guest that writes more than is free ends the disk"
            );
        }
        info!(target: log::OF_THE_OPERATOR, disk = about.ctrlr, "serves {}", disk.described(&about));
    }

    let signal = supervisor.run(&stops)?;
    info!("{}: finishing", signal.map_or("the front end has left", Signal::as_str));
    if let Err(error) = signals::end_at_second() {
        warn!("a second signal will not end this at once: {error}");
    }
    drop(control);
    supervisor.stop()
}

fn policies() -> String {
    let mut text = String::from("A policy is written NAME, or NAME:KEY=VALUE,KEY=VALUE\n");
    for policy in Spec::policies() {
        text += &format!("\n{}\n    {}\n", policy.name, policy.about);
        let width = policy.keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
        for key in policy.keys {
            text += &format!("      {:width$}  {}\n", key.name, key.about);
            text += &format!("      {:width$}  {} [default: {}]\n", "", key.allowed, key.default);
        }
    }
    text
}

fn call(options: &Call) -> Result<()> {
    let params: Value = serde_json::from_str(&options.params).context("the parameters are not JSON")?;
    let result = control_client::request(&options.control, &options.method, &params)?;
    print(&(serde_json::to_string_pretty(&result)? + "\n")).context("standard output")
}
