// Interrupt now, or wait for company? One vector, and its policy: which one is for the host to say (FEATURE_POLICY). Every
// decision is noted in the trace, and then acted upon, in one place.
#ifndef COALESCING_H
#define COALESCING_H

#include "aggregation.h"
#include "queue.h"

#define WINDOW 256u // commands between the oldest in flight and the newest

struct coalescing {
    unsigned queue;
    uint32_t policy; // POLICY_...
    bool is_disabled;
    struct aggregation aggregation;
    vic_state vic;
    cint_state cint;
    uint64_t window[CINT_WINDOW_WORDS(WINDOW)]; // of strict Barriers
};

// A vector as after a reset: NVMe's own coalescing, which is off.
void coalescing_reset(struct coalescing *c, unsigned queue);
// Begins with a policy, when nothing is held. `storm_rate` is the storm guard's limit, in interrupts a second; 0: no
// guard. False: there is no such policy, or no such limit.
bool coalescing_choose(struct coalescing *c, uint32_t policy, uint32_t storm_rate);
// Feature 08h: so many completions, so many ticks.
void coalescing_set(struct coalescing *c, uint32_t threshold, uint64_t time);
// Feature 09h. When it is disabled what is held is announced.
void coalescing_disable(struct coalescing *c, bool is_disabled, uint64_t now);

// A command is fetched. Its ticket comes back with its completion.
uint64_t coalescing_on_submit(struct coalescing *c);
// Its completion is posted; `cif` commands were in flight, counting it.
void coalescing_on_completion(struct coalescing *c, uint64_t now, const struct slot *command, uint32_t cif);
// When to call coalescing_on_deadline(); COALESCE_NEVER: not at all.
uint64_t coalescing_deadline(const struct coalescing *c);
void coalescing_on_deadline(struct coalescing *c, uint64_t now);
// The host has taken everything, without an interrupt.
void coalescing_on_consumed(struct coalescing *c, uint64_t now);
// The controller stops.
void coalescing_flush(struct coalescing *c, uint64_t now);

#endif
