// One vector and its policy, which the host selects (FEATURE_POLICY). Every decision is traced and then executed, in
// one place.
#ifndef COALESCING_H
#define COALESCING_H

#include "aggregation.h"
#include "queue.h"

#define WINDOW 256u // commands from the oldest in flight to the newest

struct coalescing {
    unsigned queue;
    uint32_t policy; // POLICY_...
    bool is_disabled;
    struct aggregation aggregation;
    coalesce_vic_state vic;
    coalesce_cint_state cint;
    coalesce_auto_state regulated;                  // or only its budget
    uint64_t window[COALESCE_WINDOW_WORDS(WINDOW)]; // for strict Barriers
};

// Sets a vector to its state after a reset: NVMe's own coalescing, switched off.
void coalescing_reset(struct coalescing *c, unsigned queue);
// Sets the policy. Requires that nothing is held. `storm_rate` is the storm guard's limit, in interrupts per second; 0:
// no guard. Returns false if the policy or the limit is invalid.
bool coalescing_choose(struct coalescing *c, uint32_t policy, uint32_t storm_rate);
// Feature 08h: sets the threshold, in completions, and the time, in ticks. What it holds is delivered.
void coalescing_set(struct coalescing *c, uint32_t threshold, uint64_t time, uint64_t now);
// Feature 09h. Disabling coalescing delivers everything held.
void coalescing_disable(struct coalescing *c, bool is_disabled, uint64_t now);

// Notes a fetched command. Returns its ticket, which must be passed with its completion.
uint64_t coalescing_on_submit(struct coalescing *c, uint64_t now);
// Decides about a posted completion. `cif` is the number of commands in flight, including this one; `outstanding` of those
// submitted and not reaped, including this one.
void coalescing_on_completion(struct coalescing *c, uint64_t now, const struct slot *command, uint32_t cif, uint32_t outstanding);
// The instant at which to call coalescing_on_deadline(); COALESCE_NEVER: never.
uint64_t coalescing_deadline(const struct coalescing *c);
void coalescing_on_deadline(struct coalescing *c, uint64_t now);
// Notes that the host has reaped everything without an interrupt.
void coalescing_on_consumed(struct coalescing *c, uint64_t now);
// Delivers everything held, when the controller stops.
void coalescing_flush(struct coalescing *c, uint64_t now);

#endif
