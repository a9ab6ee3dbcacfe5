// A submission queue, its completion queue, and its commands in flight. Every value that the host writes is checked
// here.
#ifndef QUEUE_H
#define QUEUE_H

#include "nvme.h"
#include <stdbool.h>
#include <stdint.h>

#define SLOTS 32u // commands in flight per queue; separate, so that no queue takes slots of another

// A command in flight.
struct slot {
    uint64_t ticket;
    uint32_t result;
    uint16_t cid, status;
    uint8_t hint;
};

struct queue {
    unsigned id;
    uint32_t sq_doorbell, sq_tail, sq_head; // the doorbell as last read; its last valid value; the next entry to fetch
    uint32_t cq_doorbell, cq_tail, cq_head; // the doorbell as last read; the next entry to post; its last valid value
    uint32_t phase;
    struct slot slots[SLOTS];
    uint8_t free[SLOTS];
    uint8_t finished[SLOTS]; // commands to post, in the order of their completion
    unsigned free_count, finished_first, finished_count;
};

void queue_init(struct queue *queue, unsigned id);

// The number of commands in flight: fetched, and not posted.
uint32_t queue_in_flight(const struct queue *queue);

// The number of commands that are submitted and not reaped, as far as the doorbells say: in the submission queue, in flight,
// and in the completion queue.
uint32_t queue_outstanding(const struct queue *queue);

// Whether the host has written to a doorbell since it was last read.
bool queue_has_rung(const struct queue *queue);
// Reads the doorbells. Returns false if one has an invalid value, which is ignored.
bool queue_read_doorbells(struct queue *queue);

// Fetches a command into a slot. Returns false if there is no command, or no free slot.
bool queue_fetch(struct queue *queue, struct sq_entry *entry, unsigned *slot);
// Queues a completed command for posting. Its status and result are in its slot.
void queue_finish(struct queue *queue, unsigned slot);
// Posts the command that completed first, and frees its slot. Returns the slot, which is valid until the next fetch.
// Null: there is no command, or no room for its entry.
const struct slot *queue_post(struct queue *queue);
// Whether the host has reaped everything that was posted.
bool queue_is_reaped(const struct queue *queue);

#endif
