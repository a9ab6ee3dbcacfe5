#include "coalescing.h"
#include "board.h"
#include "device.h"
#include "nvme.h"
#include "vector.h"

static const char *reason(const struct coalescing *c)
{
    switch (c->policy) {
    case POLICY_VIC:
        return coalesce_reason_name(coalesce_vic_reason(&c->vic));
    case POLICY_CINT:
    case POLICY_STRICT:
        return coalesce_reason_name(coalesce_cint_reason(&c->cint));
    case POLICY_BUDGET:
    case POLICY_AUTO:
        return coalesce_reason_name(coalesce_budget_reason(&c->regulated.budget));
    default:
        return c->aggregation.reason;
    }
}

static void note(const struct coalescing *c, struct traced traced, const char *why)
{
    traced.queue = (uint8_t)c->queue;
    traced.deadline = coalescing_deadline(c);
    for (traced.reason = why; why[traced.reason_length];)
        traced.reason_length++;
    trace(&traced);
}

// The only place that interrupts the host after a decision. Only COALESCE_HOLD suppresses the interrupt: an error
// delivers.
static void act(const struct coalescing *c, struct traced traced, coalesce_status status)
{
    bool is_urgent = status == COALESCE_DELIVER_URGENT;
    traced.decision = status == COALESCE_HOLD ? DECISION_HOLD : is_urgent ? DECISION_DELIVER_URGENT : DECISION_DELIVER;
    note(c, traced, reason(c));
    if (status != COALESCE_HOLD)
        vector_raise(c->queue - 1, is_urgent ? CAUSE_URGENT : CAUSE_NORMAL);
}

static coalesce_status flush(struct coalescing *c, uint64_t now)
{
    switch (c->policy) {
    case POLICY_VIC:
        return coalesce_vic_flush(&c->vic, now);
    case POLICY_CINT:
    case POLICY_STRICT:
        return coalesce_cint_flush(&c->cint, now);
    case POLICY_BUDGET:
    case POLICY_AUTO:
        return coalesce_budget_flush(&c->regulated.budget, now);
    default:
        return aggregation_flush(&c->aggregation);
    }
}

void coalescing_flush(struct coalescing *c, uint64_t now)
{
    coalesce_status status = flush(c, now);
    act(c, (struct traced){.call = CALL_FLUSH, .now = now}, status);
}

void coalescing_reset(struct coalescing *c, unsigned queue)
{
    *c = (struct coalescing){.queue = queue, .policy = POLICY_NVME, .aggregation = {.threshold = 1}};
}

// The state of a policy that is not in force, or of one that is and begins anew. On an error nothing changes.
static coalesce_status init(struct coalescing *c, uint32_t policy, uint32_t storm_rate)
{
    switch (policy) {
    case POLICY_NVME:
        return COALESCE_OK;
    case POLICY_VIC: {
        coalesce_vic_config vic;
        coalesce_vic_config_default(&vic, sizeof vic, BOARD_TICK_HZ);
        vic.epoch_ns = 1000000;
        return coalesce_vic_init(&c->vic, sizeof c->vic, &vic, NULL);
    }
    case POLICY_CINT:
    case POLICY_STRICT: {
        coalesce_cint_config cint;
        coalesce_cint_config_default(&cint, sizeof cint, BOARD_TICK_HZ);
        cint.delta_ns = 30000;
        if (policy == POLICY_STRICT) {
            cint.delta_ns = cint.max_hold_ns = 1000000;
            cint.in_flight = 0;
        }
        cint.storm_max_rate = storm_rate;
        cint.storm_shift = STORM_SHIFT;
        coalesce_status status = coalesce_cint_init(&c->cint, sizeof c->cint, &cint, NULL);
        return status == COALESCE_OK ? coalesce_window_init(c->window, sizeof c->window, WINDOW, NULL) : status;
    }
    case POLICY_BUDGET:
    case POLICY_AUTO: {
        coalesce_budget_config budget;
        coalesce_budget_config_default(&budget, sizeof budget, BOARD_TICK_HZ);
        budget.max_hold_ns = 200000;
        budget.storm_max_rate = storm_rate;
        budget.storm_shift = STORM_SHIFT;
        return policy == POLICY_AUTO ? coalesce_auto_init(&c->regulated, sizeof c->regulated, &budget, NULL)
                                     : coalesce_budget_init(&c->regulated.budget, sizeof c->regulated.budget, &budget, NULL);
    }
    default:
        return COALESCE_E_CONFIG;
    }
}

bool coalescing_choose(struct coalescing *c, uint32_t policy, uint32_t storm_rate)
{
    bool is_good = init(c, policy, storm_rate) == COALESCE_OK;
    if (is_good)
        c->policy = policy;
    return is_good;
}

void coalescing_set(struct coalescing *c, uint32_t threshold, uint64_t time, uint64_t now)
{
    if (c->aggregation.held > 0)
        coalescing_flush(c, now);
    c->aggregation.threshold = threshold;
    c->aggregation.time = time;
}

void coalescing_disable(struct coalescing *c, bool is_disabled, uint64_t now)
{
    c->is_disabled = is_disabled;
    if (is_disabled)
        coalescing_flush(c, now);
}

uint64_t coalescing_on_submit(struct coalescing *c, uint64_t now)
{
    if (c->policy == POLICY_BUDGET || c->policy == POLICY_AUTO)
        coalesce_budget_on_submits(&c->regulated.budget, now, 1);
    return c->policy == POLICY_STRICT ? coalesce_window_on_submit(c->window) : COALESCE_NO_TICKET;
}

void coalescing_on_completion(struct coalescing *c, uint64_t now, const struct slot *command, uint32_t cif, uint32_t outstanding)
{
    bool has_failed = command->status != STATUS_SUCCESS, must_deliver = c->is_disabled;
    uint32_t failed = command->hint == COALESCE_HINT_BARRIER ? COALESCE_HINT_FAILED_BARRIER : COALESCE_HINT_URGENT;
    uint32_t hint = has_failed ? failed : command->hint;
    coalesce_status status;
    switch (c->policy) {
    case POLICY_VIC:
        status = coalesce_vic_on_completion(&c->vic, now, cif);
        must_deliver = must_deliver || has_failed; // vIC has no hints
        break;
    case POLICY_CINT:
        status = coalesce_cint_on_completion(&c->cint, now, hint, cif);
        break;
    case POLICY_STRICT:
        status = coalesce_cint_on_completion_strict(&c->cint, c->window, now, command->ticket, hint, cif);
        break;
    case POLICY_BUDGET:
        status = coalesce_budget_on_completion(&c->regulated.budget, now, hint, cif, outstanding);
        break;
    case POLICY_AUTO:
        status = coalesce_auto_on_completion(&c->regulated, now, hint, cif, outstanding);
        break;
    default:
        status = aggregation_on_completion(&c->aggregation, now, has_failed);
    }
    if (status == COALESCE_HOLD && must_deliver)
        status = flush(c, now);
    uint8_t traced = hint == COALESCE_HINT_FAILED_BARRIER ? HINT_BARRIER : (uint8_t)hint;
    act(c, (struct traced){.call = CALL_COMPLETION, .now = now, .cif = cif, .hint = traced}, status);
}

uint64_t coalescing_deadline(const struct coalescing *c)
{
    switch (c->policy) {
    case POLICY_VIC:
        return coalesce_vic_deadline(&c->vic);
    case POLICY_CINT:
    case POLICY_STRICT:
        return coalesce_cint_deadline(&c->cint);
    case POLICY_BUDGET:
    case POLICY_AUTO:
        return coalesce_budget_deadline(&c->regulated.budget);
    default:
        return aggregation_deadline(&c->aggregation);
    }
}

void coalescing_on_deadline(struct coalescing *c, uint64_t now)
{
    coalesce_status status;
    switch (c->policy) {
    case POLICY_VIC:
        status = coalesce_vic_on_deadline(&c->vic, now);
        break;
    case POLICY_CINT:
    case POLICY_STRICT:
        status = coalesce_cint_on_deadline(&c->cint, now);
        break;
    case POLICY_BUDGET:
    case POLICY_AUTO:
        status = coalesce_budget_on_deadline(&c->regulated.budget, now);
        break;
    default:
        status = aggregation_on_deadline(&c->aggregation, now);
    }
    act(c, (struct traced){.call = CALL_DEADLINE, .now = now}, status);
}

void coalescing_on_consumed(struct coalescing *c, uint64_t now)
{
    switch (c->policy) {
    case POLICY_VIC:
        coalesce_vic_on_consumed(&c->vic, now);
        break;
    case POLICY_CINT:
    case POLICY_STRICT:
        coalesce_cint_on_consumed(&c->cint, now);
        break;
    case POLICY_BUDGET:
    case POLICY_AUTO:
        coalesce_budget_on_consumed(&c->regulated.budget, now);
        break;
    default:
        c->aggregation.held = 0;
    }
    note(c, (struct traced){.call = CALL_CONSUMED, .now = now}, "");
}
