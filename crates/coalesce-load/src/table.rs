//! The report as text tables.

use std::fmt::{Display, Write};

use coalesce_cli::counted;

use crate::options::{Bursts, Device, Job, Options, Pauses};
use crate::report::{Counters, JobReport, Queues, Report};

/// The report as aligned tables: latencies and rates, then interrupts.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |text: String| out.extend([&text, "\n"]);
    line(describe(report));
    line(String::new());
    let head = ["job", "queue", "requests", "IOPS", "MB/s", "clat us mean", "p50 us", "p99 us", "p99.9 us", "max us"];
    line(row(&head, &WIDTHS_JOBS));
    for job in report.jobs.iter().filter(|job| is_shown(report, job.queue)) {
        line(row(&job_cells(job), &WIDTHS_JOBS));
    }
    line(String::new());
    let head = [
        "queue",
        "requests",
        "interrupts",
        "interrupts/request",
        "requests/interrupt",
        "kicks",
        "errors",
        "unfinished",
    ];
    line(row(&head, &WIDTHS_QUEUES));
    line(row(&counter_cells(&Queues::All, &report.total), &WIDTHS_QUEUES));
    for queue in report.queues.iter().filter(|queue| is_shown(report, Queues::One(queue.queue))) {
        line(row(&counter_cells(&queue.queue, &queue.counters), &WIDTHS_QUEUES));
    }
    line(String::new());
    line(footer(report));
    out
}

const WIDTHS_JOBS: [usize; 10] = [5, 5, 10, 10, 9, 12, 9, 9, 9, 9];
const WIDTHS_QUEUES: [usize; 8] = [5, 10, 10, 18, 18, 10, 6, 10];

/// Whether a line is shown. With a single queue its line would repeat the total.
fn is_shown(report: &Report, queue: Queues) -> bool {
    queue == Queues::All || report.queues.len() > 1
}

fn row<T: Display>(cells: &[T], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{cell:>width$}  ");
    }
    text.trim_end().into()
}

fn job_cells(job: &JobReport) -> [String; 10] {
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let at = |percent| us(job.clat_ns.at(percent) as f64);
    [
        job.jobname.to_string(),
        job.queue.to_string(),
        job.total_ios.to_string(),
        format!("{:.0}", job.iops),
        format!("{:.1}", job.bw_bytes as f64 / 1e6),
        us(job.clat_ns.mean),
        at(50.0),
        at(99.0),
        at(99.9),
        us(job.clat_ns.max as f64),
    ]
}

fn counter_cells(queue: &dyn Display, counters: &Counters) -> [String; 8] {
    [
        queue.to_string(),
        counters.total_ios.to_string(),
        counters.interrupts.to_string(),
        format!("{:.3}", counters.interrupts_per_io),
        format!("{:.2}", counters.ios_per_interrupt),
        counters.kicks.to_string(),
        counters.errors.to_string(),
        counters.unfinished.to_string(),
    ]
}

fn describe(report: &Report) -> String {
    let Options { queues, depth, batch, block_size_bytes, rw, seed, .. } = report.options;
    let job = match report.options.job {
        Job::Async => format!("async, depth {depth}"),
        Job::Sync => "sync".into(),
        Job::Mixed => format!("mixed, 1 synchronous and {depth} asynchronous"),
        Job::Batch => format!("batches of {batch}"),
    };
    let rate = report.options.rate_per_second.map_or_else(String::new, |rate| format!(", open loop at {rate}/s"));
    let pauses = report
        .options
        .pauses
        .map_or_else(String::new, |Pauses { on_us, off_us }| format!(" for {on_us} us, then none for {off_us} us"));
    let bursts = report.options.bursts.map_or_else(String::new, |Bursts { requests, gap_us }| {
        format!(", bursts of {requests}, then none for {gap_us} us")
    });
    let queues = counted(queues, "queue");
    let rw = format!("{rw:?}").to_lowercase();
    let writes = report.options.write_percent.map_or_else(String::new, |percent| format!(" with {percent} % writes"));
    let name = match report.options.device {
        Device::VirtioBlk => "EVENT_IDX",
        Device::Nvme => "NVMe, shadow doorbells",
    };
    let event_idx = match (report.event_idx, report.options.event_idx) {
        (true, _) => "on",
        (false, true) => "off (not offered)",
        (false, false) => "off",
    };
    let kicks = if report.doorbells_mapped { "NVMe, doorbells mapped".into() } else { format!("{name} {event_idx}") };
    format!(
        "{}: {queues}, {job} per queue{rate}{pauses}{bursts}, {rw}{writes} of {block_size_bytes} bytes, {kicks}, seed {seed}",
        report.socket
    )
}

fn footer(report: &Report) -> String {
    let (total, cpu) = (&report.total, report.cpu);
    let mut text = format!("{:.2} s; client CPU {:.2} s user, {:.2} s system", report.elapsed_s, cpu.usr, cpu.sys);
    if report.options.rate_per_second.is_some() {
        let Counters { arrivals, backlog_max, never_issued, .. } = total;
        let _ = write!(text, "; {arrivals} arrivals, largest backlog {backlog_max}, {never_issued} never issued");
    }
    if report.options.verify {
        let _ = write!(text, "; {} reads verified", total.verified);
    }
    if report.warmup_failed {
        text += "; this is the warm-up, which failed";
    }
    text
}
