// A submission queue, its completion queue, and the commands between them. Whatever the host writes is checked here.
#ifndef QUEUE_H
#define QUEUE_H

#include "nvme.h"
#include <stdbool.h>
#include <stdint.h>

#define SLOTS 32u // commands in flight of one queue: its own, so that no queue takes those of another

// A command in flight.
struct slot {
    uint64_t ticket;
    uint32_t result;
    uint16_t cid, status;
    uint8_t hint;
};

struct queue {
    unsigned id;
    uint32_t sq_doorbell, sq_tail, sq_head; // the doorbell as it was last read; what of it was right; fetched so far
    uint32_t cq_doorbell, cq_tail, cq_head; // the same; posted so far; what of the doorbell was right
    uint32_t phase;
    struct slot slots[SLOTS];
    uint8_t free[SLOTS];
    uint8_t finished[SLOTS]; // in the order of their end, before they are posted
    unsigned free_count, finished_first, finished_count;
};

void queue_init(struct queue *queue, unsigned id);

// Commands in flight: fetched, and not posted.
uint32_t queue_in_flight(const struct queue *queue);

// Whether the host wrote to a doorbell since the last look.
bool queue_has_rung(const struct queue *queue);
// Reads the doorbells. False: one has a value that cannot be, and is ignored.
bool queue_read_doorbells(struct queue *queue);

// Fetches a command into a slot. False: there is none, or no slot.
bool queue_fetch(struct queue *queue, struct sq_entry *entry, unsigned *slot);
// A command has come to its end: status and result are in its slot.
void queue_finish(struct queue *queue, unsigned slot);
// Posts the command that finished first. Null: there is none, or no room for its entry. The slot is free again, and stays as
// it is until the next fetch.
const struct slot *queue_post(struct queue *queue);
// Whether the host has taken everything that was posted.
bool queue_is_reaped(const struct queue *queue);

#endif
