// A driver for virtio-blk over PCI: virtio 1.2, 2.7 (split virtqueues), 4.1 (PCI), 5.2 (block devices).
#include "bare.h"

#define SIZE 256
_Static_assert(3 * DEPTH_MAX <= SIZE, "each request has three descriptors");

enum { ACKNOWLEDGE = 1, DRIVER = 2, DRIVER_OK = 4, FEATURES_OK = 8 };
enum { F_MQ = 12, F_EVENT_IDX = 29, F_VERSION_1 = 32 };
enum { COMMON = 1, NOTIFY = 2, DEVICE = 4, VENDOR_CAPABILITY = 9 };
enum { NEXT = 1, WRITE = 2, NO_INTERRUPT = 1, NO_NOTIFY = 1, T_IN = 0, S_OK = 0 };

struct common {
    uint32_t device_feature_select, device_feature, driver_feature_select, driver_feature;
    uint16_t config_vector, num_queues;
    uint8_t status, generation;
    uint16_t queue_select, queue_size, queue_vector, queue_enable, queue_notify_off;
    uint32_t addresses[6]; // of descriptors, available ring, used ring: low, high
};

struct queue {
    PAGE_ALIGNED struct {
        uint64_t address;
        uint32_t length;
        uint16_t flags, next;
    } descriptors[SIZE];
    PAGE_ALIGNED volatile struct {
        uint16_t flags, index, ring[SIZE], used_event;
    } available;
    PAGE_ALIGNED volatile struct {
        uint16_t flags, index;
        struct {
            uint32_t id, length;
        } ring[SIZE];
        uint16_t available_event;
    } used;
    struct {
        uint32_t type, priority;
        uint64_t sector;
    } headers[DEPTH_MAX];
    volatile uint8_t status[DEPTH_MAX];
    volatile uint16_t *doorbell;
    uint16_t kicked; // the available index at the last kick
    uint16_t reaped; // the used index as far as it has been looked at
};

static struct queue queues[QUEUES_MAX];

static void put(unsigned n, unsigned slot, uint64_t block, void *buffer)
{
    struct queue *queue = &queues[n];
    queue->headers[slot].sector = block * (BLOCK_BYTES / 512);
    queue->descriptors[3 * slot + 1].address = (uintptr_t)buffer;
    queue->status[slot] = 0xff;
    uint16_t index = queue->available.index;
    queue->available.ring[index % SIZE] = 3 * slot;
    ordered();
    queue->available.index = index + 1;
}

static void kick(unsigned n)
{
    struct queue *queue = &queues[n];
    uint16_t old = queue->kicked, new = queue->available.index;
    queue->kicked = new;
    fence();
    bool is_wanted = disk.event_idx ? (uint16_t)(new - queue->used.available_event - 1) < (uint16_t)(new - old)
                                    : !(queue->used.flags & NO_NOTIFY);
    if (is_wanted) {
        *queue->doorbell = n;
        disk.kicks++;
    }
}

// Asks for no interrupt while it looks, and looks again once it has asked for one, as Linux does.
static void reap(unsigned n)
{
    struct queue *queue = &queues[n];
    do {
        if (!disk.event_idx) {
            queue->available.flags = NO_INTERRUPT;
        }
        while (queue->reaped != queue->used.index) {
            ordered();
            uint32_t slot = queue->used.ring[queue->reaped++ % SIZE].id / 3;
            completed(n, slot, slot < DEPTH_MAX && queue->status[slot] == S_OK);
        }
        if (disk.event_idx) {
            queue->available.used_event = queue->reaped;
        } else {
            queue->available.flags = 0;
        }
        fence();
    } while (queue->reaped != queue->used.index);
}

static bool start_queue(volatile struct common *common, unsigned n, uint8_t *doorbells, uint32_t multiplier)
{
    struct queue *queue = &queues[n];
    for (unsigned slot = 0; slot < DEPTH_MAX; slot++) {
        unsigned at = 3 * slot;
        queue->headers[slot].type = T_IN;
        queue->descriptors[at].address = (uintptr_t)&queue->headers[slot];
        queue->descriptors[at].length = sizeof(queue->headers[slot]);
        queue->descriptors[at].flags = NEXT;
        queue->descriptors[at].next = at + 1;
        queue->descriptors[at + 1].length = BLOCK_BYTES;
        queue->descriptors[at + 1].flags = NEXT | WRITE;
        queue->descriptors[at + 1].next = at + 2;
        queue->descriptors[at + 2].address = (uintptr_t)&queue->status[slot];
        queue->descriptors[at + 2].length = 1;
        queue->descriptors[at + 2].flags = WRITE;
    }
    common->queue_select = n;
    if (common->queue_size < SIZE) {
        print("GUEST-ERROR a queue has %u entries, and not %u\n", common->queue_size, SIZE);
        return false;
    }
    common->queue_size = SIZE;
    common->queue_vector = n + 1;
    const volatile void *parts[] = {queue->descriptors, &queue->available, &queue->used};
    for (unsigned part = 0; part < 3; part++) {
        common->addresses[2 * part] = (uintptr_t)parts[part];
        common->addresses[2 * part + 1] = 0;
    }
    queue->doorbell = (volatile uint16_t *)(doorbells + common->queue_notify_off * multiplier);
    common->queue_enable = 1;
    return true;
}

static uint64_t negotiate(volatile struct common *common)
{
    uint64_t features = 0;
    for (unsigned n = 0; n < 2; n++) {
        common->device_feature_select = n;
        features |= (uint64_t)common->device_feature << 32 * n;
    }
    features &= 1ull << F_MQ | 1ull << F_EVENT_IDX | 1ull << F_VERSION_1;
    for (unsigned n = 0; n < 2; n++) {
        common->driver_feature_select = n;
        common->driver_feature = features >> 32 * n;
    }
    common->status |= FEATURES_OK;
    return common->status & FEATURES_OK ? features : 0;
}

bool virtio_blk_probe(void)
{
    struct pci pci;
    if (!pci_find(&pci, 0, 0, 0x10421af4) && !pci_find(&pci, 0, 0, 0x10011af4)) { // modern, transitional
        return false;
    }
    uint8_t *parts[DEVICE + 1] = {0};
    uint32_t multiplier = 0;
    for (unsigned at = 0; (at = pci_capability(&pci, VENDOR_CAPABILITY, at));) {
        unsigned type = pci_read(&pci, at + 3) & 0xff, bar = pci_read(&pci, at + 4) & 0xff;
        if (type <= DEVICE && bar < 6 && !parts[type]) {
            parts[type] = pci.bars[bar] + pci_read(&pci, at + 8);
        }
        if (type == NOTIFY) {
            multiplier = pci_read(&pci, at + 16);
        }
    }
    volatile struct common *common = (volatile struct common *)parts[COMMON];
    common->status = 0;
    while (common->status) {
    }
    common->status = ACKNOWLEDGE;
    common->status |= DRIVER;
    uint64_t features = negotiate(common);
    if (!(features >> F_VERSION_1 & 1)) {
        print("GUEST-ERROR the device does not accept VERSION_1\n");
        return false;
    }
    const volatile uint32_t *config = (const volatile uint32_t *)parts[DEVICE];
    unsigned offered = features >> F_MQ & 1 ? *(const volatile uint16_t *)(parts[DEVICE] + 34) : 1;
    disk = (struct disk){
        .name = "virtio-blk",
        .blocks = (config[0] | (uint64_t)config[1] << 32) / (BLOCK_BYTES / 512),
        .queues = offered < QUEUES_MAX ? offered : QUEUES_MAX,
        .event_idx = features >> F_EVENT_IDX & 1,
        .put = put,
        .kick = kick,
        .reap = reap,
    };
    if (pci.vectors <= disk.queues) {
        print("GUEST-ERROR %u vectors for %u queues\n", pci.vectors, disk.queues);
        return false;
    }
    common->config_vector = 0;
    for (unsigned n = 0; n < disk.queues; n++) {
        if (!start_queue(common, n, parts[NOTIFY], multiplier)) {
            return false;
        }
    }
    common->status |= DRIVER_OK;
    return true;
}
