// The interface of a firmware: it implements the first part, and uses the others. It also uses board.h and nvme.h.
#ifndef DEVICE_H
#define DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Time is logical. Each event has a timestamp: the flash gives the instant at which a command completed, and a deadline
// is handled with its own instant as `now`. A device handles events in the order of their timestamps. So its decisions
// do not depend on the speed of its code, and two devices decide the same. The clock only serves timers and sleep.

// ---- The firmware ----

// Runs the controller from the instant `now` until the host disables it (CC_ENABLE). The queues are empty at the start.
// The host's interrupts come in between.
void device_run(uint64_t now);

// A firmware also implements flash_interrupt() and deadline_interrupt() of board.h.

// Replays a golden trace (vectors.h): replay_begin() makes a new machine, replay() answers an event.
struct vector_trace;
struct vector_config;
struct vector_event;
struct vector_answer;
void replay_begin(const struct vector_trace *trace, const struct vector_config *configs);
void replay(const struct vector_event *event, struct vector_answer *answer);

// ---- The flash ----

#define FLASH_SLOTS 64u

// Starts a command that moves a block between the flash and the host's memory. `slot` identifies it to the device; no
// other uncollected command may use it. `now` is the timestamp of the current event.
void flash_start(unsigned slot, bool is_write, uint32_t block, uint32_t address, uint64_t now);

struct flash_done {
    uint64_t stamp; // the instant of its completion
    uint16_t slot;
    uint16_t failed; // 1: the block cannot be read
};

// Collects the next completed command; false: there is none until the flash interrupts again. Only flash_interrupt()
// may call it, until it returns false.
bool flash_collect(struct flash_done *done);

// Whether the clock has reached `instant`, and every command that completed up to it has been collected.
bool flash_is_past(uint64_t instant);

// Forgets all commands.
void flash_abort(void);

// ---- The trace ----

enum traced_call { CALL_COMPLETION, CALL_DEADLINE, CALL_CONSUMED, CALL_FLUSH };
enum traced_decision { DECISION_NONE, DECISION_DELIVER, DECISION_DELIVER_URGENT, DECISION_HOLD, DECISION_REFUSED };
enum traced_hint { HINT_PLAIN, HINT_BARRIER, HINT_URGENT }; // as COALESCE_HINT_...

#define NEVER UINT64_MAX // no deadline, or no ticket

struct traced {
    uint64_t now, deadline; // the deadline after the call
    const char *reason;     // a static string
    uint32_t reason_length;
    uint32_t cif;                        // for a completion
    uint8_t queue, call, hint, decision; // values of the enumerations above
};

// Records a decision. Call it before raising the interrupt.
void trace(const struct traced *traced);

#endif
