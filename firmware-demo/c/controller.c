// The controller handles events one at a time, in the order of their timestamps, and sleeps when there is none.
#include "board.h"
#include "coalescing.h"
#include "command.h"
#include "device.h"
#include "features.h"
#include "nvme.h"
#include "queue.h"
#include "ring.h"
#include "vector.h"

static struct queue queues[QUEUES];
static struct coalescing vectors[IO_QUEUES];
static struct features features;
static struct ring finished;
static uint64_t now; // the timestamp of the current event
static bool is_fatal;

// ---- Interrupts ----

// Passes completed flash commands to the main loop. There are at most as many as slots.
void flash_interrupt(void)
{
    struct flash_done done;
    while (flash_collect(&done))
        ring_push(&finished, done);
}

// The interrupt only ends the sleep. The main loop then sees that the deadline has passed.
void deadline_interrupt(void)
{
}

// ---- Commands ----

// Posts completed commands while the completion queue has room. Each entry is posted before the decision about it.
static void post(struct queue *queue)
{
    const struct slot *command;
    while ((command = queue_post(queue)) != NULL) {
        if (queue->id == 0)
            vector_raise(0, CAUSE_ADMIN); // never coalesced
        else
            coalescing_on_completion(&vectors[queue->id - 1], now, command, queue_in_flight(queue) + 1, queue_outstanding(queue));
    }
}

static void finish(struct queue *queue, unsigned slot, uint32_t status)
{
    queue->slots[slot].status = (uint16_t)status;
    queue_finish(queue, slot);
    post(queue);
}

static void look_at_doorbells(struct queue *queue);

static void begin(struct queue *queue, unsigned index, const struct sq_entry *entry)
{
    struct slot *slot = &queue->slots[index];
    if (queue->id == 0) {
        bool is_busy = false;
        for (unsigned i = 1; i < QUEUES; i++) {
            look_at_doorbells(&queues[i]); // what the host rang before it rang the admin queue's
            is_busy = is_busy || queue_in_flight(&queues[i]) > 0 || !queue_is_reaped(&queues[i]);
        }
        finish(queue, index, features_execute(&features, vectors, entry, is_busy, now, &slot->result));
        return;
    }
    slot->ticket = coalescing_on_submit(&vectors[queue->id - 1], now);
    slot->hint = (uint8_t)command_hint(entry);
    struct command command;
    uint32_t status = command_decode(entry, &command);
    if (status == STATUS_SUCCESS)
        flash_start((queue->id - 1) * SLOTS + index, command.is_write, command.block, command.address, now);
    else
        finish(queue, index, status);
}

// ---- Events ----

// An invalid doorbell value is ignored and reported. On the admin queue it is fatal: without that queue the host can
// only reset the controller.
static void report_doorbell(unsigned queue)
{
    uint32_t none = 0, event = EVENT_DOORBELL_VALUE | queue << 16; // only the first event is kept
    __atomic_compare_exchange_n(&registers.event, &none, event, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    if (queue != 0)
        return;
    is_fatal = true;
    flash_abort();
    __atomic_store_n(&registers.csts, CSTS_READY | CSTS_FATAL, __ATOMIC_RELEASE);
}

// Reads the doorbells. If the host has reaped everything by itself, no interrupt is due.
static void read_doorbells(struct queue *queue)
{
    if (!queue_read_doorbells(queue))
        report_doorbell(queue->id);
    if (queue->id != 0 && queue_is_reaped(queue) && coalescing_deadline(&vectors[queue->id - 1]) != COALESCE_NEVER)
        coalescing_on_consumed(&vectors[queue->id - 1], now);
}

static void look_at_doorbells(struct queue *queue)
{
    if (queue_has_rung(queue)) {
        read_doorbells(queue);
        post(queue); // there may be room now
    }
}

static bool serve_doorbells(struct queue *queue)
{
    bool has_rung = queue_has_rung(queue);
    look_at_doorbells(queue);
    struct sq_entry entry;
    unsigned slot;
    while (!is_fatal && queue_fetch(queue, &entry, &slot))
        begin(queue, slot, &entry);
    return has_rung;
}

// The vector with the earliest deadline.
static struct coalescing *earliest(void)
{
    return coalescing_deadline(&vectors[0]) <= coalescing_deadline(&vectors[1]) ? &vectors[0] : &vectors[1];
}

// Handles the event with the earliest timestamp: a completed flash command, or a deadline. Returns false if there is
// none.
static bool take_event(void)
{
    struct coalescing *vector = earliest();
    uint64_t deadline = coalescing_deadline(vector);
    bool is_past = flash_is_past(deadline); // before reading the ring: then it has every completion up to the deadline
    const struct flash_done *done = ring_peek(&finished);
    if (done && done->stamp <= deadline) {
        struct flash_done taken = ring_pop(&finished);
        now = taken.stamp;
        finish(&queues[1 + taken.slot / SLOTS], taken.slot % SLOTS, taken.failed ? STATUS_UNRECOVERED_READ : STATUS_SUCCESS);
        return true;
    }
    if (done || is_past) {
        now = deadline > now ? deadline : now;
        coalescing_on_deadline(vector, now);
        return true;
    }
    return false;
}

// ---- The main loop ----

static bool is_enabled(void)
{
    return __atomic_load_n(&registers.cc, __ATOMIC_ACQUIRE) & CC_ENABLE;
}

// Requests of the host come before the next event, those that arrive meanwhile included, up to a bound.
static bool work(void)
{
    bool has_rung = true;
    for (unsigned round = 0; round < SQ_ENTRIES && has_rung; round++) {
        has_rung = false;
        for (unsigned i = 0; i < QUEUES && !is_fatal; i++)
            has_rung = serve_doorbells(&queues[i]) || has_rung;
    }
    return !is_fatal && take_event();
}

// Interrupts are blocked between the last check and the sleep. An interrupt in between ends the sleep.
static void sleep(void)
{
    uint64_t deadline = is_fatal ? BOARD_NEVER : coalescing_deadline(earliest());
    board_arm_deadline(deadline);
    uint32_t before = board_block();
    bool is_idle = is_enabled() && (is_fatal || (ring_peek(&finished) == NULL && !flash_is_past(deadline)));
    for (unsigned i = 0; i < QUEUES; i++)
        is_idle = is_idle && (is_fatal || !queue_has_rung(&queues[i]));
    if (is_idle)
        board_sleep();
    board_restore(before);
}

void device_run(uint64_t start)
{
    now = start;
    is_fatal = false;
    features = (struct features){0};
    finished = (struct ring){.tail = 0};
    for (unsigned i = 0; i < QUEUES; i++)
        queue_init(&queues[i], i);
    for (unsigned i = 0; i < IO_QUEUES; i++)
        coalescing_reset(&vectors[i], i + 1);
    __atomic_store_n(&registers.csts, CSTS_READY, __ATOMIC_RELEASE);

    while (is_enabled())
        if (!work())
            sleep();

    flash_abort();
    board_arm_deadline(BOARD_NEVER);
    for (unsigned i = 0; i < IO_QUEUES && !is_fatal; i++) {
        read_doorbells(&queues[i + 1]); // of a host that polled before it disabled the controller
        coalescing_flush(&vectors[i], now);
    }
    __atomic_store_n(&registers.csts, 0, __ATOMIC_RELEASE);
}
