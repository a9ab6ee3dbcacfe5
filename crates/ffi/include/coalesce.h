/* libcoalesce: interrupt now, or wait for company?
 *
 *     if (vic_on_completion(&queue->vic, now, cif) != COALESCE_HOLD)
 *         interrupt(queue);
 *
 * A state is memory of the caller's, for one thread at a time. Time is the caller's, too: ticks of one monotonic clock. No
 * function blocks or keeps a pointer, and only those of texts and of coalesce_policy allocate. What is wrong is answered with
 * a negative status: interrupt.
 *
 * Made from crates/ffi by cbindgen: do not edit. */

#ifndef COALESCE_H
#define COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Define COALESCE_BARE_METAL where the library is built for a device: it has no texts there. */
#ifndef COALESCE_BARE_METAL
#define COALESCE_HOSTED
#endif

/* The IPI gate is where the CPU has 64-bit atomics, and a uint64_t lies as they want it: not so in i386's structures. */
#if defined(__GCC_ATOMIC_LLONG_LOCK_FREE) && __GCC_ATOMIC_LLONG_LOCK_FREE == 2 && !defined(__i386__)
#define COALESCE_HAS_IPI_GATE
#endif

#ifdef __GNUC__
#define COALESCE_MUST_USE __attribute__((warn_unused_result))
#else
#define COALESCE_MUST_USE
#endif

/* The compiler lays out a type as the library does; before C11 and C++11 the size alone is checked. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define COALESCE_LAYOUT(type, size, word) static_assert(sizeof(type) == size && alignof(type) == alignof(word), #type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define COALESCE_LAYOUT(type, size, word) _Static_assert(sizeof(type) == size && _Alignof(type) == _Alignof(word), #type)
#else
#define COALESCE_LAYOUT(type, size, word) typedef char coalesce_layout_of_##type[sizeof(type) == size ? 1 : -1]
#endif

/* Memory for a window of so many commands, and for a reaper of so many entries, in words of uint64_t. */
#define CINT_WINDOW_WORDS(commands) (5 + (commands) / 32)
#define CINT_REAPER_WORDS(entries) (2 + ((entries) + 63) / 64)

/* Initialise a coalesce_mark for a request that was never submitted: nobody said a hint, or its requester said this one. */
#define COALESCE_MARK_NONE COALESCE_MARK_OF(COALESCE_HINT_PLAIN)
#define COALESCE_MARK_OF(hint) {COALESCE_NO_TICKET, (hint), COALESCE_NO_SOURCE}

// Commands in flight are not known: the `in_flight` rule is off for this completion. Only for
// `cint_on_completion` and `cint_on_completion_strict`: vIC takes it for so many commands, and holds.
#define COALESCE_CIF_UNKNOWN 4294967295u

// `tick_hz`
#define COALESCE_FIELD_TICK_HZ 1

// `cif_threshold`
#define COALESCE_FIELD_CIF_THRESHOLD 2

// `epoch_ns`
#define COALESCE_FIELD_EPOCH_NS 3

// `max_skip`
#define COALESCE_FIELD_MAX_SKIP 4

// `max_hold_ns`
#define COALESCE_FIELD_MAX_HOLD_NS 5

// `margin_ns`
#define COALESCE_FIELD_MARGIN_NS 6

// `threshold_ns` of an IPI gate
#define COALESCE_FIELD_IPI_THRESHOLD_NS 7

// `live_clamp`
#define COALESCE_FIELD_LIVE_CLAMP 8

// `delta_ns`
#define COALESCE_FIELD_DELTA_NS 9

// `thr`
#define COALESCE_FIELD_THR 10

// `storm_max_rate`
#define COALESCE_FIELD_STORM_MAX_RATE 11

// `storm_shift`
#define COALESCE_FIELD_STORM_SHIFT 12

// `in_flight`
#define COALESCE_FIELD_IN_FLIGHT 13

// `ooo`
#define COALESCE_FIELD_OOO 14

// `reserved`, which must be 0
#define COALESCE_FIELD_RESERVED 15

// `threshold` of `nvme_coalescing`
#define COALESCE_FIELD_AGGREGATION_THRESHOLD 16

// `time_ns` of `nvme_coalescing`
#define COALESCE_FIELD_AGGREGATION_TIME_NS 17

// `vector`
#define COALESCE_FIELD_VECTOR 18

// `commands` of a window, a power of two
#define COALESCE_FIELD_COMMANDS 19

// `entries` of a reaper's queue
#define COALESCE_FIELD_ENTRIES 20

// The requester said nothing, or "do not hurry": burst detection decides.
#define COALESCE_HINT_PLAIN 0

// The last command of a batch: interrupt when the batch is complete.
#define COALESCE_HINT_BARRIER 1

// Somebody waits for this very command.
#define COALESCE_HINT_URGENT 2

// `read`, `pread`, `readv`, `preadv`
#define COALESCE_CALL_READ 0

// `write`, `pwrite`, `writev`, `pwritev`
#define COALESCE_CALL_WRITE 1

// `preadv2`, `pwritev2`
#define COALESCE_CALL_VECTORED2 2

// One request of an `io_submit`
#define COALESCE_CALL_IO_SUBMIT 3

// `sync`, `fsync`, `fdatasync`, `syncfs`
#define COALESCE_CALL_SYNC 4

// One request of an `msync`
#define COALESCE_CALL_MSYNC 5

// The file descriptor has `O_NONBLOCK`; of a vectored call: `RWF_NOWAIT`.
#define COALESCE_CALL_NONBLOCK 1

// The file descriptor has `O_DIRECT`.
#define COALESCE_CALL_DIRECT 2

// The paper's `RWF_URGENT`.
#define COALESCE_CALL_URGENT 4

// The paper's `RWF_BARRIER`.
#define COALESCE_CALL_BARRIER 8

// `MS_SYNC`
#define COALESCE_CALL_MS_SYNC 16

// It is the last request of its call.
#define COALESCE_CALL_LAST 32

#if defined(COALESCE_HAS_IPI_GATE)
// The paper's threshold (vIC §4.5), in ns.
#define IPI_GATE_PAPER_NS 100000
#endif

#if defined(COALESCE_HOSTED)
// A flush.
#define COALESCE_REQUEST_FLUSH 1

// A write that must be on the medium before it ends.
#define COALESCE_REQUEST_DURABLE 2

// The last of the requests that came with one kick.
#define COALESCE_REQUEST_LAST 4

// A hint that was not inferred.
#define COALESCE_NO_SOURCE 4294967295

// A command of an I/O queue.
#define COALESCE_CLASS_IO 0

// A command of the admin queue.
#define COALESCE_CLASS_ADMIN 1

// A command that failed, or that was aborted and will not complete.
#define COALESCE_CLASS_FAILED 2
#endif

// The head doorbell stays.
#define COALESCE_NO_DOORBELL 4294967295u

// An instant that never comes: no deadline, no bound, not known.
#define COALESCE_NEVER 18446744073709551615ull

// No decision yet.
#define COALESCE_REASON_NONE 0

// Delivered: a completion was held for `max_hold`.
#define COALESCE_REASON_MAX_HOLD 1

// Delivered: the guest's timeslice ends before the next interrupt would be due.
#define COALESCE_REASON_SLICE_END 2

// Delivered: fewer than `cif_threshold` commands in flight.
#define COALESCE_REASON_LOW_CIF 3

// Delivered: it is this completion's turn in a cycle of the delivery ratio.
#define COALESCE_REASON_RATIO 4

// Delivered: the delivery ratio is 1.
#define COALESCE_REASON_ALWAYS 5

// Delivered: more would be held than the commands in flight justify now.
#define COALESCE_REASON_LIVE_CLAMP 6

// Delivered: a flush.
#define COALESCE_REASON_FLUSH 7

// Delivered: the guest was put on a CPU.
#define COALESCE_REASON_SCHEDULE 8

// Delivered: the guest was taken off its CPU.
#define COALESCE_REASON_DESCHEDULE 9

// Delivered: Δ passed without a completion.
#define COALESCE_REASON_DELTA 10

// Delivered: what the storm guard had put off.
#define COALESCE_REASON_STORM 11

// Delivered: a ticket or a hint that is not valid.
#define COALESCE_REASON_ERROR 12

// Delivered: a batch is complete.
#define COALESCE_REASON_BARRIER 13

// Delivered: somebody waits for this command.
#define COALESCE_REASON_URGENT 14

// Delivered: the burst has `thr` completions.
#define COALESCE_REASON_COUNT 15

// Delivered: more would be held than the commands in flight justify.
#define COALESCE_REASON_IN_FLIGHT 16

// Delivered: the device has posted all it had.
#define COALESCE_REASON_BATCH_END 17

// Delivered: the aggregation time passed (NVMe Feature 08h).
#define COALESCE_REASON_TIME 18

// Delivered: the first completion of a poll.
#define COALESCE_REASON_LEADING_EDGE 19

// Delivered: coalescing is disabled (NVMe Features 08h, 09h).
#define COALESCE_REASON_DISABLED 20

// Delivered: a command of the admin queue.
#define COALESCE_REASON_ADMIN 21

// Held: it is not this completion's turn in a cycle of the delivery ratio.
#define COALESCE_REASON_HOLD_RATIO 32

// Held: an interrupt would announce nothing.
#define COALESCE_REASON_HOLD_NOTHING_HELD 33

// Held: the deadline has not come.
#define COALESCE_REASON_HOLD_EARLY 34

// Held: the new configuration is in force, and nothing is due under it.
#define COALESCE_REASON_HOLD_RECONFIGURED 35

// Held: the burst goes on.
#define COALESCE_REASON_HOLD_BURST 36

// Held: an interrupt is due, and the storm guard puts it off.
#define COALESCE_REASON_HOLD_STORM 37

// Held: the command is forgotten, and nothing is due.
#define COALESCE_REASON_HOLD_CANCELLED 38

// Held: neither count nor time is reached (NVMe Feature 08h).
#define COALESCE_REASON_HOLD_AGGREGATE 39

// Held: the poll goes on.
#define COALESCE_REASON_HOLD_BATCH 40

// A command that has no ticket: its hint stands as it is.
#define COALESCE_NO_TICKET 18446744073709551615ull

// Changes when states change inside.
#define COALESCE_ABI_VERSION 1

// Version of the header: `COALESCE_VERSION_MAJOR.COALESCE_VERSION_MINOR.COALESCE_VERSION_PATCH`.
#define COALESCE_VERSION_MAJOR 0

// Of the header.
#define COALESCE_VERSION_MINOR 1

// Of the header.
#define COALESCE_VERSION_PATCH 0

#if defined(COALESCE_HOSTED)
// A policy for one interrupt vector. The one object that this library allocates: it is as large as its policy needs.
typedef struct coalesce_policy coalesce_policy;
#endif

// Parameters of cinterrupts. Begin with `cint_config_default`, `cint_config_optane` or `cint_config_p3700`.
typedef struct {
  // `sizeof(cint_config)`
  uint32_t struct_size;
  // This many completions of a burst interrupt at once. 1 to 65535; 1: no coalescing.
  uint32_t thr;
  // Ticks of the caller's clock in a second. 1000 to 10000000000.
  uint64_t tick_hz;
  // Δ: so long without a completion ends a burst, in ns; 0: the caller says when, by `cint_on_batch_end`. 0 to 10 ms.
  uint64_t delta_ns;
  // How long a completion may be held, in ns. 1 ns to 1 s, and up to 500 million ticks; `COALESCE_NEVER`: up to
  // (thr - 1) * Δ. With a storm guard it is 1 s / storm_max_rate at least, and with `ooo` a storm may exceed it by less
  // than that.
  uint64_t max_hold_ns;
  // The storm guard: interrupts a second in the long run, at most. 1, or tick_hz / 125 million, to tick_hz / 5;
  // 0: no guard.
  uint64_t storm_max_rate;
  // The weight of one gap between interrupts in the guard's moving average is 2^-storm_shift. 5 to 16; the authors' is 7.
  uint32_t storm_shift;
  // The `in_flight` rule: below so many commands in flight every completion interrupts, and above no more are held than
  // keep the device busy. 2 to 32767; 0: no rule.
  uint32_t in_flight;
  // 1: an urgent completion is announced alone, what is held stays held (§3.5); 0: it announces everything.
  uint32_t ooo;
  // 0
  uint32_t reserved;
} cint_config;
COALESCE_LAYOUT(cint_config, 56, uint64_t);

// What to do, or what was wrong. Only `COALESCE_HOLD` suppresses an interrupt: on anything else, errors included,
// deliver it. Numbers are never reused.
typedef int32_t coalesce_status;

// A cinterrupts machine for one interrupt vector, in the caller's memory: 88 bytes. Opaque. It has no pointers and owns
// nothing: it may be moved and copied while nobody uses it, and needs no end.
typedef struct {
  // Do not look into it.
  uint64_t opaque[11];
} cint_state;
COALESCE_LAYOUT(cint_state, 88, uint64_t);

// A parameter that is out of its range.
typedef struct {
  // The parameter: `COALESCE_FIELD_...`
  uint32_t field;
  // The other parameter that sets this bound: `COALESCE_FIELD_...`; 0: none does.
  uint32_t because;
  // Its value.
  uint64_t value;
  // The smallest value allowed here.
  uint64_t min;
  // The largest value allowed here.
  uint64_t max;
} coalesce_error;
COALESCE_LAYOUT(coalesce_error, 32, uint64_t);

// What a machine says of itself.
typedef struct {
  // Completions held: posted and not announced; those announced alone as urgent are not among them.
  uint32_t held;
  // 1: interrupts come faster than the storm guard allows, so that it spaces them.
  uint32_t is_storming;
  // How often a call was older than the one before it; stops at 65535.
  uint32_t times_back;
  // 0
  uint32_t reserved;
} cint_info;
COALESCE_LAYOUT(cint_info, 16, uint32_t);

#if defined(COALESCE_HAS_IPI_GATE)
// Limits inter-processor interrupts by when the last virtual interrupt was delivered (vIC §3.3). Opaque. Once
// initialised, any number of threads may use it at the same time.
typedef struct {
  // Do not look into it.
  uint64_t opaque[3];
} ipi_gate;
COALESCE_LAYOUT(ipi_gate, 24, uint64_t);
#endif

// Feature 08h, Interrupt Coalescing: for all I/O completion queues of a controller.
typedef struct {
  // So many completions interrupt at once. 1 to 256; 1: no coalescing by count.
  uint32_t threshold;
  // 0
  uint32_t reserved;
  // How long a completion may be held, in ns; 0: no coalescing. On the wire in units of 100 µs, 25.5 ms at most.
  uint64_t time_ns;
} nvme_coalescing;
COALESCE_LAYOUT(nvme_coalescing, 16, uint64_t);

#if defined(COALESCE_HOSTED)
// What is known of a request when it is submitted.
typedef struct {
  // `sizeof(coalesce_request)`
  uint32_t struct_size;
  // `COALESCE_REQUEST_...`, added up.
  uint32_t flags;
  // How many its guest has submitted and not taken back, counting it.
  uint32_t outstanding;
  // How many came with one kick, counting it.
  uint32_t batch_len;
  // Linux I/O priority: class in bits 15:13; 0: not given.
  uint32_t ioprio;
  // What the requester said itself: `COALESCE_HINT_...`. What else is known counts where it said nothing.
  uint32_t hint;
  // Which group of submitters it belongs to, for strict Barriers. 0 to 15.
  uint32_t group;
  // How many others were submitted before it of which nothing was known, and which need no mark: 0 where the policy wants
  // each of them (`coalesce_policy_wants_each_submit`).
  uint32_t before;
} coalesce_request;
COALESCE_LAYOUT(coalesce_request, 32, uint32_t);

// What a policy wants back when the request completes. `COALESCE_MARK_NONE` and `COALESCE_MARK_OF(hint)` initialise one for a
// request that was never submitted.
typedef struct {
  // For strict Barriers.
  uint64_t ticket;
  // `COALESCE_HINT_...`
  uint32_t hint;
  // What the hint was inferred from; `COALESCE_NO_SOURCE`: the requester said it, or nobody did.
  uint32_t source;
} coalesce_mark;
COALESCE_LAYOUT(coalesce_mark, 16, uint64_t);

// What is known of a command when it completes.
typedef struct {
  // `sizeof(coalesce_completion)`
  uint32_t struct_size;
  // Commands in flight on this interrupt vector, counting this one.
  uint32_t cif;
  // What `coalesce_policy_on_submit` gave.
  coalesce_mark mark;
  // When the guest's timeslice ends; `COALESCE_NEVER`: not known.
  uint64_t slice_end;
  // `COALESCE_CLASS_...`; one that is unknown counts as failed.
  uint32_t class_of;
  // How many plain commands of an I/O queue completed just before it, and are announced with it, if it is; 65535 at most.
  // They need no `mark`: for a device that finds many at once.
  uint32_t before;
} coalesce_completion;
COALESCE_LAYOUT(coalesce_completion, 40, uint64_t);

// Called for each counter.
typedef void (*coalesce_counter)(void *context, const char *reason, bool is_hold, uint64_t count);
#endif

// An entry of an NVMe completion queue, in the byte order of the CPU. Dword 3 has the command identifier in bits 15:0, the
// phase tag in bit 16, and the status behind it.
typedef struct {
  // Dwords 0 to 3.
  uint32_t dword[4];
} cint_entry;
COALESCE_LAYOUT(cint_entry, 16, uint32_t);

// Called for each new entry: returns whether it is taken. At an urgent interrupt take those that are urgent, at a normal
// one all.
typedef bool (*cint_take)(void *context, const cint_entry *entry);

// How often each decision was taken: index it with `COALESCE_REASON_...`. Begin with zeroes.
//
// It is not part of the states, which stay small: count a state's reason after a decision.
typedef struct {
  // By reason. Counters stop at their maximum.
  uint64_t decisions[64];
} coalesce_stats;
COALESCE_LAYOUT(coalesce_stats, 512, uint64_t);

// Parameters of vIC. Begin with `vic_config_default` or `vic_config_paper`.
typedef struct {
  // `sizeof(vic_config)`
  uint32_t struct_size;
  // Below this many commands in flight every completion interrupts. 2 to 65535.
  uint32_t cif_threshold;
  // Ticks of the caller's clock in a second. 1000 to 10000000000.
  uint64_t tick_hz;
  // How often the delivery ratio is determined anew, in ns. 1 ms to 60 s.
  uint64_t epoch_ns;
  // How long a completion may be held, in ns. 1 ns to 1 s; `COALESCE_NEVER`: until the device completes another one.
  uint64_t max_hold_ns;
  // Scheduler awareness: by how much the two clocks may differ, in ns. 0 to 100 ms.
  uint64_t margin_ns;
  // Below this many completions a second every completion interrupts; 0: never too few.
  uint32_t iops_threshold;
  // The longest cycle: one interrupt in `max_skip` completions at least. 2 to 65535.
  uint32_t max_skip;
  // 1: compare what is held with the commands in flight at each completion; 0: only at the start of an epoch.
  uint32_t live_clamp;
  // 0
  uint32_t reserved;
} vic_config;
COALESCE_LAYOUT(vic_config, 56, uint64_t);

// A vIC machine for one interrupt vector, in the caller's memory: 104 bytes. Opaque. It has no pointers and owns
// nothing: it may be moved and copied while nobody uses it, and needs no end.
typedef struct {
  // Do not look into it.
  uint64_t opaque[13];
} vic_state;
COALESCE_LAYOUT(vic_state, 104, uint64_t);

// What a machine says of itself.
typedef struct {
  // Completions held: posted and not announced.
  uint32_t held;
  // The delivery ratio: `count_up` interrupts...
  uint32_t count_up;
  // ...in `skip_up` completions.
  uint32_t skip_up;
  // How often a call was older than the one before it; stops at 65535.
  uint32_t times_back;
} vic_info;
COALESCE_LAYOUT(vic_info, 16, uint32_t);

// Done. Where a decision was asked for: interrupt now, for everything that completed so far.
#define COALESCE_OK 0

// Interrupt now, for everything that completed so far.
#define COALESCE_DELIVER 0

// Do not interrupt now.
#define COALESCE_HOLD 1

// Interrupt now, for this urgent completion alone: what is held stays held (cinterrupts §3.5).
#define COALESCE_DELIVER_URGENT 2

// A pointer is null.
#define COALESCE_E_NULL -1

// A state is not aligned to 8 bytes, or a queue not to 4.
#define COALESCE_E_ALIGNMENT -2

// The memory is no state of this kind that this library has initialised.
#define COALESCE_E_STATE -3

// A size is not the one in this library's header: header and library differ, or the memory is too small.
#define COALESCE_E_SIZE -4

// A parameter is out of its range; the `coalesce_error` says which, and what is allowed.
#define COALESCE_E_CONFIG -5

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The paper's parameters for Optane, made safe: nothing is held longer than 100 µs, nor so much that the device could run
// dry.
//
// Requires:
// `config` is null or points to `config_size` bytes.
void cint_config_default(cint_config *config,
                         size_t config_size,
                         uint64_t tick_hz);

// What the paper describes for an Intel Optane P4800X and no more (§5.2): Δ = 6 µs, thr = 32.
//
// Requires:
// As `cint_config_default`.
void cint_config_optane(cint_config *config, size_t config_size, uint64_t tick_hz);

// The same for an Intel P3700: Δ = 15 µs.
//
// Requires:
// As `cint_config_default`.
void cint_config_p3700(cint_config *config, size_t config_size, uint64_t tick_hz);

// Makes a machine that has seen nothing. `state_size` is `sizeof(cint_state)`; `error` may be null. On an error the
// memory is as it was.
//
// Requires:
// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes as
// its `struct_size` says; `error` is null or points to a `coalesce_error`.
COALESCE_MUST_USE
coalesce_status cint_init(cint_state *state,
                          size_t state_size,
                          const cint_config *config,
                          coalesce_error *error);

// Takes a new configuration, with what is held, and decides about it. `tick_hz` stays; a storm guard that changes starts
// anew. On an error nothing has changed; `error` may be null.
//
// Requires:
// As `cint_init`, of a state that nobody else uses during the call.
COALESCE_MUST_USE
coalesce_status cint_reconfigure(cint_state *state,
                                 const cint_config *config,
                                 uint64_t now,
                                 coalesce_error *error);

// A command completed, with `COALESCE_HINT_...`; one that is unknown delivers. `cif` commands were in flight, counting
// this one: decrement your counter, then, inside the serialisation that protects the state, load it again, and add one;
// or `COALESCE_CIF_UNKNOWN`.
//
// Requires:
// `state` is null or points to a `cint_state` that nobody else uses during the call.
COALESCE_MUST_USE coalesce_status cint_on_completion(cint_state *state, uint64_t now, uint32_t hint, uint32_t cif);

// When `cint_on_deadline` must be called if nothing happens before; `COALESCE_NEVER`: nothing is held, or not bounded.
// May change in every call.
//
// Requires:
// `state` is null or points to a `cint_state` that nobody changes during the call.
uint64_t cint_deadline(const cint_state *state);

// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
//
// Requires:
// As `cint_on_completion`.
COALESCE_MUST_USE coalesce_status cint_on_deadline(cint_state *state, uint64_t now);

// The device has posted all it had. Ends a burst where Δ is 0.
//
// Requires:
// As `cint_on_completion`.
COALESCE_MUST_USE coalesce_status cint_on_batch_end(cint_state *state, uint64_t now);

// Queue stop, reset, migration: announces what is held, storm or not. A failed command is `COALESCE_HINT_URGENT`.
//
// Requires:
// As `cint_on_completion`.
COALESCE_MUST_USE coalesce_status cint_flush(cint_state *state, uint64_t now);

// The consumer has taken everything that was posted, without an interrupt. Call it only if, inside the serialisation
// that protects the state, the consumer's index equals what was posted.
//
// Requires:
// As `cint_on_completion`.
coalesce_status cint_on_consumed(cint_state *state, uint64_t now);

// Looks at a machine. `info_size` is `sizeof(cint_info)`.
//
// Requires:
// `state` is null or points to a `cint_state` that nobody changes during the call; `info` is null or points to
// `info_size` bytes.
coalesce_status cint_get_info(const cint_state *state, cint_info *info, size_t info_size);

// Why the last decision was taken: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` if there was none, or no such state.
//
// Requires:
// As `cint_deadline`.
uint32_t cint_reason(const cint_state *state);

// The name of a parameter, as in its configuration. Never null.
const char *coalesce_field_name(uint32_t field);

// The hint in two bits: bit 0 is Urgent, bit 1 Barrier; others are ignored. `both_is_urgent`: what both bits mean; otherwise
// plain. For hints that travel in other bits than the paper's: shift them here.
uint32_t cint_hint_from_bits(uint32_t bits,
                             bool both_is_urgent);

// The hint in bits 17:16 of Command Dword 12 of an NVMe read or write (§4.2.1): bit 16 is Urgent, bit 17 Barrier.
// `both_is_urgent`: what both bits mean; otherwise plain. NVMe 1.0 to 1.4 and the NVM Command Set 1.0 reserve these bits.
// Later versions define bits 19:16 as CETYPE, the command extension type, which a host sets for a controller with Key Per
// I/O: there, agree on other bits and use `cint_hint_from_bits`, or `cint_hint_from_access_latency`.
uint32_t cint_hint_from_cdw12(uint32_t cdw12,
                              bool both_is_urgent);

// The hint in bits 5:4, the access latency, of Command Dword 13 of an NVMe read or write: 11b, low, is Urgent.
uint32_t cint_hint_from_access_latency(uint32_t cdw13);

// The hint of a request merged from two (§4.1.1): Urgent wins over Barrier, Barrier over plain. One that is unknown
// counts as Urgent.
uint32_t cint_hint_merge(uint32_t a, uint32_t b);

// The hint of one part of a request that is split (§4.1.1): each keeps the mark, but a strict Barrier stays with the
// last part. One that is unknown counts as Urgent.
uint32_t cint_hint_split(uint32_t hint, bool is_last, bool barriers_are_strict);

// The hint of a request by the system call that caused it (cinterrupts Table 1): `COALESCE_CALL_...`, and the flags that
// matter for it. A call that blocks its caller is Urgent, one that submits a batch puts a Barrier on its last request. A
// call that is unknown is Urgent.
uint32_t cint_hint_from_call(uint32_t call,
                             uint32_t flags);

#if defined(COALESCE_HAS_IPI_GATE)
// Makes a gate that lets an IPI pass if the last virtual interrupt is more than `threshold_ns` (0 to 1 s) ago.
//
// `gate_size` is `sizeof(ipi_gate)`; `error` may be null.
//
// Requires:
// `gate` is null or points to `gate_size` bytes that nobody else uses; `error` is null or points to a `coalesce_error`.
COALESCE_MUST_USE
coalesce_status ipi_gate_init(ipi_gate *gate,
                              size_t gate_size,
                              uint64_t threshold_ns,
                              uint64_t tick_hz,
                              coalesce_error *error);

// The monitor has delivered a virtual interrupt.
//
// Requires:
// `gate` is null or points to an `ipi_gate`.
coalesce_status ipi_gate_delivered(ipi_gate *gate, uint64_t now);

// Whether the kernel, having posted a completion, must interrupt the CPU that the guest runs on. `COALESCE_HOLD`: not
// yet; ask again at `*until`, which may be null, if the monitor has not come by then. Anything else: send it now.
//
// Requires:
// As `ipi_gate_delivered`; `until` is null or points to a `uint64_t`.
COALESCE_MUST_USE coalesce_status ipi_gate_should_send(const ipi_gate *gate, uint64_t now, uint64_t *until);
#endif

// Reads Command Dword 11 of Set Features 08h: THR, 0's based, in bits 7:0, and TIME in bits 15:8.
//
// Requires:
// `out` is null or points to `out_size` bytes, which are `sizeof(nvme_coalescing)`.
coalesce_status nvme_coalescing_decode(uint32_t cdw11, nvme_coalescing *out, size_t out_size);

// Writes Command Dword 11 of Set Features 08h. A time that is not 0 is rounded up to the next 100 µs: it never turns
// into "off".
//
// Requires:
// `value` is null or points to a `nvme_coalescing`; `cdw11` is null or points to a `uint32_t`; `error` is null or points
// to a `coalesce_error`.
coalesce_status nvme_coalescing_encode(const nvme_coalescing *value,
                                       uint32_t *cdw11,
                                       coalesce_error *error);

// Reads Command Dword 11 of Set Features 09h, Interrupt Vector Configuration: the vector in bits 15:0, and in bit 16
// whether coalescing is disabled for it. Returns the vector.
//
// Requires:
// `is_disabled` is null or points to a `bool`.
uint32_t nvme_vector_decode(uint32_t cdw11, bool *is_disabled);

// Writes Command Dword 11 of Set Features 09h.
//
// Requires:
// `cdw11` is null or points to a `uint32_t`; `error` is null or points to a `coalesce_error`.
coalesce_status nvme_vector_encode(uint32_t vector, bool is_disabled, uint32_t *cdw11, coalesce_error *error);

#if defined(COALESCE_HOSTED)
// Makes a policy of a text such as "auto", "vic:cif_threshold=2", "cint:delta=20us" or "none", for a clock of `tick_hz`.
// Null: the text is refused, and a sentence in `message`, which may be null, says why.
//
// Requires:
// `text` is null or a text that ends with a zero; `message` is null or points to `message_size` bytes.
COALESCE_MUST_USE
coalesce_policy *coalesce_policy_new(const char *text,
                                     uint64_t tick_hz,
                                     char *message,
                                     size_t message_size);

// Ends a policy; null is allowed. Whatever it holds must have been announced: flush it first.
//
// Requires:
// `policy` is null, or a policy that nobody uses any more.
void coalesce_policy_free(coalesce_policy *policy);

// Takes another policy, or other parameters, with what is held, and decides about it. `COALESCE_E_CONFIG`: the text is
// refused, `message` says why, and nothing has changed; do not interrupt for that.
//
// Requires:
// As `coalesce_policy_new`; `policy` is null or a policy that nobody else uses during the call.
COALESCE_MUST_USE
coalesce_status coalesce_policy_reconfigure(coalesce_policy *policy,
                                            uint64_t now,
                                            const char *text,
                                            char *message,
                                            size_t message_size);

// The text form of a policy. Returns the length of the whole text, as `snprintf` does.
//
// Requires:
// `policy` is null or a policy that nobody changes during the call; `text` is null or points to `text_size` bytes.
size_t coalesce_policy_print(const coalesce_policy *policy, char *text, size_t text_size);

// A request is submitted, and `before` others were. Keep its `mark`, and give it back when it completes. A request that is null
// or of another size is urgent: on an error its completion interrupts. `COALESCE_E_CONFIG`: the policy wants each of those
// `before` it, and knows of none of them.
//
// Requires:
// `policy` is null or a policy that nobody else uses during the call; `request` is null or points to as many bytes as its
// `struct_size` says; `mark` is null or points to a `coalesce_mark`.
coalesce_status coalesce_policy_on_submit(coalesce_policy *policy,
                                          const coalesce_request *request,
                                          coalesce_mark *mark);

// A command completed, and `before` others: decides about one after the other until one delivers, whose interrupt announces
// them all.
//
// Requires:
// `policy` is null or a policy that nobody else uses during the call; `completion` is null or points to as many bytes as
// its `struct_size` says.
COALESCE_MUST_USE
coalesce_status coalesce_policy_on_completion(coalesce_policy *policy,
                                              uint64_t now,
                                              const coalesce_completion *completion);

// When `coalesce_policy_on_deadline` must be called if nothing happens before; `COALESCE_NEVER`: nothing is held, or not
// bounded. May change in every call.
//
// Requires:
// As `coalesce_policy_print`.
uint64_t coalesce_policy_deadline(const coalesce_policy *policy);

// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
//
// Requires:
// As `coalesce_policy_reconfigure`.
COALESCE_MUST_USE coalesce_status coalesce_policy_on_deadline(coalesce_policy *policy, uint64_t now);

// Whether the policy may hold what completes next. If not, nothing need be known of that, nor `coalesce_policy_on_submit` be
// called, until its next decision; or it need not be asked at all, but told by `coalesce_policy_on_passed`. So with "none", and
// with "auto" while holding costs throughput or few commands are outstanding.
//
// Requires:
// As `coalesce_policy_print`.
bool coalesce_policy_may_hold(const coalesce_policy *policy);

// While `coalesce_policy_may_hold` was false, nobody asked: so many commands completed since the last call, all of them are
// announced, by so many interrupts, and at most so many were outstanding, submitted and not taken back. Call it after some
// dozens of completions, as `coalesce_policy_may_hold` changes by it.
//
// Requires:
// As `coalesce_policy_reconfigure`.
coalesce_status coalesce_policy_on_passed(coalesce_policy *policy,
                                          uint64_t now,
                                          uint32_t completions,
                                          uint32_t interrupts,
                                          uint32_t outstanding);

// Whether `coalesce_policy_on_submit` must be called. May change with the configuration.
//
// Requires:
// As `coalesce_policy_print`.
bool coalesce_policy_wants_submit(const coalesce_policy *policy);

// Whether it must be called for each request, as strict Barriers need. If not, those of which nothing is known, neither a flag
// nor a hint nor a priority class of real time or idle, and that are not the only ones outstanding, may be told of with a later
// one, before the next decision or configuration. May change with the configuration.
//
// Requires:
// As `coalesce_policy_print`.
bool coalesce_policy_wants_each_submit(const coalesce_policy *policy);

// Whether `coalesce_policy_on_batch_end` must be called after each poll of the device.
//
// Requires:
// As `coalesce_policy_print`.
bool coalesce_policy_wants_batch_end(const coalesce_policy *policy);

// The device has posted all it had.
//
// Requires:
// As `coalesce_policy_reconfigure`.
COALESCE_MUST_USE coalesce_status coalesce_policy_on_batch_end(coalesce_policy *policy, uint64_t now);

// Queue stop, reset, migration: announces what is held.
//
// Requires:
// As `coalesce_policy_reconfigure`.
COALESCE_MUST_USE coalesce_status coalesce_policy_flush(coalesce_policy *policy, uint64_t now);

// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the serialisation that
// protects the policy, the guest's index equals what was posted.
//
// Requires:
// As `coalesce_policy_reconfigure`.
coalesce_status coalesce_policy_on_consumed(coalesce_policy *policy, uint64_t now);

// The queue was reset: what was submitted and has not completed never will. Announces what is held, and forgets what
// `auto` has learned.
//
// Requires:
// As `coalesce_policy_reconfigure`.
COALESCE_MUST_USE coalesce_status coalesce_policy_reset(coalesce_policy *policy, uint64_t now);

// A command was aborted and will not complete; `mark` is what `coalesce_policy_on_submit` gave. With strict Barriers it
// decides as `cint_on_cancel` does: what the Barrier of a batch waited for may be delivered, and the rest stays held. Every other
// policy delivers what is held, where `cint_on_cancel` without a ticket holds.
//
// Requires:
// As `coalesce_policy_reconfigure`; `mark` is null or points to a `coalesce_mark`.
COALESCE_MUST_USE
coalesce_status coalesce_policy_on_cancel(coalesce_policy *policy,
                                          uint64_t now,
                                          const coalesce_mark *mark);

// The guest has been put on a CPU: announces what is held.
//
// Requires:
// As `coalesce_policy_reconfigure`.
COALESCE_MUST_USE coalesce_status coalesce_policy_on_schedule(coalesce_policy *policy, uint64_t now);

// The guest is taken off its CPU: announces what is held.
//
// Requires:
// As `coalesce_policy_reconfigure`.
COALESCE_MUST_USE coalesce_status coalesce_policy_on_deschedule(coalesce_policy *policy, uint64_t now);

// Completions held: posted and not announced.
//
// Requires:
// As `coalesce_policy_print`.
uint64_t coalesce_policy_held(const coalesce_policy *policy);

// The longest time, in ticks, that a completion is held if deadlines are met on time; `COALESCE_NEVER`: not bounded. May
// change with the configuration.
//
// Requires:
// As `coalesce_policy_print`.
uint64_t coalesce_policy_max_hold(const coalesce_policy *policy);

// Submissions that strict Barriers could not track, as their group is unknown or has too many in flight: their marks have
// no ticket. Saturates; 0 without strict Barriers.
//
// Requires:
// As `coalesce_policy_print`.
uint32_t coalesce_policy_untracked(const coalesce_policy *policy);

// How often each decision was taken, by its reason.
//
// Requires:
// As `coalesce_policy_print`; `counter` returns, by no exception and no `longjmp`, and does not use the policy.
coalesce_status coalesce_policy_stats(const coalesce_policy *policy, coalesce_counter counter, void *context);

// Forgets how often each decision was taken.
//
// Requires:
// As `coalesce_policy_reconfigure`.
coalesce_status coalesce_policy_reset_stats(coalesce_policy *policy);
#endif

// Bytes of a reaper for a queue of so many entries, 2 to 65535; 0: other numbers. Where a constant is needed:
// `uint64_t reaper[CINT_REAPER_WORDS(entries)]`.
size_t cint_reaper_size(uint32_t entries);

// Makes a reaper for an empty queue of so many entries, whose first round has phase tag 1. `reaper_size` is in bytes,
// `cint_reaper_size(entries)` at least; `error` may be null. On an error the memory is as it was.
//
// Requires:
// `reaper` is null or points to `reaper_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to a
// `coalesce_error`.
COALESCE_MUST_USE
coalesce_status cint_reaper_init(uint64_t *reaper,
                                 size_t reaper_size,
                                 uint32_t entries,
                                 coalesce_error *error);

// Shows each new entry that is not taken yet to `take`, with `context`. `*doorbell` is what to write to the head doorbell,
// or `COALESCE_NO_DOORBELL`: it moves only over entries that are taken, so that the device overwrites no other.
//
// Requires:
// `reaper` is null or points to a reaper that nobody else uses during the call; `queue` is null or points to the entries of
// its queue, which the device may write at any time; `take` returns, by no exception and no `longjmp`, and does not use the
// reaper; `doorbell` is null or points to a `uint32_t`.
COALESCE_MUST_USE
coalesce_status cint_reaper_reap(uint64_t *reaper,
                                 const cint_entry *queue,
                                 cint_take take,
                                 void *context,
                                 uint32_t *doorbell);

// Counts a decision by its reason; what is no reason counts as `COALESCE_REASON_NONE`. `stats_size` is
// `sizeof(coalesce_stats)`.
//
// Requires:
// `stats` is null or points to `stats_size` bytes that nobody else uses during the call.
coalesce_status coalesce_stats_count(coalesce_stats *stats, size_t stats_size, uint32_t reason);

// The message for a status, in English. Never null.
const char *coalesce_strerror(coalesce_status status);

// The name of a reason, as in traces and statistics. Never null.
const char *coalesce_reason_name(uint32_t reason);

// Bytes of a window of so many commands, which are a power of two, 64 to 4096; 0: they are not. Where a constant is
// needed: `uint64_t window[CINT_WINDOW_WORDS(commands)]`.
size_t cint_window_size(uint32_t commands);

// Makes a window for one group of submitters: it holds `commands` between the oldest that has not completed and the
// newest submitted. `window_size` is in bytes, `cint_window_size(commands)` at least; `error` may be null. On an error the
// memory is as it was.
//
// A window, like a state, has no pointers and owns nothing. All windows of a machine are protected by what protects it.
//
// Requires:
// `window` is null or points to `window_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to a
// `coalesce_error`.
COALESCE_MUST_USE
coalesce_status cint_window_init(uint64_t *window,
                                 size_t window_size,
                                 uint32_t commands,
                                 coalesce_error *error);

// A command is submitted. Returns its ticket, to be given back with its completion, once. `COALESCE_NO_TICKET`: the window
// is full, or is none; the command is not tracked, its Barrier is relaxed.
//
// Requires:
// `window` is null or points to a window that nobody else uses during the call.
COALESCE_MUST_USE
uint64_t cint_window_on_submit(uint64_t *window);

// The controller was reset: every ticket is forgotten, and not given again.
//
// Requires:
// As `cint_window_on_submit`.
coalesce_status cint_window_reset(uint64_t *window);

// As `cint_on_completion`, where Barriers are strict: with the command's window and its ticket. A ticket that was never
// given, or is given back twice, delivers (`COALESCE_REASON_ERROR`); so does a window that is none, with its error.
//
// Requires:
// As `cint_on_completion` and `cint_window_on_submit`.
COALESCE_MUST_USE
coalesce_status cint_on_completion_strict(cint_state *state,
                                          uint64_t *window,
                                          uint64_t now,
                                          uint64_t ticket,
                                          uint32_t hint,
                                          uint32_t cif);

// A command was aborted and will not complete. `window` may be null where Barriers are relaxed, with
// `COALESCE_NO_TICKET`.
//
// Requires:
// As `cint_on_completion_strict`.
COALESCE_MUST_USE coalesce_status cint_on_cancel(cint_state *state, uint64_t *window, uint64_t now, uint64_t ticket);

#if defined(COALESCE_HOSTED)
// Writes an error as a sentence, such as "thr is 0; allowed: 1 to 65535". Returns the length of the whole sentence, as
// `snprintf` does; 0: `error` is null.
//
// Requires:
// `error` is null or points to a `coalesce_error`; `text` is null or points to `text_size` bytes.
size_t coalesce_error_print(const coalesce_error *error,
                            char *text,
                            size_t text_size);

// Reads parameters such as "vic", "vic:profile=paper" or "vic:cif_threshold=2,epoch=100ms", for a clock of `tick_hz`. On
// `COALESCE_E_CONFIG` a sentence in `message`, which may be null, says what is wrong and what is allowed.
//
// Requires:
// `text` is null or a text that ends with a zero; `config` is null or points to `config_size` bytes; `message` is null or
// points to `message_size` bytes.
coalesce_status vic_config_parse(const char *text,
                                 uint64_t tick_hz,
                                 vic_config *config,
                                 size_t config_size,
                                 char *message,
                                 size_t message_size);

// Reads parameters such as "cint", "cint:profile=p3700" or "cint:delta=6us,thr=32". As `vic_config_parse` else. The keys
// `barrier`, `both` and `hints` are no parameters of the machine: only their defaults are accepted.
//
// Requires:
// As `vic_config_parse`.
coalesce_status cint_config_parse(const char *text,
                                  uint64_t tick_hz,
                                  cint_config *config,
                                  size_t config_size,
                                  char *message,
                                  size_t message_size);

// Writes parameters in their text form, which `vic_config_parse` reads. Returns the length of the whole text, as `snprintf`
// does; 0: the configuration is null, of another size, or a parameter is out of its range.
//
// Requires:
// `config` is null or points to as many bytes as its `struct_size` says; `text` is null or points to `text_size` bytes.
size_t vic_config_print(const vic_config *config,
                        char *text,
                        size_t text_size);

// Writes parameters in their text form, which `cint_config_parse` reads. As `vic_config_print` else.
//
// Requires:
// As `vic_config_print`.
size_t cint_config_print(const cint_config *config, char *text, size_t text_size);
#endif

// `COALESCE_ABI_VERSION` of the library: it refuses states that one with another made.
uint32_t coalesce_abi_version(void);

// The version of the library, such as "0.1.0".
const char *coalesce_version(void);

// The paper's parameters, made safe: nothing is held longer than 500 µs, nor so much that the device could run dry.
//
// Requires:
// `config` is null or points to `config_size` bytes.
void vic_config_default(vic_config *config, size_t config_size, uint64_t tick_hz);

// What the paper describes and no more (vIC §4). It has no time bound: a completion is held until the device completes
// another one.
//
// Requires:
// `config` is null or points to `config_size` bytes.
void vic_config_paper(vic_config *config, size_t config_size, uint64_t tick_hz);

// Makes a machine that has seen nothing: ratio 1, nothing held.
//
// `state_size` is `sizeof(vic_state)`; `error` may be null. On an error the memory is as it was.
//
// Requires:
// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes as
// its `struct_size` says; `error` is null or points to a `coalesce_error`.
COALESCE_MUST_USE
coalesce_status vic_init(vic_state *state,
                         size_t state_size,
                         const vic_config *config,
                         coalesce_error *error);

// Takes a new configuration, with what is held, and decides about it. The epoch that runs, its ratio, and `tick_hz` stay.
// On an error nothing has changed; `error` may be null.
//
// Requires:
// As `vic_init`, of a state that nobody else uses during the call.
COALESCE_MUST_USE
coalesce_status vic_reconfigure(vic_state *state,
                                const vic_config *config,
                                uint64_t now,
                                coalesce_error *error);

// A command completed; `cif` commands were in flight, counting this one: decrement your counter, then, inside the
// serialisation that protects the state, load it again, and add one.
//
// Requires:
// `state` is null or points to a `vic_state` that nobody else uses during the call.
COALESCE_MUST_USE coalesce_status vic_on_completion(vic_state *state, uint64_t now, uint32_t cif);

// The same, with the instant at which the guest's timeslice ends (Xen §4). One that is not in the future says nothing.
//
// Requires:
// As `vic_on_completion`.
COALESCE_MUST_USE
coalesce_status vic_on_completion_in_slice(vic_state *state,
                                           uint64_t now,
                                           uint32_t cif,
                                           uint64_t slice_end);

// When `vic_on_deadline` must be called if nothing happens before; `COALESCE_NEVER`: nothing is held, or not bounded.
// May change in every call.
//
// Requires:
// `state` is null or points to a `vic_state` that nobody changes during the call.
uint64_t vic_deadline(const vic_state *state);

// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
//
// Requires:
// As `vic_on_completion`.
COALESCE_MUST_USE coalesce_status vic_on_deadline(vic_state *state, uint64_t now);

// Queue stop, reset, migration: announces what is held. A failed command completes as any other, by `vic_on_completion`;
// call this after it.
//
// Requires:
// As `vic_on_completion`.
COALESCE_MUST_USE
coalesce_status vic_flush(vic_state *state,
                          uint64_t now);

// The guest has been put on a CPU: announces what is held.
//
// Requires:
// As `vic_on_completion`.
COALESCE_MUST_USE coalesce_status vic_on_schedule(vic_state *state, uint64_t now);

// The guest is taken off its CPU: announces what is held. Until `vic_on_schedule` neither time nor completions count for
// the rate.
//
// Requires:
// As `vic_on_completion`.
COALESCE_MUST_USE
coalesce_status vic_on_deschedule(vic_state *state,
                                  uint64_t now);

// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the serialisation that
// protects the state, the guest's index equals what was posted.
//
// Requires:
// As `vic_on_completion`.
coalesce_status vic_on_consumed(vic_state *state, uint64_t now);

// Looks at a machine. `info_size` is `sizeof(vic_info)`.
//
// Requires:
// `state` is null or points to a `vic_state` that nobody changes during the call; `info` is null or points to
// `info_size` bytes.
coalesce_status vic_get_info(const vic_state *state, vic_info *info, size_t info_size);

// Why the last decision was taken: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` if there was none, or no such state.
//
// Requires:
// As `vic_deadline`.
uint32_t vic_reason(const vic_state *state);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* COALESCE_H */
