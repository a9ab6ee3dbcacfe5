#include "command.h"
#define COALESCE_BARE_METAL
#include <coalesce.h>

uint32_t command_decode(const struct sq_entry *entry, struct command *command)
{
    const uint32_t opcode = entry->dword[0] & 0xff, blocks = (entry->dword[12] & 0xffff) + 1;
    const uint32_t block = entry->dword[10], address = entry->dword[6];
    if (opcode != IO_READ && opcode != IO_WRITE)
        return STATUS_INVALID_OPCODE;
    if (entry->dword[1] != 1)
        return STATUS_INVALID_NAMESPACE;
    if ((entry->dword[0] & 0xff00) != 0 || blocks != 1) // a fused command, or one with an SGL
        return STATUS_INVALID_FIELD;
    if (address % BLOCK_BYTES != 0 || address >= sizeof host_memory.data || entry->dword[7] != 0)
        return STATUS_INVALID_FIELD;
    if (block >= BLOCKS || entry->dword[11] != 0)
        return STATUS_LBA_OUT_OF_RANGE;
    *command = (struct command){opcode == IO_WRITE, block, address};
    return STATUS_SUCCESS;
}

uint32_t command_hint(const struct sq_entry *entry)
{
    bool both_is_urgent = true;
    return coalesce_hint_merge(coalesce_hint_from_bits(entry->dword[12] >> HINT_SHIFT, both_is_urgent),
                               coalesce_hint_from_access_latency(entry->dword[13]));
}
