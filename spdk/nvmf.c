// NVMe over vfio-user. The transport interrupts by vfu_irq_trigger(): with each completion or, with adaptive interrupts, at a
// poll that finds completions which the guest does not seem to be reaping. It does not ask twice, so we send the interrupt that
// the policy holds. Our functions in the transport's table of operations see every command. A __wrap_ function is called instead
// of the function of that name, which is __real_. An interrupt vector has one queue, as with Linux.
#include "channel.h"

#include <spdk/config.h>

#ifdef SPDK_CONFIG_VFIO_USER

#include <spdk/env.h>
#include <spdk/nvmf.h>
#include <spdk/nvmf_transport.h>
#include <spdk/string.h>
#include <spdk/thread.h>
#include <spdk/util.h>

#define ENTRIES_MAX 4096 // of a submission queue; in a longer one commands share slots, and those without one interrupt at once

struct vfu_ctx; // of libvfio-user: an endpoint

// What is kept of a command between submission and completion.
struct nvmf_command {
    uint16_t cid;
    bool is_used;
    coalesce_mark mark;
};

struct nvmf_queue {
    struct irq_queue queue;
    struct nvmf_group *group;
    struct spdk_nvmf_qpair *qpair;
    struct spdk_nvmf_ctrlr *ctrlr;
    struct vfu_ctx *endpoint; // null: it has not interrupted yet
    uint32_t vector;
    bool is_adaptive; // the transport interrupts at polls, not with each completion
    bool irq_pending; // the transport wanted to interrupt, and the policy holds, or the interrupt has failed
    uint32_t in_flight;
    uint32_t commands_mask;
    struct nvmf_command *commands;
    SLIST_ENTRY(nvmf_queue) group_link, bucket_link;
};

// A poll group of the transport. Never freed, so that every poll finds its group without a lock.
struct nvmf_group {
    _Atomic(struct spdk_nvmf_transport_poll_group *) tgroup; // null: free for another
    struct spdk_io_channel *ch;
    SLIST_HEAD(, nvmf_queue) queues; // those that run
    uint32_t irqs_pending;
    bool has_submissions; // since the last end of a poll
    struct nvmf_group *next;
};

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER; // for who adds a group, or takes a free one
static _Atomic(struct nvmf_group *) g_groups;

// Running queues by their qpair: a hash table.
#define BUCKETS 64
static struct bucket {
    pthread_spinlock_t lock;
    SLIST_HEAD(, nvmf_queue) queues;
} g_buckets[BUCKETS];

static struct spdk_nvmf_transport_ops g_real, g_ours;

// The queue that this thread is completing a command of, and the group that it is polling.
static __thread struct nvmf_queue *g_completing;
static __thread struct nvmf_group *g_polling;

void __real_spdk_nvmf_transport_register(const struct spdk_nvmf_transport_ops *ops);
void __wrap_spdk_nvmf_transport_register(const struct spdk_nvmf_transport_ops *ops);
void __real_spdk_nvmf_request_exec(struct spdk_nvmf_request *req);
void __wrap_spdk_nvmf_request_exec(struct spdk_nvmf_request *req);
struct spdk_nvmf_subsystem *__real_spdk_nvmf_subsystem_create(struct spdk_nvmf_tgt *tgt, const char *nqn,
                                                              enum spdk_nvmf_subtype type, uint32_t namespaces);
struct spdk_nvmf_subsystem *__wrap_spdk_nvmf_subsystem_create(struct spdk_nvmf_tgt *tgt, const char *nqn,
                                                              enum spdk_nvmf_subtype type, uint32_t namespaces);
int __real_spdk_nvmf_subsystem_destroy(struct spdk_nvmf_subsystem *subsystem, nvmf_subsystem_destroy_cb done, void *context);
int __wrap_spdk_nvmf_subsystem_destroy(struct spdk_nvmf_subsystem *subsystem, nvmf_subsystem_destroy_cb done, void *context);
int __real_vfu_irq_trigger(struct vfu_ctx *endpoint, uint32_t vector);
int __wrap_vfu_irq_trigger(struct vfu_ctx *endpoint, uint32_t vector);

static struct bucket *bucket_of(const struct spdk_nvmf_qpair *qpair)
{
    return &g_buckets[((uintptr_t)qpair >> 7) * 2654435761u % BUCKETS];
}

static struct nvmf_queue *find_queue(const struct spdk_nvmf_qpair *qpair)
{
    struct bucket *bucket = bucket_of(qpair);
    struct nvmf_queue *nq;
    pthread_spin_lock(&bucket->lock);
    SLIST_FOREACH(nq, &bucket->queues, bucket_link)
        if (nq->qpair == qpair)
            break;
    pthread_spin_unlock(&bucket->lock);
    return nq;
}

static struct nvmf_group *find_group(const struct spdk_nvmf_transport_poll_group *tgroup)
{
    struct nvmf_group *group = g_groups;
    while (group && group->tgroup != tgroup)
        group = group->next;
    return group;
}

static struct nvmf_group *group_of(const struct spdk_nvmf_qpair *qpair)
{
    struct spdk_nvmf_transport_poll_group *tgroup;
    TAILQ_FOREACH(tgroup, &qpair->group->tgroups, link)
        if (tgroup->transport == qpair->transport)
            return find_group(tgroup);
    return NULL;
}

static struct nvmf_queue *to_nvmf_queue(struct irq_queue *queue)
{
    return SPDK_CONTAINEROF(queue, struct nvmf_queue, queue);
}

// Interrupts.

static void set_irq_pending(struct nvmf_queue *nq, bool irq_pending)
{
    nq->group->irqs_pending += irq_pending - nq->irq_pending;
    nq->irq_pending = irq_pending;
}

// If it fails, as the guest has given the vector no eventfd, the interrupt stays pending.
static int interrupt(struct nvmf_queue *nq, uint64_t now)
{
    int rc = __real_vfu_irq_trigger(nq->endpoint, nq->vector);
    set_irq_pending(nq, rc != 0);
    if (rc == 0)
        delivery_interrupted(&nq->queue.delivery, now, true);
    return rc;
}

// The transport wants to interrupt. If the policy holds, the transport is told that it has, and the interrupt is pending.
static int decide(struct nvmf_queue *nq)
{
    struct delivery *delivery = &nq->queue.delivery;
    uint64_t now = delivery_now();
    if (spdk_interrupt_mode_is_enabled()) // no poll will end the batch
        delivery_end_batch(delivery, now);
    if (delivery_should_interrupt(delivery, now))
        return interrupt(nq, now);
    set_irq_pending(nq, true);
    irq_queue_arm_timer(&nq->queue, now);
    return 0;
}

int __wrap_vfu_irq_trigger(struct vfu_ctx *endpoint, uint32_t vector)
{
    struct nvmf_queue *nq = g_completing;
    if (nq) {
        nq->endpoint = endpoint;
        nq->vector = vector;
        nq->is_adaptive = false;
        return decide(nq);
    }
    if (!g_polling)
        return __real_vfu_irq_trigger(endpoint, vector);
    SLIST_FOREACH(nq, &g_polling->queues, group_link)
        if (nq->queue.qid == vector && nq->endpoint == endpoint)
            break;
    if (!nq)
        return __real_vfu_irq_trigger(endpoint, vector);
    // Without adaptive interrupts, the transport has refused a command, which the policy does not know of.
    return nq->is_adaptive ? decide(nq) : interrupt(nq, delivery_now());
}

// A deadline has passed, or the policy has changed its decision.
static void wake(struct irq_queue *queue, uint64_t now)
{
    struct nvmf_queue *nq = to_nvmf_queue(queue);
    if (nq->irq_pending && delivery_should_interrupt(&queue->delivery, now))
        interrupt(nq, now);
}

static int poll_group_poll(struct spdk_nvmf_transport_poll_group *tgroup)
{
    struct nvmf_group *group = g_polling = find_group(tgroup);
    int rc = g_real.poll_group_poll(tgroup);
    g_polling = NULL;
    if (group && group->has_submissions) {
        struct nvmf_queue *nq;
        SLIST_FOREACH(nq, &group->queues, group_link)
            delivery_end_submissions(&nq->queue.delivery);
        group->has_submissions = false;
    }
    if (group && group->irqs_pending > 0) {
        uint64_t now = delivery_now();
        struct nvmf_queue *nq;
        SLIST_FOREACH(nq, &group->queues, group_link) {
            if (!nq->irq_pending || delivery_waits(&nq->queue.delivery, now))
                continue;
            delivery_end_batch(&nq->queue.delivery, now);
            wake(&nq->queue, now);
        }
    }
    return rc;
}

// Groups and queues.

static void destroy_queue(struct irq_queue *queue)
{
    free(to_nvmf_queue(queue)->commands);
}

static const struct irq_queue_ops g_queue_ops = {.wake = wake, .destroy = destroy_queue};

// A free group, or a new one. Null: no memory.
static struct nvmf_group *take_group_locked(void)
{
    struct nvmf_group *group = find_group(NULL);
    if (!group && (group = calloc(1, sizeof(*group)))) {
        group->next = g_groups;
        g_groups = group;
    }
    return group;
}

static struct spdk_nvmf_transport_poll_group *poll_group_create(struct spdk_nvmf_transport *transport,
                                                                struct spdk_nvmf_poll_group *poll_group)
{
    struct spdk_nvmf_transport_poll_group *tgroup = g_real.poll_group_create(transport, poll_group);
    struct spdk_io_channel *ch = tgroup ? irq_get_io_channel() : NULL;
    if (!ch)
        return tgroup;
    pthread_mutex_lock(&g_mutex);
    struct nvmf_group *group = take_group_locked();
    if (group) {
        group->ch = ch;
        group->irqs_pending = 0;
        group->has_submissions = false;
        SLIST_INIT(&group->queues);
        group->tgroup = tgroup;
    }
    pthread_mutex_unlock(&g_mutex);
    if (!group)
        spdk_put_io_channel(ch);
    return tgroup;
}

static void poll_group_destroy(struct spdk_nvmf_transport_poll_group *tgroup)
{
    struct nvmf_group *group = find_group(tgroup);
    if (group) {
        spdk_put_io_channel(group->ch);
        group->tgroup = NULL;
    }
    g_real.poll_group_destroy(tgroup);
}

// With adaptive interrupts only the admin queue interrupts from within a completion, which tells the endpoint.
static struct vfu_ctx *find_endpoint(const struct spdk_nvmf_ctrlr *ctrlr)
{
    struct vfu_ctx *endpoint = NULL;
    for (struct bucket *bucket = g_buckets; bucket < g_buckets + BUCKETS; bucket++) {
        struct nvmf_queue *nq;
        pthread_spin_lock(&bucket->lock);
        SLIST_FOREACH(nq, &bucket->queues, bucket_link)
            if (nq->ctrlr == ctrlr && nq->queue.qid == 0)
                endpoint = nq->endpoint;
        pthread_spin_unlock(&bucket->lock);
    }
    return endpoint;
}

static struct nvmf_queue *create_queue(struct nvmf_group *group, struct spdk_nvmf_qpair *qpair)
{
    struct spdk_nvmf_subsystem *subsystem = spdk_nvmf_ctrlr_get_subsystem(qpair->ctrlr);
    struct irq_device *device = subsystem ? irq_device_find(IRQ_DEVICE_NVME, spdk_nvmf_subsystem_get_nqn(subsystem)) : NULL;
    if (!device)
        return NULL;
    uint32_t entries = spdk_align32pow2(spdk_min((uint32_t)qpair->sq_head_max + 1, ENTRIES_MAX));
    struct irq_queue *queue = irq_queue_start(group->ch, &g_queue_ops, device, qpair->qid, entries, sizeof(struct nvmf_queue));
    irq_device_unref(device);
    if (!queue)
        return NULL;
    struct nvmf_queue *nq = to_nvmf_queue(queue);
    free(nq->commands);
    nq->commands = calloc(entries, sizeof(*nq->commands));
    if (!nq->commands) {
        queue->is_running = false;
        return NULL;
    }
    nq->commands_mask = entries - 1;
    return nq;
}

// A queue starts with its first command.
static struct nvmf_queue *start_queue(struct spdk_nvmf_qpair *qpair)
{
    struct nvmf_group *group = qpair->ctrlr ? group_of(qpair) : NULL;
    struct nvmf_queue *nq = group ? create_queue(group, qpair) : NULL;
    if (!nq)
        return NULL;
    nq->group = group;
    nq->qpair = qpair;
    nq->ctrlr = qpair->ctrlr;
    nq->vector = qpair->qid;
    nq->endpoint = qpair->qid > 0 ? find_endpoint(qpair->ctrlr) : NULL;
    nq->is_adaptive = true; // until it interrupts from within a completion
    nq->irq_pending = false;
    nq->in_flight = 0;
    SLIST_INSERT_HEAD(&group->queues, nq, group_link);
    struct bucket *bucket = bucket_of(qpair);
    pthread_spin_lock(&bucket->lock);
    SLIST_INSERT_HEAD(&bucket->queues, nq, bucket_link);
    pthread_spin_unlock(&bucket->lock);
    return nq;
}

static void stop_queue(struct nvmf_queue *nq)
{
    uint64_t now = delivery_now();
    if (nq->irq_pending)
        interrupt(nq, now);
    set_irq_pending(nq, false);
    delivery_reset(&nq->queue.delivery, now);
    struct bucket *bucket = bucket_of(nq->qpair);
    pthread_spin_lock(&bucket->lock);
    SLIST_REMOVE(&bucket->queues, nq, nvmf_queue, bucket_link);
    pthread_spin_unlock(&bucket->lock);
    SLIST_REMOVE(&nq->group->queues, nq, nvmf_queue, group_link);
    nq->queue.is_running = false;
}

// The queue is deleted, or its controller is reset or disconnected.
static int poll_group_remove(struct spdk_nvmf_transport_poll_group *tgroup, struct spdk_nvmf_qpair *qpair)
{
    struct nvmf_queue *nq = find_queue(qpair);
    if (nq)
        stop_queue(nq);
    return g_real.poll_group_remove(tgroup, qpair);
}

// Without a reference, the device stays until its subsystem is destroyed.
struct spdk_nvmf_subsystem *__wrap_spdk_nvmf_subsystem_create(struct spdk_nvmf_tgt *tgt, const char *nqn,
                                                              enum spdk_nvmf_subtype type, uint32_t namespaces)
{
    struct spdk_nvmf_subsystem *subsystem = __real_spdk_nvmf_subsystem_create(tgt, nqn, type, namespaces);
    struct irq_device *device = subsystem && type == SPDK_NVMF_SUBTYPE_NVME ? irq_device_add(IRQ_DEVICE_NVME, nqn) : NULL;
    if (device)
        irq_device_unref(device);
    return subsystem;
}

int __wrap_spdk_nvmf_subsystem_destroy(struct spdk_nvmf_subsystem *subsystem, nvmf_subsystem_destroy_cb done, void *context)
{
    struct irq_device *device = irq_device_find(IRQ_DEVICE_NVME, spdk_nvmf_subsystem_get_nqn(subsystem));
    int rc = __real_spdk_nvmf_subsystem_destroy(subsystem, done, context);
    if (device && (rc == 0 || rc == -EINPROGRESS))
        irq_device_remove(device);
    if (device)
        irq_device_unref(device);
    return rc;
}

// Commands.

// The Connect command that the transport itself sends for each queue: no completion is posted to the guest.
static bool is_connect(const struct spdk_nvmf_request *req)
{
    return req->cmd->nvmf_cmd.opcode == SPDK_NVME_OPC_FABRIC;
}

// Passes to the delivery what is known of a command.
static void inspect(struct nvmf_queue *nq, const struct spdk_nvme_cmd *cmd, struct nvmf_command *command)
{
    struct delivery *delivery = &nq->queue.delivery;
    uint32_t unsignalled = (uint32_t)(delivery->view.held + delivery->pending.completions);
    bool is_io = nq->queue.qid > 0;
    bool is_rw = is_io && (cmd->opc == SPDK_NVME_OPC_READ || cmd->opc == SPDK_NVME_OPC_WRITE);
    coalesce_request info = {.batch_len = 1, .outstanding = nq->in_flight + unsignalled};
    if (is_io && cmd->opc == SPDK_NVME_OPC_FLUSH)
        info.flags |= COALESCE_REQUEST_FLUSH;
    if (is_rw && cmd->opc == SPDK_NVME_OPC_WRITE && (cmd->cdw12 & SPDK_NVME_IO_FLAGS_FORCE_UNIT_ACCESS))
        info.flags |= COALESCE_REQUEST_DURABLE;
    if (is_rw)
        info.hint = coalesce_policy_hint(delivery->policy, cmd->cdw12, cmd->cdw13);
    *command = (struct nvmf_command){.cid = cmd->cid, .is_used = true};
    delivery_submit(delivery, &info, &command->mark);
    delivery->pending.cif++; // it is in flight when the policy decides about completions that are pending
    if (spdk_interrupt_mode_is_enabled())
        delivery_end_submissions(delivery); // no poll will
    else
        nq->group->has_submissions = true;
}

void __wrap_spdk_nvmf_request_exec(struct spdk_nvmf_request *req)
{
    bool is_vfio_user = req->qpair->transport->ops->type == g_ours.type && !is_connect(req);
    struct nvmf_queue *nq = is_vfio_user ? find_queue(req->qpair) : NULL;
    if (is_vfio_user && !nq)
        nq = start_queue(req->qpair);
    if (nq) {
        struct nvmf_command *command = &nq->commands[req->cmd->nvme_cmd.cid & nq->commands_mask];
        nq->in_flight++;
        if (nq->queue.delivery.view.may_hold && !command->is_used)
            inspect(nq, &req->cmd->nvme_cmd, command);
    }
    __real_spdk_nvmf_request_exec(req);
}

// A command leaves the device. Returns its mark.
static coalesce_mark remove_command(struct nvmf_queue *nq, const struct spdk_nvmf_request *req)
{
    uint16_t cid = req->cmd->nvme_cmd.cid;
    struct nvmf_command *command = &nq->commands[cid & nq->commands_mask];
    bool is_known = command->is_used && command->cid == cid;
    coalesce_mark mark = is_known ? command->mark : delivery_no_mark;
    if (is_known)
        command->is_used = false;
    nq->in_flight -= nq->in_flight > 0;
    return mark;
}

// Reports the completion to the delivery. Then the transport posts it and may interrupt. With adaptive interrupts the transport
// asks anew at a later poll; an interrupt that is pending from before is dropped, as the guest may have reaped its completions.
static int req_complete(struct spdk_nvmf_request *req)
{
    struct nvmf_queue *nq = is_connect(req) ? NULL : find_queue(req->qpair);
    if (!nq)
        return g_real.req_complete(req);
    uint32_t cif = spdk_max(nq->in_flight, 1);
    coalesce_mark mark = remove_command(nq, req);
    uint32_t class_of = COALESCE_CLASS_IO;
    if (spdk_nvme_cpl_is_error(&req->rsp->nvme_cpl))
        class_of = COALESCE_CLASS_FAILED;
    else if (nq->queue.qid == 0)
        class_of = COALESCE_CLASS_ADMIN;
    delivery_complete(&nq->queue.delivery, cif, &mark, class_of);
    set_irq_pending(nq, false);
    g_completing = nq;
    int rc = g_real.req_complete(req);
    g_completing = NULL;
    return rc;
}

// A command ends without a completion.
static int req_free(struct spdk_nvmf_request *req)
{
    struct nvmf_queue *nq = find_queue(req->qpair);
    if (nq)
        remove_command(nq, req);
    return g_real.req_free(req);
}

// Called by a constructor, before main().
void __wrap_spdk_nvmf_transport_register(const struct spdk_nvmf_transport_ops *ops)
{
    if (strcasecmp(ops->name, "VFIOUSER") != 0) {
        __real_spdk_nvmf_transport_register(ops);
        return;
    }
    for (struct bucket *bucket = g_buckets; bucket < g_buckets + BUCKETS; bucket++)
        pthread_spin_init(&bucket->lock, PTHREAD_PROCESS_PRIVATE);
    g_real = g_ours = *ops;
    g_ours.poll_group_create = poll_group_create;
    g_ours.poll_group_destroy = poll_group_destroy;
    g_ours.poll_group_remove = poll_group_remove;
    g_ours.poll_group_poll = poll_group_poll;
    g_ours.req_complete = req_complete;
    g_ours.req_free = req_free;
    __real_spdk_nvmf_transport_register(&g_ours);
}

#endif
