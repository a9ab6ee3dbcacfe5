// The golden traces of vectors/, packed by crates/coalesce-testkit/examples/pack.rs: little-endian records of fixed
// size. The number of traces comes first, in 64 bits. Then each trace has its record, its configurations and its
// events.
#ifndef VECTORS_H
#define VECTORS_H

#include <stdbool.h>
#include <stdint.h>

enum vector_machine { MACHINE_VIC, MACHINE_CINT, MACHINE_BUDGET, MACHINE_AUTO };

struct vector_trace {
    char file[32];
    uint32_t machine;
    uint32_t groups;  // for strict Barriers, each with a window of 64 commands; 0: Barriers are relaxed
    uint32_t configs; // the machine begins with the first
    uint32_t events;
};

// Fields that the machine does not have are 0. UINT64_MAX in max_hold_ns means none.
struct vector_config {
    uint64_t tick_hz, max_hold_ns;
    uint64_t epoch_ns, margin_ns;                                 // vic
    uint64_t delta_ns, storm_max_rate;                            // cint, the rate also budget, auto; 0: no guard
    uint32_t cif_threshold, iops_threshold, max_skip, live_clamp; // vic
    uint32_t thr, storm_shift, in_flight, ooo;                    // cint, budget, auto; in_flight 0: no rule
    uint32_t budget, reserved;                                    // budget, auto
};

enum vector_call {
    ON_SUBMIT,
    ON_COMPLETION,
    ON_DEADLINE,
    ON_BATCH_END,
    ON_CONSUMED,
    ON_SCHEDULE,
    ON_DESCHEDULE,
    ON_CANCEL,
    RESET_TRACKING,
    FLUSH,
    RECONFIGURE,
};

// A call and its answer. NEVER means no ticket, slice_end or deadline. Decisions and hints are those of device.h.
struct vector_event {
    uint64_t now, ticket, slice_end, deadline;
    uint32_t cif, outstanding;
    uint8_t call, hint, decision;
    uint8_t choice;  // the group of a submission, the index of a configuration
    char reason[20]; // padded with zeroes; may be all zeroes
};

// The answer of the call in this firmware.
struct vector_answer {
    uint64_t ticket, deadline;
    const char *reason; // a static string
    uint32_t reason_length;
    uint32_t decision;
};

// Replays every trace, and prints the number of events. Returns false if one was decided differently.
bool vectors_replay(void);

#endif
