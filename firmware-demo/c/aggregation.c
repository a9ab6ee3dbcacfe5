#include "aggregation.h"

static coalesce_status deliver(struct aggregation *a, const char *reason)
{
    a->held = 0;
    a->reason = reason;
    return COALESCE_DELIVER;
}

static coalesce_status hold(struct aggregation *a, const char *reason)
{
    a->reason = reason;
    return COALESCE_HOLD;
}

uint64_t aggregation_deadline(const struct aggregation *a)
{
    return a->held > 0 ? a->first + a->time : COALESCE_NEVER;
}

coalesce_status aggregation_on_completion(struct aggregation *a, uint64_t now, bool has_failed)
{
    if (aggregation_deadline(a) <= now)
        return deliver(a, "time");
    if (a->threshold == 1 || a->time == 0)
        return deliver(a, "disabled");
    if (has_failed)
        return deliver(a, "error");
    if (a->held + 1 >= a->threshold)
        return deliver(a, "count");
    if (a->held++ == 0)
        a->first = now;
    return hold(a, "aggregate");
}

coalesce_status aggregation_on_deadline(struct aggregation *a, uint64_t now)
{
    if (aggregation_deadline(a) <= now)
        return deliver(a, "time");
    return hold(a, a->held > 0 ? "early" : "nothing_held");
}

coalesce_status aggregation_flush(struct aggregation *a)
{
    return a->held > 0 ? deliver(a, "flush") : hold(a, "nothing_held");
}
