//! One demonstration: everything that report and JSON are made of.

use serde_json::{Value, json};

use crate::jobs::{Job, ROUNDS, ROWS};
use crate::machine::Machine;
use crate::native;
use crate::options::Policies;
use crate::results::Section;
use crate::target::FILL_SEED;

/// What was measured, where, and how.
#[derive(Debug)]
pub struct Demo {
    /// The machine, and when.
    pub machine: Machine,
    /// The policies.
    pub policies: Policies,
    /// Bytes of each image.
    pub image_bytes: u64,
    /// Around the page cache.
    pub direct: bool,
    /// How this program was called.
    pub command: String,
    /// Without a virtual machine.
    pub native: Section,
    /// In one.
    pub guest: Section,
}

impl Demo {
    /// Whether something failed.
    pub const fn failed(&self) -> bool {
        self.native.failed || self.guest.failed
    }

    /// Seeds of the native rounds.
    pub fn seeds() -> Vec<u64> {
        (0..ROUNDS).map(native::seed).collect()
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let policies = self.policies.0.iter().map(|policy| json!({ "label": policy.label, "policy": policy.text }));
        let rows = ROWS.iter().map(|row| json!({ "jobname": row.name, "about": row.about }));
        let bench = Job::ALL.iter().map(|job| (job.name().to_owned(), json!(job.bench_arguments())));
        json!({
            "program": "coalesce-demo",
            "machine": self.machine,
            "command": self.command,
            "policies": policies.collect::<Vec<_>>(),
            "baseline": self.policies.0[self.policies.baseline()].label,
            "jobs": rows.collect::<Vec<_>>(),
            "bench": bench.collect::<serde_json::Map<_, _>>(),
            "seeds": { "native": Self::seeds(), "images": FILL_SEED, "guest": "fio's own, others each time" },
            "image_bytes": self.image_bytes,
            "direct": self.direct,
            "native": self.native.json(&self.policies),
            "guest": self.guest.json(&self.policies),
        })
    }
}
