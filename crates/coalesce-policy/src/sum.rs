//! One closed enum over all policies.

use crate::baseline::{Always, Batch, Dim, Nvme, SpdkVhost};
use crate::spec::Spec;
use budget_core::{Auto, Budget};
use cint_core::{Barriers, Cint};
use coalesce_decision::{Completion, ConfigError, Decision, Policy, forward};
use vic_core::Vic;

/// A policy with strict Barriers: submitter groups, and words of 64 commands in the window of each.
#[cfg(feature = "alloc")]
pub(crate) type Strict = cint_core::Strict<Sum, 16, 16>;

/// Any policy.
#[derive(Clone, Debug)]
#[repr(u8)] // a tag of its own, which costs less to look at
pub(crate) enum Sum {
    None(Always),
    Nvme(Nvme),
    Batch(Batch),
    Dim(Dim),
    SpdkVhost(SpdkVhost),
    Vic(Vic),
    Cint(Cint),
    Budget(Budget),
    Auto(Auto),
    #[cfg(feature = "alloc")]
    Strict(alloc::boxed::Box<Strict>),
}

impl Sum {
    pub(crate) fn new(spec: &Spec, tick_hz: u64) -> Result<Self, ConfigError> {
        let relaxed = match spec {
            Spec::None => Self::None(Always),
            Spec::Nvme(params) => Self::Nvme(Nvme::new(*params, tick_hz)),
            Spec::Batch => Self::Batch(Batch::default()),
            Spec::Dim => Self::Dim(Dim::new(tick_hz)),
            Spec::SpdkVhost(params) => Self::SpdkVhost(SpdkVhost::new(*params, tick_hz)),
            Spec::Vic(params) => Self::Vic(Vic::new(Spec::vic_config(params, tick_hz)?)),
            Spec::Cint(params) => Self::Cint(Cint::new(params.config(tick_hz)?)),
            Spec::Budget(params) => Self::Budget(Budget::new(params.config(tick_hz)?)),
            Spec::Auto(params) => Self::Auto(Auto::new(params.config(tick_hz)?)),
        };
        match spec.barriers() {
            Barriers::Relaxed => Ok(relaxed),
            Barriers::Strict => relaxed.strict(),
        }
    }

    #[cfg(feature = "alloc")]
    #[expect(clippy::unnecessary_wraps, reason = "without an allocator it is refused")]
    fn strict(self) -> Result<Self, ConfigError> {
        Ok(Self::Strict(alloc::boxed::Box::new(Strict::new(self))))
    }

    #[cfg(not(feature = "alloc"))]
    fn strict(self) -> Result<Self, ConfigError> {
        coalesce_decision::Field::Barrier.check_between(1, 0, 0)?;
        Ok(self)
    }

    const fn barriers(&self) -> Barriers {
        match self {
            #[cfg(feature = "alloc")]
            Self::Strict(_) => Barriers::Strict,
            _ => Barriers::Relaxed,
        }
    }

    /// The core, which may be behind a tracker.
    fn core(&mut self) -> &mut Self {
        match self {
            #[cfg(feature = "alloc")]
            Self::Strict(strict) => strict.get_mut(),
            core => core,
        }
    }

    /// Goes on with other parameters, and with what is held; `None`: it cannot, and a new policy must replace it.
    pub(crate) fn reconfigure(&mut self, spec: &Spec, tick_hz: u64, now: u64) -> Result<Option<Decision>, ConfigError> {
        if self.barriers() != spec.barriers() {
            return Ok(None);
        }
        let core = self.core();
        Ok(Some(match (&mut *core, spec) {
            (Self::Vic(vic), Spec::Vic(params)) => vic.reconfigure(Spec::vic_config(params, tick_hz)?, now)?,
            (Self::Cint(cint), Spec::Cint(params)) => cint.reconfigure(params.config(tick_hz)?, now)?,
            (Self::Budget(budget), Spec::Budget(params)) => budget.reconfigure(params.config(tick_hz)?, now)?,
            (Self::Auto(auto), Spec::Auto(params)) => auto.reconfigure(params.config(tick_hz)?, now)?,
            (Self::Budget(budget), Spec::Auto(params)) => {
                let decision = budget.reconfigure(params.config(tick_hz)?, now)?;
                *core = Self::Auto(Auto::around(*budget));
                decision
            }
            (Self::Auto(auto), Spec::Budget(params)) => {
                let decision = auto.reconfigure(params.config(tick_hz)?, now)?;
                *core = Self::Budget(auto.into_budget());
                decision
            }
            _ => return Ok(None),
        }))
    }
}

/// The policy that it is.
macro_rules! each {
    ($sum:ident, $policy:ident => $call:expr) => {
        match $sum {
            Sum::None($policy) => $call,
            Sum::Nvme($policy) => $call,
            Sum::Batch($policy) => $call,
            Sum::Dim($policy) => $call,
            Sum::SpdkVhost($policy) => $call,
            Sum::Vic($policy) => $call,
            Sum::Cint($policy) => $call,
            Sum::Budget($policy) => $call,
            Sum::Auto($policy) => $call,
            #[cfg(feature = "alloc")]
            Sum::Strict($policy) => $call,
        }
    };
}

/// Or every other policy saves registers for it.
#[inline(never)]
fn apart(policy: &mut impl Policy, now: u64, completion: &Completion) -> Decision {
    policy.on_completion(now, completion)
}

impl Policy for Sum {
    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        match self {
            Self::None(policy) => policy.on_completion(now, completion),
            Self::Nvme(policy) => policy.on_completion(now, completion),
            Self::Batch(policy) => policy.on_completion(now, completion),
            Self::Dim(policy) => policy.on_completion(now, completion),
            Self::SpdkVhost(policy) => policy.on_completion(now, completion),
            Self::Vic(policy) => policy.on_completion(now, completion),
            Self::Cint(policy) => apart(policy, now, completion),
            Self::Budget(policy) => apart(policy, now, completion),
            Self::Auto(policy) => apart(policy, now, completion),
            #[cfg(feature = "alloc")]
            Self::Strict(policy) => apart(&mut **policy, now, completion),
        }
    }

    forward!(self in each; all but on_completion);
}
