//! Decisions of all policies in one vocabulary, and how often each was taken.

/// An enum with a name for each variant.
macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the cores and the baselines explain their reasons")]
        pub enum $type { $($variant,)+ }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The name in traces and statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

named! {
    /// Why an interrupt is delivered.
    Reason {
        Always = "always",
        LowCif = "low_cif",
        Ratio = "ratio",
        LiveClamp = "live_clamp",
        SliceEnd = "slice_end",
        Schedule = "schedule",
        Deschedule = "deschedule",
        Urgent = "urgent",
        Barrier = "barrier",
        Count = "count",
        InFlight = "in_flight",
        Delta = "delta",
        MaxHold = "max_hold",
        Storm = "storm",
        Time = "time",
        LeadingEdge = "leading_edge",
        BatchEnd = "batch_end",
        Disabled = "disabled",
        Admin = "admin",
        Error = "error",
        Flush = "flush",
    }
}

named! {
    /// Why no interrupt is delivered.
    HoldReason {
        Ratio = "ratio",
        Burst = "burst",
        Storm = "storm",
        Aggregate = "aggregate",
        Batch = "batch",
        NothingHeld = "nothing_held",
        Early = "early",
        Reconfigured = "reconfigured",
        Cancelled = "cancelled",
    }
}

/// What to do now. Only `Hold` suppresses an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "dropping a decision can lose an interrupt"]
pub enum Decision {
    /// Interrupt: it covers everything completed so far.
    Deliver(Reason),
    /// Interrupt for this urgent completion alone: what was held stays held.
    DeliverUrgent,
    /// Do not interrupt now.
    Hold(HoldReason),
}

impl Decision {
    /// Whether to interrupt.
    #[inline]
    #[must_use]
    pub const fn is_deliver(self) -> bool {
        !matches!(self, Self::Hold(_))
    }
}

impl From<vic_core::Decision> for Decision {
    fn from(decision: vic_core::Decision) -> Self {
        use vic_core::{Decision as Vic, HoldReason as H, Reason as R};
        match decision {
            Vic::Deliver(reason) => Self::Deliver(match reason {
                R::MaxHold => Reason::MaxHold,
                R::SliceEnd => Reason::SliceEnd,
                R::LowCif => Reason::LowCif,
                R::Ratio => Reason::Ratio,
                R::Always => Reason::Always,
                R::LiveClamp => Reason::LiveClamp,
                R::Flush => Reason::Flush,
                R::Schedule => Reason::Schedule,
                R::Deschedule => Reason::Deschedule,
            }),
            Vic::Hold(reason) => Self::Hold(match reason {
                H::Ratio => HoldReason::Ratio,
                H::NothingHeld => HoldReason::NothingHeld,
                H::Early => HoldReason::Early,
                H::Reconfigured => HoldReason::Reconfigured,
            }),
        }
    }
}

impl From<cint_core::Decision> for Decision {
    fn from(decision: cint_core::Decision) -> Self {
        use cint_core::{Decision as Cint, HoldReason as H, Reason as R};
        match decision {
            Cint::DeliverUrgent => Self::DeliverUrgent,
            Cint::Deliver(reason) => Self::Deliver(match reason {
                R::Delta => Reason::Delta,
                R::MaxHold => Reason::MaxHold,
                R::Storm => Reason::Storm,
                R::Error => Reason::Error,
                R::Barrier => Reason::Barrier,
                R::Urgent => Reason::Urgent,
                R::Count => Reason::Count,
                R::InFlight => Reason::InFlight,
                R::BatchEnd => Reason::BatchEnd,
                R::Flush => Reason::Flush,
            }),
            Cint::Hold(reason) => Self::Hold(match reason {
                H::Burst => HoldReason::Burst,
                H::Storm => HoldReason::Storm,
                H::NothingHeld => HoldReason::NothingHeld,
                H::Early => HoldReason::Early,
                H::Reconfigured => HoldReason::Reconfigured,
                H::Cancelled => HoldReason::Cancelled,
            }),
        }
    }
}

/// How often each decision was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    delivered: [u64; Reason::ALL.len()],
    urgent_alone: u64,
    held: [u64; HoldReason::ALL.len()],
}

impl Default for Stats {
    fn default() -> Self {
        Self { delivered: [0; Reason::ALL.len()], urgent_alone: 0, held: [0; HoldReason::ALL.len()] }
    }
}

impl Stats {
    /// Counts a decision and hands it on.
    pub const fn count(&mut self, decision: Decision) -> Decision {
        let counter = match decision {
            Decision::Deliver(reason) => &mut self.delivered[reason as usize],
            Decision::DeliverUrgent => &mut self.urgent_alone,
            Decision::Hold(reason) => &mut self.held[reason as usize],
        };
        *counter = counter.saturating_add(1);
        decision
    }

    /// Counts interrupts that no decision was asked about.
    pub const fn count_passed(&mut self, interrupts: u64) {
        let counter = &mut self.delivered[Reason::Always as usize];
        *counter = counter.saturating_add(interrupts);
    }

    /// Deliveries by reason: each name with its count; `urgent_alone` are those that left others held.
    pub fn delivered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let reasons = Reason::ALL.iter().map(|reason| (reason.name(), self.delivered[*reason as usize]));
        reasons.chain([("urgent_alone", self.urgent_alone)])
    }

    /// Holds by reason: each name with its count.
    pub fn held(&self) -> impl Iterator<Item = (&'static str, u64)> {
        HoldReason::ALL.iter().map(|reason| (reason.name(), self.held[*reason as usize]))
    }

    /// Adds up the statistics of several machines.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.delivered.iter_mut().zip(other.delivered) {
            *sum += count;
        }
        for (sum, count) in self.held.iter_mut().zip(other.held) {
            *sum += count;
        }
        self.urgent_alone += other.urgent_alone;
    }
}
