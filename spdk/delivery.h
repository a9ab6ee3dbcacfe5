// When one queue interrupts: its policy, what it holds, its statistics. It knows neither vhost nor NVMe. One thread at a time.
#ifndef COALESCE_SPDK_DELIVERY_H
#define COALESCE_SPDK_DELIVERY_H

#include <spdk/env.h>
#include <spdk/util.h>

#include <coalesce.h>

struct spdk_histogram_data;
struct spdk_json_write_ctx;

// The policy decides about this many pending completions without waiting for the end of the poll.
#define DELIVERY_BATCH_MAX 64
// Interrupts after which a policy that is not asked hears of them: it may hold again after some.
#define DELIVERY_BYPASSED_MAX 256

// The clock of every delivery and its policy: SPDK's, whose ticks are counted in twos, fours, ... so that a second has 10^9 at
// most. A policy counts a time in 500 million ticks at most, so none that is valid in ns is too long here, on any machine.
extern uint8_t delivery_clock_shift;
// Before the first use of this clock, and after the start of SPDK's.
void delivery_clock_init(void);

static inline uint64_t delivery_now(void)
{
    return spdk_get_ticks() >> delivery_clock_shift;
}

static inline uint64_t delivery_hz(void)
{
    return spdk_get_ticks_hz() >> delivery_clock_shift;
}

struct delivery_hold {
    uint64_t since; // ticks of this clock, as all that follow
    uint64_t count; // completions
};

struct delivery {
    coalesce_policy *policy;
    bool may_hold;       // answer of coalesce_policy_may_hold(): if false, the policy needs no submissions and no marks
    uint64_t generation; // incremented by a reset, and when may_hold becomes true; older marks are stale
    bool wants_submit, wants_each_submit, wants_batch_end;

    // Plain submissions and completions not yet reported to the policy.
    struct {
        uint32_t submissions;
        uint32_t outstanding; // commands outstanding at those submissions, at most
        uint32_t completions;
        uint32_t cif; // commands in flight at the last of those completions, counting it
    } pending;
    uint32_t bypassed;     // interrupts sent without asking the policy, which may not hold; not yet reported to it
    uint32_t bypassed_cif; // commands in flight at one of the completions that they covered, at most, counting it

    bool is_due;          // the policy has decided to interrupt, and no interrupt has been sent since
    bool is_batch_open;   // completions since the last end of a batch
    bool has_completions; // completions since the last interrupt
    uint64_t deadline;    // of what is held; COALESCE_NEVER: none

    uint64_t held;               // completions that the policy holds
    struct delivery_hold *holds; // when they completed: a ring of `holds_size` entries, a power of two
    uint64_t holds_count;
    uint32_t holds_size;

    struct {
        uint64_t completions, interrupts, suppressed, owed, urgent, barrier;
    } stats;
    struct spdk_histogram_data *hold_ticks;
    uint64_t hold_ticks_sum, hold_ticks_max;
};

// A delivery for a queue of `size` entries. The text form of the policy must have passed delivery_check_policy().
// Returns 0, or -ENOMEM.
int delivery_init(struct delivery *delivery, const char *policy, uint32_t size);
void delivery_fini(struct delivery *delivery);

// Whether the text form of a policy is valid. If not, `message` says what is wrong.
bool delivery_check_policy(const char *policy, char *message, size_t message_size);

// The mark of a command that carries no hint, and of one that the policy has not seen: its completion interrupts at once.
extern const coalesce_mark delivery_plain_mark, delivery_no_mark;

// A command was submitted that the policy wants to see.
void delivery_submit_one(struct delivery *delivery, coalesce_request *request, coalesce_mark *mark);

// A command was submitted; the caller fills in `request` but for struct_size. Pass `mark` to delivery_complete().
static inline void delivery_submit(struct delivery *delivery, coalesce_request *request, coalesce_mark *mark)
{
    const uint32_t real_time_or_idle = 1 << 13; // bit of these two I/O priority classes; none and best effort have it clear
    bool is_plain = (request->flags | request->hint | (request->ioprio & real_time_or_idle)) == 0 && request->outstanding > 1;
    *mark = delivery_plain_mark;
    if (is_plain && !delivery->wants_each_submit) {
        delivery->pending.submissions++;
        delivery->pending.outstanding = spdk_max(delivery->pending.outstanding, request->outstanding);
    } else if (delivery->wants_submit) {
        delivery_submit_one(delivery, request, mark);
    }
}

// The poll has submitted all that it found: what is pending counts from now on.
void delivery_end_submissions(struct delivery *delivery);

// Reports the pending submissions and completions to the policy, which decides about them.
void delivery_decide(struct delivery *delivery, uint64_t now);

// `count` plain commands completed, `cif` in flight at the last of them, counting it. The consumer can see them before the next
// delivery_should_interrupt(). The policy decides once per poll about all that are pending.
static inline void delivery_complete_plain(struct delivery *delivery, uint64_t count, uint32_t cif)
{
    delivery->stats.completions += count;
    delivery->is_batch_open = delivery->has_completions = true;
    delivery->pending.cif = cif;
    delivery->pending.completions = (uint32_t)spdk_min(delivery->pending.completions + count, UINT16_MAX);
    if (delivery->pending.completions >= DELIVERY_BATCH_MAX && delivery->may_hold)
        delivery_decide(delivery, delivery_now());
}

// A command completed that is not plain: the policy decides at once, about those that are pending, too.
void delivery_complete_one(struct delivery *delivery, uint32_t cif, const coalesce_mark *mark, uint32_t class_of);

// A command completed, `cif` in flight, counting it. `class_of` is a COALESCE_CLASS.
static inline void delivery_complete(struct delivery *delivery, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
    bool is_plain = mark->hint == COALESCE_HINT_PLAIN && mark->source == delivery_plain_mark.source &&
                    mark->ticket == COALESCE_NO_TICKET && class_of == COALESCE_CLASS_IO;
    if (is_plain || !delivery->may_hold)
        delivery_complete_plain(delivery, 1, cif);
    else
        delivery_complete_one(delivery, cif, mark, class_of);
}

// The poll has posted all its completions.
void delivery_end_batch(struct delivery *delivery, uint64_t now);

// Nothing is held and nothing may be: the device may interrupt without asking.
static inline bool delivery_is_bypassed(const struct delivery *delivery)
{
    return !delivery->may_hold && delivery->held == 0;
}

// The same, and no interrupt is due from before, upon which the policy has decided.
static inline bool delivery_may_pass(const struct delivery *delivery)
{
    return delivery_is_bypassed(delivery) && !delivery->is_due;
}

// What is held waits: nothing has come since the policy was asked, and the deadline has not passed.
static inline bool delivery_waits(const struct delivery *delivery, uint64_t now)
{
    bool has_news = delivery->is_due || delivery->is_batch_open || delivery->pending.submissions > 0;
    return now < delivery->deadline && delivery->held > 0 && !has_news;
}

// The device wants to interrupt: may it do so now? Yes, too, if nothing is held: then it has another reason.
bool delivery_should_interrupt(struct delivery *delivery, uint64_t now);

// The consumer has been notified of every completion; `is_sent`: by an interrupt, else it had interrupts disabled.
void delivery_interrupted(struct delivery *delivery, uint64_t now, bool is_sent);

// Sets another policy and keeps what is held. Its text form must have passed delivery_check_policy().
void delivery_reconfigure(struct delivery *delivery, uint64_t now, const char *policy);

// The queue is gone, and its completions with it.
void delivery_reset(struct delivery *delivery, uint64_t now);

void delivery_reset_stats(struct delivery *delivery);

// Writes the statistics as members of a JSON object.
void delivery_write_stats(struct delivery *delivery, struct spdk_json_write_ctx *w);

#endif
