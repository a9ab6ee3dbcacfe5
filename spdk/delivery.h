// What one queue tells its coalesce_delivery, in which order, and what it answered last. It knows neither vhost nor NVMe. One thread
// at a time.
#ifndef COALESCE_SPDK_DELIVERY_H
#define COALESCE_SPDK_DELIVERY_H

#include <spdk/env.h>
#include <spdk/util.h>

#include <coalesce.h>

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

struct delivery {
    coalesce_delivery *coalesce;
    const coalesce_policy *policy; // of `coalesce`
    coalesce_delivery_view view;   // of `coalesce`, after its last call
    uint64_t generation;           // incremented by a reset, and when view.may_hold becomes true; older marks are stale

    // Plain submissions and completions not yet reported.
    struct {
        uint32_t submissions;
        uint32_t outstanding; // commands outstanding at those submissions, at most
        uint32_t cif;         // commands in flight at the last of the completions, counting it
        uint64_t completions;
    } pending;
    coalesce_bypassed bypassed; // interrupts without asking, as the policy may not hold; not yet reported

    bool is_batch_open;   // completions since the last end of a batch
    bool has_completions; // completions since the last interrupt
    uint32_t size;        // entries of the queue

    struct {
        uint64_t owed, urgent, barrier;
    } stats;
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
    if (is_plain && !delivery->view.wants_each_submit) {
        delivery->pending.submissions++;
        delivery->pending.outstanding = spdk_max(delivery->pending.outstanding, request->outstanding);
    } else if (delivery->view.wants_submit) {
        delivery_submit_one(delivery, request, mark);
    }
}

// The poll has submitted all that it found: what is pending counts from now on.
void delivery_end_submissions(struct delivery *delivery);

// Reports what is pending. The policy decides about the completions.
void delivery_decide(struct delivery *delivery, uint64_t now);

// `count` plain commands completed, `cif` in flight at the last of them, counting it. The consumer can see them before the next
// delivery_should_interrupt(). The policy decides once per poll about all that are pending.
static inline void delivery_complete_plain(struct delivery *delivery, uint64_t count, uint32_t cif)
{
    delivery->is_batch_open = delivery->has_completions = true;
    delivery->pending.cif = cif;
    delivery->pending.completions += count;
    if (delivery->pending.completions >= DELIVERY_BATCH_MAX && delivery->view.may_hold)
        delivery_decide(delivery, delivery_now());
}

// A command completed that is not plain: the policy decides at once, about those that are pending, too.
void delivery_complete_one(struct delivery *delivery, uint32_t cif, const coalesce_mark *mark, uint32_t class_of);

// A command completed, `cif` in flight, counting it. `class_of` is a COALESCE_CLASS.
static inline void delivery_complete(struct delivery *delivery, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
    bool is_plain = mark->hint == COALESCE_HINT_PLAIN && mark->source == delivery_plain_mark.source &&
                    mark->ticket == COALESCE_NO_TICKET && class_of == COALESCE_CLASS_IO;
    if (is_plain || !delivery->view.may_hold)
        delivery_complete_plain(delivery, 1, cif);
    else
        delivery_complete_one(delivery, cif, mark, class_of);
}

// The poll has posted all its completions.
void delivery_end_batch(struct delivery *delivery, uint64_t now);

// Nothing is held and nothing may be: the device may interrupt without asking.
static inline bool delivery_is_bypassed(const struct delivery *delivery)
{
    return !delivery->view.may_hold && delivery->view.held == 0;
}

// The same, and no interrupt is due from before, upon which the policy has decided.
static inline bool delivery_may_pass(const struct delivery *delivery)
{
    return delivery_is_bypassed(delivery) && !delivery->view.is_due;
}

// What is held waits: nothing has come since the policy was asked, and the deadline has not passed.
static inline bool delivery_waits(const struct delivery *delivery, uint64_t now)
{
    bool has_news = delivery->is_batch_open || delivery->pending.submissions > 0;
    return now < delivery->view.deadline && delivery->view.held > 0 && !has_news;
}

// The device wants to interrupt: may it do so now? Yes, too, if nothing is held: then it has another reason.
bool delivery_should_interrupt(struct delivery *delivery, uint64_t now);

// The consumer has been notified of every completion; `is_sent`: by an interrupt, else it had interrupts disabled.
void delivery_interrupted(struct delivery *delivery, uint64_t now, bool is_sent);

// The interrupt could not be sent now: it is due.
void delivery_failed(struct delivery *delivery, uint64_t now);

// Sets another policy and keeps what is held. Its text form must have passed delivery_check_policy().
void delivery_reconfigure(struct delivery *delivery, uint64_t now, const char *policy);

// The queue is gone, and its completions with it.
void delivery_reset(struct delivery *delivery, uint64_t now);

void delivery_reset_stats(struct delivery *delivery);

// Writes the statistics as members of a JSON object.
void delivery_write_stats(struct delivery *delivery, struct spdk_json_write_ctx *w);

#endif
