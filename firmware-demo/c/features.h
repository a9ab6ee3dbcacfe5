// The commands of the admin queue: Get and Set Features.
#ifndef FEATURES_H
#define FEATURES_H

#include "coalescing.h"
#include "nvme.h"

struct features {
    uint32_t coalescing; // Dword 11 of Feature 08h
    uint32_t policy;     // the vendor's feature
};

// Executes a command at the instant `now`. Returns its status, and its result in `result`.
uint16_t features_execute(struct features *features, struct coalescing vectors[IO_QUEUES], const struct sq_entry *entry,
                          bool is_busy, uint64_t now, uint32_t *result);

#endif
