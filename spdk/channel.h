// Queues that interrupt a guest, kept by the SPDK thread that serves them.
//
// "Coalescing" is an I/O device in SPDK's sense: each thread that serves such queues has one I/O channel of it, and the channel
// has the thread's queues. A queue is used on its thread alone; irq_for_each_queue() reaches it from others.
#ifndef COALESCE_SPDK_CHANNEL_H
#define COALESCE_SPDK_CHANNEL_H

#include "delivery.h"
#include "device.h"

#include <spdk/queue.h>

struct irq_queue;
struct spdk_io_channel;

struct irq_queue_ops {
    // In interrupt mode: an interrupt is due, or the deadline has passed.
    void (*wake)(struct irq_queue *queue, uint64_t now);
    // Reports completions that the delivery does not know of yet. Null: it knows all.
    void (*sync)(struct irq_queue *queue);
    // Frees what the queue owns besides its delivery.
    void (*destroy)(struct irq_queue *queue);
};

// Embedded as the first member in a vhost or an NVMe queue.
struct irq_queue {
    struct delivery delivery;
    const struct irq_queue_ops *ops;
    struct irq_device *device;
    struct irq_channel *channel;
    uint32_t qid;
    bool is_running; // if not, it keeps its statistics until the queue starts again
    SLIST_ENTRY(irq_queue) link;
};

struct irq_channel {
    pthread_mutex_t mutex; // the queues: a vhost queue is stopped on DPDK's thread
    SLIST_HEAD(, irq_queue) queues;
    // For the earliest deadline, in interrupt mode, where nothing polls.
    int timerfd; // -1: polled mode
    struct spdk_interrupt *timer;
    uint64_t timer_deadline; // ticks; COALESCE_NEVER: not armed
};

// Around the life of all channels, on an SPDK thread.
void irq_channels_init(void);
void irq_channels_fini(void);

// The calling thread's channel; release it with spdk_put_io_channel(). Null: no memory, or no timer.
struct spdk_io_channel *irq_get_io_channel(void);

// A queue of `entries` starts, on the thread of `ch`. Returns the stopped queue of this number if it is large enough; else a new
// one of `size` bytes, which begins with a struct irq_queue. Null: no memory.
struct irq_queue *irq_queue_start(struct spdk_io_channel *ch, const struct irq_queue_ops *ops, struct irq_device *device,
                                  uint32_t qid, uint32_t entries, size_t size);

// In interrupt mode, arms the timer for the queue's deadline, or for now if an interrupt is due.
void irq_queue_arm_timer(const struct irq_queue *queue, uint64_t now);

// Calls `fn` for each queue of `device`, or of all devices if null, on the queue's thread, then `cpl` on the caller's.
// Returns 0; or -ENOMEM, and calls nothing.
int irq_for_each_queue(struct irq_device *device, void (*fn)(struct irq_queue *queue, void *ctx), void (*cpl)(void *ctx),
                       void *ctx);

#endif
