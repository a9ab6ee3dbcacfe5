#include "features.h"
#include "board.h"

static uint16_t get(const struct features *features, const struct coalescing *vectors, uint32_t feature, uint32_t value,
                    uint32_t *result)
{
    uint32_t vector = value & 0xffff;
    switch (feature) {
    case FEATURE_COALESCING:
        *result = features->coalescing;
        return STATUS_SUCCESS;
    case FEATURE_VECTOR:
        if (vector >= IO_QUEUES)
            return STATUS_INVALID_FIELD;
        *result = vector | (uint32_t)vectors[vector].is_disabled << 16;
        return STATUS_SUCCESS;
    case FEATURE_POLICY:
        *result = features->policy;
        return STATUS_SUCCESS;
    default:
        return STATUS_INVALID_FIELD;
    }
}

static uint16_t set_coalescing(struct features *features, struct coalescing *vectors, uint32_t value, uint64_t now)
{
    if (value >> 16 != 0)
        return STATUS_INVALID_FIELD;
    features->coalescing = value;
    for (unsigned i = 0; i < IO_QUEUES; i++)
        coalescing_set(&vectors[i], (value & 0xff) + 1, (value >> 8) * (BOARD_TICK_HZ / 10000), now); // units of 100 µs
    return STATUS_SUCCESS;
}

static uint16_t set_vector(struct coalescing *vectors, uint32_t value, uint64_t now)
{
    uint32_t vector = value & 0xffff;
    if (value >> 17 != 0 || vector >= IO_QUEUES)
        return STATUS_INVALID_FIELD;
    coalescing_disable(&vectors[vector], value >> 16, now);
    return STATUS_SUCCESS;
}

static uint16_t set_policy(struct features *features, struct coalescing *vectors, uint32_t policy, uint32_t storm_rate)
{
    for (unsigned i = 0; i < IO_QUEUES; i++)
        if (!coalescing_choose(&vectors[i], policy, storm_rate)) // fails for the first vector or for none
            return STATUS_INVALID_FIELD;
    features->policy = policy;
    return STATUS_SUCCESS;
}

uint16_t features_execute(struct features *features, struct coalescing vectors[IO_QUEUES], const struct sq_entry *entry,
                          bool is_busy, uint64_t now, uint32_t *result)
{
    const uint32_t opcode = entry->dword[0] & 0xff, feature = entry->dword[10] & 0xff, value = entry->dword[11];
    if (opcode == ADMIN_GET_FEATURES)
        return get(features, vectors, feature, value, result);
    if (opcode != ADMIN_SET_FEATURES)
        return STATUS_INVALID_OPCODE;
    if (entry->dword[10] >> 31 != 0)
        return STATUS_NOT_SAVEABLE;
    switch (feature) {
    case FEATURE_COALESCING:
        return set_coalescing(features, vectors, value, now);
    case FEATURE_VECTOR:
        return set_vector(vectors, value, now);
    case FEATURE_POLICY:
        return is_busy ? STATUS_SEQUENCE_ERROR : set_policy(features, vectors, value, entry->dword[12]);
    default:
        return STATUS_INVALID_FIELD;
    }
}
