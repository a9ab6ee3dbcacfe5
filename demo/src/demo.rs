//! One demonstration: everything that report and JSON are made of.

use coalesce_demo::machine::Machine;
use coalesce_demo::paired::{CLAIMS, ERROR};
use serde_json::{Value, json};

use crate::options::Options;
use crate::place::Place;
use crate::results::{Noise, Section};
use crate::summary::Summary;

/// What was measured, where, and how.
#[derive(Debug)]
pub struct Demo {
    /// The machine, and when.
    pub machine: Machine,
    /// The options.
    pub options: Options,
    /// How this program was called.
    pub command: String,
    /// Without a virtual machine.
    pub native: Section,
    /// In one with a virtio-blk disk.
    pub guest: Section,
    /// The same, with its instructions counted.
    pub counted: Section,
    /// In one with an NVMe disk.
    pub nvme: Section,
    /// In a virtual machine without an operating system.
    pub bare: Section,
}

impl Demo {
    /// All parts, in order.
    pub const fn sections(&self) -> [(Place, &Section); 5] {
        [
            (Place::Native, &self.native),
            (Place::Guest, &self.guest),
            (Place::Counted, &self.counted),
            (Place::Nvme, &self.nvme),
            (Place::Bare, &self.bare),
        ]
    }

    /// Whether something failed.
    pub fn failed(&self) -> bool {
        self.sections().iter().any(|(_, section)| section.failed)
    }

    /// How much the machine differs from itself.
    pub fn noise(&self) -> Noise {
        Noise::of(self.sections().iter().map(|(_, section)| *section))
    }

    /// What comes first.
    pub fn summary(&self) -> Summary<'_> {
        Summary::new(&self.sections(), &self.options.policies, &self.noise(), self.options.seconds)
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let policies = &self.options.policies;
        let texts = policies.0.iter().map(|policy| json!({ "label": policy.label, "policy": policy.text }));
        let mut value = json!({
            "program": "coalesce-demo",
            "machine": self.machine,
            "command": self.command,
            "policies": texts.collect::<Vec<_>>(),
            "baseline": policies.baseline().label,
            "seconds": self.options.seconds,
            "turn": self.options.turn,
            "seed": self.options.seed,
            "image_bytes": self.options.image_size.0,
            "direct": self.options.direct,
            "headline": self.summary().lines(),
            "noise": self.noise().json(),
            // Runs without it have intervals of a sign test that share an error of 5 % among all numbers.
            "statistics": { "intervals": "signed rank", "claims": CLAIMS, "error_of_all_claims": ERROR, "error_of_each_other": ERROR },
        });
        for (place, section) in self.sections() {
            value[place.name()] = section.json();
        }
        value
    }
}
