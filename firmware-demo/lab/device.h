// What a firmware is here: it implements the first part, and is offered the second. Beside this it knows board.h and nvme.h.
#ifndef DEVICE_H
#define DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Time is logical. The hardware stamps what happens: the flash says at which instant a command finished, a deadline is
// handled with its own instant as `now`. A device takes events in the order of their stamps, so that what it decides does
// not depend on how fast its code runs, and two devices decide the same. The clock is for timers and sleep.

// ---- The firmware ----

// Runs the controller, with queues that are empty, from the instant `now` until the host disables it (CC_ENABLE). Host's
// interrupts come in between.
void device_run(uint64_t now);

// Besides, of board.h: flash_interrupt() and deadline_interrupt().

// A golden trace is replayed (vectors.h): a new machine; then its events, each answered.
struct vector_trace;
struct vector_config;
struct vector_event;
struct vector_answer;
void replay_begin(const struct vector_trace *trace, const struct vector_config *configs);
void replay(const struct vector_event *event, struct vector_answer *answer);

// ---- The flash ----

#define FLASH_SLOTS 64u

// Starts a command: it moves a block between the flash and the host's memory. `slot` is the device's name for it, not used
// by another command that has not been collected; `now` is the instant of the event at hand.
void flash_start(unsigned slot, bool is_write, uint32_t block, uint32_t address, uint64_t now);

struct flash_done {
    uint64_t stamp; // when it finished
    uint16_t slot;
    uint16_t failed; // 1: the block cannot be read
};

// The next command that has finished; false: none until the flash interrupts again. For flash_interrupt() alone, which
// calls it until it is false.
bool flash_collect(struct flash_done *done);

// Whether `instant` is over: the clock is there, and every command that finished up to it has been collected.
bool flash_is_past(uint64_t instant);

// Forgets what was started.
void flash_abort(void);

// ---- The trace ----

enum traced_call { CALL_COMPLETION, CALL_DEADLINE, CALL_CONSUMED, CALL_FLUSH };
enum traced_decision { DECISION_NONE, DECISION_DELIVER, DECISION_DELIVER_URGENT, DECISION_HOLD, DECISION_REFUSED };
enum traced_hint { HINT_PLAIN, HINT_BARRIER, HINT_URGENT }; // as COALESCE_HINT_...

#define NEVER UINT64_MAX // no deadline, no ticket

struct traced {
    uint64_t now, deadline; // the deadline after the call
    const char *reason;     // which stays
    uint32_t reason_length;
    uint32_t cif;                        // of a completion
    uint8_t queue, call, hint, decision; // of the enumerations above
};

// Notes a decision. Call it before the interrupt is raised.
void trace(const struct traced *traced);

#endif
