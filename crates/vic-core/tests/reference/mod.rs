//! Executable reference model of vIC with scheduler awareness: naive on purpose.
//!
//! Everything that was ever told is kept, and what is needed (held, counter, deadline, rates) is derived from that
//! history. Papers: vIC §3.2 Alg. 1 and 2; Xen scheduler-aware §4 Alg. 1.

use coalesce_testkit::{Completion, Decision, HoldReason, Policy, Promises, Reason, Tested};

/// Durations in ticks. Values are assumed valid.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Ticks in a second.
    pub tick_hz: u64,
    /// T: below this many commands in flight every completion is delivered.
    pub cif_threshold: u16,
    /// Below this many completions a second the ratio is 1; 0: never low.
    pub iops_threshold: u32,
    /// The ratio is decided anew when more than this has passed.
    pub epoch: u64,
    /// Of this many completions at least one interrupts, whatever the ratio.
    pub max_skip: u16,
    /// From the first held completion.
    pub max_hold: Option<u64>,
    /// Do not hold more than CIF / 2T (but one).
    pub live_clamp: bool,
    /// Clock error, for slice ends.
    pub margin: u64,
}

/// The time between two deliveries, as measured by the last epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Less than 2^32 - 2 ticks.
    Ticks(u32),
    /// More than 32 bits can say: any slice end is within it.
    Unbounded,
}

/// What a call does to the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Stays,
    Up,
    One,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    /// `slice_end` in virtual time, if known and in the future at the time of the call; `running`: it counts for the
    /// rate.
    Completion {
        slice_end: Option<i128>,
        running: bool,
    },
    Consumed,
    Other,
}

/// One call in the history.
#[derive(Clone, Copy, Debug)]
struct Call {
    at: i128, // virtual
    verb: Verb,
    decision: Option<Decision>,
    count: Count,
}

impl Call {
    fn is_completion(&self) -> bool {
        matches!(self.verb, Verb::Completion { .. })
    }

    /// After this call nothing is held.
    fn covers_all(&self) -> bool {
        matches!(self.decision, Some(Decision::Deliver(_))) || matches!(self.verb, Verb::Consumed)
    }
}

/// An epoch, with what was decided when it began.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: i128, // virtual
    /// Index in the history of the first call that may count in this epoch.
    first_call: usize,
    count_up: u64,
    skip_up: u64,
    window: Option<Window>,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Reference {
    configurations: Vec<Params>,
    configuration: usize,
    /// The `now` of the previous call.
    previous: Option<u64>,
    /// Virtual time: never goes backwards.
    time: i128,
    calls: Vec<Call>,
    epochs: Vec<Epoch>,
    /// (since when, running), in order; the first lies before everything.
    running: Vec<(i128, bool)>,
}

impl Reference {
    /// Starts with `configurations[0]`; `Policy::reconfigure(choice)` switches to `configurations[choice]`.
    pub fn new(configurations: Vec<Params>) -> Self {
        Self {
            configurations,
            configuration: 0,
            previous: None,
            time: 0,
            calls: Vec::new(),
            epochs: Vec::new(),
            running: vec![(i128::MIN, true)],
        }
    }

    fn params(&self) -> Params {
        self.configurations[self.configuration]
    }

    // ---------------------------------------------------------------- time

    /// Virtual time of a call at `now`. Backwards: nothing elapsed.
    fn clock(&mut self, now: u64) -> i128 {
        let previous = self.previous.unwrap_or(now);
        if now > previous {
            self.time += i128::from(now) - i128::from(previous);
        }
        self.previous = Some(now);
        self.time
    }

    /// External = virtual + this.
    fn offset(&self) -> i128 {
        i128::from(self.previous.unwrap_or(0)) - self.time
    }

    /// Virtual ticks between `start` and now in which the guest was running.
    fn running_since(&self, start: i128) -> i128 {
        let mut sum = 0;
        let mut end = self.time;
        for &(since, running) in self.running.iter().rev() {
            let begin = since.max(start);
            if running {
                sum += end - begin;
            }
            end = begin;
            if since <= start {
                break;
            }
        }
        sum
    }

    fn is_running(&self) -> bool {
        self.running.last().unwrap().1
    }

    // ---------------------------------------------------------------- derived from the history

    /// The calls after the last one that left nothing held.
    fn uncovered(&self) -> &[Call] {
        let start = self.calls.iter().rposition(Call::covers_all).map_or(0, |index| index + 1);
        &self.calls[start..]
    }

    fn held_count(&self) -> u64 {
        self.uncovered().iter().filter(|call| call.is_completion()).count() as u64
    }

    /// Counter of Algorithm 2: one, and one more for each step since it was last set to one.
    fn counter(&self) -> u64 {
        let steps = self.calls.iter().rev().take_while(|call| call.count != Count::One);
        1 + steps.filter(|call| call.count == Count::Up).count() as u64
    }

    /// (count_up, skip_up).
    fn ratio(&self) -> (u64, u64) {
        self.epochs.last().map_or((1, 1), |epoch| (epoch.count_up, epoch.skip_up))
    }

    /// The window of scheduler awareness.
    fn window(&self) -> Option<Window> {
        self.epochs.last().and_then(|epoch| epoch.window)
    }

    /// The earliest deadline of what is held, with its reason: external time, not after the end of time, but possibly
    /// before 0.
    fn earliest(&self) -> Option<(i128, Reason)> {
        let held: Vec<&Call> = self.uncovered().iter().filter(|call| call.is_completion()).collect();
        let (first, newest) = (held.first()?, held.last()?);
        let Verb::Completion { slice_end, .. } = newest.verb else { unreachable!() };
        let params = self.params();

        let max_hold = params.max_hold.map(|max_hold| (first.at + i128::from(max_hold), Reason::MaxHold));
        let slice = match (slice_end, self.window()) {
            (Some(slice_end), Some(Window::Ticks(window))) => {
                Some((slice_end - i128::from(window) - i128::from(params.margin), Reason::SliceEnd))
            }
            (Some(_), Some(Window::Unbounded)) => panic!("an unbounded window delivers at once"),
            _ => None,
        };
        // On a tie min_by_key takes the first: MaxHold.
        let candidates = [max_hold, slice].into_iter().flatten();
        candidates
            .map(|(at, reason)| ((at + self.offset()).min(i128::from(u64::MAX)), reason))
            .min_by_key(|(at, _)| *at)
    }

    /// The reason if the deadline has expired; `now` is the instant of the present call.
    fn expired(&self, now: u64) -> Option<Reason> {
        assert_eq!(self.previous, Some(now));
        let (at, reason) = self.earliest()?;
        (at <= i128::from(now)).then_some(reason)
    }

    // ---------------------------------------------------------------- epoch

    /// Begins the first epoch, or the next one if it is time. The completion is not in the history yet.
    fn epoch(&mut self, cif: u64) {
        let this = self.calls.len();
        let Some(epoch) = self.epochs.last().copied() else {
            self.epochs.push(Epoch { start: self.time, first_call: this, count_up: 1, skip_up: 1, window: None });
            return;
        };
        let params = self.params();
        if self.time - epoch.start <= i128::from(params.epoch) {
            return;
        }

        let mut completions: u128 = 0;
        for call in &self.calls[epoch.first_call..] {
            if let Verb::Completion { running: true, .. } = call.verb {
                completions += 1;
            }
        }
        if self.is_running() {
            completions += 1; // the one that rolls
        }
        let completions = completions.min(u128::from(u32::MAX));
        let elapsed = u128::try_from(self.running_since(epoch.start)).unwrap();

        // completions / (elapsed / tick_hz) < iops_threshold
        let wanted = u128::from(params.iops_threshold) * elapsed;
        let low_rate = wanted > u128::from(u64::MAX) || completions * u128::from(params.tick_hz) < wanted;

        let t = u64::from(params.cif_threshold);
        let (count_up, skip_up) = if low_rate || cif < t {
            (1, 1)
        } else if cif < 2 * t {
            (4, 5)
        } else if cif < 3 * t {
            (3, 4)
        } else if cif < 4 * t {
            (2, 3)
        } else {
            (1, (cif / (2 * t)).min(u64::from(params.max_skip)))
        };

        let n = if skip_up < 2 * count_up { 2 } else { skip_up };
        let window = (completions > 0).then(|| {
            let dividend = (u128::from(n) * elapsed).min(u128::from(u64::MAX));
            let ticks = dividend.div_ceil(completions);
            if ticks >= u128::from(u32::MAX - 1) { Window::Unbounded } else { Window::Ticks(ticks as u32) }
        });
        self.epochs.push(Epoch { start: self.time, first_call: this + 1, count_up, skip_up, window });
    }

    // ---------------------------------------------------------------- decisions

    /// Whether a completion whose slice ends then (virtual time, in the future) is within the window.
    fn slice_is_ending(&self, slice_end: Option<i128>) -> bool {
        match (slice_end, self.window()) {
            (Some(slice_end), Some(Window::Ticks(window))) => {
                slice_end - self.time <= i128::from(window) + i128::from(self.params().margin)
            }
            (Some(_), Some(Window::Unbounded)) => true,
            _ => false,
        }
    }

    /// Algorithm 2 after the roll, for a completion that no expired deadline covers.
    fn decide(&self, cif: u64, slice_end: Option<i128>) -> (Decision, Count) {
        let params = self.params();
        let t = u64::from(params.cif_threshold);
        let (count_up, skip_up) = self.ratio();
        let counter = self.counter();
        let would_be_held = self.held_count() + 1;
        let clamped =
            params.live_clamp && would_be_held > 1 && u128::from(would_be_held) * 2 * u128::from(t) > u128::from(cif);

        if self.slice_is_ending(slice_end) {
            (Decision::Deliver(Reason::SliceEnd), Count::One)
        } else if cif < t {
            (Decision::Deliver(Reason::LowCif), Count::One)
        } else if counter < count_up {
            (Decision::Deliver(Reason::Ratio), Count::Up)
        } else if counter >= skip_up {
            (Decision::Deliver(if skip_up == 1 { Reason::Always } else { Reason::Ratio }), Count::One)
        } else if clamped {
            (Decision::Deliver(Reason::LiveClamp), Count::One)
        } else {
            (Decision::Hold(HoldReason::Ratio), Count::Up)
        }
    }

    fn record(&mut self, verb: Verb, decision: Option<Decision>, count: Count) {
        self.calls.push(Call { at: self.time, verb, decision, count });
    }

    /// A call that is not a completion: delivers what is held if there is a reason to, else holds and says why. No
    /// delivery here is one of the ratio's: the counter starts over.
    fn elsewhere(&mut self, deliver: Option<Reason>, hold: HoldReason) -> Decision {
        let (decision, count) = match deliver {
            _ if self.held_count() == 0 => (Decision::Hold(HoldReason::NothingHeld), Count::Stays),
            Some(reason) => (Decision::Deliver(reason), Count::One),
            None => (Decision::Hold(hold), Count::Stays),
        };
        self.record(Verb::Other, Some(decision), count);
        decision
    }

    fn set_running(&mut self, running: bool) {
        if self.is_running() != running {
            self.running.push((self.time, running));
        }
    }
}

impl Policy for Reference {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.clock(now);
        let cif = u64::from(completion.cif);
        let known = completion.slice_end.filter(|&instant| instant > now && instant < u64::MAX);
        let slice_end = known.map(|instant| i128::from(instant) - self.offset());

        let expired = self.expired(now);
        self.epoch(cif);
        let (decision, count) = match expired {
            Some(reason) => (Decision::Deliver(reason), Count::One),
            None => self.decide(cif, slice_end),
        };
        let running = self.is_running();
        self.record(Verb::Completion { slice_end, running }, Some(decision), count);
        decision
    }

    fn deadline(&self) -> Option<u64> {
        self.earliest().map(|(at, _)| u64::try_from(at.max(0)).unwrap())
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.clock(now);
        let expired = self.expired(now);
        self.elsewhere(expired, HoldReason::Early)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.clock(now);
        self.elsewhere(Some(Reason::Flush), HoldReason::NothingHeld)
    }

    fn held(&self) -> u32 {
        self.held_count() as u32
    }

    fn on_consumed(&mut self, now: u64) {
        self.clock(now);
        self.record(Verb::Consumed, None, Count::Stays);
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.clock(now);
        self.set_running(true);
        self.elsewhere(Some(Reason::Schedule), HoldReason::NothingHeld)
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.clock(now);
        self.set_running(false);
        self.elsewhere(Some(Reason::Deschedule), HoldReason::NothingHeld)
    }
}

impl Tested for Reference {
    fn promises(&self) -> Promises {
        let hold_max = self.params().max_hold;
        Promises { hold_max, needs_next_completion: hold_max.is_none(), ..Promises::default() }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let wanted = self.configurations.get(usize::from(choice))?;
        if wanted.tick_hz != self.params().tick_hz {
            return None;
        }
        self.clock(now);
        self.configuration = usize::from(choice);
        let expired = self.expired(now);
        Some(self.elsewhere(expired, HoldReason::Reconfigured))
    }
}
