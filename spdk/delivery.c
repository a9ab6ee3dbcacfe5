#include "delivery.h"

#include <spdk/env.h>
#include <spdk/histogram_data.h>
#include <spdk/json.h>
#include <spdk/util.h>

#define NO_SOURCE UINT32_MAX
const coalesce_mark delivery_plain_mark = {.ticket = COALESCE_NO_TICKET, .source = NO_SOURCE};
const coalesce_mark delivery_unknown_mark = {.ticket = COALESCE_NO_TICKET, .hint = COALESCE_HINT_URGENT, .source = NO_SOURCE};

// What the policy says of itself, which may change with each decision.
static void look(struct delivery *line)
{
    bool may_hold = coalesce_policy_may_hold(line->policy);
    if (may_hold && !line->may_hold) {
        line->age++;
        line->submitted = line->outstanding = 0;
    }
    line->may_hold = may_hold;
    line->deadline = coalesce_policy_deadline(line->policy);
}

static void look_anew(struct delivery *line)
{
    line->wants_submit = coalesce_policy_wants_submit(line->policy);
    line->wants_each_submit = coalesce_policy_wants_each_submit(line->policy);
    line->wants_batch_end = coalesce_policy_wants_batch_end(line->policy);
    look(line);
}

bool delivery_init(struct delivery *line, const char *policy, uint32_t size)
{
    *line = (struct delivery){.deadline = COALESCE_NEVER, .holds_size = spdk_align32pow2(size)};
    line->policy = coalesce_policy_new(policy, spdk_get_ticks_hz(), NULL, 0);
    line->holds = calloc(line->holds_size, sizeof(*line->holds));
    line->hold = spdk_histogram_data_alloc();
    if (!line->policy || !line->holds || !line->hold) {
        delivery_free(line);
        return false;
    }
    look_anew(line);
    return true;
}

void delivery_free(struct delivery *line)
{
    coalesce_policy_free(line->policy);
    free(line->holds);
    if (line->hold)
        spdk_histogram_data_free(line->hold);
    *line = (struct delivery){.deadline = COALESCE_NEVER};
}

bool delivery_check(const char *policy, char *message, size_t message_size)
{
    coalesce_policy *made = coalesce_policy_new(policy, spdk_get_ticks_hz(), message, message_size);
    coalesce_policy_free(made);
    return made != NULL;
}

void delivery_submit_special(struct delivery *line, coalesce_request *request, coalesce_mark *mark)
{
    request->before = line->submitted;
    line->submitted = line->outstanding = 0;
    request->struct_size = sizeof(*request);
    coalesce_policy_on_submit(line->policy, request, mark);
    line->stats.urgent += mark->hint == COALESCE_HINT_URGENT;
    line->stats.barrier += mark->hint == COALESCE_HINT_BARRIER;
}

// Tells of plain commands that were submitted.
static void tell_submitted(struct delivery *line)
{
    if (line->wants_submit && line->submitted > 0) {
        coalesce_request last = {.struct_size = sizeof(last), .outstanding = line->outstanding, .before = line->submitted - 1};
        coalesce_mark mark; // plain, as they are
        coalesce_policy_on_submit(line->policy, &last, &mark);
    }
    line->submitted = line->outstanding = 0;
}

// COALESCE_HOLD alone suppresses an interrupt.
static bool act(struct delivery *line, coalesce_status decision)
{
    line->is_due |= decision != COALESCE_HOLD;
    look(line);
    return decision == COALESCE_HOLD;
}

// `before` plain commands completed, and then this one.
static void decide(struct delivery *line, uint64_t now, uint32_t before, uint32_t cif, const coalesce_mark *mark,
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
    line->together = 0;
    if (act(line, coalesce_policy_on_completion(line->policy, now, &completion))) {
        uint64_t count = (uint64_t)before + 1;
        line->holds[line->holds_count++ & (line->holds_size - 1)] = (struct delivery_hold){now, count};
        line->held += count;
    }
}

void delivery_decide(struct delivery *line, uint64_t now)
{
    tell_submitted(line);
    if (line->together > 0)
        decide(line, now, line->together - 1, line->cif, &delivery_plain_mark, COALESCE_CLASS_IO);
}

void delivery_special(struct delivery *line, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
    line->stats.completions++;
    line->is_batch = line->is_news = true;
    tell_submitted(line);
    decide(line, spdk_get_ticks(), line->together, cif, mark, class_of);
}

void delivery_end_batch(struct delivery *line, uint64_t now)
{
    if (delivery_passes(line))
        return;
    delivery_decide(line, now);
    if (!line->is_due && line->is_batch && line->wants_batch_end)
        act(line, coalesce_policy_on_batch_end(line->policy, now));
    line->is_batch = false;
}

bool delivery_may_interrupt(struct delivery *line, uint64_t now)
{
    if (delivery_passes(line))
        return true;
    delivery_decide(line, now);
    if (!line->is_due && line->deadline <= now)
        act(line, coalesce_policy_on_deadline(line->policy, now));
    return line->is_due || line->held == 0;
}

// Forgets what waited, and how long.
static void forget_held(struct delivery *line, uint64_t now)
{
    uint64_t known = spdk_min(line->holds_count, line->holds_size);
    for (uint64_t i = line->holds_count - known; i < line->holds_count; i++) {
        const struct delivery_hold *hold = &line->holds[i & (line->holds_size - 1)];
        uint64_t ticks = now > hold->since ? now - hold->since : 0;
        for (uint64_t left = hold->count; left > 0; left--)
            spdk_histogram_data_tally(line->hold, ticks);
        line->hold_sum += ticks * hold->count;
        line->hold_max = spdk_max(line->hold_max, ticks);
    }
    line->held = line->holds_count = 0;
    // Completions that came after the decision: this interrupt tells of them, too.
    if (coalesce_policy_held(line->policy) > 0)
        coalesce_policy_on_consumed(line->policy, now);
    look(line);
}

// Tells the policy of what it was not asked about.
static void tell_passed(struct delivery *line, uint64_t now)
{
    if (line->passed.completions == 0)
        return;
    coalesce_policy_on_passed(line->policy, now, line->passed.completions, line->passed.interrupts, line->passed.outstanding);
    memset(&line->passed, 0, sizeof(line->passed));
    look(line);
}

// The policy may not hold, and the consumer was told.
static void pass(struct delivery *line, bool is_sent)
{
    if (line->together > 0 && line->together <= line->holds_size) // else it has taken some without being told
        line->passed.outstanding = spdk_max(line->passed.outstanding, line->together + line->cif - 1);
    line->passed.completions += line->together;
    line->passed.interrupts += is_sent;
    line->together = 0;
    if (line->passed.completions >= DELIVERY_TOGETHER_MAX)
        tell_passed(line, spdk_get_ticks());
}

void delivery_told(struct delivery *line, uint64_t now, bool is_sent)
{
    if (delivery_passes(line)) {
        pass(line, is_sent);
    } else {
        delivery_decide(line, now);
        forget_held(line, now);
    }
    line->is_due = false;
    line->stats.owed += is_sent && !line->is_news;
    line->is_news = false;
    line->stats.interrupts += is_sent;
    line->stats.suppressed += !is_sent;
}

void delivery_reconfigure(struct delivery *line, uint64_t now, const char *policy)
{
    tell_passed(line, now);
    delivery_decide(line, now);
    coalesce_status decision = coalesce_policy_reconfigure(line->policy, now, policy, NULL, 0);
    if (decision >= 0) {
        act(line, decision);
        look_anew(line);
    }
}

void delivery_reset(struct delivery *line, uint64_t now)
{
    tell_passed(line, now);
    line->together = line->submitted = line->outstanding = 0;
    line->is_due = false;
    line->age++;
    forget_held(line, now);
    coalesce_status owed = coalesce_policy_reset(line->policy, now);
    (void)owed; /* nothing is held any more */
    line->is_batch = line->is_news = false;
    look(line);
}

void delivery_reset_stats(struct delivery *line)
{
    tell_passed(line, spdk_get_ticks());
    memset(&line->stats, 0, sizeof(line->stats));
    spdk_histogram_data_reset(line->hold);
    line->hold_sum = line->hold_max = 0;
    coalesce_policy_reset_stats(line->policy);
}

struct counters {
    struct spdk_json_write_ctx *w;
    bool is_hold;
};

static void write_counter(void *context, const char *reason, bool is_hold, uint64_t count)
{
    struct counters *counters = context;
    if (is_hold == counters->is_hold && count > 0)
        spdk_json_write_named_uint64(counters->w, reason, count);
}

// As fio names them.
static const struct {
    double value;
    const char *name;
} percentiles[] = {
    {50, "50.000000"}, {90, "90.000000"}, {95, "95.000000"}, {99, "99.000000"}, {99.9, "99.900000"}, {99.99, "99.990000"},
};

struct hold_times {
    uint64_t count;
    uint64_t ticks[SPDK_COUNTOF(percentiles)];
    size_t found;
};

static void find_percentiles(void *context, uint64_t start, uint64_t end, uint64_t count, uint64_t total, uint64_t so_far)
{
    struct hold_times *times = context;
    times->count = total;
    while (times->found < SPDK_COUNTOF(percentiles) && (double)so_far >= percentiles[times->found].value / 100 * (double)total)
        times->ticks[times->found++] = end;
}

static uint64_t to_ns(uint64_t ticks)
{
    return (uint64_t)((unsigned __int128)ticks * SPDK_SEC_TO_NSEC / spdk_get_ticks_hz());
}

void delivery_write_stats(struct delivery *line, struct spdk_json_write_ctx *w)
{
    tell_passed(line, spdk_get_ticks());
    char text[512];
    coalesce_policy_print(line->policy, text, sizeof(text));
    spdk_json_write_named_string(w, "policy", text);
    spdk_json_write_named_uint64(w, "completions", line->stats.completions);
    spdk_json_write_named_uint64(w, "interrupts", line->stats.interrupts);
    spdk_json_write_named_uint64(w, "owed", line->stats.owed);
    spdk_json_write_named_uint64(w, "suppressed", line->stats.suppressed);
    spdk_json_write_named_uint64(w, "held", line->held);
    for (int is_hold = 0; is_hold <= 1; is_hold++) {
        struct counters counters = {w, is_hold};
        spdk_json_write_named_object_begin(w, is_hold ? "holds" : "delivered");
        coalesce_policy_stats(line->policy, write_counter, &counters);
        spdk_json_write_object_end(w);
    }
    spdk_json_write_named_object_begin(w, "hints");
    spdk_json_write_named_uint64(w, "urgent", line->stats.urgent);
    spdk_json_write_named_uint64(w, "barrier", line->stats.barrier);
    spdk_json_write_object_end(w);

    struct hold_times times = {0};
    spdk_histogram_data_iterate(line->hold, find_percentiles, &times);
    spdk_json_write_named_object_begin(w, "hold_ns");
    spdk_json_write_named_uint64(w, "count", times.count);
    spdk_json_write_named_uint64(w, "mean", times.count ? to_ns(line->hold_sum / times.count) : 0);
    spdk_json_write_named_uint64(w, "max", to_ns(line->hold_max));
    spdk_json_write_named_object_begin(w, "percentile");
    for (size_t i = 0; times.count && i < SPDK_COUNTOF(percentiles); i++)
        spdk_json_write_named_uint64(w, percentiles[i].name, to_ns(spdk_min(times.ticks[i], line->hold_max)));
    spdk_json_write_object_end(w);
    spdk_json_write_object_end(w);
}
