// One interrupt line: a policy, and what it holds. It knows neither vhost nor NVMe, and belongs to one thread.
#ifndef COALESCE_SPDK_DELIVERY_H
#define COALESCE_SPDK_DELIVERY_H

#include <spdk/stdinc.h>

#include <coalesce.h>

struct spdk_histogram_data;
struct spdk_json_write_ctx;

struct delivery {
    coalesce_policy *policy;
    bool is_off;       // the policy is "none": it is not asked
    uint64_t deadline; // of what is held, in ticks of SPDK's clock; COALESCE_NEVER: none
    bool is_due;       // the policy has decided to interrupt, and nobody has yet
    bool is_batch;     // completions came after the last end of a batch
    bool is_news;      // completions came after the consumer was told of them

    uint64_t held;        // completions that the policy held and no interrupt has told of
    uint64_t *held_since; // the last `held_size` of them, in ticks
    uint32_t held_size;   // a power of two

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

// A command is submitted; `request` is complete but for its size. The mark goes back when it completes.
void delivery_submit(struct delivery *line, coalesce_request *request, coalesce_mark *mark);

// A command completed: the consumer can see it, or will before the next delivery_may_interrupt.
void delivery_complete(struct delivery *line, uint64_t now, uint32_t cif, const coalesce_mark *mark, uint32_t class_of);

// The same if the line is off.
static inline void delivery_pass(struct delivery *line)
{
    line->stats.completions++;
    line->is_due = line->is_news = true;
}

// The device has posted all it had, for now.
void delivery_end_batch(struct delivery *line, uint64_t now);

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
void delivery_write_stats(const struct delivery *line, struct spdk_json_write_ctx *w);

#endif
