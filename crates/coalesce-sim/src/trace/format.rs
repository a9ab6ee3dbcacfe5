//! The formats, by name.

use serde::Serialize;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// What blkparse prints by default: D, C and R events; Q of dm and md devices
    Blkparse,
    /// biosnoop of bcc, its libbpf version, and bpftrace's biosnoop.bt
    Biosnoop,
    /// A log of fio's write_lat_log: clat with log_issue_time, or any with times in ms
    Fio,
    /// This project's JSON lines, as coalesce-target --record writes them
    Json,
    /// perf script, ftrace's trace_pipe, trace-cmd report, or bpftrace's printf, of nvme_setup_cmd and nvme_complete_rq, or of
    /// block_rq_issue, block_rq_requeue and block_rq_complete
    Tracepoint,
    /// MSR Cambridge's traces (CSV)
    Msr,
    /// SYSTOR '17's traces (CSV)
    Systor,
    /// SPC's, as those of UMass: arrivals only, for a plan's thread of kind trace
    Spc,
    /// Alibaba's block traces (CSV): arrivals only
    Alibaba,
    /// Tencent's block traces (CSV): arrivals only, in whole seconds
    Tencent,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Blkparse,
        Self::Biosnoop,
        Self::Fio,
        Self::Json,
        Self::Tracepoint,
        Self::Msr,
        Self::Systor,
        Self::Spc,
        Self::Alibaba,
        Self::Tencent,
    ];

    /// As `--format` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blkparse => "blkparse",
            Self::Biosnoop => "biosnoop",
            Self::Fio => "fio",
            Self::Json => "json",
            Self::Tracepoint => "tracepoint",
            Self::Msr => "msr",
            Self::Systor => "systor",
            Self::Spc => "spc",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
        }
    }
}

#[cfg(all(test, feature = "cli"))]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!(Format::value_variants(), Format::ALL);
        for format in Format::ALL {
            assert_eq!(format.to_possible_value().unwrap().get_name(), format.name());
        }
    }
}
