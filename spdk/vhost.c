// vhost-user-blk. SPDK asks DPDK to interrupt, at every poll as long as it owes an interrupt, and DPDK may answer "not now":
// so do we, while the policy holds. A __wrap_ function stands before the DPDK function of that name, __real_; those that a
// queue's requests call, and the question, are called on the controller's thread.
#include "target.h"

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

// One request that SPDK has taken.
struct request {
    uint64_t age; // that of its delivery when it was looked at
    coalesce_mark mark;
    const uint8_t *status; // in the guest's memory; null: not known
};

struct vring_line {
    struct line line;
    int vid;
    struct rte_vhost_vring ring;
    struct rte_vhost_memory *memory;
    const struct rte_vhost_mem_region *region; // where an address was found last
    bool is_packed;
    uint16_t taken;      // split rings: requests that SPDK has taken, modulo 2^16,
    uint16_t used;       // and that it has answered
    uint64_t untold;     // those of them that `delivery` does not know of
    uint32_t batch_len;  // how many requests SPDK found together
    uint32_t batch_left; // how many of those are still to come
    uint32_t in_flight;  // packed rings: requests taken and not completed
    uint32_t requests_size;
    struct request *requests;
};

struct controller {
    char *path; // of its socket
    struct target *target;
    struct home *home; // null: no queue has run yet
    SLIST_ENTRY(controller) link;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // the list
static SLIST_HEAD(, controller) controllers = SLIST_HEAD_INITIALIZER(controllers);

// Queues that run; each is written by who starts it, and by who stops it when SPDK uses it no more.
static struct vring_line *running[SESSIONS_MAX][QUEUES_MAX];
// A queue that runs, and is no business of ours.
static struct vring_line no_line;

// The DPDK thread, or whoever calls, has signalled an eventfd.
static __thread bool has_signalled;

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

// A controller's life, seen by its socket. One that is not of block devices (SCSI) stays as it is.

static struct controller *find(const char *path)
{
    struct controller *controller;
    pthread_mutex_lock(&mutex);
    SLIST_FOREACH(controller, &controllers, link)
        if (strcmp(controller->path, path) == 0)
            break;
    pthread_mutex_unlock(&mutex);
    return controller;
}

int __wrap_rte_vhost_driver_start(const char *path)
{
    uint64_t features = 0;
    const char *slash = strrchr(path, '/');
    rte_vhost_driver_get_features(path, &features);
    if (features & (1ull << VIRTIO_BLK_F_MQ)) {
        struct controller *controller = calloc(1, sizeof(*controller));
        char *copy = strdup(path);
        struct target *target = target_add(TARGET_VHOST, slash ? slash + 1 : path);
        if (controller && copy && target) {
            *controller = (struct controller){.path = copy, .target = target};
            pthread_mutex_lock(&mutex);
            SLIST_INSERT_HEAD(&controllers, controller, link);
            pthread_mutex_unlock(&mutex);
        } else {
            if (target) {
                target_remove(target);
                target_put(target);
            }
            free(controller);
            free(copy);
        }
    }
    return __real_rte_vhost_driver_start(path);
}

static void leave_home(void *home)
{
    home_free(home);
}

static void clear(struct line *line)
{
    free(((struct vring_line *)line)->requests);
}

// On any thread; its sessions have ended when DPDK returns.
int __wrap_rte_vhost_driver_unregister(const char *path)
{
    int rc = __real_rte_vhost_driver_unregister(path);
    struct controller *controller = rc == 0 ? find(path) : NULL;
    if (controller) {
        pthread_mutex_lock(&mutex);
        SLIST_REMOVE(&controllers, controller, controller, link);
        pthread_mutex_unlock(&mutex);
        target_remove(controller->target);
        target_put(controller->target);
        // The thread is there until this returns; a message fails where there is no room for it.
        struct home *home = controller->home;
        while (home && spdk_thread_exec_msg(home->thread, leave_home, home) != 0)
            usleep(100);
        free(controller->path);
        free(controller);
    }
    return rc;
}

// SPDK's own coalescing delays the question; the two together would hold twice.
int __wrap_spdk_vhost_set_coalescing(struct spdk_vhost_dev *vdev, uint32_t delay_base_us, uint32_t iops_threshold)
{
    struct target *target = target_find(TARGET_VHOST, spdk_vhost_dev_get_name(vdev));
    char *policy = target ? target_policy(target) : NULL;
    bool is_ours = policy && strcmp(policy, DEFAULT_POLICY) != 0;
    free(policy);
    if (target)
        target_put(target);
    if (delay_base_us > 0 && is_ours) {
        SPDK_ERRLOG("%s: has a coalescing policy; coalesce_set_policy to \"%s\" first\n", spdk_vhost_dev_get_name(vdev),
                    DEFAULT_POLICY);
        return -EBUSY;
    }
    return __real_spdk_vhost_set_coalescing(vdev, delay_base_us, iops_threshold);
}

// Requests that the guest has made available and SPDK has not answered.
static inline uint32_t available(const struct vring_line *vring, uint16_t used)
{
    uint16_t count = (uint16_t)(*(volatile uint16_t *)&vring->ring.avail->idx - used);
    return spdk_min(count, vring->ring.size);
}

// Requests were answered that nobody looked at: tells of them. Where nothing may be held, those that SPDK has not taken yet do
// not matter, and the guest, which writes its available index meanwhile, keeps the cache line.
static void catch_up(struct line *line)
{
    struct vring_line *vring = (struct vring_line *)line;
    if (vring->untold == 0)
        return;
    if ((int16_t)(vring->taken - vring->used) < 0)
        vring->taken = vring->used; // it has answered some that a session before this one took
    uint32_t left = line->delivery.may_hold ? available(vring, vring->used) : (uint16_t)(vring->taken - vring->used);
    delivery_plain(&line->delivery, vring->untold, left + 1);
    vring->untold = 0;
}

// A queue starts when SPDK first does something with it, and ends when SPDK tells DPDK where it would go on.

// Where nobody polls, SPDK looks at a queue when it is kicked, and then asks.
static void kick(struct line *line, uint64_t now)
{
    struct rte_vhost_vring ring; // the front end may have given it another eventfd meanwhile
    uint64_t one = 1;
    if (rte_vhost_get_vhost_vring(((struct vring_line *)line)->vid, line->queue, &ring) == 0) {
        ssize_t written = write(ring.kickfd, &one, sizeof(one));
        (void)written; // full: it is kicked already
    }
}

static struct vring_line *make_line(int vid, uint16_t queue)
{
    char path[PATH_MAX];
    uint64_t features;
    struct rte_vhost_vring ring;
    struct rte_vhost_memory *memory;
    struct controller *controller;
    if (rte_vhost_get_ifname(vid, path, sizeof(path)) != 0 || !(controller = find(path)) ||
        rte_vhost_get_negotiated_features(vid, &features) != 0 || rte_vhost_get_vhost_vring(vid, queue, &ring) != 0)
        return NULL;
    if (!controller->home) {
        struct home *home = malloc(sizeof(*home));
        if (!home || !home_init(home, kick, catch_up, clear)) {
            free(home);
            return NULL;
        }
        controller->home = home;
    }
    if (rte_vhost_get_mem_table(vid, &memory) != 0)
        return NULL;
    if (memory->nregions == 0) {
        free(memory);
        return NULL;
    }
    struct vring_line *vring =
        (struct vring_line *)home_take_line(controller->home, controller->target, queue, ring.size, sizeof(*vring));
    if (vring && vring->requests_size < ring.size) {
        free(vring->requests);
        vring->requests = calloc(ring.size, sizeof(*vring->requests));
        vring->requests_size = vring->requests ? ring.size : 0;
    }
    if (!vring || !vring->requests) {
        if (vring)
            vring->line.is_running = false;
        free(memory);
        return NULL;
    }
    vring->untold = 0;
    vring->vid = vid;
    vring->ring = ring;
    vring->memory = memory;
    vring->region = memory->regions;
    vring->is_packed = features & (1ull << VIRTIO_F_RING_PACKED);
    vring->batch_left = 0;
    vring->in_flight = 0;
    if (rte_vhost_get_vring_base(vid, queue, &vring->taken, &vring->used) != 0)
        vring->taken = vring->used = ring.used->idx;
    return vring;
}

static __attribute__((noinline)) struct vring_line *start(int vid, uint16_t queue)
{
    if (vid < 0 || vid >= SESSIONS_MAX || queue >= QUEUES_MAX || running[vid][queue] == &no_line)
        return NULL;
    struct vring_line *made = make_line(vid, queue);
    running[vid][queue] = made ? made : &no_line;
    return made;
}

// The line of a queue that runs; null: there is none, or not one of ours.
static inline struct vring_line *find_line(int vid, uint16_t queue)
{
    bool is_index = vid >= 0 && vid < SESSIONS_MAX && queue < QUEUES_MAX;
    return is_index && running[vid][queue] != &no_line ? running[vid][queue] : NULL;
}

static inline struct vring_line *find_or_start(int vid, uint16_t queue)
{
    struct vring_line *found = find_line(vid, queue);
    return spdk_likely(found) ? found : start(vid, queue);
}

int __wrap_eventfd_write(int fd, eventfd_t value)
{
    int rc = __real_eventfd_write(fd, value);
    has_signalled |= rc == 0;
    return rc;
}

// DPDK asks the guest's flag once more, under its lock, and signals; -EAGAIN: another thread has the lock.
static int interrupt(struct vring_line *vring, uint64_t now)
{
    has_signalled = false;
    int rc = __real_rte_vhost_vring_call_nonblock(vring->vid, vring->line.queue);
    if (rc == 0)
        delivery_told(&vring->line.delivery, now, has_signalled);
    return rc;
}

int __wrap_rte_vhost_vring_call_nonblock(int vid, uint16_t queue)
{
    struct vring_line *vring = find_or_start(vid, queue);
    if (!vring)
        return __real_rte_vhost_vring_call_nonblock(vid, queue);
    struct delivery *delivery = &vring->line.delivery;
    if (!delivery->may_hold)
        vring->batch_left = 0; // nobody counts
    catch_up(&vring->line);
    uint64_t now = 0;
    int rc = -EAGAIN;
    bool may_interrupt = delivery_passes(delivery);
    if (!may_interrupt) {
        now = spdk_get_ticks();
        delivery_end_batch(delivery, now);
        may_interrupt = delivery_may_interrupt(delivery, now);
    }
    if (may_interrupt) {
        rc = interrupt(vring, now);
        delivery->is_due |= rc == -EAGAIN;
    }
    if (rc == -EAGAIN)
        home_watch(&vring->line, now); // 0 where it passes: due, and so at once
    return rc;
}

// On DPDK's thread, or at shutdown on another; SPDK has stopped the session.
int __wrap_rte_vhost_set_vring_base(int vid, uint16_t queue, uint16_t last_avail_idx, uint16_t last_used_idx)
{
    struct vring_line *vring = find_line(vid, queue);
    if (vring) {
        uint64_t now = spdk_get_ticks();
        pthread_mutex_lock(&vring->line.home->mutex);
        catch_up(&vring->line);
        // SPDK asked once more while it stopped, and may have heard "not now". Where DPDK cannot interrupt at this moment
        // the guest's memory is being exchanged, after which SPDK interrupts in any case.
        if (vring->line.delivery.held > 0 || vring->line.delivery.is_due)
            interrupt(vring, now);
        delivery_reset(&vring->line.delivery, now);
        free(vring->memory);
        vring->line.is_running = false;
        pthread_mutex_unlock(&vring->line.home->mutex);
    }
    if (vid >= 0 && vid < SESSIONS_MAX && queue < QUEUES_MAX)
        running[vid][queue] = NULL;
    return __real_rte_vhost_set_vring_base(vid, queue, last_avail_idx, last_used_idx);
}

// Requests. What the guest has written is looked at once, and nothing in it is believed: at worst a hint is wrong.

// An address of the guest; its regions are few, and most of what is asked for is where the last was. Null: there is none.
static inline void *translate(struct vring_line *vring, uint64_t address, uint64_t size)
{
    const struct rte_vhost_mem_region *region = vring->region, *end = vring->memory->regions + vring->memory->nregions;
    uint64_t offset = address - region->guest_phys_addr;
    if (spdk_unlikely(offset >= region->size || size > region->size - offset)) {
        for (region = vring->memory->regions; region < end; region++) {
            offset = address - region->guest_phys_addr;
            if (offset < region->size && size <= region->size - offset)
                break;
        }
        if (region == end)
            return NULL;
        vring->region = region;
    }
    return (void *)(uintptr_t)(region->host_user_addr + offset);
}

// The header of a request, and where its status goes.
static inline bool parse(struct vring_line *vring, uint16_t index, struct virtio_blk_outhdr *header, const uint8_t **status)
{
    const volatile struct vring_desc *table = vring->ring.desc;
    uint32_t size = vring->ring.size, next = index;
    if (index >= size)
        return false;
    struct vring_desc first = table[index], last;
    if (first.flags & VRING_DESC_F_INDIRECT) {
        size = first.len / sizeof(*table);
        table = translate(vring, first.addr, (uint64_t)size * sizeof(*table));
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
    const void *found = translate(vring, first.addr, sizeof(*header));
    if (first.len != sizeof(*header) || !found)
        return false;
    memcpy(header, found, sizeof(*header));
    *status = last.len == 1 ? translate(vring, last.addr, 1) : NULL;
    return true;
}

// What the policy may want to know of a request that SPDK takes.
static __attribute__((noinline)) void look_at(struct vring_line *vring, uint16_t index)
{
    struct delivery *delivery = &vring->line.delivery;
    struct request *request = &vring->requests[index];
    request->age = delivery->age;
    request->status = NULL;
    struct virtio_blk_outhdr header;
    bool is_header = parse(vring, index, &header, &request->status);
    if (vring->batch_left == 0) {
        uint32_t count = available(vring, vring->taken);
        vring->batch_left = vring->batch_len = spdk_max(count, 1);
    }
    coalesce_request clues = {
        .flags = --vring->batch_left == 0 ? COALESCE_REQUEST_LAST : 0,
        .outstanding = available(vring, vring->used) + (uint32_t)spdk_min(delivery->held + delivery->together, vring->ring.size),
        .batch_len = vring->batch_len,
    };
    if (is_header) {
        clues.flags |= header.type == VIRTIO_BLK_T_FLUSH ? COALESCE_REQUEST_FLUSH : 0;
        clues.ioprio = header.ioprio;
    }
    delivery_submit(delivery, &clues, &request->mark);
}

static __attribute__((noinline)) int take(struct vring_line *vring, int vid, uint16_t queue, uint16_t index)
{
    if (spdk_unlikely(!vring))
        vring = start(vid, queue);
    if (vring && vring->line.delivery.may_hold && index < vring->requests_size)
        look_at(vring, index);
    if (vring)
        vring->taken++;
    return __real_rte_vhost_set_inflight_desc_split(vid, queue, index);
}

// SPDK takes a request.
int __wrap_rte_vhost_set_inflight_desc_split(int vid, uint16_t queue, uint16_t index)
{
    struct vring_line *vring = find_line(vid, queue);
    if (spdk_unlikely(!vring || vring->line.delivery.may_hold))
        return take(vring, vid, queue, index);
    vring->taken++;
    return __real_rte_vhost_set_inflight_desc_split(vid, queue, index);
}

static __attribute__((noinline)) int answer(struct vring_line *vring, uint16_t used, uint16_t index)
{
    struct delivery *delivery = &vring->line.delivery;
    struct request *request = index < vring->requests_size ? &vring->requests[index] : NULL;
    uint32_t cif = available(vring, used) + 1;
    if (spdk_unlikely(vring->untold > 0))
        catch_up(&vring->line);
    if (spdk_likely(request && request->age == delivery->age)) {
        bool is_ok = !request->status || *(volatile const uint8_t *)request->status == VIRTIO_BLK_S_OK;
        delivery_complete(delivery, cif, &request->mark, is_ok ? COALESCE_CLASS_IO : COALESCE_CLASS_FAILED);
        request->age = 0;
    } else {
        delivery_complete(delivery, cif, &delivery_unknown_mark, COALESCE_CLASS_IO);
    }
    return __real_rte_vhost_clr_inflight_desc_split(vring->vid, (uint16_t)vring->line.queue, used, index);
}

// A request is answered: the guest can see it.
int __wrap_rte_vhost_clr_inflight_desc_split(int vid, uint16_t queue, uint16_t last_used_idx, uint16_t index)
{
    struct vring_line *vring = find_or_start(vid, queue);
    if (spdk_likely(vring)) {
        vring->used = last_used_idx;
        if (vring->line.delivery.may_hold)
            return answer(vring, last_used_idx, index);
        vring->untold++;
    }
    return __real_rte_vhost_clr_inflight_desc_split(vid, queue, last_used_idx, index);
}

// Packed rings: requests are counted, and not looked at.

int __wrap_rte_vhost_set_inflight_desc_packed(int vid, uint16_t queue, uint16_t head, uint16_t last, uint16_t *inflight_entry)
{
    struct vring_line *vring = find_or_start(vid, queue);
    if (vring)
        vring->in_flight++;
    return __real_rte_vhost_set_inflight_desc_packed(vid, queue, head, last, inflight_entry);
}

int __wrap_rte_vhost_clr_inflight_desc_packed(int vid, uint16_t queue, uint16_t head)
{
    int rc = __real_rte_vhost_clr_inflight_desc_packed(vid, queue, head);
    struct vring_line *vring = find_or_start(vid, queue);
    if (vring) {
        uint32_t cif = spdk_max(vring->in_flight, 1);
        vring->in_flight = cif - 1;
        delivery_plain(&vring->line.delivery, 1, cif);
    }
    return rc;
}
