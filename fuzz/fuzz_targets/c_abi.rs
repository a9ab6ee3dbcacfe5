//! Arbitrary memory as a state, arbitrary parameters, arbitrary calls with arbitrary arguments: nothing crashes, what is
//! wrong is an error and never `COALESCE_HOLD`, and no interrupt is lost: whatever is held has a deadline, or parameters
//! without a bound, and the next flush delivers it.
#![no_main]

use arbitrary::Arbitrary;
use coalesce::auto::*;
use coalesce::budget::*;
use coalesce::cint::*;
use coalesce::error::*;
use coalesce::instant::COALESCE_NEVER;
use coalesce::nvme::*;
use coalesce::reaper::*;
use coalesce::status::*;
use coalesce::strict::*;
use coalesce::vic::*;
use libfuzzer_sys::fuzz_target;
use std::ffi::c_void;
use std::mem::zeroed;

#[derive(Arbitrary, Debug)]
struct Input {
    memory: [u64; 29],
    misaligned: bool,
    vic: VicParams,
    cint: CintParams,
    budget: BudgetParams,
    commands: u8,
    calls: Vec<Call>,
    reaps: Vec<Reap>,
    cdw11: u32,
}

#[derive(Arbitrary, Debug)]
struct VicParams {
    tick_hz: Number,
    cif_threshold: u32,
    epoch_ns: Number,
    max_hold_ns: Number,
    margin_ns: Number,
    iops_threshold: u32,
    max_skip: u32,
    live_clamp: u32,
    reserved: bool,
    sound: u8,
}

#[derive(Arbitrary, Debug)]
struct CintParams {
    thr: u32,
    tick_hz: Number,
    delta_ns: Number,
    max_hold_ns: Number,
    storm_max_rate: Number,
    storm_shift: u32,
    in_flight: u32,
    ooo: u32,
    reserved: bool,
    sound: u8,
}

#[derive(Arbitrary, Debug)]
struct BudgetParams {
    budget: u32,
    tick_hz: Number,
    max_hold_ns: Number,
    storm_max_rate: Number,
    storm_shift: u32,
    thr: u32,
    ooo: u32,
    reserved: bool,
    sound: u8,
}

/// Numbers that are often sensible, and can be anything.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u8),
    Kilo(u16),
    Mega(u16),
    Any(u64),
    Never,
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Self::Small(n) => n.into(),
            Self::Kilo(n) => u64::from(n) * 1_000,
            Self::Mega(n) => u64::from(n) * 1_000_000,
            Self::Any(n) => n,
            Self::Never => COALESCE_NEVER,
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Call {
    Complete { cif: u32, outstanding: u32, hint: u32, strict: bool, ticket: Option<u64>, slice_end: Option<Number> },
    Submit { count: u32 },
    Cancel { ticket: u64 },
    Wait { ticks: Number },
    Back { ticks: u32 },
    Deadline,
    BatchEnd,
    Flush,
    Consumed,
    Schedule,
    Deschedule,
    ResetWindow,
    Forget,
    Reconfigure { vic: VicParams, cint: CintParams, budget: BudgetParams },
}

#[derive(Arbitrary, Debug)]
struct Reap {
    index: u8,
    dword3: u32,
    take: u8,
}

impl VicParams {
    /// With `sound` bits set, fields are as they should be: or else hardly any parameters would be accepted.
    fn config(&self) -> coalesce_vic_config {
        // SAFETY: any bytes are a configuration.
        let mut config = unsafe { zeroed::<coalesce_vic_config>() };
        // SAFETY: it is ours.
        unsafe { coalesce_vic_config_default(&raw mut config, size_of::<coalesce_vic_config>(), 1_000_000_000) };
        let keep = |bit: u8| self.sound >> bit & 1 == 1;
        if !keep(0) {
            config.tick_hz = self.tick_hz.get()
        }
        if !keep(1) {
            config.cif_threshold = self.cif_threshold % 65_538
        }
        if !keep(2) {
            config.epoch_ns = self.epoch_ns.get()
        }
        if !keep(3) {
            config.max_hold_ns = self.max_hold_ns.get()
        }
        if !keep(4) {
            config.margin_ns = self.margin_ns.get()
        }
        if !keep(5) {
            config.iops_threshold = self.iops_threshold
        }
        if !keep(6) {
            config.max_skip = self.max_skip % 65_538
        }
        if !keep(7) {
            config.live_clamp = self.live_clamp % 3
        }
        config.reserved = self.reserved.into();
        config
    }
}

impl CintParams {
    fn config(&self) -> coalesce_cint_config {
        // SAFETY: any bytes are a configuration.
        let mut config = unsafe { zeroed::<coalesce_cint_config>() };
        // SAFETY: it is ours.
        unsafe { coalesce_cint_config_default(&raw mut config, size_of::<coalesce_cint_config>(), 1_000_000_000) };
        let keep = |bit: u8| self.sound >> bit & 1 == 1;
        if !keep(0) {
            config.tick_hz = self.tick_hz.get()
        }
        if !keep(1) {
            config.thr = self.thr % 65_538
        }
        if !keep(2) {
            config.delta_ns = self.delta_ns.get()
        }
        if !keep(3) {
            config.max_hold_ns = self.max_hold_ns.get()
        }
        if !keep(4) {
            config.storm_max_rate = self.storm_max_rate.get()
        }
        if !keep(5) {
            config.storm_shift = self.storm_shift % 18
        }
        if !keep(6) {
            config.in_flight = self.in_flight % 65_538
        }
        if !keep(7) {
            config.ooo = self.ooo % 3
        }
        config.reserved = self.reserved.into();
        config
    }
}

impl BudgetParams {
    fn config(&self) -> coalesce_budget_config {
        // SAFETY: any bytes are a configuration.
        let mut config = unsafe { zeroed::<coalesce_budget_config>() };
        // SAFETY: it is ours.
        unsafe { coalesce_budget_config_default(&raw mut config, size_of::<coalesce_budget_config>(), 1_000_000_000) };
        let keep = |bit: u8| self.sound >> bit & 1 == 1;
        if !keep(0) {
            config.tick_hz = self.tick_hz.get()
        }
        if !keep(1) {
            config.budget = self.budget % 5_002
        }
        if !keep(2) {
            config.max_hold_ns = self.max_hold_ns.get()
        }
        if !keep(3) {
            config.storm_max_rate = self.storm_max_rate.get()
        }
        if !keep(4) {
            config.storm_shift = self.storm_shift % 18
        }
        if !keep(5) {
            config.thr = self.thr % 65_538
        }
        if !keep(6) {
            config.ooo = self.ooo % 3
        }
        config.reserved = self.reserved.into();
        config
    }
}

/// Where the clock stops: at the end of its range a deadline comes early, and again.
const LAST: u64 = u64::MAX >> 1;

const NO_ERROR: coalesce_error = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };

/// What is no state: an error each, and not a byte is written.
fn not_a_state(input: &Input) {
    let mut memory = input.memory;
    let state = memory.as_mut_ptr().cast::<u8>().wrapping_add(usize::from(input.misaligned));
    let is_kind = |letter: u8| !input.misaligned && memory[0] as u32 == u32::from_le_bytes([1, letter, 0xC0, 0xA1]);
    if [b'V', b'C', b'B', b'A', b'W', b'R', b'I'].into_iter().any(is_kind) {
        return;
    }
    let (vic, cint, budget) = (
        state.cast::<coalesce_vic_state>(),
        state.cast::<coalesce_cint_state>(),
        state.cast::<coalesce_budget_state>(),
    );
    // SAFETY: the memory is ours, and larger than any state.
    unsafe {
        for status in [
            coalesce_vic_on_completion(vic, 1, 100),
            coalesce_vic_on_completion_in_slice(vic, 1, 100, 5),
            coalesce_vic_on_deadline(vic, 1),
            coalesce_vic_flush(vic, 1),
            coalesce_vic_on_schedule(vic, 1),
            coalesce_vic_on_deschedule(vic, 1),
            coalesce_vic_on_consumed(vic, 1),
            coalesce_cint_on_completion(cint, 1, 0, 100),
            coalesce_cint_on_deadline(cint, 1),
            coalesce_cint_on_batch_end(cint, 1),
            coalesce_cint_flush(cint, 1),
            coalesce_cint_on_consumed(cint, 1),
            coalesce_cint_on_completion_strict(cint, state.cast(), 1, 0, 0, 100),
            coalesce_cint_on_cancel(cint, state.cast(), 1, 0, 0),
            coalesce_budget_on_submits(budget, 1, 100),
            coalesce_budget_on_completion(budget, 1, 0, 100, 100),
            coalesce_budget_on_deadline(budget, 1),
            coalesce_budget_flush(budget, 1),
            coalesce_budget_on_consumed(budget, 1),
            coalesce_budget_forget(budget),
            coalesce_auto_on_completion(state.cast(), 1, 0, 100, 100),
            coalesce_auto_forget(state.cast()),
            coalesce_budget_get_info(budget, std::ptr::null_mut(), 0),
            coalesce_window_reset(state.cast()),
            coalesce_reaper_reap(state.cast(), std::ptr::null(), None, std::ptr::null_mut(), std::ptr::null_mut()),
            coalesce_vic_get_info(vic, std::ptr::null_mut(), 0),
            coalesce_cint_get_info(cint, std::ptr::null_mut(), 0),
        ] {
            assert!(status < 0, "status {status}");
        }
        assert_eq!((coalesce_vic_deadline(vic), coalesce_cint_deadline(cint)), (COALESCE_NEVER, COALESCE_NEVER));
        assert_eq!(coalesce_budget_deadline(budget), COALESCE_NEVER);
        assert_eq!(coalesce_window_on_submit(state.cast()), COALESCE_NO_TICKET);
    }
    assert_eq!(memory, input.memory);
}

/// What a machine owes: completions that were posted and not delivered.
struct Owed {
    count: u64,
    bounded: bool,
}

impl Owed {
    fn decided(&mut self, posted: u64, status: coalesce_status) {
        assert!(status > COALESCE_OK, "status {status} from a sound state");
        match status {
            COALESCE_HOLD => self.count += posted,
            COALESCE_DELIVER_URGENT => {}
            _ => self.count = 0,
        }
    }

    fn check(&self, held: u32, deadline: u64) {
        assert_eq!(u64::from(held), self.count, "what the machine says it holds");
        if self.count == 0 {
            assert_eq!(deadline, COALESCE_NEVER, "a deadline, and nothing is held");
        } else if self.bounded {
            assert!(deadline != COALESCE_NEVER, "{held} held for ever");
        }
    }
}

fn vic_calls(input: &Input) {
    let config = input.vic.config();
    let (mut state, mut error) =
        (coalesce_vic_state { opaque: std::array::from_fn(|_| 0x5555_5555_5555_5555) }, NO_ERROR);
    let state = &raw mut state;
    // SAFETY: all of it is ours.
    unsafe {
        let status = coalesce_vic_init(state, size_of::<coalesce_vic_state>(), &raw const config, &raw mut error);
        if status != COALESCE_OK {
            assert_eq!(status, COALESCE_E_CONFIG);
            assert!(error.value < error.min || error.value > error.max, "{error:?}");
            return;
        }
        let mut owed = Owed { count: 0, bounded: config.max_hold_ns != COALESCE_NEVER };
        let mut now = 0_u64;
        for call in &input.calls {
            match call {
                Call::Complete { cif, slice_end: None, .. } => {
                    owed.decided(1, coalesce_vic_on_completion(state, now, *cif))
                }
                Call::Complete { cif, slice_end: Some(end), .. } => {
                    let end = now.saturating_add(end.get());
                    owed.decided(1, coalesce_vic_on_completion_in_slice(state, now, *cif, end));
                }
                Call::Wait { ticks } => now = LAST.min(now.saturating_add(ticks.get())),
                Call::Back { ticks } => now = now.saturating_sub((*ticks).into()),
                Call::Deadline => {
                    now = now.max(Some(coalesce_vic_deadline(state)).filter(|at| *at != COALESCE_NEVER).unwrap_or(now));
                    owed.decided(0, coalesce_vic_on_deadline(state, now));
                    assert!(
                        owed.count == 0 || coalesce_vic_deadline(state) == COALESCE_NEVER,
                        "nothing at the deadline"
                    );
                }
                Call::Flush => {
                    owed.decided(0, coalesce_vic_flush(state, now));
                    assert_eq!(owed.count, 0);
                }
                Call::Consumed => {
                    assert_eq!(coalesce_vic_on_consumed(state, now), COALESCE_OK);
                    owed.count = 0;
                }
                Call::Schedule => owed.decided(0, coalesce_vic_on_schedule(state, now)),
                Call::Deschedule => owed.decided(0, coalesce_vic_on_deschedule(state, now)),
                Call::Reconfigure { vic, .. } => {
                    let config = vic.config();
                    match coalesce_vic_reconfigure(state, &raw const config, now, &raw mut error) {
                        COALESCE_E_CONFIG => assert!(error.value < error.min || error.value > error.max, "{error:?}"),
                        status => {
                            owed.bounded = config.max_hold_ns != COALESCE_NEVER;
                            owed.decided(0, status);
                        }
                    }
                }
                Call::Submit { .. } | Call::Cancel { .. } | Call::BatchEnd | Call::ResetWindow | Call::Forget => {}
            }
            let mut info = coalesce_vic_info::default();
            assert_eq!(coalesce_vic_get_info(state, &raw mut info, size_of::<coalesce_vic_info>()), COALESCE_OK);
            owed.check(info.held, coalesce_vic_deadline(state));
        }
        owed.decided(0, coalesce_vic_flush(state, now));
        assert_eq!(owed.count, 0);
    }
}

fn cint_calls(input: &Input) {
    let config = input.cint.config();
    let (mut state, mut error) =
        (coalesce_cint_state { opaque: std::array::from_fn(|_| 0x5555_5555_5555_5555) }, NO_ERROR);
    let state = &raw mut state;
    let commands = 64_u32 << (input.commands % 7);
    let mut window = vec![0_u64; coalesce_window_size(commands) / 8];
    let window = window.as_mut_ptr();
    // SAFETY: all of it is ours.
    unsafe {
        let status = coalesce_cint_init(state, size_of::<coalesce_cint_state>(), &raw const config, &raw mut error);
        if status != COALESCE_OK {
            assert_eq!(status, COALESCE_E_CONFIG);
            assert!(error.value < error.min || error.value > error.max, "{error:?}");
            return;
        }
        assert_eq!(coalesce_window_init(window, coalesce_window_size(commands), commands, &raw mut error), COALESCE_OK);
        let bounded = |config: &coalesce_cint_config| config.max_hold_ns != COALESCE_NEVER || config.delta_ns > 0;
        let mut owed = Owed { count: 0, bounded: bounded(&config) };
        let (mut now, mut tickets) = (0_u64, Vec::new());
        for call in &input.calls {
            match call {
                Call::Complete { cif, hint, strict: false, .. } => {
                    owed.decided(1, coalesce_cint_on_completion(state, now, hint % 4, *cif));
                }
                Call::Complete { cif, hint, ticket, .. } => {
                    let ticket = ticket.or_else(|| tickets.pop()).unwrap_or(COALESCE_NO_TICKET);
                    owed.decided(1, coalesce_cint_on_completion_strict(state, window, now, ticket, hint % 4, *cif));
                }
                Call::Submit { .. } => tickets.push(coalesce_window_on_submit(window)),
                Call::Cancel { ticket } => {
                    owed.decided(0, coalesce_cint_on_cancel(state, window, now, *ticket, (*ticket % 5) as u32))
                }
                Call::ResetWindow => assert_eq!(coalesce_window_reset(window), COALESCE_OK),
                Call::Wait { ticks } => now = LAST.min(now.saturating_add(ticks.get())),
                Call::Back { ticks } => now = now.saturating_sub((*ticks).into()),
                Call::Deadline => {
                    now =
                        now.max(Some(coalesce_cint_deadline(state)).filter(|at| *at != COALESCE_NEVER).unwrap_or(now));
                    owed.decided(0, coalesce_cint_on_deadline(state, now));
                    assert!(
                        owed.count == 0 || coalesce_cint_deadline(state) == COALESCE_NEVER,
                        "nothing at the deadline"
                    );
                }
                Call::BatchEnd => owed.decided(0, coalesce_cint_on_batch_end(state, now)),
                Call::Flush => {
                    owed.decided(0, coalesce_cint_flush(state, now));
                    assert_eq!(owed.count, 0);
                }
                Call::Consumed => {
                    assert_eq!(coalesce_cint_on_consumed(state, now), COALESCE_OK);
                    owed.count = 0;
                }
                Call::Reconfigure { cint, .. } => {
                    let config = cint.config();
                    match coalesce_cint_reconfigure(state, &raw const config, now, &raw mut error) {
                        COALESCE_E_CONFIG => assert!(error.value < error.min || error.value > error.max, "{error:?}"),
                        status => {
                            owed.bounded = bounded(&config);
                            owed.decided(0, status);
                        }
                    }
                }
                Call::Schedule | Call::Deschedule | Call::Forget => {}
            }
            let mut info = coalesce_cint_info::default();
            assert_eq!(coalesce_cint_get_info(state, &raw mut info, size_of::<coalesce_cint_info>()), COALESCE_OK);
            owed.check(info.held, coalesce_cint_deadline(state));
        }
        owed.decided(0, coalesce_cint_flush(state, now));
        assert_eq!(owed.count, 0);
    }
}

/// `is_regulated`: with a regulator behind the budget.
fn budget_calls(input: &Input, is_regulated: bool) {
    let config = input.budget.config();
    let mut memory = [0x5555_5555_5555_5555_u64; size_of::<coalesce_auto_state>() / 8];
    let auto = memory.as_mut_ptr().cast::<coalesce_auto_state>();
    let (state, mut error) = (auto.cast::<coalesce_budget_state>(), NO_ERROR);
    let commands = 64_u32 << (input.commands % 7);
    let mut window = vec![0_u64; coalesce_window_size(commands) / 8];
    let window = window.as_mut_ptr();
    // SAFETY: all of it is ours.
    unsafe {
        let status = if is_regulated {
            coalesce_auto_init(auto, size_of::<coalesce_auto_state>(), &raw const config, &raw mut error)
        } else {
            coalesce_budget_init(state, size_of::<coalesce_budget_state>(), &raw const config, &raw mut error)
        };
        if status != COALESCE_OK {
            assert_eq!(status, COALESCE_E_CONFIG);
            assert!(error.value < error.min || error.value > error.max, "{error:?}");
            return;
        }
        assert_eq!(coalesce_window_init(window, coalesce_window_size(commands), commands, &raw mut error), COALESCE_OK);
        let (mut owed, mut now, mut tickets) = (Owed { count: 0, bounded: true }, 0_u64, Vec::new());
        for call in &input.calls {
            match call {
                Call::Complete { cif, outstanding, hint, strict: false, .. } => {
                    let status = if is_regulated {
                        coalesce_auto_on_completion(auto, now, hint % 4, *cif, *outstanding)
                    } else {
                        coalesce_budget_on_completion(state, now, hint % 4, *cif, *outstanding)
                    };
                    owed.decided(1, status);
                }
                Call::Complete { cif, outstanding, hint, ticket, .. } => {
                    let ticket = ticket.or_else(|| tickets.pop()).unwrap_or(COALESCE_NO_TICKET);
                    let hint = hint % 4;
                    let status = if is_regulated {
                        coalesce_auto_on_completion_strict(auto, window, now, ticket, hint, *cif, *outstanding)
                    } else {
                        coalesce_budget_on_completion_strict(state, window, now, ticket, hint, *cif, *outstanding)
                    };
                    owed.decided(1, status);
                }
                Call::Submit { count } => {
                    assert_eq!(coalesce_budget_on_submits(state, now, *count), COALESCE_OK);
                    tickets.push(coalesce_window_on_submit(window));
                }
                Call::Cancel { ticket } => {
                    owed.decided(0, coalesce_budget_on_cancel(state, window, now, *ticket, (*ticket % 5) as u32))
                }
                Call::ResetWindow => assert_eq!(coalesce_window_reset(window), COALESCE_OK),
                Call::Forget if is_regulated => assert_eq!(coalesce_auto_forget(auto), COALESCE_OK),
                Call::Forget => assert_eq!(coalesce_budget_forget(state), COALESCE_OK),
                Call::Wait { ticks } => now = LAST.min(now.saturating_add(ticks.get())),
                Call::Back { ticks } => now = now.saturating_sub((*ticks).into()),
                Call::Deadline => {
                    now = now
                        .max(Some(coalesce_budget_deadline(state)).filter(|at| *at != COALESCE_NEVER).unwrap_or(now));
                    owed.decided(0, coalesce_budget_on_deadline(state, now));
                    assert!(
                        owed.count == 0 || coalesce_budget_deadline(state) == COALESCE_NEVER,
                        "nothing at the deadline"
                    );
                }
                Call::Flush => {
                    owed.decided(0, coalesce_budget_flush(state, now));
                    assert_eq!(owed.count, 0);
                }
                Call::Consumed => {
                    assert_eq!(coalesce_budget_on_consumed(state, now), COALESCE_OK);
                    owed.count = 0;
                }
                Call::Reconfigure { budget, .. } => {
                    let config = budget.config();
                    let status = if is_regulated {
                        coalesce_auto_reconfigure(auto, &raw const config, now, &raw mut error)
                    } else {
                        coalesce_budget_reconfigure(state, &raw const config, now, &raw mut error)
                    };
                    match status {
                        COALESCE_E_CONFIG => assert!(error.value < error.min || error.value > error.max, "{error:?}"),
                        status => owed.decided(0, status),
                    }
                }
                Call::Schedule | Call::Deschedule | Call::BatchEnd => {}
            }
            let mut info = coalesce_budget_info::default();
            assert_eq!(coalesce_budget_get_info(state, &raw mut info, size_of::<coalesce_budget_info>()), COALESCE_OK);
            owed.check(info.held, coalesce_budget_deadline(state));
        }
        owed.decided(0, coalesce_budget_flush(state, now));
        assert_eq!(owed.count, 0);
    }
}

/// A device that writes anything into its queue at any time: the driver's calls end, and the doorbell stays in the queue.
fn reaps(input: &Input) {
    const ENTRIES: u32 = 130;
    unsafe extern "C" fn take(context: *mut c_void, entry: *const coalesce_reaper_entry) -> bool {
        // SAFETY: the caller below, and an entry of the library's.
        unsafe { (*entry).dword[3] as u8 & *context.cast::<u8>() == 0 }
    }
    let mut reaper = [0_u64; 5];
    let mut queue = [coalesce_reaper_entry { dword: [0; 4] }; ENTRIES as usize];
    // SAFETY: all of it is ours.
    unsafe {
        assert_eq!(coalesce_reaper_init(reaper.as_mut_ptr(), 40, ENTRIES, std::ptr::null_mut()), COALESCE_OK);
        for Reap { index, dword3, take: mask } in &input.reaps {
            queue[usize::from(*index) % ENTRIES as usize].dword[3] = *dword3;
            let (mut mask, mut doorbell) = (*mask, 0);
            let context = (&raw mut mask).cast();
            let status =
                coalesce_reaper_reap(reaper.as_mut_ptr(), queue.as_ptr(), Some(take), context, &raw mut doorbell);
            assert_eq!(status, COALESCE_OK);
            assert!(doorbell < ENTRIES || doorbell == COALESCE_NO_DOORBELL);
        }
    }
}

/// What is read is what is written.
fn features(cdw11: u32) {
    let (mut value, mut written, mut disabled) = (coalesce_nvme_coalescing::default(), 0, false);
    // SAFETY: all of it is ours.
    unsafe {
        let size = size_of::<coalesce_nvme_coalescing>();
        assert_eq!(coalesce_nvme_coalescing_decode(cdw11, &raw mut value, size), COALESCE_OK);
        assert_eq!(
            coalesce_nvme_coalescing_encode(&raw const value, &raw mut written, std::ptr::null_mut()),
            COALESCE_OK
        );
        assert_eq!(written, cdw11 & 0xffff);
        let vector = coalesce_nvme_vector_decode(cdw11, &raw mut disabled);
        assert_eq!(coalesce_nvme_vector_encode(vector, disabled, &raw mut written, std::ptr::null_mut()), COALESCE_OK);
        assert_eq!(written, cdw11 & 0x1_ffff);
    }
}

fuzz_target!(|input: Input| {
    not_a_state(&input);
    vic_calls(&input);
    cint_calls(&input);
    budget_calls(&input, false);
    budget_calls(&input, true);
    reaps(&input);
    features(input.cdw11);
});
