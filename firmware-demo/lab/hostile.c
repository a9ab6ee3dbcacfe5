// A host that misbehaves on queue 1 and on the admin queue, while queue 2 works normally. Its attacks run one after the
// other. The controller must answer each as stated, and must be in its fatal state at the end.
#include "device.h"
#include "host.h"
#include "nvme.h"

#define PATIENCE 1000u // interrupts of either queue to wait for an answer that is not a completion

// An invalid command, and its expected status.
static const struct {
    uint32_t queue, status;
    struct sq_entry entry; // dwords 0: opcode and flags, 1: namespace, 6: PRP1, 10, 11: LBA, 12, 13
} wrong[] = {
    {1, STATUS_INVALID_OPCODE, {{0x55, 1}}},
    {1, STATUS_INVALID_FIELD, {{IO_READ | 1 << 8, 1}}},                                 // half of a fused command
    {1, STATUS_INVALID_FIELD, {{IO_READ | 1 << 14, 1}}},                                // SGL
    {1, STATUS_INVALID_NAMESPACE, {{IO_READ, 2}}},                                      // unknown
    {1, STATUS_INVALID_NAMESPACE, {{IO_READ, 0}}},                                      // none
    {1, STATUS_INVALID_FIELD, {{IO_READ, 1, 0, 0, 0, 0, 4}}},                           // not aligned
    {1, STATUS_INVALID_FIELD, {{IO_READ, 1, 0, 0, 0, 0, (BUFFERS * BLOCK_BYTES)}}},     // behind the memory
    {1, STATUS_INVALID_FIELD, {{IO_WRITE, 1, 0, 0, 0, 0, 0, 1}}},                       // far behind it
    {1, STATUS_INVALID_FIELD, {{IO_READ, 1, [12] = 1}}},                                // two blocks
    {1, STATUS_LBA_OUT_OF_RANGE, {{IO_READ, 1, [10] = BLOCKS}}},                        // behind the namespace
    {1, STATUS_LBA_OUT_OF_RANGE, {{IO_WRITE, 1, [10] = 0, [11] = 1}}},                  // far behind it
    {1, STATUS_UNRECOVERED_READ, {{IO_READ, 1, [10] = BLOCKS - 1}}},                    // an error of the flash
    {1, STATUS_SUCCESS, {{IO_READ, 1, [10] = 0, [12] = CDW12_URGENT | CDW12_BARRIER}}}, // both: it is Urgent
    {1, STATUS_SUCCESS, {{IO_READ, 1, [10] = 0, [12] = CDW12_BARRIER, [13] = CDW13_LOW_LATENCY}}},
    {0, STATUS_INVALID_OPCODE, {{0x7f}}},
    {0, STATUS_INVALID_FIELD, {{ADMIN_SET_FEATURES, [10] = 0x77}}},                          // no such feature
    {0, STATUS_INVALID_FIELD, {{ADMIN_GET_FEATURES, [10] = FEATURE_VECTOR, [11] = 2}}},      // no such vector
    {0, STATUS_INVALID_FIELD, {{ADMIN_SET_FEATURES, [10] = FEATURE_VECTOR, [11] = 0xffff}}}, // no such vector
    {0, STATUS_INVALID_FIELD, {{ADMIN_SET_FEATURES, [10] = FEATURE_COALESCING, [11] = 1 << 16}}},
    {0, STATUS_SEQUENCE_ERROR, {{ADMIN_SET_FEATURES, [10] = FEATURE_POLICY}}}, // while queue 2 is busy
    {0, STATUS_NOT_SAVEABLE, {{ADMIN_SET_FEATURES, [10] = FEATURE_COALESCING | 1u << 31}}},
};
#define WRONG (sizeof wrong / sizeof *wrong)

// The attacks that follow them, in this order.
enum {
    TAIL_BEYOND_QUEUE = WRONG,
    HEAD_BEYOND_QUEUE,
    HEAD_BEYOND_TAIL,
    MANY,       // more commands than the device has slots; the first is invalid, so that it is answered at once
    OVERRUN,    // then more commands than the queue has entries
    DEAF,       // no reaping, until the completion queue is full and beyond
    ADMIN_TAIL, // an invalid doorbell of the admin queue, which is fatal
    OVER,
};

static unsigned step, waited;
static bool has_begun, is_reported;

void hostile_begin(void)
{
    step = waited = 0;
    has_begun = false;
}

bool hostile_wants_fatal(void)
{
    return step == ADMIN_TAIL;
}

bool hostile_is_over(void)
{
    return step == OVER;
}

static void write_doorbells(unsigned queue, uint32_t tail, uint32_t head)
{
    __atomic_store_n(&registers.doorbell[queue].sq_tail, tail, __ATOMIC_RELEASE);
    __atomic_store_n(&registers.doorbell[queue].cq_head, head, __ATOMIC_RELEASE);
}

static void play(void)
{
    const struct host_queue *q = &host_queues[1];
    switch (step) {
    case TAIL_BEYOND_QUEUE:
        write_doorbells(1, SQ_ENTRIES, q->cq_head);
        break;
    case HEAD_BEYOND_QUEUE:
        write_doorbells(1, q->sq_tail, ~0u);
        break;
    case HEAD_BEYOND_TAIL:
        write_doorbells(1, q->sq_tail, (q->cq_head + 1) % CQ_ENTRIES);
        break;
    case OVERRUN:
        write_doorbells(1, (q->sq_tail + SQ_ENTRIES - 2) % SQ_ENTRIES, q->cq_head);
        break;
    case MANY:
    case DEAF:
        host_submit(1, 0, &wrong[0].entry, wrong[0].status, 0);
        for (unsigned cid = 1; cid < SQ_ENTRIES - 1; cid++)
            host_submit_io(1, cid, false, 0, NO_REQUESTER);
        host_queues[1].is_deaf = step == DEAF;
        break;
    case ADMIN_TAIL:
        write_doorbells(0, SQ_ENTRIES, host_queues[0].cq_head);
        break;
    default:
        host_submit(wrong[step].queue, 0, &wrong[step].entry, wrong[step].status, 0);
    }
}

static bool is_full(const struct host_queue *q)
{
    uint32_t last = q->cq_head + CQ_ENTRIES - 2, phase = q->phase ^ (last >= CQ_ENTRIES);
    return (__atomic_load_n(&host_memory.cq[1][last % CQ_ENTRIES].dword[3], __ATOMIC_ACQUIRE) >> 16 & 1) == phase;
}

static bool is_answered(void)
{
    struct host_queue *q = &host_queues[1];
    switch (step) {
    case TAIL_BEYOND_QUEUE:
    case HEAD_BEYOND_QUEUE:
    case HEAD_BEYOND_TAIL:
    case OVERRUN:
        if (__atomic_load_n(&registers.event, __ATOMIC_ACQUIRE) == (1u << 16 | EVENT_DOORBELL_VALUE)) {
            write_doorbells(1, q->sq_tail, q->cq_head); // the valid values again: the device has ignored the invalid ones
            __atomic_store_n(&registers.event, 0, __ATOMIC_RELEASE);
            is_reported = true;
        }
        return is_reported && q->outstanding == 0;
    case MANY:
        return q->outstanding < SQ_ENTRIES - 1;
    case DEAF:
        if (q->is_deaf && is_full(q) && waited > 100) {
            q->is_deaf = false;
            host_reap(1);
        }
        return q->outstanding == 0;
    case ADMIN_TAIL:
        return false;
    default:
        return host_queues[wrong[step].queue].outstanding == 0;
    }
}

void hostile_step(void)
{
    if (step == OVER)
        return;
    if (has_begun && !is_answered()) {
        if (++waited == PATIENCE) {
            host_complain();
            step = OVER;
        }
        return;
    }
    step += has_begun;
    has_begun = true;
    is_reported = false;
    waited = 0;
    play();
}
