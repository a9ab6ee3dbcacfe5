//! The same client against several vhost-user-blk servers, in turns. `scripts/compare.sh` starts the servers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use coalesce_demo::json::{of_baseline, of_others};
use coalesce_demo::machine::Machine;
use coalesce_demo::paired::{Block, Comparison, CpuTime, ERROR, Interval, Plan, compare, cpu_time, measure};
use coalesce_demo::redraw::of_servers;
use coalesce_demo::table::Table;
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Compare vhost-user-blk servers under one client, in randomised blocks of short turns
///
/// The first server runs twice in each block: how far it differs from itself is the machine's noise. Every other number is a ratio to
/// it within a block: the Hodges-Lehmann estimate over blocks, with the interval of a signed-rank test at an error of 5 % for each column.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Servers, as NAME=SOCKET,PID: its name in the table, its socket, and the process whose CPU time is the server's
    #[arg(required = true, num_args = 2.., value_name = "NAME=SOCKET,PID")]
    servers: Vec<Server>,

    /// The client
    #[arg(long, value_name = "FILE", default_value = "target/release/coalesce-bench")]
    client: PathBuf,

    /// Requests in flight for each queue
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,32,64")]
    depth: Vec<u16>,

    /// Numbers of queues
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4")]
    queues: Vec<u16>,

    /// Open loop: arrivals per second and queue, --depth of them in flight at most
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,

    /// Whether the client suppresses interrupts while it reaps, as Linux does
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"])]
    event_idx: String,

    /// Seconds for each depth and number of queues
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,

    /// Seconds of one turn, after a quarter of it that is not measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0.2)]
    turn: f64,

    /// The comparison and all turns as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Pictures, for each depth and number of queues what is saved against latency (p50), as SVG files in this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,

    /// Goes into the JSON
    #[arg(long = "note", value_name = "KEY=VALUE", value_parser = parse_note)]
    notes: Vec<(String, String)>,
}

fn parse_note(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is not KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

#[derive(Clone, Debug)]
struct Server {
    name: String,
    socket: PathBuf,
    process: Pid,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.rsplit_once(',')?)));
        let Some((name, (socket, process))) = parts else { return Err("it is not NAME=SOCKET,PID".into()) };
        let process = process.parse().map_err(|_| format!("{process} is not a process number"))?;
        Ok(Self { name: name.into(), socket: socket.into(), process: Pid::from_raw(process) })
    }
}

/// What a turn gave. The order is that of [`HEADS`].
type Numbers = [f64; 6];

const HEADS: [&str; 6] = ["IOPS", "p50 µs", "p99 µs", "client CPU µs/IO", "server CPU µs/IO", "interrupts/IO"];

/// Looks after 14 blocks: the fewest whose interval leaves out more than the two outermost ones.
const LOOKS: [usize; 2] = [14, 100_000];
/// It is enough when IOPS are known so well.
const NARROW: f64 = 1.05;

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(dir) = &options.plots {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?; // before minutes of measuring, not after
    }
    let machine = Machine::look(Path::new(".")); // before the load average is our own
    let mut rows = Vec::new();
    for &queues in &options.queues {
        for &depth in &options.depth {
            let blocks = row(&options, depth, queues)?;
            let count = blocks.len();
            let loop_kind = options.rate.map_or(String::new(), |rate| format!(", {rate} arrivals per second"));
            let shape = format!("depth {depth}, {queues} queue{}", if queues == 1 { "" } else { "s" });
            let table = table(&options, &blocks).text(stdout().is_terminal());
            writeln!(stdout(), "\n{shape}{loop_kind}; {count} blocks\n{}", table.trim_end())?;
            let row = row_as_json(&options, depth, queues, &blocks);
            if let Some(dir) = &options.plots {
                write_pictures(&options, dir, &row)?;
            }
            rows.push(row);
        }
    }
    if let Some(path) = &options.json {
        let servers: Vec<_> = options.servers.iter().map(|server| server.name.as_str()).collect();
        let notes: BTreeMap<_, _> = options.notes.into_iter().collect();
        let rows = json!({
            "notes": notes,
            "machine": machine,
            "servers": servers,
            "event_idx": options.event_idx,
            "rate": options.rate,
            "rows": rows,
        });
        fs::write(path, format!("{rows:#}\n")).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn plan(options: &Options) -> Plan {
    Plan { variants: options.servers.len() + 1, looks: LOOKS.into(), seed: 1 }
}

/// What each interval may err: the ratios of a column share its error.
fn error_each(options: &Options) -> f64 {
    plan(options).at_each_look(ERROR / (options.servers.len() - 1) as f64)
}

/// All blocks of one depth and number of queues.
fn row(options: &Options, depth: u16, queues: u16) -> Result<Vec<Block<Numbers>>> {
    let (begin, plan) = (Instant::now(), plan(options));
    let turn = |variant: usize| {
        let before = CpuTime::now()?;
        let server = &options.servers[variant.saturating_sub(1)]; // 0 and 1 are the baseline
        let numbers = turn(options, server, depth, queues).with_context(|| server.name.clone())?;
        Ok((numbers, CpuTime::now()?.lost_since(before)))
    };
    let late = || begin.elapsed().as_secs_f64() >= options.seconds;
    let enough = |blocks: &[Block<Numbers>]| {
        let comparison = compared(blocks, 0, error_each(options));
        comparison.control.iter().chain(comparison.ratios.iter().flatten()).all(|ratio| ratio.high / ratio.low < NARROW)
    };
    measure(&plan, turn, late, enough)
}

fn turn(options: &Options, server: &Server, depth: u16, queues: u16) -> Result<Numbers> {
    let (warmup, seconds) = (options.turn / 4.0, options.turn);
    let mut command = Command::new(&options.client);
    command.arg("--socket").arg(&server.socket).args(["--quiet", "--json", "--rw", "randread"]);
    command.args(["--event-idx", &options.event_idx, "--depth", &depth.to_string(), "--queues", &queues.to_string()]);
    command.args(["--warmup", &warmup.to_string(), "--seconds", &seconds.to_string()]);
    if let Some(rate) = options.rate {
        command.args(["--rate", &rate.to_string(), "--poisson"]);
    }
    let before = cpu_time(server.process)?;
    let output = command.stderr(Stdio::inherit()).output().with_context(|| options.client.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", options.client.display(), output.status);
    }
    let server_cpu = cpu_time(server.process)?.saturating_sub(before).as_secs_f64();
    let report: Value = serde_json::from_slice(&output.stdout).context("the client's report")?;
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_f64).with_context(|| pointer.to_owned());
    let (iops, elapsed) = (number("/jobs/0/iops")?, number("/elapsed_s")?);
    let count = (iops * elapsed).max(1.0);
    let client_cpu = number("/cpu/usr")? + number("/cpu/sys")?;
    Ok([
        iops,
        number("/jobs/0/clat_ns/percentile/50.000000")? / 1e3,
        number("/jobs/0/clat_ns/percentile/99.000000")? / 1e3,
        client_cpu * 1e6 / count,
        // The server works during the warm-up, too.
        server_cpu * 1e6 / (count * (elapsed + warmup) / elapsed),
        number("/interrupts_per_io")?,
    ])
}

fn compared(blocks: &[Block<Numbers>], which: usize, error: f64) -> Comparison {
    let values: Vec<_> = blocks.iter().map(|block| block.iter().map(|turn| turn.value[which]).collect()).collect();
    compare(&values, error)
}

/// The value of the baseline, and the ratios of the others to it.
fn number(options: &Options, blocks: &[Block<Numbers>], which: usize) -> (f64, Comparison) {
    let mut values: Vec<_> = blocks.iter().map(|block| block[0].value[which]).collect();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], compared(blocks, which, error_each(options)))
}

fn is_exact(ratio: &Interval) -> bool {
    ratio.high / ratio.low < 1.001
}

fn table(options: &Options, blocks: &[Block<Numbers>]) -> Table {
    let [baseline, others @ ..] = options.servers.as_slice() else { unreachable!("two servers at least") };
    let mut table = Table::new("server", &baseline.name, others.iter().map(|server| server.name.as_str()));
    for (which, head) in HEADS.iter().enumerate() {
        let (baseline, comparison) = number(options, blocks, which);
        table.push(head, baseline, &comparison, is_exact);
    }
    table
}

/// The pictures of one depth and number of queues.
fn write_pictures(options: &Options, dir: &Path, row: &Value) -> Result<()> {
    let servers: Vec<_> = options.servers.iter().map(|server| server.name.as_str()).collect();
    for (name, picture) in of_servers(&servers, row)? {
        let path = dir.join(name);
        let (shown, blocks) = (path.display(), &row["blocks"]);
        match picture {
            Some(picture) => fs::write(&path, picture).with_context(|| shown.to_string())?,
            None => eprintln!("coalesce-compare: {blocks} blocks are too few for {shown}: more --seconds"),
        }
    }
    Ok(())
}

fn row_as_json(options: &Options, depth: u16, queues: u16, blocks: &[Block<Numbers>]) -> Value {
    let metrics = HEADS.iter().enumerate().map(|(which, head)| {
        let (baseline, comparison) = number(options, blocks, which);
        let mut metric = of_baseline(head, baseline, &comparison, is_exact);
        let others = options.servers[1..].iter().map(|server| server.name.as_str());
        metric["servers"] = of_others(others, &comparison, is_exact).into();
        metric
    });
    let turns = blocks.iter().map(|block| block.iter().map(|turn| json!(turn.value)).collect::<Vec<_>>());
    json!({
        "depth": depth,
        "queues": queues,
        "blocks": blocks.len(),
        "metrics": metrics.collect::<Vec<_>>(),
        "turns": turns.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coalesce_demo::paired::Turn;

    #[test]
    fn a_picture_has_the_servers_whose_interval_is_known() {
        let options =
            Options::parse_from(["coalesce-compare", "plain=/a,1", "SPDK, our auto=/b,1", "SPDK, our auto 20%=/c,1"]);
        let turn = |interrupts: f64| Turn { value: [1e5, 20.0, 40.0, 1.0, 1.0, interrupts], lost: 0.0, repeats: 0 };
        let block = || [1.0, 1.0, 0.5, 0.25].map(turn).into();
        let picture = |blocks: usize| {
            let row = row_as_json(&options, 8, 1, &(0..blocks).map(|_| block()).collect::<Vec<_>>());
            let servers: Vec<_> = options.servers.iter().map(|server| server.name.as_str()).collect();
            let (name, picture) = of_servers(&servers, &row).unwrap().swap_remove(0);
            assert_eq!(name, "depth8-queues1-interrupts.svg");
            picture
        };
        let svg = picture(14).unwrap();
        assert!(
            svg.starts_with("<svg")
                && svg.contains("auto 20%: latency")
                && !svg.contains("our auto")
                && !svg.contains("plain: latency"),
            "{svg}"
        );
        assert_eq!(picture(2), None);
    }
}
