//! Invalid states and invalid configurations give an error, and never `COALESCE_HOLD`.

use coalesce::auto::*;
use coalesce::budget::*;
use coalesce::cint::*;
use coalesce::error::*;
use coalesce::field::*;
use coalesce::hint::*;
use coalesce::instant::COALESCE_NEVER;
use coalesce::reaper::*;
use coalesce::reason::*;
use coalesce::status::*;
use coalesce::strict::*;
use coalesce::vic::*;
use std::ptr::{null, null_mut};

/// Memory for a state whose every byte can be set, with room to misalign it.
#[repr(C, align(8))]
struct Memory([u8; 256]);

/// Calls every function that decides with any memory as its state.
fn decisions(memory: *mut u8) -> Vec<(&'static str, coalesce_status)> {
    let (vic, cint) = (memory.cast::<coalesce_vic_state>(), memory.cast::<coalesce_cint_state>());
    let (budget, auto) = (memory.cast::<coalesce_budget_state>(), memory.cast::<coalesce_auto_state>());
    // SAFETY: the memory is ours, and larger than a state; or null.
    unsafe {
        vec![
            ("coalesce_vic_on_completion", coalesce_vic_on_completion(vic, 1, 100)),
            ("coalesce_vic_on_completion_in_slice", coalesce_vic_on_completion_in_slice(vic, 1, 100, 2)),
            ("coalesce_vic_on_deadline", coalesce_vic_on_deadline(vic, 1)),
            ("coalesce_vic_flush", coalesce_vic_flush(vic, 1)),
            ("coalesce_vic_on_schedule", coalesce_vic_on_schedule(vic, 1)),
            ("coalesce_vic_on_deschedule", coalesce_vic_on_deschedule(vic, 1)),
            ("coalesce_vic_on_consumed", coalesce_vic_on_consumed(vic, 1)),
            ("coalesce_vic_reconfigure", coalesce_vic_reconfigure(vic, null(), 1, null_mut())),
            ("coalesce_cint_on_completion", coalesce_cint_on_completion(cint, 1, COALESCE_HINT_PLAIN, 100)),
            ("coalesce_cint_on_deadline", coalesce_cint_on_deadline(cint, 1)),
            ("coalesce_cint_on_batch_end", coalesce_cint_on_batch_end(cint, 1)),
            ("coalesce_cint_flush", coalesce_cint_flush(cint, 1)),
            ("coalesce_cint_on_consumed", coalesce_cint_on_consumed(cint, 1)),
            ("coalesce_cint_reconfigure", coalesce_cint_reconfigure(cint, null(), 1, null_mut())),
            (
                "coalesce_cint_on_completion_strict",
                coalesce_cint_on_completion_strict(cint, null_mut(), 1, COALESCE_NO_TICKET, 0, 100),
            ),
            ("coalesce_cint_on_cancel", coalesce_cint_on_cancel(cint, null_mut(), 1, COALESCE_NO_TICKET, 0)),
            ("coalesce_budget_on_submits", coalesce_budget_on_submits(budget, 1, 100)),
            ("coalesce_budget_on_completion", coalesce_budget_on_completion(budget, 1, COALESCE_HINT_PLAIN, 100, 100)),
            ("coalesce_budget_on_completion_strict", {
                coalesce_budget_on_completion_strict(budget, null_mut(), 1, COALESCE_NO_TICKET, 0, 100, 100)
            }),
            ("coalesce_budget_on_cancel", coalesce_budget_on_cancel(budget, null_mut(), 1, COALESCE_NO_TICKET, 0)),
            ("coalesce_budget_on_deadline", coalesce_budget_on_deadline(budget, 1)),
            ("coalesce_budget_flush", coalesce_budget_flush(budget, 1)),
            ("coalesce_budget_on_consumed", coalesce_budget_on_consumed(budget, 1)),
            ("coalesce_budget_reconfigure", coalesce_budget_reconfigure(budget, null(), 1, null_mut())),
            ("coalesce_budget_forget", coalesce_budget_forget(budget)),
            ("coalesce_auto_on_completion", coalesce_auto_on_completion(auto, 1, COALESCE_HINT_PLAIN, 100, 100)),
            ("coalesce_auto_on_completion_strict", {
                coalesce_auto_on_completion_strict(auto, null_mut(), 1, COALESCE_NO_TICKET, 0, 100, 100)
            }),
            ("coalesce_auto_reconfigure", coalesce_auto_reconfigure(auto, null(), 1, null_mut())),
            ("coalesce_auto_forget", coalesce_auto_forget(auto)),
            ("coalesce_window_reset", coalesce_window_reset(memory.cast())),
            ("coalesce_reaper_reap", coalesce_reaper_reap(memory.cast(), null(), None, null_mut(), null_mut())),
        ]
    }
}

fn assert_refused(memory: *mut u8, expected: coalesce_status) {
    for (name, status) in decisions(memory) {
        assert_eq!(status, expected, "{name}");
    }
    // SAFETY: as above.
    unsafe {
        assert_eq!(coalesce_vic_deadline(memory.cast()), COALESCE_NEVER);
        assert_eq!(coalesce_cint_deadline(memory.cast()), COALESCE_NEVER);
        assert_eq!(coalesce_budget_deadline(memory.cast()), COALESCE_NEVER);
        assert_eq!(coalesce_vic_reason(memory.cast()), COALESCE_REASON_NONE);
        assert_eq!(coalesce_cint_reason(memory.cast()), COALESCE_REASON_NONE);
        assert_eq!(coalesce_budget_reason(memory.cast()), COALESCE_REASON_NONE);
        assert_eq!(coalesce_window_on_submit(memory.cast()), COALESCE_NO_TICKET);
    }
}

#[test]
fn invalid_states_give_an_error() {
    assert_refused(null_mut(), COALESCE_E_NULL);
    for byte in [0, 1, 0x20, 0x55, 0xFF] {
        let mut memory = Memory([byte; 256]);
        assert_refused(memory.0.as_mut_ptr(), COALESCE_E_STATE);
        for misaligned in [1, 2, 4, 7] {
            assert_refused(memory.0[misaligned..].as_mut_ptr(), COALESCE_E_ALIGNMENT);
        }
        assert!(memory.0.iter().all(|other| *other == byte), "nothing was written");
    }
}

#[test]
fn a_state_of_another_machine_gives_an_error() {
    let mut memory = Memory([0; 256]);
    let state = memory.0.as_mut_ptr();
    // SAFETY: all of it is ours, and the configurations are large enough.
    unsafe {
        let mut config = std::mem::zeroed::<coalesce_vic_config>();
        coalesce_vic_config_default(&raw mut config, size_of::<coalesce_vic_config>(), 1_000_000_000);
        assert_eq!(
            coalesce_vic_init(state.cast(), size_of::<coalesce_vic_state>(), &raw const config, null_mut()),
            COALESCE_OK
        );
        assert_eq!(coalesce_cint_on_completion(state.cast(), 1, COALESCE_HINT_PLAIN, 100), COALESCE_E_STATE);
        assert_eq!(coalesce_vic_on_completion(state.cast(), 1, 1), COALESCE_DELIVER);
        assert_eq!(coalesce_vic_reason(state.cast()), COALESCE_REASON_LOW_CIF);
        let mut config = std::mem::zeroed::<coalesce_cint_config>();
        coalesce_cint_config_default(&raw mut config, size_of::<coalesce_cint_config>(), 1_000_000_000);
        assert_eq!(
            coalesce_cint_init(state.cast(), size_of::<coalesce_cint_state>(), &raw const config, null_mut()),
            COALESCE_OK
        );
        assert_eq!(coalesce_vic_on_completion(state.cast(), 1, 100), COALESCE_E_STATE);
        assert_eq!(coalesce_cint_on_completion(state.cast(), 1, 77, 100), COALESCE_DELIVER, "an unknown hint delivers");
        assert_eq!(coalesce_cint_reason(state.cast()), COALESCE_REASON_ERROR);
        assert_eq!(coalesce_budget_on_completion(state.cast(), 1, COALESCE_HINT_PLAIN, 100, 100), COALESCE_E_STATE);
        let mut config = std::mem::zeroed::<coalesce_budget_config>();
        coalesce_budget_config_default(&raw mut config, size_of::<coalesce_budget_config>(), 1_000_000_000);
        assert_eq!(
            coalesce_budget_init(state.cast(), size_of::<coalesce_budget_state>(), &raw const config, null_mut()),
            COALESCE_OK
        );
        assert_eq!(coalesce_vic_on_completion(state.cast(), 1, 100), COALESCE_E_STATE);
        assert_eq!(coalesce_cint_on_completion(state.cast(), 1, COALESCE_HINT_PLAIN, 100), COALESCE_E_STATE);
        assert_eq!(
            coalesce_budget_on_completion(state.cast(), 1, 77, 100, 100),
            COALESCE_DELIVER,
            "an unknown hint delivers"
        );
        assert_eq!(coalesce_budget_reason(state.cast()), COALESCE_REASON_ERROR);
        assert_eq!(coalesce_auto_on_completion(state.cast(), 1, COALESCE_HINT_PLAIN, 100, 100), COALESCE_E_STATE);
    }
}

/// A regulator that does not see a completion would not take back a licence.
#[test]
fn a_budget_that_has_a_regulator_is_refused_where_the_regulator_must_see_the_call() {
    let mut memory = Memory([0; 256]);
    let auto = memory.0.as_mut_ptr().cast::<coalesce_auto_state>();
    let budget = auto.cast::<coalesce_budget_state>();
    // SAFETY: all of it is ours, and the configuration is large enough.
    unsafe {
        let mut config = std::mem::zeroed::<coalesce_budget_config>();
        coalesce_budget_config_default(&raw mut config, size_of::<coalesce_budget_config>(), 1_000_000_000);
        let status = coalesce_auto_init(auto, size_of::<coalesce_auto_state>(), &raw const config, null_mut());
        assert_eq!(status, COALESCE_OK);
        let refused = [
            coalesce_budget_on_completion(budget, 1, COALESCE_HINT_PLAIN, 100, 100),
            coalesce_budget_on_completion_strict(budget, null_mut(), 1, COALESCE_NO_TICKET, 0, 100, 100),
            coalesce_budget_reconfigure(budget, &raw const config, 1, null_mut()),
            coalesce_budget_forget(budget),
        ];
        assert_eq!(refused, [COALESCE_E_STATE; 4]);
        assert_eq!(coalesce_auto_on_completion(auto, 1, 77, 100, 100), COALESCE_DELIVER, "an unknown hint delivers");
        assert_eq!(coalesce_budget_reason(budget), COALESCE_REASON_ERROR);
        assert_eq!(coalesce_budget_on_submits(budget, 2, 8), COALESCE_OK);
        assert_eq!(coalesce_budget_flush(budget, 3), COALESCE_HOLD, "nothing is held");
    }
}

/// As a checkpoint or a migration would carry it: the bytes alone.
#[test]
fn a_state_goes_on_where_its_bytes_are_copied_and_one_of_another_version_is_refused() {
    let [mut here, mut there] = [Memory([0; 256]), Memory([0xFF; 256])];
    let decide = |memory: &mut Memory, now: u64| {
        let state = memory.0.as_mut_ptr().cast::<coalesce_budget_state>();
        // SAFETY: the memory is ours, and larger than a state.
        unsafe {
            coalesce_budget_on_submits(state, now, 32);
            let status = coalesce_budget_on_completion(state, now + 300, COALESCE_HINT_PLAIN, 32, 32);
            (status, coalesce_budget_reason(state), coalesce_budget_deadline(state))
        }
    };
    // SAFETY: as above, and the configuration is large enough.
    unsafe {
        let mut config = std::mem::zeroed::<coalesce_budget_config>();
        coalesce_budget_config_default(&raw mut config, size_of::<coalesce_budget_config>(), 1_000_000_000);
        let state = here.0.as_mut_ptr().cast();
        assert_eq!(
            coalesce_budget_init(state, size_of::<coalesce_budget_state>(), &raw const config, null_mut()),
            COALESCE_OK
        );
    }
    let learned: Vec<_> = (1..2000).map(|i| decide(&mut here, i * 1000)).collect();
    assert!(learned.iter().any(|(status, ..)| *status == COALESCE_HOLD), "there is something to carry");
    let size = size_of::<coalesce_budget_state>();
    there.0[..size].copy_from_slice(&here.0[..size]);
    for i in 2000..4000 {
        assert_eq!(decide(&mut there, i * 1000), decide(&mut here, i * 1000), "completion {i}");
    }
    there.0[0] = there.0[0].wrapping_add(1); // COALESCE_ABI_VERSION
    assert_eq!(decide(&mut there, 4_000_000), (COALESCE_E_STATE, COALESCE_REASON_NONE, COALESCE_NEVER));
}

#[test]
fn an_invalid_configuration_gives_its_field_and_bounds() {
    type Change = fn(&mut coalesce_vic_config);
    let cases: [(Change, u32, (u64, u64, u64)); 7] = [
        (|c| c.tick_hz = 0, COALESCE_FIELD_TICK_HZ, (0, 1_000, 10_000_000_000)),
        (|c| c.cif_threshold = 1, COALESCE_FIELD_CIF_THRESHOLD, (1, 2, 65_535)),
        (|c| c.cif_threshold = 65_536, COALESCE_FIELD_CIF_THRESHOLD, (65_536, 2, 65_535)),
        (|c| c.max_skip = u32::MAX, COALESCE_FIELD_MAX_SKIP, (u32::MAX.into(), 2, 65_535)),
        (|c| c.max_hold_ns = 0, COALESCE_FIELD_MAX_HOLD_NS, (0, 1, 1_000_000_000)),
        (|c| c.live_clamp = 2, COALESCE_FIELD_LIVE_CLAMP, (2, 0, 1)),
        (|c| c.reserved = 1, COALESCE_FIELD_RESERVED, (1, 0, 0)),
    ];
    for (change, field, (value, min, max)) in cases {
        let mut memory = Memory([0x55; 256]);
        // SAFETY: all of it is ours.
        unsafe {
            let mut config = std::mem::zeroed::<coalesce_vic_config>();
            coalesce_vic_config_default(&raw mut config, size_of::<coalesce_vic_config>(), 1_000_000_000);
            change(&mut config);
            let mut error = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };
            let state = memory.0.as_mut_ptr().cast::<coalesce_vic_state>();
            let status = coalesce_vic_init(state, size_of::<coalesce_vic_state>(), &raw const config, &raw mut error);
            assert_eq!(status, COALESCE_E_CONFIG);
            assert_eq!(error, coalesce_error { field, because: 0, value, min, max, because_value: 0 });
            assert_eq!(
                coalesce_vic_init(state, size_of::<coalesce_vic_state>(), &raw const config, null_mut()),
                COALESCE_E_CONFIG
            );
        }
        assert!(memory.0.iter().all(|byte| *byte == 0x55), "the memory is as it was");
    }
}

#[test]
fn sizes_of_another_header_are_refused() {
    let mut memory = Memory([0; 256]);
    let state = memory.0.as_mut_ptr().cast::<coalesce_vic_state>();
    // SAFETY: all of it is ours.
    unsafe {
        let mut config = std::mem::zeroed::<coalesce_vic_config>();
        coalesce_vic_config_default(&raw mut config, size_of::<coalesce_vic_config>(), 1_000_000_000);
        for size in [0, 8, size_of::<coalesce_vic_state>() - 8, size_of::<coalesce_vic_state>() + 8] {
            assert_eq!(coalesce_vic_init(state, size, &raw const config, null_mut()), COALESCE_E_SIZE);
        }
        for size in [0, 4, config.struct_size - 1, config.struct_size + 1] {
            let config = coalesce_vic_config { struct_size: size, ..config };
            assert_eq!(
                coalesce_vic_init(state, size_of::<coalesce_vic_state>(), &raw const config, null_mut()),
                COALESCE_E_SIZE
            );
        }
        assert_eq!(coalesce_vic_init(state, size_of::<coalesce_vic_state>(), null(), null_mut()), COALESCE_E_NULL);
        assert_eq!(
            coalesce_vic_init(null_mut(), size_of::<coalesce_vic_state>(), &raw const config, null_mut()),
            COALESCE_E_NULL
        );
    }
}

/// Who prints the error whatever the status is prints nothing of before.
#[test]
fn an_error_that_names_no_parameter_is_cleared() {
    use coalesce::ipi::{coalesce_ipi_gate, coalesce_ipi_gate_init};
    use coalesce::nvme::{coalesce_nvme_coalescing_encode, coalesce_nvme_vector_encode};
    use coalesce::text::coalesce_error_print;
    let clear = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };
    let of_before =
        coalesce_error { field: COALESCE_FIELD_THR, because: 7, value: 7, min: 7, max: 7, because_value: 7 };
    let mut memory = Memory([0; 256]);
    let (zeroes, size) = (memory.0.as_mut_ptr(), size_of::<coalesce_budget_state>());
    // SAFETY: all of it is ours, and the configuration is large enough.
    unsafe {
        let mut config = std::mem::zeroed::<coalesce_budget_config>();
        coalesce_budget_config_default(&raw mut config, size_of::<coalesce_budget_config>(), 1_000_000_000);
        let other = coalesce_budget_config { struct_size: 47, ..config };
        let (config, other) = (&raw const config, &raw const other);
        type Call<'a> = &'a dyn Fn(*mut coalesce_error) -> coalesce_status;
        let calls: [(Call<'_>, coalesce_status); 11] = [
            (&|error| coalesce_budget_init(null_mut(), size, config, error), COALESCE_E_NULL),
            (&|error| coalesce_budget_init(zeroes.add(1).cast(), size, config, error), COALESCE_E_ALIGNMENT),
            (&|error| coalesce_budget_init(zeroes.cast(), size - 8, config, error), COALESCE_E_SIZE),
            (&|error| coalesce_budget_init(zeroes.cast(), size, null(), error), COALESCE_E_NULL),
            (&|error| coalesce_budget_init(zeroes.cast(), size, other, error), COALESCE_E_SIZE),
            (&|error| coalesce_budget_reconfigure(zeroes.cast(), config, 1, error), COALESCE_E_STATE),
            (&|error| coalesce_window_init(zeroes.cast(), 8, 64, error), COALESCE_E_SIZE),
            (&|error| coalesce_reaper_init(null_mut(), 256, 64, error), COALESCE_E_NULL),
            (
                &|error| coalesce_ipi_gate_init(null_mut::<coalesce_ipi_gate>(), 24, 0, 1_000_000_000, error),
                COALESCE_E_NULL,
            ),
            (&|error| coalesce_nvme_coalescing_encode(null(), null_mut(), error), COALESCE_E_NULL),
            (&|error| coalesce_nvme_vector_encode(1, false, null_mut(), error), COALESCE_E_NULL),
        ];
        for (i, (call, expected)) in calls.iter().enumerate() {
            let (mut error, mut text) = (of_before, [b'x'; 8]);
            assert_eq!(call(&raw mut error), *expected, "call {i}");
            assert_eq!(error, clear, "call {i}");
            assert_eq!(coalesce_error_print(&raw const error, text.as_mut_ptr().cast(), text.len()), 0, "call {i}");
            assert_eq!(text[0], 0, "call {i}: an empty text");
        }
    }
}

#[test]
fn an_invalid_window_delivers_everything_held_and_gives_an_error() {
    let mut memory = Memory([0; 256]);
    let state = memory.0.as_mut_ptr().cast::<coalesce_cint_state>();
    let mut zeroes = [0; 64];
    // SAFETY: all of it is ours.
    unsafe {
        let mut config = std::mem::zeroed::<coalesce_cint_config>();
        coalesce_cint_config_default(&raw mut config, size_of::<coalesce_cint_config>(), 1_000_000_000);
        assert_eq!(
            coalesce_cint_init(state, size_of::<coalesce_cint_state>(), &raw const config, null_mut()),
            COALESCE_OK
        );
        for (window, status) in [(null_mut(), COALESCE_E_NULL), (zeroes.as_mut_ptr(), COALESCE_E_STATE)] {
            assert_eq!(coalesce_cint_on_completion(state, 1, COALESCE_HINT_PLAIN, COALESCE_CIF_UNKNOWN), COALESCE_HOLD);
            assert_eq!(
                coalesce_cint_on_completion_strict(state, window, 2, 0, COALESCE_HINT_PLAIN, COALESCE_CIF_UNKNOWN),
                status
            );
            assert_eq!(
                (coalesce_cint_reason(state), coalesce_cint_deadline(state)),
                (COALESCE_REASON_ERROR, COALESCE_NEVER)
            );
        }
    }
}

#[test]
fn blocks_of_a_wrong_size_are_refused() {
    let mut memory = [0x55_u64; 200];
    let block = memory.as_mut_ptr();
    let mut error = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };
    // SAFETY: all of it is ours.
    unsafe {
        for commands in [0, 1, 63, 65, 100, 8192, u32::MAX] {
            assert_eq!(coalesce_window_size(commands), 0);
            assert_eq!(coalesce_window_init(block, size_of_val(&memory), commands, &raw mut error), COALESCE_E_CONFIG);
            assert_eq!((error.field, error.value, error.max), (COALESCE_FIELD_COMMANDS, commands.into(), 4096));
        }
        for entries in [0, 1, 65_536, u32::MAX] {
            assert_eq!(coalesce_reaper_size(entries), 0);
            assert_eq!(coalesce_reaper_init(block, size_of_val(&memory), entries, &raw mut error), COALESCE_E_CONFIG);
            assert_eq!((error.field, error.value, error.max), (COALESCE_FIELD_ENTRIES, entries.into(), 65_535));
        }
        assert_eq!(coalesce_window_init(block, coalesce_window_size(128) - 1, 128, null_mut()), COALESCE_E_SIZE);
        assert_eq!(coalesce_reaper_init(block, coalesce_reaper_size(128) - 1, 128, null_mut()), COALESCE_E_SIZE);
        assert_eq!(coalesce_window_init(null_mut(), 4096, 128, null_mut()), COALESCE_E_NULL);
        assert_eq!(coalesce_window_init(block.byte_add(4), 1024, 128, null_mut()), COALESCE_E_ALIGNMENT);
        assert!(memory.iter().all(|word| *word == 0x5555_5555_5555_5555 || *word == 0x55), "the memory is as it was");
    }
}
