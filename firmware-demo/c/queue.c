#include "queue.h"
#include <stddef.h>

void queue_init(struct queue *queue, unsigned id)
{
    *queue = (struct queue){.id = id, .phase = 1, .free_count = SLOTS};
    for (unsigned i = 0; i < SLOTS; i++)
        queue->free[i] = (uint8_t)i;
}

uint32_t queue_in_flight(const struct queue *queue)
{
    return SLOTS - queue->free_count;
}

// The distance forward from one index to another, in a queue of `size` entries. Both are below `size`.
static uint32_t distance(uint32_t from, uint32_t to, uint32_t size)
{
    return to >= from ? to - from : size - from + to;
}

uint32_t queue_outstanding(const struct queue *queue)
{
    return distance(queue->sq_head, queue->sq_tail, SQ_ENTRIES) + queue_in_flight(queue) +
           distance(queue->cq_head, queue->cq_tail, CQ_ENTRIES);
}

bool queue_has_rung(const struct queue *queue)
{
    return __atomic_load_n(&registers.doorbell[queue->id].sq_tail, __ATOMIC_ACQUIRE) != queue->sq_doorbell ||
           __atomic_load_n(&registers.doorbell[queue->id].cq_head, __ATOMIC_ACQUIRE) != queue->cq_doorbell;
}

// Each doorbell is read once, because the host may change it at any time.
bool queue_read_doorbells(struct queue *queue)
{
    bool is_good = true;
    uint32_t tail = __atomic_load_n(&registers.doorbell[queue->id].sq_tail, __ATOMIC_ACQUIRE);
    if (tail != queue->sq_doorbell) {
        queue->sq_doorbell = tail;
        uint32_t waiting = distance(queue->sq_head, queue->sq_tail, SQ_ENTRIES);
        if (tail < SQ_ENTRIES && distance(queue->sq_tail, tail, SQ_ENTRIES) < SQ_ENTRIES - waiting)
            queue->sq_tail = tail;
        else
            is_good = false;
    }
    uint32_t head = __atomic_load_n(&registers.doorbell[queue->id].cq_head, __ATOMIC_ACQUIRE);
    if (head != queue->cq_doorbell) {
        queue->cq_doorbell = head;
        uint32_t posted = distance(queue->cq_head, queue->cq_tail, CQ_ENTRIES);
        if (head < CQ_ENTRIES && distance(queue->cq_head, head, CQ_ENTRIES) <= posted)
            queue->cq_head = head;
        else
            is_good = false;
    }
    return is_good;
}

// The entry is copied before any field is checked, because the host may change it at any time.
bool queue_fetch(struct queue *queue, struct sq_entry *entry, unsigned *slot)
{
    if (queue->sq_head == queue->sq_tail || queue->free_count == 0)
        return false;
    const struct sq_entry *place = &host_memory.sq[queue->id][queue->sq_head];
    for (unsigned i = 0; i < sizeof entry->dword / sizeof *entry->dword; i++)
        entry->dword[i] = __atomic_load_n(&place->dword[i], __ATOMIC_RELAXED);
    queue->sq_head = (queue->sq_head + 1) % SQ_ENTRIES;
    *slot = queue->free[--queue->free_count];
    queue->slots[*slot] = (struct slot){.cid = (uint16_t)(entry->dword[0] >> 16)};
    return true;
}

void queue_finish(struct queue *queue, unsigned slot)
{
    queue->finished[(queue->finished_first + queue->finished_count++) % SLOTS] = (uint8_t)slot;
}

const struct slot *queue_post(struct queue *queue)
{
    uint32_t next = queue->cq_tail + 1 == CQ_ENTRIES ? 0 : queue->cq_tail + 1;
    if (queue->finished_count == 0 || next == queue->cq_head)
        return NULL;
    unsigned index = queue->finished[queue->finished_first];
    const struct slot *slot = &queue->slots[index];
    struct cq_entry *entry = &host_memory.cq[queue->id][queue->cq_tail];
    __atomic_store_n(&entry->dword[0], slot->result, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->dword[1], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->dword[2], queue->sq_head | queue->id << 16, __ATOMIC_RELAXED);
    // The phase tag is written last, because it passes the entry to the host.
    __atomic_store_n(&entry->dword[3], slot->cid | queue->phase << 16 | (uint32_t)slot->status << 17, __ATOMIC_RELEASE);
    queue->cq_tail = next;
    if (next == 0)
        queue->phase ^= 1;
    queue->finished_first = (queue->finished_first + 1) % SLOTS;
    queue->finished_count--;
    queue->free[queue->free_count++] = (uint8_t)index;
    return slot;
}

bool queue_is_reaped(const struct queue *queue)
{
    return queue->cq_head == queue->cq_tail;
}
