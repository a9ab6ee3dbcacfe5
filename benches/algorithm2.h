#ifndef ALGORITHM2_H
#define ALGORITHM2_H
#include <stdint.h>

struct algorithm2 {
    uint64_t epoch_start, epoch, tick_hz;
    uint32_t completions, iops_threshold, cif_threshold, counter, count_up, skip_up;
};

// 1: hold; 0: deliver.
int algorithm2_on_completion(struct algorithm2 *v, uint64_t now, uint32_t cif);

#endif
