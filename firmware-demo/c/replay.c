// Replays the golden traces through libcoalesce.
#define COALESCE_BARE_METAL
#include "device.h"
#include "vectors.h"
#include <coalesce.h>

#define GROUPS 4u
#define WINDOW 64u
#define GROUP_SHIFT 56 // the position of the group in a traced ticket

static const struct vector_config *configs;
static bool is_cint;
static unsigned groups; // 0: Barriers are relaxed
static vic_state vic;
static cint_state cint;
static uint64_t windows[GROUPS][CINT_WINDOW_WORDS(WINDOW)];

static vic_config vic_of(const struct vector_config *config)
{
    return (vic_config){sizeof(vic_config), config->cif_threshold,  config->tick_hz,  config->epoch_ns,   config->max_hold_ns,
                        config->margin_ns,  config->iops_threshold, config->max_skip, config->live_clamp, 0};
}

static cint_config cint_of(const struct vector_config *config)
{
    return (cint_config){sizeof(cint_config),    config->thr,         config->tick_hz,   config->delta_ns, config->max_hold_ns,
                         config->storm_max_rate, config->storm_shift, config->in_flight, config->ooo,      0};
}

void replay_begin(const struct vector_trace *trace, const struct vector_config *all)
{
    configs = all;
    is_cint = trace->is_cint;
    groups = trace->groups < GROUPS ? trace->groups : GROUPS;
    coalesce_status status;
    // If this fails, the state returns errors, which no trace has.
    if (is_cint) {
        cint_config config = cint_of(all);
        status = cint_init(&cint, sizeof cint, &config, NULL);
    } else {
        vic_config config = vic_of(all);
        status = vic_init(&vic, sizeof vic, &config, NULL);
    }
    for (unsigned i = 0; i < groups; i++)
        status = cint_window_init(windows[i], sizeof windows[i], WINDOW, NULL);
    (void)status;
}

// The window of a ticket's group, or null.
static uint64_t *window_of(uint64_t group)
{
    return group < groups ? windows[group] : NULL;
}

static coalesce_status complete(const struct vector_event *event)
{
    if (!is_cint && event->slice_end != NEVER)
        return vic_on_completion_in_slice(&vic, event->now, event->cif, event->slice_end);
    if (!is_cint)
        return vic_on_completion(&vic, event->now, event->cif);
    if (groups == 0)
        return cint_on_completion(&cint, event->now, event->hint, event->cif);
    uint64_t *window = window_of(event->ticket >> GROUP_SHIFT), ticket = event->ticket;
    if (ticket != NEVER)
        ticket &= (UINT64_C(1) << GROUP_SHIFT) - 1;
    return cint_on_completion_strict(&cint, window, event->now, ticket, event->hint, event->cif);
}

static coalesce_status cancel(const struct vector_event *event)
{
    uint64_t *window = window_of(event->ticket >> GROUP_SHIFT), ticket = event->ticket;
    if (ticket != NEVER)
        ticket &= (UINT64_C(1) << GROUP_SHIFT) - 1;
    return cint_on_cancel(&cint, window, event->now, ticket);
}

static coalesce_status reconfigure(const struct vector_event *event)
{
    if (is_cint) {
        cint_config config = cint_of(&configs[event->choice]);
        return cint_reconfigure(&cint, &config, event->now, NULL);
    }
    vic_config config = vic_of(&configs[event->choice]);
    return vic_reconfigure(&vic, &config, event->now, NULL);
}

// The answer of a call that decides.
static coalesce_status decide(const struct vector_event *event)
{
    switch (event->call) {
    case ON_COMPLETION:
        return complete(event);
    case ON_DEADLINE:
        return is_cint ? cint_on_deadline(&cint, event->now) : vic_on_deadline(&vic, event->now);
    case ON_BATCH_END:
        return cint_on_batch_end(&cint, event->now);
    case ON_SCHEDULE:
        return vic_on_schedule(&vic, event->now);
    case ON_DESCHEDULE:
        return vic_on_deschedule(&vic, event->now);
    case ON_CANCEL:
        return cancel(event);
    case FLUSH:
        return is_cint ? cint_flush(&cint, event->now) : vic_flush(&vic, event->now);
    case RECONFIGURE:
        return reconfigure(event);
    default:
        return COALESCE_E_NULL;
    }
}

void replay(const struct vector_event *event, struct vector_answer *answer)
{
    uint32_t reason = COALESCE_REASON_NONE;
    coalesce_status status;
    switch (event->call) {
    case ON_SUBMIT:
        answer->ticket = cint_window_on_submit(window_of(event->choice));
        if (answer->ticket != NEVER)
            answer->ticket |= (uint64_t)event->choice << GROUP_SHIFT;
        break;
    case RESET_TRACKING:
        for (unsigned i = 0; i < groups; i++)
            cint_window_reset(windows[i]);
        break;
    case ON_CONSUMED:
        if (is_cint)
            cint_on_consumed(&cint, event->now);
        else
            vic_on_consumed(&vic, event->now);
        break;
    default:
        status = decide(event);
        reason = is_cint ? cint_reason(&cint) : vic_reason(&vic);
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
    answer->deadline = is_cint ? cint_deadline(&cint) : vic_deadline(&vic);
}
