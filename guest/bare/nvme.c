// A driver for NVMe over PCIe: NVM Express Base Specification 2.0, 3 (controller), 5 (admin commands), B.5 (doorbell buffers).
#include "bare.h"

#define SIZE 128
#define ADMIN_SIZE 16
_Static_assert(DEPTH_MAX < SIZE, "a queue is full with one entry left");

enum { CAP = 0x00, CC = 0x14, CSTS = 0x1c, AQA = 0x24, ASQ = 0x28, ACQ = 0x30, DOORBELLS = 0x1000, PAGE = 4096 };
enum { READY = 1, FATAL = 2, ENABLE = 1, ENTRY_SIZES = 6 << 16 | 4 << 20 };
enum { CREATE_SQ = 0x01, CREATE_CQ = 0x05, IDENTIFY = 0x06, SET_FEATURES = 0x09, DOORBELL_BUFFER = 0x7c, READ = 0x02 };
enum { NAMESPACE = 1, ID_NAMESPACE = 0, ID_CONTROLLER = 1, NUMBER_OF_QUEUES = 7, HAS_DOORBELL_BUFFER = 1 << 8 };
enum { CONTIGUOUS = 1, INTERRUPTS = 2 };

struct command {
    uint32_t opcode_and_id, nsid, reserved[2];
    uint64_t metadata, prp[2];
    uint32_t cdw10[6];
};
struct completion {
    uint32_t result, reserved;
    uint16_t sq_head, sq_id, id, status; // status: its phase is bit 0
};
_Static_assert(sizeof(struct command) == 64 && sizeof(struct completion) == 16, "NVMe 3.3.3.1");

struct queue {
    PAGE_ALIGNED struct command commands[SIZE];
    PAGE_ALIGNED volatile struct completion completions[SIZE];
    uint16_t tail, kicked, head, phase;
};

static struct queue queues[QUEUES_MAX], admin;
static PAGE_ALIGNED uint8_t identity[PAGE];
static PAGE_ALIGNED volatile uint32_t shadows[PAGE / 4], event_indices[PAGE / 4];
static volatile uint8_t *registers;
static unsigned doorbell_stride, blocks_shift; // of a block here to those of the namespace
static bool has_shadows;

static volatile uint32_t *reg(unsigned offset)
{
    return (volatile uint32_t *)(registers + offset);
}

// With a doorbell buffer the device is told only what it asks for, as EVENT_IDX does it.
static void ring(unsigned doorbell, uint16_t value)
{
    unsigned offset = doorbell * doorbell_stride;
    if (has_shadows && doorbell >= 2) {
        uint16_t old = shadows[offset / 4];
        shadows[offset / 4] = value;
        fence();
        uint16_t event = event_indices[offset / 4];
        if ((uint16_t)(value - event - 1) >= (uint16_t)(value - old)) {
            return;
        }
    }
    *reg(DOORBELLS + offset) = value;
    disk.kicks++;
}

static struct command *next_command(struct queue *queue, uint8_t opcode, uint16_t id, void *data)
{
    struct command *command = &queue->commands[queue->tail];
    *command = (struct command){.opcode_and_id = opcode | (uint32_t)id << 16, .nsid = NAMESPACE, .prp = {(uintptr_t)data}};
    return command;
}

static void put(unsigned n, unsigned slot, uint64_t block, void *buffer)
{
    struct queue *queue = &queues[n];
    struct command *command = next_command(queue, READ, slot, buffer);
    uint64_t lba = block << blocks_shift;
    command->cdw10[0] = lba;
    command->cdw10[1] = lba >> 32;
    command->cdw10[2] = (1u << blocks_shift) - 1;
    queue->tail = (queue->tail + 1) % SIZE;
}

static void kick(unsigned n)
{
    struct queue *queue = &queues[n];
    ordered();
    if (queue->kicked != queue->tail) {
        queue->kicked = queue->tail;
        ring(2 * (n + 1), queue->tail);
    }
}

// The next entry of a completion queue, or NULL.
static const volatile struct completion *next_completion(struct queue *queue, unsigned size)
{
    const volatile struct completion *completion = &queue->completions[queue->head];
    if ((completion->status & 1) == queue->phase) {
        return NULL;
    }
    ordered();
    if (++queue->head == size) {
        queue->head = 0;
        queue->phase ^= 1;
    }
    return completion;
}

static void reap(unsigned n)
{
    struct queue *queue = &queues[n];
    unsigned before = queue->head;
    for (const volatile struct completion *done; (done = next_completion(queue, SIZE));) {
        completed(n, done->id, done->status >> 1 == 0);
    }
    if (queue->head != before) {
        ring(2 * (n + 1) + 1, queue->head);
    }
}

// Whether the command succeeds; `result`, if any, is dword 0 of its completion.
static bool administer(uint8_t opcode, uint32_t nsid, void *data, uint32_t cdw10, uint32_t cdw11, uint32_t *result)
{
    struct command *command = next_command(&admin, opcode, admin.tail, data);
    command->nsid = nsid;
    command->cdw10[0] = cdw10;
    command->cdw10[1] = cdw11;
    if (opcode == DOORBELL_BUFFER) {
        command->prp[1] = (uintptr_t)event_indices;
    }
    admin.tail = (admin.tail + 1) % ADMIN_SIZE;
    ordered();
    ring(0, admin.tail);
    const volatile struct completion *done;
    while (!(done = next_completion(&admin, ADMIN_SIZE))) {
    }
    ring(1, admin.head);
    if (result) {
        *result = done->result;
    }
    if (done->status >> 1) {
        print("GUEST-ERROR admin command %u has status %u\n", opcode, done->status >> 1);
    }
    return done->status >> 1 == 0;
}

static bool enable(void)
{
    *reg(CC) = 0;
    while (*reg(CSTS) & READY) {
    }
    *reg(AQA) = (ADMIN_SIZE - 1) << 16 | (ADMIN_SIZE - 1);
    *reg(ASQ) = (uintptr_t)admin.commands;
    *reg(ASQ + 4) = 0;
    *reg(ACQ) = (uintptr_t)admin.completions;
    *reg(ACQ + 4) = 0;
    *reg(CC) = ENTRY_SIZES | ENABLE;
    while (!(*reg(CSTS) & (READY | FATAL))) {
    }
    return !(*reg(CSTS) & FATAL);
}

static bool start_queues(unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        uint32_t size_and_id = (SIZE - 1) << 16 | (n + 1);
        if (!administer(CREATE_CQ, 0, (void *)queues[n].completions, size_and_id, (n + 1) << 16 | INTERRUPTS | CONTIGUOUS,
                        NULL) ||
            !administer(CREATE_SQ, 0, queues[n].commands, size_and_id, (n + 1) << 16 | CONTIGUOUS, NULL)) {
            return false;
        }
    }
    return true;
}

bool nvme_probe(void)
{
    struct pci pci;
    if (!pci_find(&pci, 0x08, 8, 0x010802)) {
        return false;
    }
    registers = pci.bars[0];
    doorbell_stride = 4 << (*reg(CAP + 4) & 15);
    disk = (struct disk){.name = "nvme", .put = put, .kick = kick, .reap = reap};
    if ((*reg(CAP) & 0xffff) + 1 < SIZE || !enable()) {
        print("GUEST-ERROR the controller has no queues of %u entries, or does not start\n", SIZE);
        return false;
    }
    uint32_t granted;
    if (!administer(IDENTIFY, 0, identity, ID_CONTROLLER, 0, NULL)) {
        return false;
    }
    bool can_shadow = *(uint16_t *)(identity + 256) & HAS_DOORBELL_BUFFER;
    if (!administer(IDENTIFY, NAMESPACE, identity, ID_NAMESPACE, 0, NULL) ||
        !administer(SET_FEATURES, 0, NULL, NUMBER_OF_QUEUES, (QUEUES_MAX - 1) << 16 | (QUEUES_MAX - 1), &granted)) {
        return false;
    }
    unsigned block_shift = identity[128 + 4 * (identity[26] & 15) + 2];
    blocks_shift = 12 - block_shift;
    disk.blocks = *(uint64_t *)identity >> blocks_shift;
    unsigned submission = (granted & 0xffff) + 1, completion = (granted >> 16) + 1;
    disk.queues = submission < completion ? submission : completion;
    if (disk.queues > QUEUES_MAX) {
        disk.queues = QUEUES_MAX;
    }
    if (pci.vectors <= disk.queues) {
        disk.queues = pci.vectors - 1;
    }
    if (!start_queues(disk.queues)) {
        return false;
    }
    has_shadows = can_shadow && administer(DOORBELL_BUFFER, 0, (void *)shadows, 0, 0, NULL);
    return true;
}
