#include "delivery.h"

#include <spdk/env.h>
#include <spdk/histogram_data.h>
#include <spdk/json.h>
#include <spdk/util.h>

const coalesce_mark delivery_plain_mark = COALESCE_MARK_NONE;
const coalesce_mark delivery_no_mark = COALESCE_MARK_OF(COALESCE_HINT_URGENT);

uint8_t delivery_clock_shift;

void delivery_clock_init(void)
{
    delivery_clock_shift = 0;
    while (delivery_hz() > SPDK_SEC_TO_NSEC)
        delivery_clock_shift++;
}

// Reads what may change with each decision.
static void update(struct delivery *delivery)
{
    bool may_hold = coalesce_policy_may_hold(delivery->policy);
    if (may_hold && !delivery->may_hold) {
        delivery->generation++;
        delivery->pending.submissions = delivery->pending.outstanding = 0;
    }
    delivery->may_hold = may_hold;
    delivery->deadline = coalesce_policy_deadline(delivery->policy);
}

// Reads what may change with the configuration, too.
static void update_all(struct delivery *delivery)
{
    delivery->wants_submit = coalesce_policy_wants_submit(delivery->policy);
    delivery->wants_each_submit = coalesce_policy_wants_each_submit(delivery->policy);
    delivery->wants_batch_end = coalesce_policy_wants_batch_end(delivery->policy);
    update(delivery);
}

int delivery_init(struct delivery *delivery, const char *policy, uint32_t size)
{
    *delivery = (struct delivery){.deadline = COALESCE_NEVER, .holds_size = spdk_align32pow2(size)};
    delivery->policy = coalesce_policy_new(policy, delivery_hz(), NULL, 0);
    delivery->holds = calloc(delivery->holds_size, sizeof(*delivery->holds));
    delivery->hold_ticks = spdk_histogram_data_alloc();
    if (!delivery->policy || !delivery->holds || !delivery->hold_ticks) {
        delivery_fini(delivery);
        return -ENOMEM;
    }
    update_all(delivery);
    return 0;
}

void delivery_fini(struct delivery *delivery)
{
    coalesce_policy_free(delivery->policy);
    free(delivery->holds);
    if (delivery->hold_ticks)
        spdk_histogram_data_free(delivery->hold_ticks);
    *delivery = (struct delivery){.deadline = COALESCE_NEVER};
}

bool delivery_check_policy(const char *policy, char *message, size_t message_size)
{
    coalesce_policy *checked = coalesce_policy_new(policy, delivery_hz(), message, message_size);
    bool is_valid = checked != NULL;
    coalesce_policy_free(checked);
    return is_valid;
}

void delivery_submit_one(struct delivery *delivery, coalesce_request *request, coalesce_mark *mark)
{
    request->struct_size = sizeof(*request);
    request->before = delivery->pending.submissions;
    delivery->pending.submissions = delivery->pending.outstanding = 0;
    coalesce_policy_on_submit(delivery->policy, delivery_now(), request, mark);
    delivery->stats.urgent += mark->hint == COALESCE_HINT_URGENT;
    delivery->stats.barrier += mark->hint == COALESCE_HINT_BARRIER;
}

static void report_submissions(struct delivery *delivery, uint64_t now)
{
    if (delivery->wants_submit && delivery->pending.submissions > 0) {
        coalesce_request last = {
            .struct_size = sizeof(last),
            .outstanding = delivery->pending.outstanding,
            .before = delivery->pending.submissions - 1,
        };
        coalesce_mark mark; // plain, like all of them
        coalesce_policy_on_submit(delivery->policy, now, &last, &mark);
    }
    delivery->pending.submissions = delivery->pending.outstanding = 0;
}

void delivery_end_submissions(struct delivery *delivery)
{
    if (delivery->pending.submissions == 0)
        return;
    report_submissions(delivery, delivery_now());
    update(delivery); // what is held may be due earlier
}

// Whether the decision is to hold. Every other value delivers, errors included.
static bool apply(struct delivery *delivery, coalesce_status decision)
{
    delivery->is_due |= decision != COALESCE_HOLD;
    update(delivery);
    return decision == COALESCE_HOLD;
}

// `before` plain commands completed, and then this one.
static void decide(struct delivery *delivery, uint64_t now, uint32_t before, uint32_t cif, const coalesce_mark *mark,
                   uint32_t class_of)
{
    coalesce_completion completion = {
        .struct_size = sizeof(completion),
        .cif = cif,
        .mark = *mark,
        .slice_end = COALESCE_NEVER,
        .class_of = class_of,
        .before = before,
    };
    delivery->pending.completions = 0;
    if (apply(delivery, coalesce_policy_on_completion(delivery->policy, now, &completion))) {
        uint64_t count = (uint64_t)before + 1;
        delivery->holds[delivery->holds_count++ & (delivery->holds_size - 1)] = (struct delivery_hold){now, count};
        delivery->held += count;
    }
}

// Must come before the policy is asked again: reported later, these interrupts would cover what it holds by then.
static void report_bypassed(struct delivery *delivery, uint64_t now)
{
    if (delivery->bypassed == 0)
        return;
    coalesce_policy_on_passed(delivery->policy, now, delivery->bypassed, delivery->bypassed_cif);
    delivery->bypassed = delivery->bypassed_cif = 0;
    update(delivery);
}

void delivery_decide(struct delivery *delivery, uint64_t now)
{
    report_bypassed(delivery, now);
    bool has_submissions = delivery->pending.submissions > 0;
    report_submissions(delivery, now);
    if (delivery->pending.completions > 0)
        decide(delivery, now, delivery->pending.completions - 1, delivery->pending.cif, &delivery_plain_mark, COALESCE_CLASS_IO);
    else if (has_submissions)
        update(delivery); // what is held may be due earlier
}

void delivery_complete_one(struct delivery *delivery, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
    delivery->stats.completions++;
    delivery->is_batch_open = delivery->has_completions = true;
    uint64_t now = delivery_now();
    report_bypassed(delivery, now);
    report_submissions(delivery, now);
    decide(delivery, now, delivery->pending.completions, cif, mark, class_of);
}

void delivery_end_batch(struct delivery *delivery, uint64_t now)
{
    if (delivery_is_bypassed(delivery))
        return;
    delivery_decide(delivery, now);
    if (!delivery->is_due && delivery->is_batch_open && delivery->wants_batch_end)
        apply(delivery, coalesce_policy_on_batch_end(delivery->policy, now));
    delivery->is_batch_open = false;
}

bool delivery_should_interrupt(struct delivery *delivery, uint64_t now)
{
    if (delivery_is_bypassed(delivery))
        return true;
    delivery_decide(delivery, now);
    // What waits for the end of a poll is not due before it, although its deadline has passed.
    bool waits_for_batch_end = delivery->is_batch_open && delivery->wants_batch_end;
    if (!delivery->is_due && !waits_for_batch_end && delivery->deadline <= now)
        apply(delivery, coalesce_policy_on_deadline(delivery->policy, now));
    return delivery->is_due || delivery->held == 0;
}

// Nothing is held any more: records for how long it was.
static void release_held(struct delivery *delivery, uint64_t now)
{
    uint64_t recorded = spdk_min(delivery->holds_count, delivery->holds_size);
    for (uint64_t i = delivery->holds_count - recorded; i < delivery->holds_count; i++) {
        const struct delivery_hold *hold = &delivery->holds[i & (delivery->holds_size - 1)];
        uint64_t ticks = now > hold->since ? now - hold->since : 0;
        for (uint64_t left = hold->count; left > 0; left--)
            spdk_histogram_data_tally(delivery->hold_ticks, ticks);
        delivery->hold_ticks_sum += ticks * hold->count;
        delivery->hold_ticks_max = spdk_max(delivery->hold_ticks_max, ticks);
    }
    delivery->held = delivery->holds_count = 0;
    // The interrupt also covers completions that came after the decision to deliver.
    if (coalesce_policy_held(delivery->policy) > 0)
        coalesce_policy_on_consumed(delivery->policy, now);
    update(delivery);
}

// The consumer has been notified, and the policy was not asked.
static void bypass(struct delivery *delivery, bool is_sent)
{
    if (delivery->pending.completions > 0) {
        uint32_t cif = delivery->pending.cif + delivery->pending.completions - 1; // at the first of them
        delivery->bypassed_cif = spdk_max(delivery->bypassed_cif, cif);
        delivery->pending.completions = 0;
    }
    delivery->bypassed += is_sent;
    if (delivery->bypassed == DELIVERY_BYPASSED_MAX)
        report_bypassed(delivery, delivery_now());
}

void delivery_interrupted(struct delivery *delivery, uint64_t now, bool is_sent)
{
    if (delivery_may_pass(delivery)) {
        bypass(delivery, is_sent);
    } else {
        delivery_decide(delivery, now);
        release_held(delivery, now);
    }
    delivery->is_due = false;
    delivery->stats.owed += is_sent && !delivery->has_completions;
    delivery->has_completions = false;
    delivery->stats.interrupts += is_sent;
    delivery->stats.suppressed += !is_sent;
}

void delivery_reconfigure(struct delivery *delivery, uint64_t now, const char *policy)
{
    delivery_decide(delivery, now);
    coalesce_status decision = coalesce_policy_reconfigure(delivery->policy, now, policy, NULL, 0);
    if (decision >= 0) {
        apply(delivery, decision);
        update_all(delivery);
    }
}

void delivery_reset(struct delivery *delivery, uint64_t now)
{
    report_bypassed(delivery, now);
    delivery->pending.completions = delivery->pending.submissions = delivery->pending.outstanding = 0;
    delivery->is_due = false;
    delivery->generation++;
    release_held(delivery, now);
    coalesce_status decision = coalesce_policy_reset(delivery->policy, now);
    (void)decision; // nobody is left to interrupt
    delivery->is_batch_open = delivery->has_completions = false;
    update(delivery);
}

void delivery_reset_stats(struct delivery *delivery)
{
    report_bypassed(delivery, delivery_now());
    memset(&delivery->stats, 0, sizeof(delivery->stats));
    spdk_histogram_data_reset(delivery->hold_ticks);
    delivery->hold_ticks_sum = delivery->hold_ticks_max = 0;
    coalesce_policy_reset_stats(delivery->policy);
}

struct reason_writer {
    struct spdk_json_write_ctx *w;
    bool is_hold;
};

static void write_reason(void *ctx, const char *reason, bool is_hold, uint64_t count)
{
    struct reason_writer *writer = ctx;
    if (is_hold == writer->is_hold && count > 0)
        spdk_json_write_named_uint64(writer->w, reason, count);
}

// With the names that fio gives them.
static const struct {
    double value;
    const char *name;
} percentiles[] = {
    {50, "50.000000"}, {90, "90.000000"}, {95, "95.000000"}, {99, "99.000000"}, {99.9, "99.900000"}, {99.99, "99.990000"},
};

struct hold_percentiles {
    uint64_t count;
    uint64_t ticks[SPDK_COUNTOF(percentiles)];
    size_t found;
};

static void find_percentiles(void *ctx, uint64_t start, uint64_t end, uint64_t count, uint64_t total, uint64_t so_far)
{
    struct hold_percentiles *hold = ctx;
    hold->count = total;
    while (hold->found < SPDK_COUNTOF(percentiles) && (double)so_far >= percentiles[hold->found].value / 100 * (double)total)
        hold->ticks[hold->found++] = end;
}

static uint64_t to_ns(uint64_t ticks)
{
    return (uint64_t)((unsigned __int128)ticks * SPDK_SEC_TO_NSEC / delivery_hz());
}

void delivery_write_stats(struct delivery *delivery, struct spdk_json_write_ctx *w)
{
    report_bypassed(delivery, delivery_now());
    char policy[512];
    coalesce_policy_print(delivery->policy, policy, sizeof(policy));
    spdk_json_write_named_string(w, "policy", policy);
    spdk_json_write_named_uint64(w, "completions", delivery->stats.completions);
    spdk_json_write_named_uint64(w, "interrupts", delivery->stats.interrupts);
    spdk_json_write_named_uint64(w, "owed", delivery->stats.owed);
    spdk_json_write_named_uint64(w, "suppressed", delivery->stats.suppressed);
    spdk_json_write_named_uint64(w, "held", delivery->held);
    for (int is_hold = 0; is_hold <= 1; is_hold++) {
        struct reason_writer writer = {w, is_hold};
        spdk_json_write_named_object_begin(w, is_hold ? "holds" : "delivered");
        coalesce_policy_stats(delivery->policy, write_reason, &writer);
        spdk_json_write_object_end(w);
    }
    spdk_json_write_named_object_begin(w, "hints");
    spdk_json_write_named_uint64(w, "urgent", delivery->stats.urgent);
    spdk_json_write_named_uint64(w, "barrier", delivery->stats.barrier);
    spdk_json_write_object_end(w);

    coalesce_spent budget;
    coalesce_policy_spent(delivery->policy, &budget);
    if (budget.budget > 0) {
        double share = budget.outstanding_time ? (double)budget.held_time / (double)budget.outstanding_time : 0;
        spdk_json_write_named_object_begin(w, "budget");
        spdk_json_write_named_double(w, "spent_percent", share * 100);
        spdk_json_write_named_double(w, "limit_percent", budget.budget / 100.0);
        spdk_json_write_named_uint64(w, "held_ns", to_ns(budget.held_time));
        spdk_json_write_named_uint64(w, "outstanding_ns", to_ns(budget.outstanding_time));
        spdk_json_write_object_end(w);
    }

    struct hold_percentiles hold = {0};
    spdk_histogram_data_iterate(delivery->hold_ticks, find_percentiles, &hold);
    spdk_json_write_named_object_begin(w, "hold_ns");
    spdk_json_write_named_uint64(w, "count", hold.count);
    spdk_json_write_named_uint64(w, "mean", hold.count ? to_ns(delivery->hold_ticks_sum / hold.count) : 0);
    spdk_json_write_named_uint64(w, "max", to_ns(delivery->hold_ticks_max));
    spdk_json_write_named_object_begin(w, "percentile");
    for (size_t i = 0; hold.count && i < SPDK_COUNTOF(percentiles); i++)
        spdk_json_write_named_uint64(w, percentiles[i].name, to_ns(spdk_min(hold.ticks[i], delivery->hold_ticks_max)));
    spdk_json_write_object_end(w);
    spdk_json_write_object_end(w);
}
