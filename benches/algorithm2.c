// What a C programmer with the paper at hand writes: Algorithms 1 and 2 of vIC, and no more. Against libcoalesce it lacks a
// bound on holding, a clock that goes back, a check of the state, reasons, the live clamp, and the guest's timeslices.
#include <stdint.h>

struct algorithm2 {
    uint64_t epoch_start, epoch, tick_hz;
    uint32_t completions, iops_threshold, cif_threshold, counter, count_up, skip_up;
};

static void __attribute__((noinline, cold)) recalculate(struct algorithm2 *v, uint64_t now, uint32_t cif)
{
    uint32_t t = v->cif_threshold;
    if ((uint64_t)v->completions * v->tick_hz < (now - v->epoch_start) * v->iops_threshold || cif < t)
        v->count_up = v->skip_up = 1;
    else if (cif < 2 * t)
        v->count_up = 4, v->skip_up = 5;
    else if (cif < 3 * t)
        v->count_up = 3, v->skip_up = 4;
    else if (cif < 4 * t)
        v->count_up = 2, v->skip_up = 3;
    else
        v->count_up = 1, v->skip_up = cif / (2 * t);
    v->epoch_start = now;
    v->completions = 0;
}

// 1: hold; 0: deliver.
int algorithm2_on_completion(struct algorithm2 *v, uint64_t now, uint32_t cif)
{
    v->completions++;
    if (now - v->epoch_start > v->epoch)
        recalculate(v, now, cif);
    if (cif < v->cif_threshold) {
        v->counter = 1;
        return 0;
    } else if (v->counter < v->count_up) {
        v->counter++;
        return 0;
    } else if (v->counter >= v->skip_up) {
        v->counter = 1;
        return 0;
    } else {
        v->counter++;
        return 1;
    }
}
