// Decodes reads and writes. Every decoded value is valid.
#ifndef COMMAND_H
#define COMMAND_H

#include "nvme.h"
#include <stdbool.h>

struct command {
    bool is_write;
    uint32_t block, address; // the address is in the host's memory
};

// Returns the status of the entry. `command` is valid only with STATUS_SUCCESS.
uint32_t command_decode(const struct sq_entry *entry, struct command *command);

// The requester's hint, COALESCE_HINT_...; of two hints the more urgent one.
uint32_t command_hint(const struct sq_entry *entry);

#endif
