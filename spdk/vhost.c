// vhost-user-blk. While SPDK owes a queue an interrupt, it asks DPDK at every poll to send it, and DPDK may answer "not now".
// While the policy holds, we answer so. A __wrap_ function is called instead of the function of DPDK or SPDK, which is __real_.
// Those that submit and complete requests, and the one that interrupts, are called on the controller's thread.
#include "channel.h"

#include <spdk/env.h>
#include <spdk/likely.h>
#include <spdk/log.h>
#include <spdk/thread.h>
#include <spdk/util.h>
#include <spdk/vhost.h>

#include <linux/virtio_blk.h>
#include <rte_version.h>
#include <rte_vhost.h>

#include <sys/eventfd.h>

#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "DPDK is too old: 22.11 or newer is needed, as SPDK interrupts in another way with an older one"
#endif

#define SESSIONS_MAX 1024 // of DPDK: RTE_MAX_VHOST_DEVICE
#define QUEUES_MAX 256    // of a session
#define CHAIN_MAX 256     // descriptors of a request; SPDK takes fewer

// One request that SPDK has taken from the available ring.
struct vhost_request {
    uint64_t generation; // of the delivery when it was taken
    coalesce_mark mark;
    const uint8_t *status; // in the guest's memory; null: not known
};

struct vhost_queue {
    struct irq_queue queue;
    int vid;
    struct rte_vhost_vring vring;
    struct rte_vhost_memory *memory;
    const struct rte_vhost_mem_region *region; // where the last address was found
    bool is_packed;
    uint16_t last_avail_idx; // split rings: requests that SPDK has taken,
    uint16_t last_used_idx;  // and completed, both modulo 2^16
    uint64_t unreported;     // completions that the delivery does not know of
    uint32_t batch_len;      // requests that SPDK found in one poll,
    uint32_t batch_left;     // and those of them that it has not taken yet
    uint32_t in_flight;      // packed rings: requests taken and not completed
    uint32_t requests_size;
    struct vhost_request *requests;
};

struct vhost_ctrlr {
    char *path; // of its socket
    struct irq_device *device;
    struct spdk_io_channel *ch; // null: none of its queues has run yet
    SLIST_ENTRY(vhost_ctrlr) link;
};

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER; // the list
static SLIST_HEAD(, vhost_ctrlr) g_ctrlrs = SLIST_HEAD_INITIALIZER(g_ctrlrs);

// Running queues. An entry is written by the thread that starts the queue, and by the one that stops it, after SPDK's last use.
static struct vhost_queue *g_queues[SESSIONS_MAX][QUEUES_MAX];
// The entry of a queue that runs as without a policy.
static struct vhost_queue g_not_ours;

// This thread has signalled an eventfd.
static __thread bool g_has_signalled;

int __real_rte_vhost_driver_start(const char *path);
int __wrap_rte_vhost_driver_start(const char *path);
int __real_rte_vhost_driver_unregister(const char *path);
int __wrap_rte_vhost_driver_unregister(const char *path);
int __real_rte_vhost_set_inflight_desc_split(int vid, uint16_t queue, uint16_t index);
int __wrap_rte_vhost_set_inflight_desc_split(int vid, uint16_t queue, uint16_t index);
int __real_rte_vhost_clr_inflight_desc_split(int vid, uint16_t queue, uint16_t last_used_idx, uint16_t index);
int __wrap_rte_vhost_clr_inflight_desc_split(int vid, uint16_t queue, uint16_t last_used_idx, uint16_t index);
int __real_rte_vhost_set_inflight_desc_packed(int vid, uint16_t queue, uint16_t head, uint16_t last, uint16_t *inflight_entry);
int __wrap_rte_vhost_set_inflight_desc_packed(int vid, uint16_t queue, uint16_t head, uint16_t last, uint16_t *inflight_entry);
int __real_rte_vhost_clr_inflight_desc_packed(int vid, uint16_t queue, uint16_t head);
int __wrap_rte_vhost_clr_inflight_desc_packed(int vid, uint16_t queue, uint16_t head);
int __real_rte_vhost_vring_call_nonblock(int vid, uint16_t queue);
int __wrap_rte_vhost_vring_call_nonblock(int vid, uint16_t queue);
int __real_rte_vhost_set_vring_base(int vid, uint16_t queue, uint16_t last_avail_idx, uint16_t last_used_idx);
int __wrap_rte_vhost_set_vring_base(int vid, uint16_t queue, uint16_t last_avail_idx, uint16_t last_used_idx);
int __real_eventfd_write(int fd, eventfd_t value);
int __wrap_eventfd_write(int fd, eventfd_t value);
int __real_spdk_vhost_set_coalescing(struct spdk_vhost_dev *vdev, uint32_t delay_base_us, uint32_t iops_threshold);
int __wrap_spdk_vhost_set_coalescing(struct spdk_vhost_dev *vdev, uint32_t delay_base_us, uint32_t iops_threshold);

// Controllers, found by their sockets. Those that are not of block devices (SCSI) stay as without a policy.

static struct vhost_ctrlr *find_ctrlr(const char *path)
{
    struct vhost_ctrlr *ctrlr;
    pthread_mutex_lock(&g_mutex);
    SLIST_FOREACH(ctrlr, &g_ctrlrs, link)
        if (strcmp(ctrlr->path, path) == 0)
            break;
    pthread_mutex_unlock(&g_mutex);
    return ctrlr;
}

static void create_ctrlr(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct vhost_ctrlr *ctrlr = calloc(1, sizeof(*ctrlr));
    char *copy = strdup(path);
    struct irq_device *device = irq_device_add(IRQ_DEVICE_VHOST, slash ? slash + 1 : path);
    if (!ctrlr || !copy || !device) {
        if (device) {
            irq_device_remove(device);
            irq_device_unref(device);
        }
        free(ctrlr);
        free(copy);
        return;
    }
    ctrlr->path = copy;
    ctrlr->device = device;
    pthread_mutex_lock(&g_mutex);
    SLIST_INSERT_HEAD(&g_ctrlrs, ctrlr, link);
    pthread_mutex_unlock(&g_mutex);
}

int __wrap_rte_vhost_driver_start(const char *path)
{
    uint64_t features = 0;
    rte_vhost_driver_get_features(path, &features);
    if (features & (1ull << VIRTIO_BLK_F_MQ))
        create_ctrlr(path);
    return __real_rte_vhost_driver_start(path);
}

static void put_channel(void *ch)
{
    spdk_put_io_channel(ch);
}

// On any thread. When DPDK returns, the controller's sessions have ended.
int __wrap_rte_vhost_driver_unregister(const char *path)
{
    int rc = __real_rte_vhost_driver_unregister(path);
    struct vhost_ctrlr *ctrlr = rc == 0 ? find_ctrlr(path) : NULL;
    if (ctrlr) {
        pthread_mutex_lock(&g_mutex);
        SLIST_REMOVE(&g_ctrlrs, ctrlr, vhost_ctrlr, link);
        pthread_mutex_unlock(&g_mutex);
        irq_device_remove(ctrlr->device);
        irq_device_unref(ctrlr->device);
        // The controller's thread exits after this function returns. A message fails while SPDK has no memory for it.
        while (ctrlr->ch && spdk_thread_exec_msg(spdk_io_channel_get_thread(ctrlr->ch), put_channel, ctrlr->ch) != 0)
            usleep(100);
        free(ctrlr->path);
        free(ctrlr);
    }
    return rc;
}

// With SPDK's own coalescing and a policy, completions would be held twice.
int __wrap_spdk_vhost_set_coalescing(struct spdk_vhost_dev *vdev, uint32_t delay_base_us, uint32_t iops_threshold)
{
    struct irq_device *device = irq_device_find(IRQ_DEVICE_VHOST, spdk_vhost_dev_get_name(vdev));
    char *policy = device ? irq_device_get_policy(device) : NULL;
    bool has_policy = policy && strcmp(policy, IRQ_DEFAULT_POLICY) != 0;
    free(policy);
    if (device)
        irq_device_unref(device);
    if (delay_base_us > 0 && has_policy) {
        SPDK_ERRLOG("%s: has a coalescing policy; coalesce_set_policy to \"%s\" first\n", spdk_vhost_dev_get_name(vdev),
                    IRQ_DEFAULT_POLICY);
        return -EBUSY;
    }
    return __real_spdk_vhost_set_coalescing(vdev, delay_base_us, iops_threshold);
}

// Requests that the guest has made available and SPDK has not completed.
static inline uint32_t outstanding(const struct vhost_queue *vq, uint16_t last_used_idx)
{
    uint16_t count = (uint16_t)(*(volatile uint16_t *)&vq->vring.avail->idx - last_used_idx);
    return spdk_min(count, vq->vring.size);
}

static inline struct vhost_queue *to_vhost_queue(struct irq_queue *queue)
{
    return SPDK_CONTAINEROF(queue, struct vhost_queue, queue);
}

// Reports completions of requests that were not inspected. While the policy may not hold, only requests that SPDK has taken
// count as in flight: reading the available index would take its cache line from the guest, which writes it.
static void sync_completions(struct irq_queue *queue)
{
    struct vhost_queue *vq = to_vhost_queue(queue);
    if (vq->unreported == 0)
        return;
    if ((int16_t)(vq->last_avail_idx - vq->last_used_idx) < 0)
        vq->last_avail_idx = vq->last_used_idx; // it has completed requests that an earlier session took
    uint32_t left =
        queue->delivery.view.may_hold ? outstanding(vq, vq->last_used_idx) : (uint16_t)(vq->last_avail_idx - vq->last_used_idx);
    delivery_complete_plain(&queue->delivery, vq->unreported, left + 1);
    vq->unreported = 0;
}

// In interrupt mode SPDK looks at a queue when it is kicked, and then asks to interrupt.
static void kick(struct irq_queue *queue, uint64_t now)
{
    struct rte_vhost_vring vring; // read anew: the front end may have replaced the eventfd
    uint64_t one = 1;
    if (rte_vhost_get_vhost_vring(to_vhost_queue(queue)->vid, queue->qid, &vring) == 0) {
        ssize_t written = write(vring.kickfd, &one, sizeof(one));
        (void)written; // full: it is kicked already
    }
}

static void destroy_queue(struct irq_queue *queue)
{
    free(to_vhost_queue(queue)->requests);
}

static const struct irq_queue_ops g_queue_ops = {.wake = kick, .sync = sync_completions, .destroy = destroy_queue};

// A queue starts when SPDK first uses it, and stops when SPDK gives DPDK the ring's indices back.

static bool alloc_requests(struct vhost_queue *vq, uint32_t size)
{
    if (vq->requests_size >= size)
        return true;
    free(vq->requests);
    vq->requests = calloc(size, sizeof(*vq->requests));
    vq->requests_size = vq->requests ? size : 0;
    return vq->requests != NULL;
}

static struct vhost_queue *create_queue(int vid, uint16_t qid)
{
    char path[PATH_MAX];
    uint64_t features;
    struct rte_vhost_vring vring;
    struct rte_vhost_memory *memory;
    struct vhost_ctrlr *ctrlr;
    if (rte_vhost_get_ifname(vid, path, sizeof(path)) != 0 || !(ctrlr = find_ctrlr(path)) ||
        rte_vhost_get_negotiated_features(vid, &features) != 0 || rte_vhost_get_vhost_vring(vid, qid, &vring) != 0)
        return NULL;
    if (!ctrlr->ch && !(ctrlr->ch = irq_get_io_channel()))
        return NULL;
    if (rte_vhost_get_mem_table(vid, &memory) != 0)
        return NULL;
    struct irq_queue *queue = NULL;
    if (memory->nregions > 0)
        queue = irq_queue_start(ctrlr->ch, &g_queue_ops, ctrlr->device, qid, vring.size, sizeof(struct vhost_queue));
    if (!queue) {
        free(memory);
        return NULL;
    }
    struct vhost_queue *vq = to_vhost_queue(queue);
    if (!alloc_requests(vq, vring.size)) {
        queue->is_running = false;
        free(memory);
        return NULL;
    }
    vq->unreported = 0;
    vq->vid = vid;
    vq->vring = vring;
    vq->memory = memory;
    vq->region = memory->regions;
    vq->is_packed = features & (1ull << VIRTIO_F_RING_PACKED);
    vq->batch_left = 0;
    vq->in_flight = 0;
    if (rte_vhost_get_vring_base(vid, qid, &vq->last_avail_idx, &vq->last_used_idx) != 0)
        vq->last_avail_idx = vq->last_used_idx = vring.used->idx;
    return vq;
}

static __attribute__((noinline)) struct vhost_queue *start_queue(int vid, uint16_t qid)
{
    if (vid < 0 || vid >= SESSIONS_MAX || qid >= QUEUES_MAX || g_queues[vid][qid] == &g_not_ours)
        return NULL;
    struct vhost_queue *vq = create_queue(vid, qid);
    g_queues[vid][qid] = vq ? vq : &g_not_ours;
    return vq;
}

// Null: the queue is not running, or not ours.
static inline struct vhost_queue *find_queue(int vid, uint16_t qid)
{
    bool is_index = vid >= 0 && vid < SESSIONS_MAX && qid < QUEUES_MAX;
    return is_index && g_queues[vid][qid] != &g_not_ours ? g_queues[vid][qid] : NULL;
}

static inline struct vhost_queue *find_or_start_queue(int vid, uint16_t qid)
{
    struct vhost_queue *vq = find_queue(vid, qid);
    return spdk_likely(vq) ? vq : start_queue(vid, qid);
}

// Interrupts.

int __wrap_eventfd_write(int fd, eventfd_t value)
{
    int rc = __real_eventfd_write(fd, value);
    g_has_signalled |= rc == 0;
    return rc;
}

// DPDK reads the guest's flags once more, under its lock, and signals. -EAGAIN: another thread has the lock.
static int interrupt(struct vhost_queue *vq, uint64_t now)
{
    g_has_signalled = false;
    int rc = __real_rte_vhost_vring_call_nonblock(vq->vid, vq->queue.qid);
    if (rc == 0)
        delivery_interrupted(&vq->queue.delivery, now, g_has_signalled);
    return rc;
}

int __wrap_rte_vhost_vring_call_nonblock(int vid, uint16_t qid)
{
    struct vhost_queue *vq = find_or_start_queue(vid, qid);
    if (!vq)
        return __real_rte_vhost_vring_call_nonblock(vid, qid);
    struct delivery *delivery = &vq->queue.delivery;
    if (!delivery->view.may_hold)
        vq->batch_left = 0; // requests have not been counted meanwhile
    sync_completions(&vq->queue);
    uint64_t now = 0;
    int rc = -EAGAIN;
    bool may_interrupt = delivery_may_pass(delivery);
    if (!may_interrupt) {
        now = delivery_now();
        if (!delivery_waits(delivery, now)) {
            delivery_end_batch(delivery, now);
            may_interrupt = delivery_should_interrupt(delivery, now);
        }
    }
    if (may_interrupt) {
        rc = interrupt(vq, now);
        if (rc == -EAGAIN)
            delivery_failed(delivery, now);
    }
    if (rc == -EAGAIN)
        irq_queue_arm_timer(&vq->queue, now); // `now` is 0 if bypassed: then an interrupt is due, and the timer expires at once
    return rc;
}

// On DPDK's thread, or at shutdown on another, after SPDK has stopped the session.
int __wrap_rte_vhost_set_vring_base(int vid, uint16_t qid, uint16_t last_avail_idx, uint16_t last_used_idx)
{
    struct vhost_queue *vq = find_queue(vid, qid);
    if (vq) {
        uint64_t now = delivery_now();
        pthread_mutex_lock(&vq->queue.channel->mutex);
        sync_completions(&vq->queue);
        // SPDK asked once more while it stopped the session, and the answer may have been "not now". If DPDK cannot interrupt
        // now, the guest's memory is being replaced; after that SPDK interrupts in any case.
        if (vq->queue.delivery.view.held > 0 || vq->queue.delivery.view.is_due)
            interrupt(vq, now);
        delivery_reset(&vq->queue.delivery, now);
        free(vq->memory);
        vq->queue.is_running = false;
        pthread_mutex_unlock(&vq->queue.channel->mutex);
    }
    if (vid >= 0 && vid < SESSIONS_MAX && qid < QUEUES_MAX)
        g_queues[vid][qid] = NULL;
    return __real_rte_vhost_set_vring_base(vid, qid, last_avail_idx, last_used_idx);
}

// Requests. What the guest wrote is read once and never trusted: the worst that it can do is to give a wrong hint.

// Translates a guest address. Tries the region of the last one first. Null: the guest has no such memory.
static inline void *translate(struct vhost_queue *vq, uint64_t address, uint64_t size)
{
    const struct rte_vhost_mem_region *region = vq->region, *end = vq->memory->regions + vq->memory->nregions;
    uint64_t offset = address - region->guest_phys_addr;
    if (spdk_unlikely(offset >= region->size || size > region->size - offset)) {
        for (region = vq->memory->regions; region < end; region++) {
            offset = address - region->guest_phys_addr;
            if (offset < region->size && size <= region->size - offset)
                break;
        }
        if (region == end)
            return NULL;
        vq->region = region;
    }
    return (void *)(uintptr_t)(region->host_user_addr + offset);
}

// Copies the header of a request, and finds where its status goes.
static inline bool parse(struct vhost_queue *vq, uint16_t index, struct virtio_blk_outhdr *header, const uint8_t **status)
{
    const volatile struct vring_desc *table = vq->vring.desc;
    uint32_t size = vq->vring.size, next = index;
    if (index >= size)
        return false;
    struct vring_desc first = table[index], last;
    if (first.flags & VRING_DESC_F_INDIRECT) {
        size = first.len / sizeof(*table);
        table = translate(vq, first.addr, (uint64_t)size * sizeof(*table));
        if (!table || size == 0)
            return false;
        next = 0;
        first = table[0];
    }
    last = first;
    for (uint32_t seen = 1; last.flags & VRING_DESC_F_NEXT; seen++) {
        next = last.next;
        if (seen >= CHAIN_MAX || next >= size)
            return false;
        last = table[next];
    }
    const void *found = translate(vq, first.addr, sizeof(*header));
    if (first.len != sizeof(*header) || !found)
        return false;
    memcpy(header, found, sizeof(*header));
    *status = last.len == 1 ? translate(vq, last.addr, 1) : NULL;
    return true;
}

// Passes to the delivery what is known of a request that SPDK takes.
static __attribute__((noinline)) void inspect(struct vhost_queue *vq, uint16_t index)
{
    struct delivery *delivery = &vq->queue.delivery;
    struct vhost_request *request = &vq->requests[index];
    request->generation = delivery->generation;
    request->status = NULL;
    struct virtio_blk_outhdr header;
    bool has_header = parse(vq, index, &header, &request->status);
    if (vq->batch_left == 0) {
        uint32_t count = outstanding(vq, vq->last_avail_idx);
        vq->batch_left = vq->batch_len = spdk_max(count, 1);
    }
    uint64_t unsignalled = delivery->view.held + delivery->pending.completions;
    coalesce_request info = {
        .flags = --vq->batch_left == 0 ? COALESCE_REQUEST_LAST : 0,
        .outstanding = outstanding(vq, vq->last_used_idx) + (uint32_t)spdk_min(unsignalled, vq->vring.size),
        .batch_len = vq->batch_len,
    };
    if (has_header) {
        info.flags |= header.type == VIRTIO_BLK_T_FLUSH ? COALESCE_REQUEST_FLUSH : 0;
        info.ioprio = header.ioprio;
    }
    delivery_submit(delivery, &info, &request->mark);
}

static __attribute__((noinline)) int submit(struct vhost_queue *vq, int vid, uint16_t qid, uint16_t index)
{
    if (spdk_unlikely(!vq))
        vq = start_queue(vid, qid);
    if (vq && vq->queue.delivery.view.may_hold && index < vq->requests_size)
        inspect(vq, index);
    if (vq)
        vq->last_avail_idx++;
    return __real_rte_vhost_set_inflight_desc_split(vid, qid, index);
}

// SPDK takes a request.
int __wrap_rte_vhost_set_inflight_desc_split(int vid, uint16_t qid, uint16_t index)
{
    struct vhost_queue *vq = find_queue(vid, qid);
    if (spdk_unlikely(!vq || vq->queue.delivery.view.may_hold))
        return submit(vq, vid, qid, index);
    vq->last_avail_idx++;
    return __real_rte_vhost_set_inflight_desc_split(vid, qid, index);
}

static __attribute__((noinline)) int complete(struct vhost_queue *vq, uint16_t last_used_idx, uint16_t index)
{
    struct delivery *delivery = &vq->queue.delivery;
    struct vhost_request *request = index < vq->requests_size ? &vq->requests[index] : NULL;
    uint32_t cif = outstanding(vq, last_used_idx) + 1;
    if (spdk_unlikely(vq->unreported > 0))
        sync_completions(&vq->queue);
    if (spdk_likely(request && request->generation == delivery->generation)) {
        bool is_ok = !request->status || *(volatile const uint8_t *)request->status == VIRTIO_BLK_S_OK;
        delivery_complete(delivery, cif, &request->mark, is_ok ? COALESCE_CLASS_IO : COALESCE_CLASS_FAILED);
        request->generation = 0;
    } else {
        delivery_complete(delivery, cif, &delivery_no_mark, COALESCE_CLASS_IO);
    }
    return __real_rte_vhost_clr_inflight_desc_split(vq->vid, (uint16_t)vq->queue.qid, last_used_idx, index);
}

// SPDK has completed a request: the guest can see it.
int __wrap_rte_vhost_clr_inflight_desc_split(int vid, uint16_t qid, uint16_t last_used_idx, uint16_t index)
{
    struct vhost_queue *vq = find_or_start_queue(vid, qid);
    if (spdk_likely(vq)) {
        vq->last_used_idx = last_used_idx;
        if (vq->queue.delivery.view.may_hold)
            return complete(vq, last_used_idx, index);
        vq->unreported++;
    }
    return __real_rte_vhost_clr_inflight_desc_split(vid, qid, last_used_idx, index);
}

// Packed rings: requests are counted but not inspected.

int __wrap_rte_vhost_set_inflight_desc_packed(int vid, uint16_t qid, uint16_t head, uint16_t last, uint16_t *inflight_entry)
{
    struct vhost_queue *vq = find_or_start_queue(vid, qid);
    if (vq)
        vq->in_flight++;
    return __real_rte_vhost_set_inflight_desc_packed(vid, qid, head, last, inflight_entry);
}

int __wrap_rte_vhost_clr_inflight_desc_packed(int vid, uint16_t qid, uint16_t head)
{
    int rc = __real_rte_vhost_clr_inflight_desc_packed(vid, qid, head);
    struct vhost_queue *vq = find_or_start_queue(vid, qid);
    if (vq) {
        uint32_t cif = spdk_max(vq->in_flight, 1);
        vq->in_flight = cif - 1;
        delivery_complete_plain(&vq->queue.delivery, 1, cif);
    }
    return rc;
}
