// One interrupt line: a policy, and what it holds. It knows neither vhost nor NVMe, and belongs to one thread.
#ifndef COALESCE_SPDK_DELIVERY_H
#define COALESCE_SPDK_DELIVERY_H

#include <spdk/env.h>
#include <spdk/util.h>

#include <coalesce.h>

struct spdk_histogram_data;
struct spdk_json_write_ctx;

#define DELIVERY_TOGETHER_MAX 64 // completions that are decided upon, or told of, together

struct delivery {
    coalesce_policy *policy;
    bool may_hold; // what the policy says; else nothing need be known of what is submitted or completes
    uint64_t age;  // goes on when it may hold again: what was known before is not true any more
    bool wants_submit, wants_each_submit, wants_batch_end;
    // Plain commands that the policy has not been told of, and how many were outstanding, at most.
    uint32_t submitted, outstanding;
    bool is_due;       // the policy has decided to interrupt, and nobody has yet
    bool is_batch;     // completions came after the last end of a batch
    bool is_news;      // completions came after the consumer was told of them
    uint32_t together; // plain completions that the policy has not been told of
    uint32_t cif;      // commands in flight at the last of them, counting it
    struct {           // of which the consumer was told, and the policy was not, as it may not hold
        uint32_t completions, interrupts, outstanding;
    } passed;
    uint64_t deadline; // of what is held, in ticks of SPDK's clock; COALESCE_NEVER: none

    uint64_t held; // completions that the policy held and no interrupt has told of
    struct delivery_hold {
        uint64_t since; // ticks
        uint64_t count;
    } * holds; // when they were, the last `holds_size` of them
    uint64_t holds_count;
    uint32_t holds_size; // a power of two

    struct {
        uint64_t completions, interrupts, suppressed, owed, urgent, barrier;
    } stats;
    struct spdk_histogram_data *hold; // in ticks
    uint64_t hold_sum, hold_max;
};

// A line whose consumer has `size` entries at most. False: no memory.
bool delivery_init(struct delivery *line, const char *policy, uint32_t size);
void delivery_free(struct delivery *line);

// The sentence that says what is wrong with a policy's text form goes to `message`. False: it is refused.
bool delivery_check(const char *policy, char *message, size_t message_size);

// Of a command about which nobody said anything; of one that was not looked at: it interrupts at once.
extern const coalesce_mark delivery_plain_mark, delivery_unknown_mark;

// A command is submitted of which something is known.
void delivery_submit_special(struct delivery *line, coalesce_request *request, coalesce_mark *mark);

// A command is submitted; `request` is complete but for its size. The mark goes back when it completes.
static inline void delivery_submit(struct delivery *line, coalesce_request *request, coalesce_mark *mark)
{
    const uint32_t real_time_or_idle = 1 << 13; // these priority classes have this bit, none and best effort have not
    uint32_t said = request->flags | request->hint | (request->ioprio & real_time_or_idle);
    bool is_plain = said == 0 && request->outstanding > 1;
    *mark = delivery_plain_mark;
    if (is_plain && !line->wants_each_submit) {
        line->submitted++;
        line->outstanding = spdk_max(line->outstanding, request->outstanding);
    } else if (line->wants_submit) {
        delivery_submit_special(line, request, mark);
    }
}

// The policy is told of the plain commands that were submitted, and decides about the plain completions, of which it has not
// been told.
void delivery_decide(struct delivery *line, uint64_t now);

// So many plain commands completed, `cif` in flight at the last of them: the consumer can see them, or will before the next
// delivery_may_interrupt. The policy decides about all that completes until then together: once for a poll.
static inline void delivery_plain(struct delivery *line, uint64_t count, uint32_t cif)
{
    line->stats.completions += count;
    line->is_batch = line->is_news = true;
    line->cif = cif;
    line->together = (uint32_t)spdk_min(line->together + count, UINT16_MAX);
    if (line->together >= DELIVERY_TOGETHER_MAX && line->may_hold)
        delivery_decide(line, spdk_get_ticks());
}

// Any other did: the policy decides at once, about those before it, too.
void delivery_special(struct delivery *line, uint32_t cif, const coalesce_mark *mark, uint32_t class_of);

// A command completed.
static inline void delivery_complete(struct delivery *line, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
    bool is_plain = mark->hint == COALESCE_HINT_PLAIN && mark->source == delivery_plain_mark.source &&
                    mark->ticket == COALESCE_NO_TICKET && class_of == COALESCE_CLASS_IO;
    if (is_plain || !line->may_hold)
        delivery_plain(line, 1, cif);
    else
        delivery_special(line, cif, mark, class_of);
}

// The device has posted all it had, for now.
void delivery_end_batch(struct delivery *line, uint64_t now);

// Nothing is held, and nothing may be: whoever wants to interrupt may, without asking.
static inline bool delivery_passes(const struct delivery *line)
{
    return !line->may_hold && line->held == 0;
}

// Somebody wants to interrupt: now? Also true where nothing is held, as then it is not about completions of ours.
bool delivery_may_interrupt(struct delivery *line, uint64_t now);

// The consumer was told of everything it can see. `is_sent`: by an interrupt; else it wanted none.
void delivery_told(struct delivery *line, uint64_t now, bool is_sent);

// Another policy, with what is held. Its text form must have been accepted by delivery_check.
void delivery_reconfigure(struct delivery *line, uint64_t now, const char *policy);

// The queue is gone, and what it held.
void delivery_reset(struct delivery *line, uint64_t now);

void delivery_reset_stats(struct delivery *line);

// Members of a JSON object.
void delivery_write_stats(struct delivery *line, struct spdk_json_write_ctx *w);

#endif
