// The ring of completed flash commands, from the flash's interrupt to the main loop: one producer, one consumer, no
// lock.
#ifndef RING_H
#define RING_H

#include "device.h"

struct ring {
    struct flash_done entries[FLASH_SLOTS]; // each slot is in the ring at most once, so the ring is never full
    uint32_t tail, head;                    // free-running; the interrupt writes the tail, the loop writes the head
};

static inline void ring_push(struct ring *ring, struct flash_done done)
{
    uint32_t tail = ring->tail;
    ring->entries[tail % FLASH_SLOTS] = done;
    __atomic_store_n(&ring->tail, tail + 1, __ATOMIC_RELEASE);
}

// The oldest entry; null if the ring is empty.
static inline const struct flash_done *ring_peek(const struct ring *ring)
{
    uint32_t head = ring->head;
    return head == __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) ? NULL : &ring->entries[head % FLASH_SLOTS];
}

static inline struct flash_done ring_pop(struct ring *ring)
{
    struct flash_done done = ring->entries[ring->head % FLASH_SLOTS];
    __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
    return done;
}

#endif
