/* libcoalesce: interrupt now, or wait for company?
 *
 *     if (coalesce_vic_on_completion(&queue->vic, now, cif) != COALESCE_HOLD)
 *         interrupt(queue);
 *     set_timer(queue, coalesce_vic_deadline(&queue->vic)); it calls coalesce_vic_on_deadline, and does the same
 *
 * A timer is needed, or a loop that compares the deadline in each turn: else what is held when the last command completes
 * waits for ever.
 *
 * A state is memory of the caller's, for one thread at a time. Time is the caller's, too: ticks of one monotonic clock. No
 * function blocks or keeps a pointer, and only those of texts, of coalesce_policy and of coalesce_delivery allocate. What is
 * wrong is answered with a negative status: interrupt.
 *
 * In this order: versions; what functions answer, and why; hints; any policy behind one handle, and the interrupts of a
 * device that interrupts by itself; then each machine by itself, and what goes with them.
 *
 * Made from crates/ffi: do not edit. */

#ifndef COALESCE_H
#define COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Define COALESCE_BARE_METAL for a library that is built for a device: it has no functions for texts. */
#ifndef COALESCE_BARE_METAL
#define COALESCE_HOSTED
#endif

/* The IPI gate needs 64-bit atomics, and uint64_t members aligned for them, which i386 does not have. */
#if defined(__GCC_ATOMIC_LLONG_LOCK_FREE) && __GCC_ATOMIC_LLONG_LOCK_FREE == 2 && !defined(__i386__)
#define COALESCE_HAS_IPI_GATE
#endif

#ifdef __GNUC__
#define COALESCE_MUST_USE __attribute__((warn_unused_result))
#else
#define COALESCE_MUST_USE
#endif

/* Checks that the compiler lays out a type as the library does. Before C11 and C++11 it checks only the size. */
#if defined(__cplusplus) && __cplusplus >= 201103L
#define COALESCE_LAYOUT(type, size, word) static_assert(sizeof(type) == size && alignof(type) == alignof(word), #type)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define COALESCE_LAYOUT(type, size, word) _Static_assert(sizeof(type) == size && _Alignof(type) == _Alignof(word), #type)
#else
#define COALESCE_LAYOUT(type, size, word) typedef char coalesce_layout_of_##type[sizeof(type) == size ? 1 : -1]
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== Versions ==== */

/** The version of the header as a number that grows: 1002003 is 1.2.3. */
#define COALESCE_VERSION_NUMBER (COALESCE_VERSION_MAJOR * 1000000 + COALESCE_VERSION_MINOR * 1000 + COALESCE_VERSION_PATCH)

/** The version of the header is `COALESCE_VERSION_MAJOR.COALESCE_VERSION_MINOR.COALESCE_VERSION_PATCH`. */
#define COALESCE_VERSION_MAJOR 0

/** The minor version of the header. */
#define COALESCE_VERSION_MINOR 1

/** The patch version of the header. */
#define COALESCE_VERSION_PATCH 0

/** The version of the layout of states. */
#define COALESCE_ABI_VERSION 1

/** `COALESCE_ABI_VERSION` of the library. It refuses states of a library with another one. */
uint32_t coalesce_abi_version(void);

/** The version of the library, such as "0.1.0". */
const char *coalesce_version(void);

/* ==== What functions answer ==== */

/**
 * What a function answers: that it is done (0), a decision (more than 0), or an error (less than 0). Of a function
 * that decides, only `COALESCE_HOLD` suppresses an interrupt: on every other value, errors included, interrupt.
 * Numbers are never reused.
 */
typedef int32_t coalesce_status;

/** Done. No decision: a function that decides never returns it. */
#define COALESCE_OK 0

/** A decision: do not interrupt now. */
#define COALESCE_HOLD 1

/** A decision: interrupt now. The interrupt covers everything posted so far. */
#define COALESCE_DELIVER 2

/** A decision: interrupt now, for this urgent completion alone; held completions stay held (cinterrupts §3.5). */
#define COALESCE_DELIVER_URGENT 3

/** A pointer is null. */
#define COALESCE_E_NULL (-1)

/** A state is not aligned to 8 bytes, or a queue not to 4. */
#define COALESCE_E_ALIGNMENT (-2)

/** The memory is not a state of this kind that this library has initialised. */
#define COALESCE_E_STATE (-3)

/** A size differs from the one in this library's header: header and library differ, or the memory is too small. */
#define COALESCE_E_SIZE (-4)

/** A parameter is out of range. The `coalesce_error` has the parameter and its bounds. */
#define COALESCE_E_CONFIG (-5)

/** The message for a status, in English. Never null. */
const char *coalesce_strerror(coalesce_status status);

/* ==== Why a decision was taken ==== */

/** No decision yet. */
#define COALESCE_REASON_NONE 0

/** Delivered: a completion was held for `max_hold`. */
#define COALESCE_REASON_MAX_HOLD 1

/** Delivered: the guest's timeslice ends before the next interrupt is expected. */
#define COALESCE_REASON_SLICE_END 2

/** Delivered: CIF is below `cif_threshold` (vIC); latency budget: no company expected. */
#define COALESCE_REASON_LOW_CIF 3

/** Delivered: it is this completion's turn in a cycle of the delivery ratio. */
#define COALESCE_REASON_RATIO 4

/** Delivered: the delivery ratio is 1. */
#define COALESCE_REASON_ALWAYS 5

/** Delivered: with this completion, more than max(1, CIF / (2 * `cif_threshold`)) would be held (`live_clamp`). */
#define COALESCE_REASON_LIVE_CLAMP 6

/** Delivered: at queue stop, reset or migration, or when nothing may be held. */
#define COALESCE_REASON_FLUSH 7

/** Delivered: the guest was scheduled on a CPU. */
#define COALESCE_REASON_SCHEDULE 8

/** Delivered: the guest was descheduled from its CPU. */
#define COALESCE_REASON_DESCHEDULE 9

/** Delivered: Δ passed without a completion. */
#define COALESCE_REASON_DELTA 10

/** Delivered: an interrupt that the storm guard had deferred. */
#define COALESCE_REASON_STORM 11

/** Delivered: a ticket or a hint is invalid, or a command failed (`nvme`). */
#define COALESCE_REASON_ERROR 12

/** Delivered: a Barrier has completed; if Barriers are strict, its whole batch. */
#define COALESCE_REASON_BARRIER 13

/** Delivered: somebody waits for this command. */
#define COALESCE_REASON_URGENT 14

/** Delivered: the count reached its limit: `thr` (cint, latency budget) or the threshold (`nvme`, `dim`). */
#define COALESCE_REASON_COUNT 15

/** Delivered: the CIF is below the threshold T, or more than max(1, CIF / 2T) would be held (the `in_flight` rule). */
#define COALESCE_REASON_IN_FLIGHT 16

/** Delivered: the device has posted everything that it had to post. */
#define COALESCE_REASON_BATCH_END 17

/** Delivered: the aggregation time (NVMe Feature 08h, `dim`) or the delay (`spdk_vhost`) passed. */
#define COALESCE_REASON_TIME 18

/** Delivered: the first completion of a poll. */
#define COALESCE_REASON_LEADING_EDGE 19

/** Delivered: coalescing is disabled (NVMe Features 08h, 09h). */
#define COALESCE_REASON_DISABLED 20

/** Delivered: the command belongs to the admin queue. */
#define COALESCE_REASON_ADMIN 21

/** Delivered: the latency budget cannot pay for a hold, or 2 ε of the outstanding commands are held already. */
#define COALESCE_REASON_BUDGET 22

/** Delivered: no completion came for eight times the usual gap (latency budget). */
#define COALESCE_REASON_SILENCE 23

/**
 * Delivered: the regulator of `auto` has found that holding slows the requesters down, or compares holding with not
 * holding.
 */
#define COALESCE_REASON_SLOWDOWN 24

/** Held: it is not this completion's turn in a cycle of the delivery ratio. */
#define COALESCE_REASON_HOLD_RATIO 32

/** Held: nothing is held, so an interrupt would cover nothing. */
#define COALESCE_REASON_HOLD_NOTHING_HELD 33

/** Held: the deadline has not passed. */
#define COALESCE_REASON_HOLD_EARLY 34

/** Held: the new configuration is in force, and nothing is due under it. */
#define COALESCE_REASON_HOLD_RECONFIGURED 35

/** Held: the burst continues. */
#define COALESCE_REASON_HOLD_BURST 36

/** Held: an interrupt is due, and the storm guard defers it. */
#define COALESCE_REASON_HOLD_STORM 37

/** Held: the command was cancelled, and nothing is due. */
#define COALESCE_REASON_HOLD_CANCELLED 38

/** Held: neither the threshold nor the time is reached (NVMe Feature 08h, `dim`). */
#define COALESCE_REASON_HOLD_AGGREGATE 39

/** Held: the poll continues (`batch`, `spdk_vhost`). */
#define COALESCE_REASON_HOLD_BATCH 40

/** Held: others are expected to share the interrupt, and the budget pays for the wait. */
#define COALESCE_REASON_HOLD_COMPANY 41

/** Held: a trial finds out whether holding makes the requests faster (latency budget). */
#define COALESCE_REASON_HOLD_PROBE 42

/** Held: the host has work enough, and trials have shown that holding makes the requests faster (`auto`, licensed). */
#define COALESCE_REASON_HOLD_LICENSED 43

/** The name of a reason, as in traces and statistics. Never null. */
const char *coalesce_reason_name(uint32_t reason);

/* ==== Instants: ticks of the caller's clock ==== */

/**
 * An instant that never comes: no deadline, no bound, or unknown. As a deadline it does not mean that nothing is held: what ends
 * a hold without a bound in time is said where the deadline is read.
 */
#define COALESCE_NEVER UINT64_MAX

/* ==== Hints of the requester about a command, and their encodings (cinterrupts §3.3, §3.4, §4.1) ==== */

/** No hint, or no hurry: the policy decides. */
#define COALESCE_HINT_PLAIN 0

/** The last command of a batch: interrupt when the batch is complete. */
#define COALESCE_HINT_BARRIER 1

/** Somebody waits for this command: interrupt at once. */
#define COALESCE_HINT_URGENT 2

/** Of a completion: a Barrier that failed. Interrupt at once, and it is the end of its batch. */
#define COALESCE_HINT_FAILED_BARRIER 3

/** `read`, `pread`, `readv`, `preadv` */
#define COALESCE_CALL_READ 0

/** `write`, `pwrite`, `writev`, `pwritev` */
#define COALESCE_CALL_WRITE 1

/** `preadv2`, `pwritev2` */
#define COALESCE_CALL_VECTORED2 2

/** One request of an `io_submit` */
#define COALESCE_CALL_IO_SUBMIT 3

/** `sync`, `fsync`, `fdatasync`, `syncfs` */
#define COALESCE_CALL_SYNC 4

/** One request of an `msync` */
#define COALESCE_CALL_MSYNC 5

/** The file descriptor has `O_NONBLOCK`, or a vectored call has `RWF_NOWAIT`. */
#define COALESCE_CALL_NONBLOCK 1

/** The file descriptor has `O_DIRECT`. */
#define COALESCE_CALL_DIRECT 2

/** The paper's `RWF_URGENT`. */
#define COALESCE_CALL_URGENT 4

/** The paper's `RWF_BARRIER`. */
#define COALESCE_CALL_BARRIER 8

/** `MS_SYNC` */
#define COALESCE_CALL_MS_SYNC 16

/** It is the last request of its call. */
#define COALESCE_CALL_LAST 32

/**
 * The hint in two bits: bit 0 is Urgent, bit 1 is Barrier, other bits are ignored. Both bits together mean Urgent if
 * `both_is_urgent`, otherwise Plain. Use it for hints in other bits than those of `coalesce_hint_from_cdw12`; shift
 * them first.
 */
uint32_t coalesce_hint_from_bits(uint32_t bits, bool both_is_urgent);

/**
 * The hint in bits 17:16 of Command Dword 12 of an NVMe read or write, our choice of the reserved bits that
 * cinterrupts §4.2.1 asks for: bit 16 is Urgent, bit 17 is Barrier. Both bits together mean Urgent if
 * `both_is_urgent`, otherwise Plain. NVMe 1.0 to 1.4 and the NVM Command Set 1.0 reserve these bits. Later versions
 * define bits 19:16 as CETYPE, the command extension type, which a host sets for a controller with Key Per I/O. With
 * such a controller, use `coalesce_hint_from_access_latency`, or agree on other bits and use
 * `coalesce_hint_from_bits`.
 */
uint32_t coalesce_hint_from_cdw12(uint32_t cdw12, bool both_is_urgent);

/** The hint in bits 5:4, the access latency, of Command Dword 13 of an NVMe read or write: 11b, low, is Urgent. */
uint32_t coalesce_hint_from_access_latency(uint32_t cdw13);

/**
 * The hint of a request merged from two (§4.1.1): Urgent wins over Barrier, and Barrier over Plain. An unknown hint
 * counts as Urgent.
 */
uint32_t coalesce_hint_merge(uint32_t a, uint32_t b);

/**
 * The hint of one part of a split request (§4.1.1). Each part keeps the hint, except that a strict Barrier stays with
 * the last part. An unknown hint counts as Urgent.
 */
uint32_t coalesce_hint_split(uint32_t hint, bool is_last, bool barriers_are_strict);

/**
 * The hint of a request by the system call that caused it (cinterrupts Table 1). `call` and `flags` are
 * `COALESCE_CALL_...`; flags that do not apply to the call are ignored. A call that blocks its caller is Urgent. A
 * call that submits a batch puts a Barrier on its last request. An unknown call is Urgent.
 */
uint32_t coalesce_hint_from_call(uint32_t call, uint32_t flags);

#if defined(COALESCE_HOSTED)
/* ==== Any policy behind one handle: the simple interface, on hosts ==== */

/** Initialisers of a coalesce_mark for a request whose submission was not reported: without a hint, and with this hint. */
#define COALESCE_MARK_NONE COALESCE_MARK_OF(COALESCE_HINT_PLAIN)
#define COALESCE_MARK_OF(hint) {COALESCE_NO_TICKET, (hint), COALESCE_NO_SOURCE}

/** A flush. */
#define COALESCE_REQUEST_FLUSH 1

/** A write that must be on the medium before it completes. */
#define COALESCE_REQUEST_DURABLE 2

/** The last request of a kick. */
#define COALESCE_REQUEST_LAST 4

/** A hint that was not inferred. */
#define COALESCE_NO_SOURCE UINT32_MAX

/** A command of an I/O queue. */
#define COALESCE_CLASS_IO 0

/** A command of the admin queue. */
#define COALESCE_CLASS_ADMIN 1

/**
 * A command that failed, or that was aborted and will not complete. It is not held, but by "batch", "spdk_vhost" and "dim", which do
 * not look at it, as what they are modelled on does not, and by a storm guard in a storm.
 */
#define COALESCE_CLASS_FAILED 2

/** A policy for one interrupt vector. The library allocates it, because its size depends on the policy. */
typedef struct coalesce_policy coalesce_policy;

/** A request at its submission. */
typedef struct {
  /** `sizeof(coalesce_request)` */
  uint32_t struct_size;
  /** A combination of `COALESCE_REQUEST_...`. */
  uint32_t flags;
  /** The number of requests outstanding (submitted and not reaped by the guest), including this one. */
  uint32_t outstanding;
  /** The number of requests that were submitted with the same kick, including this one. */
  uint32_t batch_len;
  /** Linux I/O priority: class in bits 15:13; 0: not given. */
  uint32_t ioprio;
  /** The requester's own hint: `COALESCE_HINT_...`. If it is Plain, the policy infers a hint from the other fields. */
  uint32_t hint;
  /** The group of submitters that it belongs to, for strict Barriers. 0 to 15. */
  uint32_t group;
  /** Requests that were submitted before it and not reported. */
  uint32_t before;
} coalesce_request;
COALESCE_LAYOUT(coalesce_request, 32, uint32_t);

/**
 * What the caller keeps for a request from its submission to its completion. `COALESCE_MARK_NONE` and
 * `COALESCE_MARK_OF(hint)` initialise a mark for a request whose submission was not reported.
 */
typedef struct {
  /** The ticket, for strict Barriers. */
  uint64_t ticket;
  /** `COALESCE_HINT_...` */
  uint32_t hint;
  /** What the hint was inferred from; `COALESCE_NO_SOURCE`: the requester gave it, or there is none. */
  uint32_t source;
} coalesce_mark;
COALESCE_LAYOUT(coalesce_mark, 16, uint64_t);

/** A command at its completion. */
typedef struct {
  /** `sizeof(coalesce_completion)` */
  uint32_t struct_size;
  /**
   * Commands in flight on this interrupt vector, including this one; 0 counts as 1. Needed: with 1 vIC holds
   * nothing, and a latency budget nothing either, whatever submissions say, unless `outstanding` says more.
   */
  uint32_t cif;
  /** Commands outstanding (submitted and not reaped) on this interrupt vector, including this one; 0: unknown. */
  uint32_t outstanding;
  /** `COALESCE_CLASS_...`; an unknown class counts as failed. */
  uint32_t class_of;
  /** The mark from `coalesce_policy_on_submit`. */
  coalesce_mark mark;
  /** The end of the guest's timeslice; `COALESCE_NEVER`: unknown. */
  uint64_t slice_end;
  /**
   * The number of Plain commands of an I/O queue, without a ticket, that completed just before it; at most 65535. They
   * need no `mark`. For a device that reports the completions of a poll together.
   */
  uint32_t before;
} coalesce_completion;
COALESCE_LAYOUT(coalesce_completion, 48, uint64_t);

/** What a device did without asking. */
typedef struct {
  /** `sizeof(coalesce_bypassed)` */
  uint32_t struct_size;
  /** Interrupts that were sent; at most 65535. */
  uint32_t interrupts;
  /** Interrupts that the guest did not want; at most 65535. */
  uint32_t suppressed;
  /** The most commands outstanding at one of these completions, as far as the caller knows, counting it. */
  uint32_t outstanding;
  /** Completions, all of which these interrupts cover. */
  uint64_t completions;
} coalesce_bypassed;
COALESCE_LAYOUT(coalesce_bypassed, 24, uint64_t);

/** The latency budget of a policy, and what it has spent. */
typedef struct {
  /** The time for which completions were held, in ticks summed over them. It saturates. */
  uint64_t held_time;
  /** The time that requests spent, in ticks summed over them. It saturates. */
  uint64_t outstanding_time;
  /** The time that trials may have cost beyond the budget so far, in ticks summed over the requests. */
  uint64_t learning;
  /** The share of `outstanding_time` that holding may add, in basis points (1/100 %); 0: the policy has no budget. */
  uint32_t budget;
} coalesce_spent;
COALESCE_LAYOUT(coalesce_spent, 32, uint64_t);

/** A function that receives one counter. */
typedef void (*coalesce_counter)(void *context, const char *reason, bool is_hold, uint64_t count);

/**
 * Creates a policy from its text form, such as "auto", "vic:cif_threshold=2", "cint:delta=20us" or "none", for a clock
 * of `tick_hz` ticks per second. If the text is invalid, returns null and writes the reason to `message`, which may be
 * null.
 *
 * Requires:
 * `text` is null or a zero-terminated text; `message` is null or points to `message_size` bytes.
 */
COALESCE_MUST_USE
coalesce_policy *coalesce_policy_new(const char *text,
                                     uint64_t tick_hz,
                                     char *message,
                                     size_t message_size);

/**
 * Frees a policy; null is allowed. Flush it first, so that no held completion loses its interrupt.
 *
 * Requires:
 * `policy` is null, or a policy that nobody uses any more.
 */
void coalesce_policy_free(coalesce_policy *policy);

/**
 * Changes the policy or its parameters, and decides about the held completions. `COALESCE_E_CONFIG`: the text is
 * invalid, `message` has the reason, and nothing has changed; this error needs no interrupt.
 *
 * Requires:
 * As `coalesce_policy_new`; `policy` is null or a policy that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_policy_reconfigure(coalesce_policy *policy,
                                            uint64_t now,
                                            const char *text,
                                            char *message,
                                            size_t message_size);

/**
 * Writes the text form of a policy. Returns the length of the whole text, as `snprintf` does.
 *
 * Requires:
 * `policy` is null or a policy that nobody changes during the call; `text` is null or points to `text_size` bytes.
 */
size_t coalesce_policy_print(const coalesce_policy *policy, char *text, size_t text_size);

/**
 * Reports a submitted request. Keep its `mark`, and pass it when the request completes. On an error the mark is
 * Urgent, so that the completion interrupts. Requests without hints and flags need no call and no mark, unless the
 * policy wants each (`coalesce_policy_wants_each_submit`): `outstanding` and `before` of a later one count them. If it
 * does, a null `mark` is an error, as nobody could say when the request completes.
 *
 * Requires:
 * `policy` is null or a policy that nobody else uses during the call; `request` is null or points to as many bytes as
 * its `struct_size` says; `mark` is null or points to a `coalesce_mark`.
 */
coalesce_status coalesce_policy_on_submit(coalesce_policy *policy,
                                          uint64_t now,
                                          const coalesce_request *request,
                                          coalesce_mark *mark);

/**
 * The hint of an NVMe read or write, from its Command Dwords 12 and 13: in the bits that the policy's key `bits`
 * names, `cdw12:16` if it names none; else in the access latency. For `hint` of a `coalesce_request`. Without a policy
 * it is Urgent.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
uint32_t coalesce_policy_hint(const coalesce_policy *policy, uint32_t cdw12, uint32_t cdw13);

/**
 * Decides about a completed command, and `before` others before it. It decides about one after the other until one
 * delivers. That interrupt covers them all.
 *
 * Requires:
 * `policy` is null or a policy that nobody else uses during the call; `completion` is null or points to as many bytes
 * as its `struct_size` says.
 */
COALESCE_MUST_USE
coalesce_status coalesce_policy_on_completion(coalesce_policy *policy,
                                              uint64_t now,
                                              const coalesce_completion *completion);

/**
 * The instant at which to call `coalesce_policy_on_deadline`; `COALESCE_NEVER`: nothing is held, or, under a "vic" without
 * `max_hold` such as "vic:profile=paper", up to `max_skip` - 1 further completions end the hold. Every call may change it. What waits for `coalesce_policy_on_batch_end` alone is due at once: 1; so who reports the
 * end of a poll looks at deadlines between polls, not between the completions of one.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
uint64_t coalesce_policy_deadline(const coalesce_policy *policy);

/**
 * Decides at the deadline. Early, late and repeated calls are harmless.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_policy_on_deadline(coalesce_policy *policy, uint64_t now);

/**
 * Whether the policy may hold the next completion. If not, the decision needs no mark and no commands in flight, and
 * the caller may leave out `coalesce_policy_on_submit` until that decision. The caller can also interrupt without
 * asking, and report with `coalesce_policy_on_bypassed`, every 256 interrupts at the latest. False with "none", and with
 * "auto" during a bypass, which begins where 64 calls of `coalesce_policy_on_completion` reported 8 completions each, or one,
 * of the only command outstanding. The answer may change with each decision and each report.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
bool coalesce_policy_may_hold(const coalesce_policy *policy);

/**
 * Reports what was delivered without a decision since the last call, while `coalesce_policy_may_hold` was false: nothing is held any
 * more.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`; `bypassed` is null or points to as many bytes as its `struct_size` says.
 */
coalesce_status coalesce_policy_on_bypassed(coalesce_policy *policy,
                                            uint64_t now,
                                            const coalesce_bypassed *bypassed);

/**
 * Whether the policy wants `coalesce_policy_on_submit`. May change with the configuration.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
bool coalesce_policy_wants_submit(const coalesce_policy *policy);

/**
 * Whether the policy wants `coalesce_policy_on_submit` for each request, as strict Barriers do. If not, of several
 * requests before the next decision or reconfiguration only the last need be reported. A request that is left out has
 * no flag, no hint and no priority class real time or idle, and it is not the only one outstanding. May change with
 * the configuration.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
bool coalesce_policy_wants_each_submit(const coalesce_policy *policy);

/**
 * Whether the policy wants `coalesce_policy_on_batch_end` after each poll of the device.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
bool coalesce_policy_wants_batch_end(const coalesce_policy *policy);

/**
 * Notes that the device has posted everything that it had to post in one pass. This batch is the device's, not the
 * requester's batch of a Barrier.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_policy_on_batch_end(coalesce_policy *policy, uint64_t now);

/**
 * Delivers everything held: for a queue stop, a reset and a migration.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_policy_flush(coalesce_policy *policy, uint64_t now);

/**
 * Notes that the guest has reaped everything without an interrupt. Call it only if the guest has reaped up to the last
 * posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's),
 * with all indices read inside the lock that protects the policy.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
coalesce_status coalesce_policy_on_consumed(coalesce_policy *policy,
                                            uint64_t now);

/**
 * Notes that the queue was reset: commands in flight will not complete. Delivers everything held, and forgets what
 * `auto` has learned.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_policy_reset(coalesce_policy *policy, uint64_t now);

/**
 * Notes that a command was aborted and will not complete. `mark` is its mark from `coalesce_policy_on_submit`. With
 * strict Barriers it decides as `coalesce_cint_on_cancel` does: it delivers if the abort completes a batch. Every
 * other policy delivers everything held, whereas `coalesce_cint_on_cancel` without a ticket holds.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`; `mark` is null or points to a `coalesce_mark`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_policy_on_cancel(coalesce_policy *policy,
                                          uint64_t now,
                                          const coalesce_mark *mark);

/**
 * Notes that the guest was scheduled on a CPU, and delivers everything held.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_policy_on_schedule(coalesce_policy *policy, uint64_t now);

/**
 * Notes that the guest was descheduled from its CPU, and delivers everything held.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_policy_on_deschedule(coalesce_policy *policy, uint64_t now);

/**
 * The number of held completions: posted, and not covered by an interrupt.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
uint64_t coalesce_policy_held(const coalesce_policy *policy);

/**
 * The longest time, in ticks, that a completion is held if deadlines are met; `COALESCE_NEVER`: no bound. May change
 * with the configuration.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
uint64_t coalesce_policy_max_hold(const coalesce_policy *policy);

/**
 * The number of submissions that strict Barriers could not track, because their group is unknown or has too many
 * commands in flight. Their marks have no ticket. Saturates; 0 without strict Barriers.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
uint32_t coalesce_policy_untracked(const coalesce_policy *policy);

/**
 * The number of calls whose time was before that of the previous call. Saturates at 65535. "vic" and "cint" count
 * them, from 0 again after a change between the two, or between relaxed and strict Barriers. 0 under every other
 * policy.
 *
 * Requires:
 * As `coalesce_policy_print`.
 */
uint32_t coalesce_policy_times_back(const coalesce_policy *policy);

/**
 * Reads what the latency budget has spent.
 *
 * Requires:
 * As `coalesce_policy_print`; `spent` is null or points to a `coalesce_spent`.
 */
coalesce_status coalesce_policy_spent(const coalesce_policy *policy, coalesce_spent *spent);

/**
 * Calls `counter` for each reason, with the number of decisions.
 *
 * Requires:
 * As `coalesce_policy_print`; `counter` returns normally (no exception, no `longjmp`) and does not use the policy.
 */
coalesce_status coalesce_policy_stats(const coalesce_policy *policy, coalesce_counter counter, void *context);

/**
 * Resets the counters of decisions.
 *
 * Requires:
 * As `coalesce_policy_reconfigure`.
 */
coalesce_status coalesce_policy_reset_stats(coalesce_policy *policy);

/* ==== A policy, and the interrupts of a device that posts and interrupts by itself, on hosts ==== */

/** The interrupt was sent. */
#define COALESCE_INTERRUPT_SENT 0

/** The guest wants no interrupt, and finds the completions by itself. */
#define COALESCE_INTERRUPT_UNWANTED 1

/** The interrupt could not be sent now. It is due, whether the policy has decided so or not. */
#define COALESCE_INTERRUPT_FAILED 2

/**
 * A policy for one interrupt vector, and what it holds. It keeps the order of decision and interrupt: what it has decided to
 * deliver stays due until `coalesce_delivery_interrupted`, whatever happens in between. That interrupt covers everything that
 * completed before it. Functions that return a decision answer `COALESCE_DELIVER` as long as an interrupt is due.
 *
 * The device posts a completion, reports it, and interrupts if one is due and the guest wants it; then it says so.
 */
typedef struct coalesce_delivery coalesce_delivery;

/** What may change with every call. */
typedef struct {
  /**
   * The instant at which to call `coalesce_delivery_on_deadline`; 1: an interrupt is due; `COALESCE_NEVER`: nothing waits for an
   * instant, as `coalesce_policy_deadline`.
   */
  uint64_t deadline;
  /** Completions that are held. Those for which an interrupt is due are not. */
  uint64_t held;
  /** An interrupt is due. */
  bool is_due;
  /**
   * As `coalesce_policy_may_hold`: if it may not, and nothing is held or due, the device may interrupt without asking.
   */
  bool may_hold;
  /** As `coalesce_policy_wants_submit`. */
  bool wants_submit;
  /** As `coalesce_policy_wants_each_submit`. */
  bool wants_each_submit;
  /** As `coalesce_policy_wants_batch_end`. */
  bool wants_batch_end;
} coalesce_delivery_view;
COALESCE_LAYOUT(coalesce_delivery_view, 24, uint64_t);

/** What was counted since the beginning, or since `coalesce_delivery_reset_stats`. */
typedef struct {
  /** Completions. */
  uint64_t completions;
  /** Interrupts that were sent. */
  uint64_t interrupts;
  /** Interrupts that the guest did not want. */
  uint64_t suppressed;
  /** Completions that the guest reaped while they were held. */
  uint64_t consumed;
  /** Completions that were held, and are not any more. `coalesce_delivery_hold_ns` says for how long. */
  uint64_t holds;
  /** The mean of the times for which they were held, in ns. */
  uint64_t hold_mean_ns;
} coalesce_delivery_counts;
COALESCE_LAYOUT(coalesce_delivery_counts, 48, uint64_t);

/**
 * Creates a delivery: a policy from its text form, as `coalesce_policy_new`.
 *
 * Requires:
 * As there.
 */
COALESCE_MUST_USE
coalesce_delivery *coalesce_delivery_new(const char *text,
                                         uint64_t tick_hz,
                                         char *message,
                                         size_t message_size);

/**
 * Frees a delivery; null is allowed. Flush it first, and interrupt, so that no held completion loses its interrupt.
 *
 * Requires:
 * `delivery` is null, or a delivery that nobody uses any more, nor its policy.
 */
void coalesce_delivery_free(coalesce_delivery *delivery);

/**
 * Its policy, for the functions of a `coalesce_policy` that take a `const` one: text form, statistics, hints. Null for null.
 *
 * Requires:
 * `delivery` is null, or a delivery that nobody changes as long as the answer is used.
 */
const coalesce_policy *coalesce_delivery_policy(const coalesce_delivery *delivery);

/**
 * What may change with every call. Without a delivery, an interrupt is due.
 *
 * Requires:
 * `delivery` is null, or a delivery that nobody changes during the call; `view` is null or points to `view_size` bytes.
 */
coalesce_status coalesce_delivery_look(const coalesce_delivery *delivery,
                                       coalesce_delivery_view *view,
                                       size_t view_size);

/**
 * Changes the policy or its parameters, as `coalesce_policy_reconfigure`, and decides about what is held. What is due stays due.
 * `COALESCE_E_CONFIG`: the text is invalid, `message` has the reason, and nothing has changed; this error needs no interrupt.
 *
 * Requires:
 * As `coalesce_policy_new`; `delivery` is null or a delivery that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_delivery_reconfigure(coalesce_delivery *delivery,
                                              uint64_t now,
                                              const char *text,
                                              char *message,
                                              size_t message_size);

/**
 * Reports a submitted request, as `coalesce_policy_on_submit`.
 *
 * Requires:
 * As there; `delivery` is null or a delivery that nobody else uses during the call.
 */
coalesce_status coalesce_delivery_on_submit(coalesce_delivery *delivery,
                                            uint64_t now,
                                            const coalesce_request *request,
                                            coalesce_mark *mark);

/**
 * Reports a completed command, and `before` others before it, of which only 65535 are decided about. The guest sees them all
 * before it is interrupted. After an error of `completion` an interrupt is due.
 *
 * Requires:
 * `delivery` is null or a delivery that nobody else uses during the call; `completion` is null or points to as many bytes
 * as its `struct_size` says.
 */
COALESCE_MUST_USE
coalesce_status coalesce_delivery_on_completion(coalesce_delivery *delivery,
                                                uint64_t now,
                                                const coalesce_completion *completion);

/**
 * The device has posted everything that it found in one pass. From the first call on, what waits for the end of a batch is not due
 * before it: who calls this once calls it after each pass.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_delivery_on_batch_end(coalesce_delivery *delivery,
                                               uint64_t now);

/**
 * Decides at the deadline. Early, late and repeated calls are harmless.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_delivery_on_deadline(coalesce_delivery *delivery, uint64_t now);

/**
 * What became of an interrupt: `COALESCE_INTERRUPT_...`; any other number is as `COALESCE_INTERRUPT_FAILED`. Before this call report
 * everything that completed before the interrupt, and nothing that completed after it: it would be taken to be covered.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
coalesce_status coalesce_delivery_interrupted(coalesce_delivery *delivery,
                                              uint64_t now,
                                              uint32_t outcome);

/**
 * Reports what the device did without asking: interrupts for completions that it has not reported, while `may_hold` and `is_due` were
 * false and `held` was 0. Before the next other report, and every 256 interrupts at the latest. If something is held by now, an
 * interrupt is due.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`; `bypassed` is null or points to as many bytes as its `struct_size` says.
 */
coalesce_status coalesce_delivery_bypassed(coalesce_delivery *delivery,
                                           uint64_t now,
                                           const coalesce_bypassed *bypassed);

/**
 * Notes that the guest has reaped everything without an interrupt, as `coalesce_policy_on_consumed`. What is due stays due.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
coalesce_status coalesce_delivery_on_consumed(coalesce_delivery *delivery,
                                              uint64_t now);

/**
 * Notes that a command was aborted and will not complete, as `coalesce_policy_on_cancel`.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`; `mark` is null or points to a `coalesce_mark`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_delivery_on_cancel(coalesce_delivery *delivery,
                                            uint64_t now,
                                            const coalesce_mark *mark);

/**
 * Notes that the guest was scheduled on a CPU, and delivers everything held.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_delivery_on_schedule(coalesce_delivery *delivery, uint64_t now);

/**
 * Notes that the guest was descheduled from its CPU, and delivers everything held.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_delivery_on_deschedule(coalesce_delivery *delivery, uint64_t now);

/**
 * Delivers everything held: for a queue stop, and for a migration.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
COALESCE_MUST_USE coalesce_status coalesce_delivery_flush(coalesce_delivery *delivery, uint64_t now);

/**
 * The queue is gone, with its completions: nothing is held and nothing is due any more. Commands in flight will not complete.
 * If the guest still waits for what was held, call `coalesce_delivery_flush` and interrupt before.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
coalesce_status coalesce_delivery_reset(coalesce_delivery *delivery,
                                        uint64_t now);

/**
 * Reads what was counted. `coalesce_policy_stats` has the decisions.
 *
 * Requires:
 * `delivery` is null, or a delivery that nobody changes during the call; `counts` is null or points to `counts_size` bytes.
 */
coalesce_status coalesce_delivery_stats(const coalesce_delivery *delivery,
                                        coalesce_delivery_counts *counts,
                                        size_t counts_size);

/**
 * A quantile, in millionths, of the time for which completions were held, in ns to 1 %: 500000 is the median, 1000000 the longest. 0:
 * none was held.
 *
 * Requires:
 * `delivery` is null, or a delivery that nobody changes during the call.
 */
uint64_t coalesce_delivery_hold_ns(const coalesce_delivery *delivery,
                                   uint32_t millionths);

/**
 * Resets what was counted, and the counters of decisions.
 *
 * Requires:
 * As `coalesce_delivery_reconfigure`.
 */
coalesce_status coalesce_delivery_reset_stats(coalesce_delivery *delivery);
#endif

/* ==== What is wrong with a parameter ==== */

/**
 * A parameter that is out of range. A function that takes one writes it on every error; if the status is not
 * `COALESCE_E_CONFIG`, all of it is 0, and `coalesce_error_print` has nothing to say.
 */
typedef struct {
  /** The parameter: `COALESCE_FIELD_...`; 0: none, the status says what is wrong. */
  uint32_t field;
  /**
   * The other parameter that sets this bound: `COALESCE_FIELD_...`; 0: the parameter's own range, `tick_hz`, or the
   * configuration in force sets it.
   */
  uint32_t because;
  /** The value of the parameter. */
  uint64_t value;
  /** The smallest value allowed here. */
  uint64_t min;
  /** The largest value allowed here. */
  uint64_t max;
  /** The value of the other parameter; 0 if `because` is 0. */
  uint64_t because_value;
} coalesce_error;
COALESCE_LAYOUT(coalesce_error, 40, uint64_t);

/* ==== A latency budget: it holds what a stated share of the requests' time pays for ==== */

/**
 * Parameters of a latency budget. Start from `coalesce_budget_config_default`: waiting for company adds at most 5 %
 * to the time your requests take, and more only while trials show that it makes them faster, taken together; a
 * request that is marked urgent or is alone does not wait, and no wait is longer than `max_hold`. A
 * `coalesce_budget_state` makes no trials, so it never adds more; a `coalesce_auto_state` does.
 */
typedef struct {
  /** `sizeof(coalesce_budget_config)` */
  uint32_t struct_size;
  /** ε: the largest share of the requests' time that holding may add, in basis points (1/100 %). 1 to 5000. */
  uint32_t budget;
  /** Ticks per second of the caller's clock. 1000 to 10000000000. */
  uint64_t tick_hz;
  /**
   * The longest time that a completion may be held, in ns. 1 ns to 1 s, and at most 500 million ticks. With a storm
   * guard it must be at least 1 s / storm_max_rate. With `ooo` and in a storm, a completion may be held longer by
   * less than 1 s / storm_max_rate.
   */
  uint64_t max_hold_ns;
  /**
   * The storm guard's limit: the most interrupts per second, on average. 1, or tick_hz / 125 million if that is
   * more, to tick_hz / 5; 0: no guard.
   */
  uint64_t storm_max_rate;
  /**
   * The weight of one interval between interrupts in the guard's moving average is 2^-storm_shift. 5 to 16 if
   * there is a guard; else it has no effect, 0 to 255.
   */
  uint32_t storm_shift;
  /**
   * The most completions that one interrupt covers, if there is no storm; Urgents that interrupted alone meanwhile
   * count too. 1 to 65535; 1: no coalescing.
   */
  uint32_t thr;
  /**
   * 1: the interrupt of an urgent completion covers it alone, and held completions stay held (cinterrupts §3.5),
   * unless `thr` ends their hold with it, or the budget can no longer pay for it; 0: it covers all. 1 needs a host
   * that reaps nothing but urgent completions at such an interrupt.
   */
  uint32_t ooo;
  /** Must be 0. */
  uint32_t reserved;
} coalesce_budget_config;
COALESCE_LAYOUT(coalesce_budget_config, 48, uint64_t);

/**
 * A latency budget for one interrupt vector, in the caller's memory: 112 bytes. Opaque. It contains no pointers and
 * owns nothing. It may be moved and copied while no thread uses it, and there is no destructor.
 */
typedef struct {
  /** Private to the library. */
  uint64_t opaque[14];
} coalesce_budget_state;
COALESCE_LAYOUT(coalesce_budget_state, 112, uint64_t);

/**
 * The state of a machine, for statistics. `held_time` is at most (`outstanding_time` - `held_time`) * budget / 10000 +
 * `learning`, beside what late deadlines add, and a storm guard. The budget is that of the configuration. Of a
 * `coalesce_auto_state` it is more where trials show that holding makes the requests faster.
 */
typedef struct {
  /**
   * Held completions: posted, and not covered by an interrupt. An urgent completion that interrupted alone is not
   * held.
   */
  uint32_t held;
  /**
   * 1: there is a storm: the average gap fell below the guard's interval, and has not exceeded twice the interval
   * since.
   */
  uint32_t is_storming;
  /** The longest time that a completion may be held, in ticks. */
  uint64_t max_hold;
  /** The time that trials of a regulator may take beyond the budget so far, in ticks summed over the requests. */
  uint64_t learning;
  /** The time for which completions were held, in ticks summed over them. It saturates. */
  uint64_t held_time;
  /** The time for which commands were outstanding, in ticks summed over them. It saturates. */
  uint64_t outstanding_time;
} coalesce_budget_info;
COALESCE_LAYOUT(coalesce_budget_info, 40, uint64_t);

/**
 * A budget of 5 %, and no completion is held for longer than 2 ms; `ooo` is 0.
 *
 * Requires:
 * `config` is null or points to `config_size` bytes.
 */
void coalesce_budget_config_default(coalesce_budget_config *config, size_t config_size, uint64_t tick_hz);

/**
 * Initialises a machine: nothing learned, nothing held. `state_size` is `sizeof(coalesce_budget_state)`; `error` may
 * be null. On an error the memory is unchanged.
 *
 * A state that holds something is forgotten with it: call `coalesce_budget_flush` first, and interrupt unless it returns hold.
 *
 * Requires:
 * `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
 * as its `struct_size` says; `error` is null or points to a `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_budget_init(coalesce_budget_state *state,
                                     size_t state_size,
                                     const coalesce_budget_config *config,
                                     coalesce_error *error);

/**
 * Changes the configuration, and decides about the held completions. What was learned and earned stays. `tick_hz`
 * cannot change. A storm guard with new parameters restarts. What the guard had deferred is delivered. On an error
 * nothing changes. `error` may be null.
 *
 * Requires:
 * As `coalesce_budget_init`, of a state that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_budget_reconfigure(coalesce_budget_state *state,
                                            const coalesce_budget_config *config,
                                            uint64_t now,
                                            coalesce_error *error);

/**
 * Notes `count` submitted commands.
 *
 * Requires:
 * `state` is null or points to a `coalesce_budget_state` that nobody else uses during the call.
 */
coalesce_status coalesce_budget_on_submits(coalesce_budget_state *state, uint64_t now, uint32_t count);

/**
 * Decides about a completed command. `hint` is `COALESCE_HINT_...`; an unknown hint delivers. `cif` is the number of
 * commands in flight, including this one. To get it, decrement your counter. Then load it again inside the lock that
 * protects the state, and add one. `outstanding` is the number of commands that are submitted and not reaped,
 * including this one; 0: unknown. For NVMe it is what lies between the tail of the submission queue and the head of
 * the completion queue, the commands in flight included.
 *
 * It needs `cif`; 0 counts as 1. If only `outstanding` is known, pass 1 and that: it then sends about twice as many
 * interrupts. With a `cif` of 1 and no `outstanding` it holds nothing, whatever was submitted.
 *
 * Requires:
 * As `coalesce_budget_on_submits`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_budget_on_completion(coalesce_budget_state *state,
                                              uint64_t now,
                                              uint32_t hint,
                                              uint32_t cif,
                                              uint32_t outstanding);

/**
 * The instant at which to call `coalesce_budget_on_deadline`; `COALESCE_NEVER`: nothing is held. Ask again after each
 * completion, cancellation, new configuration and `coalesce_budget_forget`; while something is held, after each submission, too.
 *
 * Requires:
 * `state` is null or points to a `coalesce_budget_state` that nobody changes during the call.
 */
uint64_t coalesce_budget_deadline(const coalesce_budget_state *state);

/**
 * Decides at the deadline. Early, late and repeated calls are harmless.
 *
 * Requires:
 * As `coalesce_budget_on_submits`.
 */
COALESCE_MUST_USE coalesce_status coalesce_budget_on_deadline(coalesce_budget_state *state, uint64_t now);

/**
 * Delivers everything held, even in a storm: for a queue stop, a reset and a migration. A failed command needs no
 * flush: report it with `COALESCE_HINT_URGENT`, or a Barrier with `COALESCE_HINT_FAILED_BARRIER`.
 *
 * Requires:
 * As `coalesce_budget_on_submits`.
 */
COALESCE_MUST_USE coalesce_status coalesce_budget_flush(coalesce_budget_state *state, uint64_t now);

/**
 * Notes that the consumer has reaped everything without an interrupt. Call it only if the consumer has reaped up to
 * the last posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the
 * ring's), with all indices read inside the lock that protects the state.
 *
 * Requires:
 * As `coalesce_budget_on_submits`.
 */
coalesce_status coalesce_budget_on_consumed(coalesce_budget_state *state,
                                            uint64_t now);

/**
 * Forgets what was learned about the requesters, because others may come, and the commands in flight, which never
 * complete: for a reset and a new driver. What is held is due at once; the credit and the usual gap stay.
 *
 * Requires:
 * As `coalesce_budget_on_submits`.
 */
coalesce_status coalesce_budget_forget(coalesce_budget_state *state);

/**
 * Reads the state of a machine, as of the last call with a time. `info_size` is `sizeof(coalesce_budget_info)`.
 *
 * Requires:
 * `state` is null or points to a `coalesce_budget_state` that nobody changes during the call; `info` is null or points
 * to `info_size` bytes.
 */
coalesce_status coalesce_budget_get_info(const coalesce_budget_state *state,
                                         coalesce_budget_info *info,
                                         size_t info_size);

/**
 * The reason of the last decision: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` before the first one, or if `state`
 * is invalid.
 *
 * Requires:
 * As `coalesce_budget_deadline`.
 */
uint32_t coalesce_budget_reason(const coalesce_budget_state *state);

/* ==== auto: a latency budget with its regulator ==== */

/**
 * A latency budget with its regulator, which is the policy `auto`, for one interrupt vector, in the caller's memory:
 * 200 bytes. The regulator cuts the budget where holding slows the requesters down, and lets it add more where trials
 * show that holding makes them faster.
 *
 * Call the functions of its `budget` with `&state.budget`, but for those that are here: `coalesce_budget_reconfigure`,
 * `coalesce_budget_on_completion`, `coalesce_budget_on_completion_strict` and `coalesce_budget_forget` refuse it
 * (`COALESCE_E_STATE`). As a `coalesce_budget_state` it may be moved and copied, but only as a whole.
 */
typedef struct {
  /** The latency budget. */
  coalesce_budget_state budget;
  /** Private to the library. */
  uint64_t opaque[11];
} coalesce_auto_state;
COALESCE_LAYOUT(coalesce_auto_state, 200, uint64_t);

/**
 * Initialises a machine: nothing learned, nothing held. `state_size` is `sizeof(coalesce_auto_state)`; `error` may be
 * null. On an error the memory is unchanged.
 *
 * A state that holds something is forgotten with it: call `coalesce_budget_flush` first, and interrupt unless it returns hold.
 *
 * Requires:
 * `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
 * as its `struct_size` says; `error` is null or points to a `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_auto_init(coalesce_auto_state *state,
                                   size_t state_size,
                                   const coalesce_budget_config *config,
                                   coalesce_error *error);

/**
 * As `coalesce_budget_reconfigure`. What the regulator has learned is forgotten.
 *
 * Requires:
 * As `coalesce_auto_init`, of a state that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_auto_reconfigure(coalesce_auto_state *state,
                                          const coalesce_budget_config *config,
                                          uint64_t now,
                                          coalesce_error *error);

/**
 * Decides about a completed command, as `coalesce_budget_on_completion`.
 *
 * Requires:
 * `state` is null or points to a `coalesce_auto_state` that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_auto_on_completion(coalesce_auto_state *state,
                                            uint64_t now,
                                            uint32_t hint,
                                            uint32_t cif,
                                            uint32_t outstanding);

/**
 * As `coalesce_budget_forget`. What the regulator has learned is forgotten, too.
 *
 * Requires:
 * As `coalesce_auto_on_completion`.
 */
coalesce_status coalesce_auto_forget(coalesce_auto_state *state);

/* ==== cinterrupts: it decides by the requester's hints and by burst detection ==== */

/**
 * The number of commands in flight is unknown: the `in_flight` rule is off for this completion. Only for
 * `coalesce_cint_on_completion` and `coalesce_cint_on_completion_strict`. vIC, a latency budget, `auto` and a
 * `coalesce_policy` would take it as a number of commands, and hold.
 */
#define COALESCE_CIF_UNKNOWN UINT32_MAX

/**
 * Parameters of cinterrupts. Start from `coalesce_cint_config_default`, `coalesce_cint_config_optane` or
 * `coalesce_cint_config_p3700`.
 */
typedef struct {
  /** `sizeof(coalesce_cint_config)` */
  uint32_t struct_size;
  /** The number of completions that ends a burst. 1 to 65535; 1: no coalescing. */
  uint32_t thr;
  /** Ticks per second of the caller's clock. 1000 to 10000000000. */
  uint64_t tick_hz;
  /**
   * Δ: the time without a completion that ends a burst, in ns. 0 to 10 ms; 0: the caller ends bursts with
   * `coalesce_cint_on_batch_end`.
   */
  uint64_t delta_ns;
  /**
   * The longest time that a completion may be held, in ns. 1 ns to 1 s, and at most 500 million ticks;
   * `COALESCE_NEVER`: no limit of its own; Δ and `thr` then limit it to (thr - 1) * Δ, if Δ is not 0. With a storm
   * guard it must be at least 1 s / storm_max_rate. With `ooo` and in a storm, a completion may be held longer by
   * less than 1 s / storm_max_rate.
   */
  uint64_t max_hold_ns;
  /**
   * The storm guard's limit: the most interrupts per second, on average. 1, or tick_hz / 125 million if that is
   * more, to tick_hz / 5; 0: no guard.
   */
  uint64_t storm_max_rate;
  /**
   * The weight of one interval between interrupts in the guard's moving average is 2^-storm_shift. 5 to 16 if
   * there is a guard, the authors use 7; else it has no effect, 0 to 255.
   */
  uint32_t storm_shift;
  /**
   * The `in_flight` rule: with fewer commands in flight every completion interrupts; with more, only as many are
   * held as keep the device busy. 2 to 32767; 0: no rule.
   */
  uint32_t in_flight;
  /**
   * 1: the interrupt of an urgent completion covers it alone, and held completions stay held (§3.5), unless `thr` or
   * the `in_flight` rule ends their hold with it; 0: it covers all. 1 needs a host that reaps nothing but urgent
   * completions at such an interrupt.
   */
  uint32_t ooo;
  /** Must be 0. */
  uint32_t reserved;
} coalesce_cint_config;
COALESCE_LAYOUT(coalesce_cint_config, 56, uint64_t);

/**
 * A cinterrupts machine for one interrupt vector, in the caller's memory: 88 bytes. Opaque. It contains no pointers
 * and owns nothing. It may be moved and copied while no thread uses it, and there is no destructor.
 */
typedef struct {
  /** Private to the library. */
  uint64_t opaque[11];
} coalesce_cint_state;
COALESCE_LAYOUT(coalesce_cint_state, 88, uint64_t);

/** The state of a machine, for statistics. */
typedef struct {
  /**
   * Held completions: posted, and not covered by an interrupt. An urgent completion that interrupted alone is not
   * held.
   */
  uint32_t held;
  /**
   * 1: there is a storm: the average gap fell below the guard's interval, and has not exceeded twice the interval
   * since.
   */
  uint32_t is_storming;
  /** How often the clock went back from one call to the next; saturates at 65535. */
  uint32_t times_back;
  /** Reserved: 0. */
  uint32_t reserved;
} coalesce_cint_info;
COALESCE_LAYOUT(coalesce_cint_info, 16, uint32_t);

/**
 * The paper's parameters for Optane with two bounds: a completion is held for at most 100 µs, and the `in_flight` rule
 * keeps the device busy. `ooo` is 1: set it to 0 for a host that reaps everything at each interrupt, or some interrupts
 * find nothing.
 *
 * Requires:
 * `config` is null or points to `config_size` bytes.
 */
void coalesce_cint_config_default(coalesce_cint_config *config, size_t config_size, uint64_t tick_hz);

/**
 * Exactly what the paper describes for an Intel Optane P4800X (§5.2): Δ = 6 µs, thr = 32. `ooo` is 1, as in
 * `coalesce_cint_config_default`.
 *
 * Requires:
 * As `coalesce_cint_config_default`.
 */
void coalesce_cint_config_optane(coalesce_cint_config *config, size_t config_size, uint64_t tick_hz);

/**
 * The paper's parameters for an Intel P3700: Δ = 15 µs, thr = 32. `ooo` is 1, as in `coalesce_cint_config_default`.
 *
 * Requires:
 * As `coalesce_cint_config_default`.
 */
void coalesce_cint_config_p3700(coalesce_cint_config *config, size_t config_size, uint64_t tick_hz);

/**
 * Initialises a machine. `state_size` is `sizeof(coalesce_cint_state)`; `error` may be null. On an error the memory is
 * unchanged.
 *
 * A state that holds something is forgotten with it: call `coalesce_cint_flush` first, and interrupt unless it returns hold.
 *
 * Requires:
 * `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
 * as its `struct_size` says; `error` is null or points to a `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_cint_init(coalesce_cint_state *state,
                                   size_t state_size,
                                   const coalesce_cint_config *config,
                                   coalesce_error *error);

/**
 * Changes the configuration, and decides about the held completions. `tick_hz` cannot change. A storm guard with new
 * parameters restarts. What the guard had deferred is delivered. On an error nothing changes. `error` may be null.
 *
 * Requires:
 * As `coalesce_cint_init`, of a state that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_cint_reconfigure(coalesce_cint_state *state,
                                          const coalesce_cint_config *config,
                                          uint64_t now,
                                          coalesce_error *error);

/**
 * Decides about a completed command. `hint` is `COALESCE_HINT_...`; an unknown hint delivers. `cif` is the number of
 * commands in flight, including this one, or `COALESCE_CIF_UNKNOWN`. To get it, decrement your counter. Then load it
 * again inside the lock that protects the state, and add one.
 *
 * Requires:
 * `state` is null or points to a `coalesce_cint_state` that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_cint_on_completion(coalesce_cint_state *state,
                                            uint64_t now,
                                            uint32_t hint,
                                            uint32_t cif);

/**
 * The instant at which to call `coalesce_cint_on_deadline`; `COALESCE_NEVER`: nothing is held, or the hold has no
 * bound in time (Δ = 0, and no `max_hold_ns`): an Urgent, a Barrier, `thr` completions, `coalesce_cint_on_batch_end` or
 * `coalesce_cint_flush` ends it. Every call may change it.
 *
 * Requires:
 * `state` is null or points to a `coalesce_cint_state` that nobody changes during the call.
 */
uint64_t coalesce_cint_deadline(const coalesce_cint_state *state);

/**
 * Decides at the deadline. Early, late and repeated calls are harmless.
 *
 * Requires:
 * As `coalesce_cint_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_cint_on_deadline(coalesce_cint_state *state, uint64_t now);

/**
 * Notes that the device has posted everything that it had to post. With Δ = 0 this ends the burst. This batch is the
 * device's, what it posts in one pass, not the requester's batch of a Barrier.
 *
 * Requires:
 * As `coalesce_cint_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_cint_on_batch_end(coalesce_cint_state *state, uint64_t now);

/**
 * Delivers everything held, even in a storm: for a queue stop, a reset and a migration. A failed command needs no
 * flush: report it with `COALESCE_HINT_URGENT`, or a Barrier with `COALESCE_HINT_FAILED_BARRIER`.
 *
 * Requires:
 * As `coalesce_cint_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_cint_flush(coalesce_cint_state *state, uint64_t now);

/**
 * Notes that the consumer has reaped everything without an interrupt. Call it only if the consumer has reaped up to
 * the last posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the
 * ring's), with all indices read inside the lock that protects the state.
 *
 * Requires:
 * As `coalesce_cint_on_completion`.
 */
coalesce_status coalesce_cint_on_consumed(coalesce_cint_state *state,
                                          uint64_t now);

/**
 * Reads the state of a machine. `info_size` is `sizeof(coalesce_cint_info)`.
 *
 * Requires:
 * `state` is null or points to a `coalesce_cint_state` that nobody changes during the call; `info` is null or points
 * to `info_size` bytes.
 */
coalesce_status coalesce_cint_get_info(const coalesce_cint_state *state, coalesce_cint_info *info, size_t info_size);

/**
 * The reason of the last decision: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` before the first one, or if `state`
 * is invalid.
 *
 * Requires:
 * As `coalesce_cint_deadline`.
 */
uint32_t coalesce_cint_reason(const coalesce_cint_state *state);

/* ==== vIC: it decides by the commands in flight and the completion rate ==== */

/** Parameters of vIC. Start from `coalesce_vic_config_default` or `coalesce_vic_config_paper`. */
typedef struct {
  /** `sizeof(coalesce_vic_config)` */
  uint32_t struct_size;
  /** Below this many commands in flight every completion interrupts. 2 to 65535. */
  uint32_t cif_threshold;
  /** Ticks per second of the caller's clock. 1000 to 10000000000. */
  uint64_t tick_hz;
  /** The interval at which the delivery ratio is recomputed, in ns. 1 ms to 60 s. */
  uint64_t epoch_ns;
  /**
   * The longest time that a completion may be held, in ns. 1 ns to 1 s; `COALESCE_NEVER`: no limit in time; it waits
   * for at most `max_skip` - 1 further completions.
   */
  uint64_t max_hold_ns;
  /**
   * Scheduler awareness: the largest difference between the clock of `slice_end` and the caller's, in ns. The window
   * before the end of a timeslice is longer by this. 0 to 100 ms.
   */
  uint64_t margin_ns;
  /** Below this many completions per second every completion interrupts; 0: no such limit. */
  uint32_t iops_threshold;
  /**
   * The limit of the paper's `skipUp` in the rows 1/k of its Table 1. Of every `max_skip` completions (of five, if
   * `max_skip` is less and `live_clamp` is 0) at least one interrupts. 2 to 65535.
   */
  uint32_t max_skip;
  /** 1: limit held completions by the commands in flight at each completion; 0: only at the start of an epoch. */
  uint32_t live_clamp;
  /** Must be 0. */
  uint32_t reserved;
} coalesce_vic_config;
COALESCE_LAYOUT(coalesce_vic_config, 56, uint64_t);

/**
 * A vIC machine for one interrupt vector, in the caller's memory: 104 bytes. Opaque. It contains no pointers and owns
 * nothing. It may be moved and copied while no thread uses it, and there is no destructor.
 */
typedef struct {
  /** Private to the library. */
  uint64_t opaque[13];
} coalesce_vic_state;
COALESCE_LAYOUT(coalesce_vic_state, 104, uint64_t);

/** The state of a machine, for statistics. */
typedef struct {
  /** Held completions: posted, and not covered by an interrupt. */
  uint32_t held;
  /** The delivery ratio: `count_up` interrupts... */
  uint32_t count_up;
  /** ...in `skip_up` completions. */
  uint32_t skip_up;
  /** How often the clock went back from one call to the next; saturates at 65535. */
  uint32_t times_back;
} coalesce_vic_info;
COALESCE_LAYOUT(coalesce_vic_info, 16, uint32_t);

/**
 * The paper's parameters with bounds: a completion is held for at most 500 µs, a cycle has at most 16 completions, and
 * the live clamp keeps the device busy.
 *
 * Requires:
 * `config` is null or points to `config_size` bytes.
 */
void coalesce_vic_config_default(coalesce_vic_config *config, size_t config_size, uint64_t tick_hz);

/**
 * Exactly what the paper describes (vIC §4). There is no limit in time: a held completion waits for up to `max_skip` -
 * 1 further completions.
 *
 * Requires:
 * `config` is null or points to `config_size` bytes.
 */
void coalesce_vic_config_paper(coalesce_vic_config *config, size_t config_size, uint64_t tick_hz);

/**
 * Initialises a machine: ratio 1, nothing held.
 *
 * `state_size` is `sizeof(coalesce_vic_state)`; `error` may be null. On an error the memory is unchanged.
 *
 * A state that holds something is forgotten with it: call `coalesce_vic_flush` first, and interrupt unless it returns hold.
 *
 * Requires:
 * `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
 * as its `struct_size` says; `error` is null or points to a `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_vic_init(coalesce_vic_state *state,
                                  size_t state_size,
                                  const coalesce_vic_config *config,
                                  coalesce_error *error);

/**
 * Changes the configuration, and decides about the held completions. The running epoch and its ratio stay. `tick_hz`
 * cannot change. On an error nothing changes. `error` may be null.
 *
 * Requires:
 * As `coalesce_vic_init`, of a state that nobody else uses during the call.
 */
COALESCE_MUST_USE
coalesce_status coalesce_vic_reconfigure(coalesce_vic_state *state,
                                         const coalesce_vic_config *config,
                                         uint64_t now,
                                         coalesce_error *error);

/**
 * Decides about a completed command. `cif` is the number of commands in flight, including this one. To get it,
 * decrement your counter. Then load it again inside the lock that protects the state, and add one.
 *
 * Requires:
 * `state` is null or points to a `coalesce_vic_state` that nobody else uses during the call.
 */
COALESCE_MUST_USE coalesce_status coalesce_vic_on_completion(coalesce_vic_state *state, uint64_t now, uint32_t cif);

/**
 * `coalesce_vic_on_completion` with the instant at which the guest's timeslice ends (Xen §4). An instant that is not
 * in the future counts as unknown.
 *
 * Requires:
 * As `coalesce_vic_on_completion`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_vic_on_completion_in_slice(coalesce_vic_state *state,
                                                    uint64_t now,
                                                    uint32_t cif,
                                                    uint64_t slice_end);

/**
 * The instant at which to call `coalesce_vic_on_deadline`; `COALESCE_NEVER`: nothing is held, or the hold has no
 * bound in time (no `max_hold_ns`): up to `max_skip` - 1 further completions end it. Every call may change it.
 *
 * Requires:
 * `state` is null or points to a `coalesce_vic_state` that nobody changes during the call.
 */
uint64_t coalesce_vic_deadline(const coalesce_vic_state *state);

/**
 * Decides at the deadline. Early, late and repeated calls are harmless.
 *
 * Requires:
 * As `coalesce_vic_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_vic_on_deadline(coalesce_vic_state *state, uint64_t now);

/**
 * Delivers everything held: for a queue stop, a reset and a migration. For a failed command, call it after
 * `coalesce_vic_on_completion`; for an aborted one, too, as it will not complete and end a hold.
 *
 * Requires:
 * As `coalesce_vic_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_vic_flush(coalesce_vic_state *state, uint64_t now);

/**
 * Notes that the guest was scheduled on a CPU, and delivers everything held.
 *
 * Requires:
 * As `coalesce_vic_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_vic_on_schedule(coalesce_vic_state *state, uint64_t now);

/**
 * Notes that the guest was descheduled from its CPU, and delivers everything held. Until `coalesce_vic_on_schedule`,
 * neither time nor completions count towards the rate.
 *
 * Requires:
 * As `coalesce_vic_on_completion`.
 */
COALESCE_MUST_USE coalesce_status coalesce_vic_on_deschedule(coalesce_vic_state *state, uint64_t now);

/**
 * Notes that the guest has reaped everything without an interrupt. Call it only if the guest has reaped up to the last
 * posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's),
 * with all indices read inside the lock that protects the state.
 *
 * Requires:
 * As `coalesce_vic_on_completion`.
 */
coalesce_status coalesce_vic_on_consumed(coalesce_vic_state *state,
                                         uint64_t now);

/**
 * Reads the state of a machine. `info_size` is `sizeof(coalesce_vic_info)`.
 *
 * Requires:
 * `state` is null or points to a `coalesce_vic_state` that nobody changes during the call; `info` is null or points to
 * `info_size` bytes.
 */
coalesce_status coalesce_vic_get_info(const coalesce_vic_state *state, coalesce_vic_info *info, size_t info_size);

/**
 * The reason of the last decision: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` before the first one, or if `state`
 * is invalid.
 *
 * Requires:
 * As `coalesce_vic_deadline`.
 */
uint32_t coalesce_vic_reason(const coalesce_vic_state *state);

/* ==== Strict Barriers: a batch is complete when its last command and every command submitted before it have completed
 *      (cinterrupts §4.3) ==== */

/** The size of a window of `commands` commands, in words of uint64_t. */
#define COALESCE_WINDOW_WORDS(commands) (5 + (commands) / 32)

/** No ticket. The command is not tracked, and its hint is used unchanged. */
#define COALESCE_NO_TICKET UINT64_MAX

/**
 * The size in bytes of a window of `commands` commands, a power of two from 64 to 4096; 0 for other numbers. For a
 * constant, use `uint64_t window[COALESCE_WINDOW_WORDS(commands)]`.
 */
size_t coalesce_window_size(uint32_t commands);

/**
 * Initialises a window for one group of submitters. It tracks up to `commands` commands, from the oldest incomplete
 * one to the newest submitted one. `window_size` is in bytes and at least `coalesce_window_size(commands)`; `error`
 * may be null. On an error the memory is unchanged.
 *
 * For a window in use call `coalesce_window_reset` instead: after this call the tickets that it has issued are taken for new ones.
 *
 * A window, like a state, contains no pointers and owns nothing. The lock of a machine also protects its windows.
 *
 * Requires:
 * `window` is null or points to `window_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to
 * a `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_window_init(uint64_t *window,
                                     size_t window_size,
                                     uint32_t commands,
                                     coalesce_error *error);

/**
 * Notes a submitted command, and returns its ticket. Pass the ticket once, with the command's completion.
 * `COALESCE_NO_TICKET`: the window is full or invalid, or has used all 2^56 positions; the command is not tracked, and
 * its Barrier is relaxed.
 *
 * Requires:
 * `window` is null or points to a window that nobody else uses during the call.
 */
COALESCE_MUST_USE uint64_t coalesce_window_on_submit(uint64_t *window);

/**
 * Notes that the controller was reset. All tickets become invalid, and none is issued again.
 *
 * Requires:
 * As `coalesce_window_on_submit`.
 */
coalesce_status coalesce_window_reset(uint64_t *window);

/**
 * `coalesce_cint_on_completion` with strict Barriers: it takes the command's window and ticket. A ticket that was
 * never issued, or is passed twice, delivers (`COALESCE_REASON_ERROR`). An invalid window returns its error, which
 * delivers too.
 *
 * Requires:
 * As `coalesce_cint_on_completion` and `coalesce_window_on_submit`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_cint_on_completion_strict(coalesce_cint_state *state,
                                                   uint64_t *window,
                                                   uint64_t now,
                                                   uint64_t ticket,
                                                   uint32_t hint,
                                                   uint32_t cif);

/**
 * `coalesce_budget_on_completion` with strict Barriers, as `coalesce_cint_on_completion_strict`.
 *
 * Requires:
 * As `coalesce_budget_on_completion` and `coalesce_window_on_submit`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_budget_on_completion_strict(coalesce_budget_state *state,
                                                     uint64_t *window,
                                                     uint64_t now,
                                                     uint64_t ticket,
                                                     uint32_t hint,
                                                     uint32_t cif,
                                                     uint32_t outstanding);

/**
 * `coalesce_auto_on_completion` with strict Barriers, as `coalesce_cint_on_completion_strict`.
 *
 * Requires:
 * As `coalesce_auto_on_completion` and `coalesce_window_on_submit`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_auto_on_completion_strict(coalesce_auto_state *state,
                                                   uint64_t *window,
                                                   uint64_t now,
                                                   uint64_t ticket,
                                                   uint32_t hint,
                                                   uint32_t cif,
                                                   uint32_t outstanding);

/**
 * Notes that a command was aborted and will not complete, and decides. `hint`: its own, as an aborted Barrier is the end of its
 * batch. With relaxed Barriers, `window` may be null and `ticket` is `COALESCE_NO_TICKET`.
 *
 * Requires:
 * As `coalesce_cint_on_completion_strict`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_cint_on_cancel(coalesce_cint_state *state,
                                        uint64_t *window,
                                        uint64_t now,
                                        uint64_t ticket,
                                        uint32_t hint);

/**
 * `coalesce_cint_on_cancel` for a latency budget, with a regulator or without.
 *
 * Requires:
 * As `coalesce_budget_on_completion_strict`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_budget_on_cancel(coalesce_budget_state *state,
                                          uint64_t *window,
                                          uint64_t now,
                                          uint64_t ticket,
                                          uint32_t hint);

/* ==== The consumer of a completion queue whose urgent completions interrupt alone (cinterrupts §3.5) ==== */

/** The size of a reaper of `entries` entries, in words of uint64_t. */
#define COALESCE_REAPER_WORDS(entries) (2 + ((entries) + 63) / 64)

/** The head doorbell does not change. */
#define COALESCE_NO_DOORBELL UINT32_MAX

/**
 * An entry of an NVMe completion queue, in the byte order of the CPU. Dword 3 has the command identifier in bits 15:0,
 * the phase tag in bit 16, and the status in bits 31:17.
 */
typedef struct {
  /** Dwords 0 to 3. */
  uint32_t dword[4];
} coalesce_reaper_entry;
COALESCE_LAYOUT(coalesce_reaper_entry, 16, uint32_t);

/**
 * A function that gets a new entry, and returns whether it reaps the entry. At an urgent interrupt it reaps urgent
 * entries only, at a normal interrupt all.
 */
typedef bool (*coalesce_reaper_take)(void *context, const coalesce_reaper_entry *entry);

/**
 * The size in bytes of a reaper for a queue of `entries` entries, 2 to 65535; 0 for other numbers. For a constant, use
 * `uint64_t reaper[COALESCE_REAPER_WORDS(entries)]`.
 */
size_t coalesce_reaper_size(uint32_t entries);

/**
 * Initialises a reaper for an empty queue of `entries` entries, whose first pass has phase tag 1. `reaper_size` is in
 * bytes and at least `coalesce_reaper_size(entries)`; `error` may be null. On an error the memory is unchanged.
 *
 * Requires:
 * `reaper` is null or points to `reaper_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to
 * a `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_reaper_init(uint64_t *reaper,
                                     size_t reaper_size,
                                     uint32_t entries,
                                     coalesce_error *error);

/**
 * Passes each new entry that is not reaped yet to `take`, with `context`. Sets `*doorbell` to the value for the head
 * doorbell, or to `COALESCE_NO_DOORBELL`. The head moves only over reaped entries, so that the device overwrites no
 * other.
 *
 * Requires:
 * `reaper` is null or points to a reaper that nobody else uses during the call; `queue` is null or points to the
 * entries of its queue, which the device may write at any time; `take` returns normally (no exception, no `longjmp`)
 * and does not use the reaper; `doorbell` is null or points to a `uint32_t`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_reaper_reap(uint64_t *reaper,
                                     const coalesce_reaper_entry *queue,
                                     coalesce_reaper_take take,
                                     void *context,
                                     uint32_t *doorbell);

#if defined(COALESCE_HAS_IPI_GATE)
/* ==== The gate for inter-processor interrupts: two threads share it (vIC §3.3) ==== */

/** The paper's threshold (vIC §4.5), in ns. */
#define COALESCE_IPI_GATE_PAPER_NS 100000

/**
 * Defers an inter-processor interrupt if the last virtual interrupt is recent (vIC §3.3). Opaque. After initialisation
 * any number of threads may use it at the same time.
 */
typedef struct {
  /** Private to the library. */
  uint64_t opaque[3];
} coalesce_ipi_gate;
COALESCE_LAYOUT(coalesce_ipi_gate, 24, uint64_t);

/**
 * Initialises a gate that lets an IPI pass if the last virtual interrupt is more than `threshold_ns` (0 to 1 s) ago.
 *
 * `gate_size` is `sizeof(coalesce_ipi_gate)`; `error` may be null.
 *
 * Requires:
 * `gate` is null or points to `gate_size` bytes that nobody else uses; `error` is null or points to a
 * `coalesce_error`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_ipi_gate_init(coalesce_ipi_gate *gate,
                                       size_t gate_size,
                                       uint64_t threshold_ns,
                                       uint64_t tick_hz,
                                       coalesce_error *error);

/**
 * Notes that the VMM has delivered a virtual interrupt.
 *
 * Requires:
 * `gate` is null or points to a `coalesce_ipi_gate`.
 */
coalesce_status coalesce_ipi_gate_delivered(coalesce_ipi_gate *gate, uint64_t now);

/**
 * Whether the kernel must interrupt the guest's CPU, after it has posted a completion. `COALESCE_HOLD`: not yet; ask
 * again at the instant `*until` if the VMM has not run by then. Anything else: send the IPI now. `until` may be
 * null.
 *
 * Requires:
 * As `coalesce_ipi_gate_delivered`; `until` is null or points to a `uint64_t`.
 */
COALESCE_MUST_USE
coalesce_status coalesce_ipi_gate_should_send(const coalesce_ipi_gate *gate,
                                              uint64_t now,
                                              uint64_t *until);
#endif

/* ==== NVMe's coalescing features (NVM Express Base Specification, Features 08h and 09h) ==== */

/** Feature 08h, Interrupt Coalescing: for all I/O completion queues of a controller. */
typedef struct {
  /** The number of completions that interrupts at once. 1 to 256; 1: no coalescing by count. */
  uint32_t threshold;
  /** Must be 0. */
  uint32_t reserved;
  /**
   * The longest time that a completion may be held, in ns, at most 25.5 ms; 0: no coalescing. Encoded in units of
   * 100 µs.
   */
  uint64_t time_ns;
} coalesce_nvme_coalescing;
COALESCE_LAYOUT(coalesce_nvme_coalescing, 16, uint64_t);

/**
 * Decodes Command Dword 11 of Set Features 08h: THR, 0's based, in bits 7:0, and TIME in bits 15:8. `out_size` is
 * `sizeof(coalesce_nvme_coalescing)`.
 *
 * Requires:
 * `out` is null or points to `out_size` bytes.
 */
coalesce_status coalesce_nvme_coalescing_decode(uint32_t cdw11, coalesce_nvme_coalescing *out, size_t out_size);

/**
 * Encodes Command Dword 11 of Set Features 08h. The time is rounded up to 100 µs, so that only 0 means no coalescing.
 *
 * Requires:
 * `value` is null or points to a `coalesce_nvme_coalescing`; `cdw11` is null or points to a `uint32_t`; `error` is
 * null or points to a `coalesce_error`.
 */
coalesce_status coalesce_nvme_coalescing_encode(const coalesce_nvme_coalescing *value,
                                                uint32_t *cdw11,
                                                coalesce_error *error);

/**
 * Decodes Command Dword 11 of Set Features 09h, Interrupt Vector Configuration: the vector in bits 15:0, and in bit 16
 * whether coalescing is disabled for it. Returns the vector.
 *
 * Requires:
 * `is_disabled` is null or points to a `bool`.
 */
uint32_t coalesce_nvme_vector_decode(uint32_t cdw11, bool *is_disabled);

/**
 * Encodes Command Dword 11 of Set Features 09h.
 *
 * Requires:
 * `cdw11` is null or points to a `uint32_t`; `error` is null or points to a `coalesce_error`.
 */
coalesce_status coalesce_nvme_vector_encode(uint32_t vector, bool is_disabled, uint32_t *cdw11, coalesce_error *error);

/* ==== Counters of decisions ==== */

/**
 * Counters of decisions by reason. Initialise them with zeroes, and index them with `COALESCE_REASON_...`.
 *
 * They are not part of a state, so that states stay small. To count a decision, pass the state's reason.
 */
typedef struct {
  /** The number of decisions by reason. Counters saturate. */
  uint64_t decisions[64];
} coalesce_stats;
COALESCE_LAYOUT(coalesce_stats, 512, uint64_t);

/**
 * Counts a decision by its reason. A number that has no counter, from 64 on, counts as `COALESCE_REASON_NONE`.
 * `stats_size` is `sizeof(coalesce_stats)`.
 *
 * Requires:
 * `stats` is null or points to `stats_size` bytes that nobody else uses during the call.
 */
coalesce_status coalesce_stats_count(coalesce_stats *stats, size_t stats_size, uint32_t reason);

#if defined(COALESCE_HOSTED)
/* ==== Parameters and errors as texts, on hosts ==== */

/**
 * Writes an error as a sentence, such as "thr is 0; allowed: 1 to 65535". Returns the length of the whole sentence, as
 * `snprintf` does; 0: `error` is null, or names no parameter, and `text` is empty.
 *
 * Requires:
 * `error` is null or points to a `coalesce_error`; `text` is null or points to `text_size` bytes.
 */
size_t coalesce_error_print(const coalesce_error *error, char *text, size_t text_size);

/**
 * Parses parameters such as "vic", "vic:profile=paper" or "vic:cif_threshold=2,epoch=100ms", for a clock of `tick_hz`
 * ticks per second. On `COALESCE_E_CONFIG`, `message` has the reason as a sentence; it may be null.
 *
 * Requires:
 * `text` is null or a zero-terminated text; `config` is null or points to `config_size` bytes; `message` is null or
 * points to `message_size` bytes.
 */
coalesce_status coalesce_vic_config_parse(const char *text,
                                          uint64_t tick_hz,
                                          coalesce_vic_config *config,
                                          size_t config_size,
                                          char *message,
                                          size_t message_size);

/**
 * Parses parameters such as "cint", "cint:profile=p3700" or "cint:delta=6us,thr=32", as `coalesce_vic_config_parse`
 * does. The keys `barrier` and `hints` are not parameters of the machine, so only their defaults are accepted.
 *
 * Requires:
 * As `coalesce_vic_config_parse`.
 */
coalesce_status coalesce_cint_config_parse(const char *text,
                                           uint64_t tick_hz,
                                           coalesce_cint_config *config,
                                           size_t config_size,
                                           char *message,
                                           size_t message_size);

/**
 * Parses parameters such as "budget" or "budget:budget=10%,ooo=on", as `coalesce_cint_config_parse` does.
 *
 * Requires:
 * As `coalesce_vic_config_parse`.
 */
coalesce_status coalesce_budget_config_parse(const char *text,
                                             uint64_t tick_hz,
                                             coalesce_budget_config *config,
                                             size_t config_size,
                                             char *message,
                                             size_t message_size);

/**
 * Writes parameters in their text form, which `coalesce_vic_config_parse` reads. Returns the length of the whole text,
 * as `snprintf` does; 0: the configuration is null, of another size, or a parameter is out of range.
 *
 * Requires:
 * `config` is null or points to as many bytes as its `struct_size` says; `text` is null or points to `text_size`
 * bytes.
 */
size_t coalesce_vic_config_print(const coalesce_vic_config *config, char *text, size_t text_size);

/**
 * Writes parameters in their text form, which `coalesce_cint_config_parse` reads, as `coalesce_vic_config_print` does.
 *
 * Requires:
 * As `coalesce_vic_config_print`.
 */
size_t coalesce_cint_config_print(const coalesce_cint_config *config, char *text, size_t text_size);

/**
 * Writes parameters in their text form, which `coalesce_budget_config_parse` reads, as `coalesce_vic_config_print`
 * does.
 *
 * Requires:
 * As `coalesce_vic_config_print`.
 */
size_t coalesce_budget_config_print(const coalesce_budget_config *config, char *text, size_t text_size);
#endif

/* ==== The numbers of parameters, for coalesce_error ==== */

/** `tick_hz` */
#define COALESCE_FIELD_TICK_HZ 1

/** `cif_threshold` */
#define COALESCE_FIELD_CIF_THRESHOLD 2

/** `epoch_ns` */
#define COALESCE_FIELD_EPOCH_NS 3

/** `max_skip` */
#define COALESCE_FIELD_MAX_SKIP 4

/** `max_hold_ns` */
#define COALESCE_FIELD_MAX_HOLD_NS 5

/** `margin_ns` */
#define COALESCE_FIELD_MARGIN_NS 6

/** `threshold_ns` of an IPI gate */
#define COALESCE_FIELD_IPI_THRESHOLD_NS 7

/** `live_clamp` */
#define COALESCE_FIELD_LIVE_CLAMP 8

/** `delta_ns` */
#define COALESCE_FIELD_DELTA_NS 9

/** `thr` */
#define COALESCE_FIELD_THR 10

/** `storm_max_rate` */
#define COALESCE_FIELD_STORM_MAX_RATE 11

/** `storm_shift` */
#define COALESCE_FIELD_STORM_SHIFT 12

/** `in_flight` */
#define COALESCE_FIELD_IN_FLIGHT 13

/** `ooo` */
#define COALESCE_FIELD_OOO 14

/** `reserved`, which must be 0 */
#define COALESCE_FIELD_RESERVED 15

/** `threshold` of `coalesce_nvme_coalescing` */
#define COALESCE_FIELD_AGGREGATION_THRESHOLD 16

/** `time_ns` of `coalesce_nvme_coalescing` */
#define COALESCE_FIELD_AGGREGATION_TIME_NS 17

/** `vector` */
#define COALESCE_FIELD_VECTOR 18

/** `commands` of a window, a power of two */
#define COALESCE_FIELD_COMMANDS 19

/** `entries` of a reaper's queue */
#define COALESCE_FIELD_ENTRIES 20

/** `budget` */
#define COALESCE_FIELD_BUDGET 21

/** The name of a parameter, as in its configuration structure. Never null. */
const char *coalesce_field_name(uint32_t field);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* COALESCE_H */
