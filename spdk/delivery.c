#include "delivery.h"

#include <spdk/env.h>
#include <spdk/histogram_data.h>
#include <spdk/json.h>
#include <spdk/util.h>

static bool is_none(const char *policy)
{
    return strcmp(policy, "none") == 0;
}

bool delivery_init(struct delivery *line, const char *policy, uint32_t size)
{
    *line = (struct delivery){.deadline = COALESCE_NEVER, .held_size = spdk_align32pow2(size)};
    line->is_off = is_none(policy);
    line->policy = coalesce_policy_new(policy, spdk_get_ticks_hz(), NULL, 0);
    line->held_since = calloc(line->held_size, sizeof(*line->held_since));
    line->hold = spdk_histogram_data_alloc();
    if (line->policy && line->held_since && line->hold)
        return true;
    delivery_free(line);
    return false;
}

void delivery_free(struct delivery *line)
{
    coalesce_policy_free(line->policy);
    free(line->held_since);
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

void delivery_submit(struct delivery *line, coalesce_request *request, coalesce_mark *mark)
{
    request->struct_size = sizeof(*request);
    coalesce_policy_on_submit(line->policy, request, mark);
    line->stats.urgent += mark->hint == COALESCE_HINT_URGENT;
    line->stats.barrier += mark->hint == COALESCE_HINT_BARRIER;
}

// COALESCE_HOLD alone suppresses an interrupt.
static bool act(struct delivery *line, coalesce_status decision)
{
    line->is_due |= decision != COALESCE_HOLD;
    line->deadline = coalesce_policy_deadline(line->policy);
    return decision == COALESCE_HOLD;
}

void delivery_complete(struct delivery *line, uint64_t now, uint32_t cif, const coalesce_mark *mark, uint32_t class_of)
{
    coalesce_completion completion = {
        .struct_size = sizeof(completion),
        .cif = cif,
        .mark = *mark,
        .slice_end = COALESCE_NEVER,
        .class_of = class_of,
    };
    line->stats.completions++;
    line->is_batch = line->is_news = true;
    if (act(line, coalesce_policy_on_completion(line->policy, now, &completion)))
        line->held_since[line->held++ & (line->held_size - 1)] = now;
}

void delivery_end_batch(struct delivery *line, uint64_t now)
{
    if (!line->is_due && line->is_batch && coalesce_policy_wants_batch_end(line->policy))
        act(line, coalesce_policy_on_batch_end(line->policy, now));
    line->is_batch = false;
}

bool delivery_may_interrupt(struct delivery *line, uint64_t now)
{
    if (!line->is_due && line->deadline <= now)
        act(line, coalesce_policy_on_deadline(line->policy, now));
    return line->is_due || line->held == 0;
}

// Forgets what waited, and how long.
static void forget_held(struct delivery *line, uint64_t now)
{
    uint64_t known = spdk_min(line->held, line->held_size);
    for (uint64_t i = line->held - known; i < line->held; i++) {
        uint64_t since = line->held_since[i & (line->held_size - 1)];
        uint64_t ticks = now > since ? now - since : 0;
        spdk_histogram_data_tally(line->hold, ticks);
        line->hold_sum += ticks;
        line->hold_max = spdk_max(line->hold_max, ticks);
    }
    line->held = 0;
    line->is_due = false;
    // Completions that came after the decision: this interrupt tells of them, too.
    if (coalesce_policy_held(line->policy) > 0)
        coalesce_policy_on_consumed(line->policy, now);
    line->deadline = coalesce_policy_deadline(line->policy);
}

void delivery_told(struct delivery *line, uint64_t now, bool is_sent)
{
    forget_held(line, now);
    line->stats.owed += is_sent && !line->is_news;
    line->is_news = false;
    line->stats.interrupts += is_sent;
    line->stats.suppressed += !is_sent;
}

void delivery_reconfigure(struct delivery *line, uint64_t now, const char *policy)
{
    coalesce_status decision = coalesce_policy_reconfigure(line->policy, now, policy, NULL, 0);
    if (decision >= 0) {
        line->is_off = is_none(policy);
        act(line, decision);
    }
}

void delivery_reset(struct delivery *line, uint64_t now)
{
    forget_held(line, now);
    coalesce_status owed = coalesce_policy_reset(line->policy, now);
    (void)owed; /* nothing is held any more */
    line->is_batch = line->is_news = false;
    line->deadline = coalesce_policy_deadline(line->policy);
}

void delivery_reset_stats(struct delivery *line)
{
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

void delivery_write_stats(const struct delivery *line, struct spdk_json_write_ctx *w)
{
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
