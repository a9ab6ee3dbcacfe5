// Reads and writes, decoded: after this every value is one that can be.
#ifndef COMMAND_H
#define COMMAND_H

#include "nvme.h"
#include <stdbool.h>

struct command {
    bool is_write;
    uint32_t block, address; // the second in the host's memory
};

// Returns the status that it deserves; only with STATUS_SUCCESS there is a command.
uint32_t command_decode(const struct sq_entry *entry, struct command *command);

// What the requester says about it, COALESCE_HINT_...: of two things the more urgent one.
uint32_t command_hint(const struct sq_entry *entry);

#endif
