// NVMe's own coalescing, Feature 08h: it interrupts after a number of completions, or a time after the first. It needs
// no library.
#ifndef AGGREGATION_H
#define AGGREGATION_H

#define COALESCE_BARE_METAL
#include <coalesce.h>
#include <stdbool.h>

struct aggregation {
    uint32_t threshold, held; // threshold 1: no coalescing
    uint64_t time, first;     // in ticks; time 0: no coalescing
    const char *reason;       // of the last decision
};

coalesce_status aggregation_on_completion(struct aggregation *a, uint64_t now, bool has_failed);
uint64_t aggregation_deadline(const struct aggregation *a);
coalesce_status aggregation_on_deadline(struct aggregation *a, uint64_t now);
coalesce_status aggregation_flush(struct aggregation *a);

#endif
