// Replays the golden traces through libcoalesce.
#define COALESCE_BARE_METAL
#include "device.h"
#include "vectors.h"
#include <coalesce.h>

#define GROUPS 4u
#define WINDOW 64u
#define GROUP_SHIFT 56 // the position of the group in a traced ticket

static const struct vector_config *configs;
static enum vector_machine machine;
static unsigned groups; // 0: Barriers are relaxed
static coalesce_vic_state vic;
static coalesce_cint_state cint;
static coalesce_budget_state alone;
static coalesce_auto_state regulated;
static coalesce_budget_state *budget; // one of these
static uint64_t windows[GROUPS][COALESCE_WINDOW_WORDS(WINDOW)];

static coalesce_vic_config vic_of(const struct vector_config *config)
{
    return (coalesce_vic_config){
        sizeof(coalesce_vic_config), config->cif_threshold,  config->tick_hz,  config->epoch_ns,   config->max_hold_ns,
        config->margin_ns,           config->iops_threshold, config->max_skip, config->live_clamp, 0};
}

static coalesce_cint_config cint_of(const struct vector_config *config)
{
    return (coalesce_cint_config){
        sizeof(coalesce_cint_config), config->thr,         config->tick_hz,   config->delta_ns, config->max_hold_ns,
        config->storm_max_rate,       config->storm_shift, config->in_flight, config->ooo,      0};
}

static coalesce_budget_config budget_of(const struct vector_config *config)
{
    return (coalesce_budget_config){sizeof(coalesce_budget_config),
                                    config->budget,
                                    config->tick_hz,
                                    config->max_hold_ns,
                                    config->storm_max_rate,
                                    config->storm_shift,
                                    config->thr,
                                    config->ooo,
                                    0};
}

static coalesce_status init(const struct vector_config *first)
{
    coalesce_vic_config of_vic = vic_of(first);
    coalesce_cint_config of_cint = cint_of(first);
    coalesce_budget_config of_budget = budget_of(first);
    switch (machine) {
    case MACHINE_CINT:
        return coalesce_cint_init(&cint, sizeof cint, &of_cint, NULL);
    case MACHINE_BUDGET:
        return coalesce_budget_init(&alone, sizeof alone, &of_budget, NULL);
    case MACHINE_AUTO:
        return coalesce_auto_init(&regulated, sizeof regulated, &of_budget, NULL);
    default:
        return coalesce_vic_init(&vic, sizeof vic, &of_vic, NULL);
    }
}

void replay_begin(const struct vector_trace *trace, const struct vector_config *all)
{
    configs = all;
    machine = (enum vector_machine)trace->machine;
    budget = machine == MACHINE_AUTO ? &regulated.budget : &alone;
    groups = trace->groups < GROUPS ? trace->groups : GROUPS;
    coalesce_status status = init(all); // if this fails, the state returns errors, which no trace has
    for (unsigned i = 0; i < groups; i++)
        status = coalesce_window_init(windows[i], sizeof windows[i], WINDOW, NULL);
    (void)status;
}

// The window of a ticket's group, or null.
static uint64_t *window_of(uint64_t group)
{
    return group < groups ? windows[group] : NULL;
}

// The ticket of a window, without its group.
static uint64_t in_group(uint64_t ticket)
{
    return ticket == NEVER ? NEVER : ticket & ((UINT64_C(1) << GROUP_SHIFT) - 1);
}

static bool is_budget(void)
{
    return machine == MACHINE_BUDGET || machine == MACHINE_AUTO;
}

static coalesce_status complete(const struct vector_event *event)
{
    if (machine == MACHINE_VIC && event->slice_end != NEVER)
        return coalesce_vic_on_completion_in_slice(&vic, event->now, event->cif, event->slice_end);
    if (machine == MACHINE_VIC)
        return coalesce_vic_on_completion(&vic, event->now, event->cif);
    if (machine == MACHINE_BUDGET)
        return coalesce_budget_on_completion(budget, event->now, event->hint, event->cif, event->outstanding);
    if (machine == MACHINE_AUTO)
        return coalesce_auto_on_completion(&regulated, event->now, event->hint, event->cif, event->outstanding);
    if (groups == 0)
        return coalesce_cint_on_completion(&cint, event->now, event->hint, event->cif);
    uint64_t *window = window_of(event->ticket >> GROUP_SHIFT), ticket = in_group(event->ticket);
    return coalesce_cint_on_completion_strict(&cint, window, event->now, ticket, event->hint, event->cif);
}

static coalesce_status cancel(const struct vector_event *event)
{
    uint64_t *window = window_of(event->ticket >> GROUP_SHIFT), ticket = in_group(event->ticket);
    if (is_budget())
        return coalesce_budget_on_cancel(budget, window, event->now, ticket, event->hint);
    return coalesce_cint_on_cancel(&cint, window, event->now, ticket, event->hint);
}

static coalesce_status reconfigure(const struct vector_event *event)
{
    const struct vector_config *config = &configs[event->choice];
    coalesce_vic_config of_vic = vic_of(config);
    coalesce_cint_config of_cint = cint_of(config);
    coalesce_budget_config of_budget = budget_of(config);
    switch (machine) {
    case MACHINE_CINT:
        return coalesce_cint_reconfigure(&cint, &of_cint, event->now, NULL);
    case MACHINE_BUDGET:
        return coalesce_budget_reconfigure(&alone, &of_budget, event->now, NULL);
    case MACHINE_AUTO:
        return coalesce_auto_reconfigure(&regulated, &of_budget, event->now, NULL);
    default:
        return coalesce_vic_reconfigure(&vic, &of_vic, event->now, NULL);
    }
}

static coalesce_status end_hold(uint64_t now)
{
    switch (machine) {
    case MACHINE_CINT:
        return coalesce_cint_on_deadline(&cint, now);
    case MACHINE_BUDGET:
    case MACHINE_AUTO:
        return coalesce_budget_on_deadline(budget, now);
    default:
        return coalesce_vic_on_deadline(&vic, now);
    }
}

static coalesce_status flush(uint64_t now)
{
    switch (machine) {
    case MACHINE_CINT:
        return coalesce_cint_flush(&cint, now);
    case MACHINE_BUDGET:
    case MACHINE_AUTO:
        return coalesce_budget_flush(budget, now);
    default:
        return coalesce_vic_flush(&vic, now);
    }
}

// The answer of a call that decides.
static coalesce_status decide(const struct vector_event *event)
{
    switch (event->call) {
    case ON_COMPLETION:
        return complete(event);
    case ON_DEADLINE:
        return end_hold(event->now);
    case ON_BATCH_END:
        return coalesce_cint_on_batch_end(&cint, event->now);
    case ON_SCHEDULE:
        return coalesce_vic_on_schedule(&vic, event->now);
    case ON_DESCHEDULE:
        return coalesce_vic_on_deschedule(&vic, event->now);
    case ON_CANCEL:
        return cancel(event);
    case FLUSH:
        return flush(event->now);
    case RECONFIGURE:
        return reconfigure(event);
    default:
        return COALESCE_E_NULL;
    }
}

static void consume(uint64_t now)
{
    switch (machine) {
    case MACHINE_CINT:
        coalesce_cint_on_consumed(&cint, now);
        break;
    case MACHINE_BUDGET:
    case MACHINE_AUTO:
        coalesce_budget_on_consumed(budget, now);
        break;
    default:
        coalesce_vic_on_consumed(&vic, now);
    }
}

static uint32_t last_reason(void)
{
    switch (machine) {
    case MACHINE_CINT:
        return coalesce_cint_reason(&cint);
    case MACHINE_BUDGET:
    case MACHINE_AUTO:
        return coalesce_budget_reason(budget);
    default:
        return coalesce_vic_reason(&vic);
    }
}

static uint64_t deadline(void)
{
    switch (machine) {
    case MACHINE_CINT:
        return coalesce_cint_deadline(&cint);
    case MACHINE_BUDGET:
    case MACHINE_AUTO:
        return coalesce_budget_deadline(budget);
    default:
        return coalesce_vic_deadline(&vic);
    }
}

void replay(const struct vector_event *event, struct vector_answer *answer)
{
    uint32_t reason = COALESCE_REASON_NONE;
    coalesce_status status;
    switch (event->call) {
    case ON_SUBMIT:
        if (is_budget())
            coalesce_budget_on_submits(budget, event->now, 1);
        answer->ticket = coalesce_window_on_submit(window_of(event->choice));
        if (answer->ticket != NEVER)
            answer->ticket |= (uint64_t)event->choice << GROUP_SHIFT;
        break;
    case RESET_TRACKING:
        for (unsigned i = 0; i < groups; i++)
            coalesce_window_reset(windows[i]);
        if (machine == MACHINE_BUDGET)
            coalesce_budget_forget(&alone);
        if (machine == MACHINE_AUTO)
            coalesce_auto_forget(&regulated);
        break;
    case ON_CONSUMED:
        consume(event->now);
        break;
    default:
        status = decide(event);
        reason = last_reason();
        if (status == COALESCE_E_CONFIG) {
            answer->decision = DECISION_REFUSED;
            reason = COALESCE_REASON_NONE;
        } else if (status == COALESCE_DELIVER_URGENT) {
            answer->decision = DECISION_DELIVER_URGENT;
        } else { // a ticket without a group is an error; the machine decides nevertheless
            answer->decision = reason < COALESCE_REASON_HOLD_RATIO ? DECISION_DELIVER : DECISION_HOLD;
        }
    }
    if (reason != COALESCE_REASON_NONE)
        answer->reason = coalesce_reason_name(reason);
    while (answer->reason[answer->reason_length])
        answer->reason_length++;
    answer->deadline = deadline();
}
