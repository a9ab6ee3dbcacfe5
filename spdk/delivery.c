#include "delivery.h"

#include <spdk/env.h>
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

// After each call of the library that may change it.
static void look(struct delivery *delivery)
{
    bool could_hold = delivery->view.may_hold;
    coalesce_delivery_look(delivery->coalesce, &delivery->view, sizeof(delivery->view));
    if (delivery->view.may_hold && !could_hold) {
        delivery->generation++;
        delivery->pending.submissions = delivery->pending.outstanding = 0;
    }
}

// What is due is in the view.
static void decided(struct delivery *delivery, coalesce_status decision)
{
    (void)decision;
    look(delivery);
}

int delivery_init(struct delivery *delivery, const char *policy, uint32_t size)
{
    *delivery = (struct delivery){.size = size, .bypassed.struct_size = sizeof(delivery->bypassed)};
    delivery->coalesce = coalesce_delivery_new(policy, delivery_hz(), NULL, 0);
    if (!delivery->coalesce)
        return -ENOMEM;
    delivery->policy = coalesce_delivery_policy(delivery->coalesce);
    decided(delivery, coalesce_delivery_on_batch_end(delivery->coalesce, delivery_now())); // every poll will have an end
    return 0;
}

void delivery_fini(struct delivery *delivery)
{
    coalesce_delivery_free(delivery->coalesce);
    *delivery = (struct delivery){.coalesce = NULL};
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
    coalesce_delivery_on_submit(delivery->coalesce, delivery_now(), request, mark);
    delivery->stats.urgent += mark->hint == COALESCE_HINT_URGENT;
    delivery->stats.barrier += mark->hint == COALESCE_HINT_BARRIER;
}

static void report_submissions(struct delivery *delivery, uint64_t now)
{
    if (delivery->view.wants_submit && delivery->pending.submissions > 0) {
        coalesce_request last = {
            .struct_size = sizeof(last),
            .outstanding = delivery->pending.outstanding,
            .before = delivery->pending.submissions - 1,
        };
        coalesce_mark mark; // plain, like all of them
        coalesce_delivery_on_submit(delivery->coalesce, now, &last, &mark);
    }
    delivery->pending.submissions = delivery->pending.outstanding = 0;
}

void delivery_end_submissions(struct delivery *delivery)
{
    if (delivery->pending.submissions == 0)
        return;
    report_submissions(delivery, delivery_now());
    look(delivery); // what is held may be due earlier
}

// `before` plain commands completed, and then this one.
static void decide(struct delivery *delivery, uint64_t now, uint64_t before, uint32_t cif, const coalesce_mark *mark,
                   uint32_t class_of)
{
    coalesce_completion completion = {
        .struct_size = sizeof(completion),
        .cif = cif,
        .mark = *mark,
        .slice_end = COALESCE_NEVER,
        .class_of = class_of,
        .before = (uint32_t)spdk_min(before, UINT32_MAX),
    };
    delivery->pending.completions = 0;
    decided(delivery, coalesce_delivery_on_completion(delivery->coalesce, now, &completion));
}

// Must come before the policy is asked again: reported later, these interrupts would cover what it holds by then.
static void report_bypassed(struct delivery *delivery, uint64_t now)
{
    coalesce_bypassed *bypassed = &delivery->bypassed;
    if (bypassed->completions == 0 && bypassed->interrupts + bypassed->suppressed == 0)
        return;
    coalesce_delivery_bypassed(delivery->coalesce, now, bypassed);
    *bypassed = (coalesce_bypassed){.struct_size = sizeof(*bypassed)};
    look(delivery);
}

void delivery_decide(struct delivery *delivery, uint64_t now)
{
    report_bypassed(delivery, now);
    bool has_submissions = delivery->pending.submissions > 0;
    report_submissions(delivery, now);
    if (delivery->pending.completions > 0)
        decide(delivery, now, delivery->pending.completions - 1, delivery->pending.cif, &delivery_plain_mark, COALESCE_CLASS_IO);
    else if (has_submissions)
        look(delivery); // what is held may be due earlier
}

void delivery_complete_one(struct delivery *delivery, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
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
    if (delivery->is_batch_open)
        decided(delivery, coalesce_delivery_on_batch_end(delivery->coalesce, now));
    delivery->is_batch_open = false;
}

bool delivery_should_interrupt(struct delivery *delivery, uint64_t now)
{
    if (delivery_is_bypassed(delivery))
        return true;
    delivery_decide(delivery, now);
    if (!delivery->view.is_due && delivery->view.deadline <= now)
        decided(delivery, coalesce_delivery_on_deadline(delivery->coalesce, now));
    return delivery->view.is_due || delivery->view.held == 0;
}

// The consumer has been notified, and the policy was not asked.
static void pass(struct delivery *delivery, bool is_sent)
{
    coalesce_bypassed *bypassed = &delivery->bypassed;
    if (delivery->pending.completions > 0) {
        uint64_t cif = delivery->pending.cif + delivery->pending.completions - 1; // at the first of them
        bypassed->outstanding = (uint32_t)spdk_max(bypassed->outstanding, spdk_min(cif, UINT32_MAX));
        bypassed->completions += delivery->pending.completions;
        delivery->pending.completions = 0;
    }
    bypassed->interrupts += is_sent;
    bypassed->suppressed += !is_sent;
    if (bypassed->interrupts + bypassed->suppressed == DELIVERY_BYPASSED_MAX)
        report_bypassed(delivery, delivery_now());
}

void delivery_interrupted(struct delivery *delivery, uint64_t now, bool is_sent)
{
    if (delivery_may_pass(delivery)) {
        pass(delivery, is_sent);
    } else {
        delivery_decide(delivery, now);
        uint32_t outcome = is_sent ? COALESCE_INTERRUPT_SENT : COALESCE_INTERRUPT_UNWANTED;
        coalesce_delivery_interrupted(delivery->coalesce, now, outcome);
        look(delivery);
    }
    delivery->stats.owed += is_sent && !delivery->has_completions;
    delivery->has_completions = false;
}

void delivery_failed(struct delivery *delivery, uint64_t now)
{
    coalesce_delivery_interrupted(delivery->coalesce, now, COALESCE_INTERRUPT_FAILED);
    look(delivery);
}

void delivery_reconfigure(struct delivery *delivery, uint64_t now, const char *policy)
{
    delivery_decide(delivery, now);
    decided(delivery, coalesce_delivery_reconfigure(delivery->coalesce, now, policy, NULL, 0));
}

void delivery_reset(struct delivery *delivery, uint64_t now)
{
    delivery->bypassed.completions += delivery->pending.completions; // nobody is left to interrupt
    report_bypassed(delivery, now);
    delivery->pending.completions = delivery->pending.submissions = delivery->pending.outstanding = 0;
    delivery->generation++;
    coalesce_delivery_reset(delivery->coalesce, now);
    delivery->is_batch_open = delivery->has_completions = false;
    look(delivery);
}

void delivery_reset_stats(struct delivery *delivery)
{
    report_bypassed(delivery, delivery_now());
    memset(&delivery->stats, 0, sizeof(delivery->stats));
    coalesce_delivery_reset_stats(delivery->coalesce);
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
    uint32_t millionths;
    const char *name;
} percentiles[] = {
    {500000, "50.000000"}, {900000, "90.000000"}, {950000, "95.000000"},
    {990000, "99.000000"}, {999000, "99.900000"}, {999900, "99.990000"},
};

static uint64_t to_ns(uint64_t ticks)
{
    return (uint64_t)((unsigned __int128)ticks * SPDK_SEC_TO_NSEC / delivery_hz());
}

void delivery_write_stats(struct delivery *delivery, struct spdk_json_write_ctx *w)
{
    report_bypassed(delivery, delivery_now());
    coalesce_delivery_counts counts;
    coalesce_delivery_stats(delivery->coalesce, &counts, sizeof(counts));
    char policy[512];
    coalesce_policy_print(delivery->policy, policy, sizeof(policy));
    spdk_json_write_named_string(w, "policy", policy);
    spdk_json_write_named_uint64(w, "completions", counts.completions + delivery->pending.completions);
    spdk_json_write_named_uint64(w, "interrupts", counts.interrupts);
    spdk_json_write_named_uint64(w, "owed", delivery->stats.owed);
    spdk_json_write_named_uint64(w, "suppressed", counts.suppressed);
    spdk_json_write_named_uint64(w, "held", delivery->view.held);
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

    spdk_json_write_named_object_begin(w, "hold_ns");
    spdk_json_write_named_uint64(w, "count", counts.holds);
    spdk_json_write_named_uint64(w, "mean", counts.hold_mean_ns);
    spdk_json_write_named_uint64(w, "max", coalesce_delivery_hold_ns(delivery->coalesce, 1000000));
    spdk_json_write_named_object_begin(w, "percentile");
    for (size_t i = 0; counts.holds && i < SPDK_COUNTOF(percentiles); i++)
        spdk_json_write_named_uint64(w, percentiles[i].name,
                                     coalesce_delivery_hold_ns(delivery->coalesce, percentiles[i].millionths));
    spdk_json_write_object_end(w);
    spdk_json_write_object_end(w);
}
