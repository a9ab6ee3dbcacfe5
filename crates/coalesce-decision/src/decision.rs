//! Deliver or hold, and why.

numbered! {
    /// Why an interrupt is delivered. Its number is that of the C ABI, from 1 on.
    ///
    /// Where several reasons apply, a policy documents which it gives.
    Reason {
        /// Coalescing is off: the delivery ratio is 1, or the policy coalesces nothing.
        Always = 5, "always";
        /// CIF is below `cif_threshold` (vIC Alg. 2); latency budget: no company is expected.
        LowCif = 3, "low_cif";
        /// It is this completion's turn in a cycle of the delivery ratio (vIC Alg. 2).
        Ratio = 4, "ratio";
        /// With this completion, more than max(1, CIF / (2 * `cif_threshold`)) would be held (`live_clamp`, ours).
        LiveClamp = 6, "live_clamp";
        /// The guest's timeslice ends before the next interrupt is expected (Xen §4).
        SliceEnd = 2, "slice_end";
        /// The guest was scheduled on a CPU (Xen §4).
        Schedule = 8, "schedule";
        /// The guest was descheduled from its CPU (Xen §4).
        Deschedule = 9, "deschedule";
        /// Somebody waits for this command (cinterrupts §3.3).
        Urgent = 14, "urgent";
        /// A Barrier has completed; if Barriers are strict, its whole batch (cinterrupts §3.4, §4.3).
        Barrier = 13, "barrier";
        /// The count reached its limit: `thr` (cinterrupts Alg. 2, latency budget), that of a licence (latency budget) or the
        /// threshold (`nvme`, `dim`).
        Count = 15, "count";
        /// The CIF is below the threshold T, or more than max(1, CIF / 2T) would be held (the `in_flight` rule, ours).
        InFlight = 16, "in_flight";
        /// The latency budget cannot pay for a hold, or 2 ε of the outstanding commands are held already.
        Budget = 22, "budget";
        /// The regulator of `auto` has found that holding slows the requesters down, or compares holding with not holding.
        Slowdown = 24, "slowdown";
        /// Δ passed without a completion: the burst is over (cinterrupts Alg. 2).
        Delta = 10, "delta";
        /// No completion came for eight times the usual gap (latency budget).
        Silence = 23, "silence";
        /// The oldest held completion was held for `max_hold`.
        MaxHold = 1, "max_hold";
        /// The rate limit had deferred this interrupt (the storm guard, cinterrupts §4.3).
        Storm = 11, "storm";
        /// The aggregation time (NVMe Feature 08h, `dim`) or the delay (`spdk_vhost`) passed.
        Time = 18, "time";
        /// The first completion of a poll (`batch`).
        LeadingEdge = 19, "leading_edge";
        /// The device has posted everything that it had to post.
        BatchEnd = 17, "batch_end";
        /// Coalescing is disabled for this vector (NVMe Features 08h and 09h).
        Disabled = 20, "disabled";
        /// The command belongs to the admin queue, which is never coalesced (NVMe).
        Admin = 21, "admin";
        /// A ticket is invalid, the caller reports an error, or a command failed (`nvme`).
        Error = 12, "error";
        /// Everything held had to be delivered: at queue stop, reset or migration, or when nothing may be held.
        Flush = 7, "flush";
    }
}

numbered! {
    /// Why no interrupt is delivered. Its number is that of the C ABI, from 32 on.
    HoldReason {
        /// It is not this completion's turn in a cycle of the delivery ratio (vIC Alg. 2).
        Ratio = 32, "ratio";
        /// The burst continues (cinterrupts Alg. 2).
        Burst = 36, "burst";
        /// An interrupt is due, and the rate limit defers it (the storm guard, cinterrupts §4.3).
        Storm = 37, "storm";
        /// Neither the threshold nor the time is reached (NVMe Feature 08h, `dim`).
        Aggregate = 39, "aggregate";
        /// Others are expected to share the interrupt, and the budget pays for the wait.
        Company = 41, "company";
        /// A trial finds out whether holding makes the requests faster (latency budget).
        Probe = 42, "probe";
        /// Trials have shown that holding makes the requests faster (latency budget).
        Licensed = 43, "licensed";
        /// The poll continues (`batch`, `spdk_vhost`).
        Batch = 40, "batch";
        /// Nothing is held, so an interrupt would cover nothing.
        NothingHeld = 33, "nothing_held";
        /// The deadline has not passed.
        Early = 34, "early";
        /// The new configuration is in force, and nothing is due under it.
        Reconfigured = 35, "reconfigured";
        /// The command was cancelled, and nothing is due.
        Cancelled = 38, "cancelled";
    }
}

/// What to do now. Only `Hold` suppresses an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "dropping a decision can lose an interrupt"]
pub enum Decision {
    /// Do not interrupt now.
    Hold(HoldReason),
    /// Interrupt: it covers everything posted so far.
    Deliver(Reason),
    /// Interrupt for this urgent completion alone (cinterrupts §3.5): held completions stay held. vIC never decides
    /// this.
    DeliverUrgent,
}

impl Decision {
    /// Whether to interrupt.
    #[inline]
    #[must_use]
    pub const fn is_deliver(self) -> bool {
        !matches!(self, Self::Hold(_))
    }

    /// The name of its reason, as in traces. Statistics count [`DeliverUrgent`](Self::DeliverUrgent) separately, as
    /// `urgent_alone`.
    #[must_use]
    pub const fn reason_name(self) -> &'static str {
        match self {
            Self::Deliver(reason) => reason.name(),
            Self::Hold(reason) => reason.name(),
            Self::DeliverUrgent => Reason::Urgent.name(),
        }
    }
}
