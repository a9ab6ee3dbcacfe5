// NVMe over vfio-user. SPDK interrupts from within the transport, by vfu_irq_trigger: either with each completion, or, with
// adaptive interrupts, at a poll that finds completions which the guest does not seem to be taking. It does not ask twice, so
// that what is held is ours to announce. We stand in the transport's table of operations, and see every command; a
// __wrap_ function stands before the function of that name, __real_. An interrupt vector has one queue, as with Linux.
#include "target.h"

#include <spdk/config.h>

#ifdef SPDK_CONFIG_VFIO_USER

#include <spdk/env.h>
#include <spdk/nvmf.h>
#include <spdk/nvmf_transport.h>
#include <spdk/string.h>
#include <spdk/thread.h>
#include <spdk/util.h>

#define ENTRIES_MAX 4096 // of a submission queue whose hints are kept; beyond, commands that share a slot are urgent

struct vfu_ctx; // of libvfio-user: an endpoint

struct command {
    uint16_t cid;
    bool is_used;
    coalesce_mark mark;
};

struct queue_line {
    struct line line;
    struct group *group;
    struct spdk_nvmf_qpair *qpair; // null: at rest
    struct spdk_nvmf_ctrlr *ctrlr;
    struct vfu_ctx *endpoint; // null: it has not interrupted yet
    uint32_t vector;
    bool is_adaptive; // SPDK asks at polls, not with each completion
    bool is_asked;    // SPDK wanted to interrupt, and was not let
    uint32_t in_flight;
    uint32_t commands_mask;
    struct command *commands;
    SLIST_ENTRY(queue_line) chain;
};

// A poll group of the transport: one thread. Never freed, so that they are found at every poll without a lock.
struct group {
    _Atomic(struct spdk_nvmf_transport_poll_group *) tgroup; // null: it may be another's
    struct home *home;
    uint32_t asked; // its lines where SPDK was not let
    struct group *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // who adds to the list, or takes from it what is nobody's
static _Atomic(struct group *) groups;

// Queues that run, by their qpair.
#define CHAINS 64
static struct chain {
    pthread_spinlock_t lock;
    SLIST_HEAD(, queue_line) lines;
} chains[CHAINS];

static struct spdk_nvmf_transport_ops real, ours;

// What the thread is in the middle of.
static __thread struct queue_line *completing;
static __thread struct group *polling;

void __real_spdk_nvmf_transport_register(const struct spdk_nvmf_transport_ops *ops);
void __wrap_spdk_nvmf_transport_register(const struct spdk_nvmf_transport_ops *ops);
void __real_spdk_nvmf_request_exec(struct spdk_nvmf_request *req);
void __wrap_spdk_nvmf_request_exec(struct spdk_nvmf_request *req);
int __real_spdk_nvmf_subsystem_destroy(struct spdk_nvmf_subsystem *subsystem, nvmf_subsystem_destroy_cb done, void *context);
int __wrap_spdk_nvmf_subsystem_destroy(struct spdk_nvmf_subsystem *subsystem, nvmf_subsystem_destroy_cb done, void *context);
int __real_vfu_irq_trigger(struct vfu_ctx *endpoint, uint32_t vector);
int __wrap_vfu_irq_trigger(struct vfu_ctx *endpoint, uint32_t vector);

static struct chain *chain_of(const struct spdk_nvmf_qpair *qpair)
{
    return &chains[((uintptr_t)qpair >> 7) * 2654435761u % CHAINS];
}

static struct queue_line *find_line(const struct spdk_nvmf_qpair *qpair)
{
    struct chain *chain = chain_of(qpair);
    struct queue_line *queue;
    pthread_spin_lock(&chain->lock);
    SLIST_FOREACH(queue, &chain->lines, chain)
        if (queue->qpair == qpair)
            break;
    pthread_spin_unlock(&chain->lock);
    return queue;
}

static struct group *find_group(const struct spdk_nvmf_transport_poll_group *tgroup)
{
    struct group *group = groups;
    while (group && group->tgroup != tgroup)
        group = group->next;
    return group;
}

static struct group *group_of(const struct spdk_nvmf_qpair *qpair)
{
    struct spdk_nvmf_transport_poll_group *tgroup;
    TAILQ_FOREACH(tgroup, &qpair->group->tgroups, link)
        if (tgroup->transport == qpair->transport)
            return find_group(tgroup);
    return NULL;
}

// Interrupts.

static void set_asked(struct queue_line *queue, bool is_asked)
{
    queue->group->asked += is_asked - queue->is_asked;
    queue->is_asked = is_asked;
}

// What fails, as the guest has given the vector no eventfd, is still to be done.
static int interrupt(struct queue_line *queue, uint64_t now)
{
    int rc = __real_vfu_irq_trigger(queue->endpoint, queue->vector);
    if (rc == 0) {
        set_asked(queue, false);
        delivery_told(&queue->line.delivery, now, true);
    }
    return rc;
}

// SPDK wants to interrupt. What the policy holds is ours to announce: SPDK takes it for done.
static int decide(struct queue_line *queue)
{
    uint64_t now = spdk_get_ticks();
    if (spdk_interrupt_mode_is_enabled()) // there may be no poll soon
        delivery_end_batch(&queue->line.delivery, now);
    if (delivery_may_interrupt(&queue->line.delivery, now))
        return interrupt(queue, now);
    set_asked(queue, true);
    home_watch(&queue->line, now);
    return 0;
}

int __wrap_vfu_irq_trigger(struct vfu_ctx *endpoint, uint32_t vector)
{
    if (completing) {
        completing->endpoint = endpoint;
        completing->vector = vector;
        completing->is_adaptive = false;
        return decide(completing);
    }
    struct line *line;
    if (polling)
        SLIST_FOREACH(line, &polling->home->lines, link) {
            struct queue_line *queue = (struct queue_line *)line;
            if (!line->is_running || line->queue != vector || queue->endpoint != endpoint)
                continue;
            // Else the transport has refused a command by itself, and the policy knows nothing of that.
            return queue->is_adaptive ? decide(queue) : interrupt(queue, spdk_get_ticks());
        }
    return __real_vfu_irq_trigger(endpoint, vector);
}

// A deadline has passed, or the policy has decided otherwise.
static void wake(struct line *line, uint64_t now)
{
    struct queue_line *queue = (struct queue_line *)line;
    if (queue->is_asked && delivery_may_interrupt(&line->delivery, now))
        interrupt(queue, now);
}

static int poll_group_poll(struct spdk_nvmf_transport_poll_group *tgroup)
{
    struct group *group = polling = find_group(tgroup);
    int rc = real.poll_group_poll(tgroup);
    polling = NULL;
    if (group && group->asked > 0) {
        uint64_t now = spdk_get_ticks();
        struct line *line;
        SLIST_FOREACH(line, &group->home->lines, link) {
            if (!line->is_running || !((struct queue_line *)line)->is_asked)
                continue;
            delivery_end_batch(&line->delivery, now);
            wake(line, now);
        }
    }
    return rc;
}

// Groups and queues.

static void clear(struct line *line)
{
    free(((struct queue_line *)line)->commands);
}

static struct spdk_nvmf_transport_poll_group *poll_group_create(struct spdk_nvmf_transport *transport,
                                                                struct spdk_nvmf_poll_group *poll_group)
{
    struct spdk_nvmf_transport_poll_group *tgroup = real.poll_group_create(transport, poll_group);
    struct home *home = tgroup ? malloc(sizeof(*home)) : NULL;
    if (!home || !home_init(home, wake, NULL, clear)) {
        free(home);
        return tgroup;
    }
    pthread_mutex_lock(&mutex);
    struct group *group = find_group(NULL);
    if (!group && (group = calloc(1, sizeof(*group)))) {
        group->next = groups;
        groups = group;
    }
    if (group) {
        group->home = home;
        group->asked = 0;
        group->tgroup = tgroup;
    }
    pthread_mutex_unlock(&mutex);
    if (!group)
        home_free(home);
    return tgroup;
}

static void poll_group_destroy(struct spdk_nvmf_transport_poll_group *tgroup)
{
    struct group *group = find_group(tgroup);
    if (group) {
        home_free(group->home);
        group->tgroup = NULL;
    }
    real.poll_group_destroy(tgroup);
}

// With adaptive interrupts only the admin queue interrupts from within a completion, and tells which endpoint it is.
static struct vfu_ctx *find_endpoint(const struct spdk_nvmf_ctrlr *ctrlr)
{
    struct vfu_ctx *found = NULL;
    for (struct chain *chain = chains; chain < chains + CHAINS; chain++) {
        struct queue_line *queue;
        pthread_spin_lock(&chain->lock);
        SLIST_FOREACH(queue, &chain->lines, chain)
            if (queue->ctrlr == ctrlr && queue->line.queue == 0)
                found = queue->endpoint;
        pthread_spin_unlock(&chain->lock);
    }
    return found;
}

// A queue starts with its first command.
static struct queue_line *start(struct spdk_nvmf_qpair *qpair)
{
    struct group *group = qpair->ctrlr ? group_of(qpair) : NULL;
    if (!group)
        return NULL;
    struct spdk_nvmf_subsystem *subsystem = spdk_nvmf_ctrlr_get_subsystem(qpair->ctrlr);
    struct target *target = subsystem ? target_add(TARGET_NVME, spdk_nvmf_subsystem_get_nqn(subsystem)) : NULL;
    if (!target)
        return NULL;
    uint32_t entries = spdk_align32pow2(spdk_min((uint32_t)qpair->sq_head_max + 1, ENTRIES_MAX));
    struct queue_line *queue = (struct queue_line *)home_take_line(group->home, target, qpair->qid, entries, sizeof(*queue));
    target_put(target);
    if (!queue)
        return NULL;
    free(queue->commands);
    queue->commands = calloc(entries, sizeof(*queue->commands));
    if (!queue->commands) {
        queue->line.is_running = false;
        return NULL;
    }
    queue->commands_mask = entries - 1;
    queue->group = group;
    queue->qpair = qpair;
    queue->ctrlr = qpair->ctrlr;
    queue->vector = qpair->qid;
    queue->endpoint = qpair->qid > 0 ? find_endpoint(qpair->ctrlr) : NULL;
    queue->is_adaptive = true; // until it turns out that it is not
    queue->is_asked = false;
    queue->in_flight = 0;
    struct chain *chain = chain_of(qpair);
    pthread_spin_lock(&chain->lock);
    SLIST_INSERT_HEAD(&chain->lines, queue, chain);
    pthread_spin_unlock(&chain->lock);
    return queue;
}

// Deletion, reset, disconnection: the queue leaves its group, and what it held is announced.
static int poll_group_remove(struct spdk_nvmf_transport_poll_group *tgroup, struct spdk_nvmf_qpair *qpair)
{
    struct queue_line *queue = find_line(qpair);
    if (queue) {
        uint64_t now = spdk_get_ticks();
        if (queue->is_asked)
            interrupt(queue, now);
        set_asked(queue, false);
        delivery_reset(&queue->line.delivery, now);
        struct chain *chain = chain_of(qpair);
        pthread_spin_lock(&chain->lock);
        SLIST_REMOVE(&chain->lines, queue, queue_line, chain);
        pthread_spin_unlock(&chain->lock);
        queue->qpair = NULL;
        queue->line.is_running = false;
    }
    return real.poll_group_remove(tgroup, qpair);
}

int __wrap_spdk_nvmf_subsystem_destroy(struct spdk_nvmf_subsystem *subsystem, nvmf_subsystem_destroy_cb done, void *context)
{
    struct target *target = target_find(TARGET_NVME, spdk_nvmf_subsystem_get_nqn(subsystem));
    int rc = __real_spdk_nvmf_subsystem_destroy(subsystem, done, context);
    if (target && (rc == 0 || rc == -EINPROGRESS))
        target_remove(target);
    if (target)
        target_put(target);
    return rc;
}

// Commands.

// The transport's own command, for each queue: nobody is interrupted.
static bool is_connect(const struct spdk_nvmf_request *req)
{
    return req->cmd->nvmf_cmd.opcode == SPDK_NVME_OPC_FABRIC;
}

// What the policy may want to know of a command.
static void look_at(struct queue_line *queue, const struct spdk_nvme_cmd *cmd, struct command *command)
{
    struct delivery *delivery = &queue->line.delivery;
    bool is_io = queue->line.queue > 0;
    bool is_rw = is_io && (cmd->opc == SPDK_NVME_OPC_READ || cmd->opc == SPDK_NVME_OPC_WRITE);
    coalesce_request clues = {.batch_len = 1, .outstanding = queue->in_flight + (uint32_t)delivery->held + delivery->together};
    if (is_io && cmd->opc == SPDK_NVME_OPC_FLUSH)
        clues.flags |= COALESCE_REQUEST_FLUSH;
    if (is_rw && cmd->opc == SPDK_NVME_OPC_WRITE && (cmd->cdw12 & SPDK_NVME_IO_FLAGS_FORCE_UNIT_ACCESS))
        clues.flags |= COALESCE_REQUEST_DURABLE;
    if (is_rw) {
        clues.hint = cint_hint_from_cdw12(cmd->cdw12, true);
        if (clues.hint == COALESCE_HINT_PLAIN)
            clues.hint = cint_hint_from_access_latency(cmd->cdw13);
    }
    *command = (struct command){.cid = cmd->cid, .is_used = true};
    delivery_submit(delivery, &clues, &command->mark);
}

void __wrap_spdk_nvmf_request_exec(struct spdk_nvmf_request *req)
{
    bool is_ours = req->qpair->transport->ops->type == ours.type && !is_connect(req);
    struct queue_line *queue = is_ours ? find_line(req->qpair) : NULL;
    if (is_ours && !queue)
        queue = start(req->qpair);
    if (queue) {
        struct command *command = &queue->commands[req->cmd->nvme_cmd.cid & queue->commands_mask];
        queue->in_flight++;
        if (queue->line.delivery.may_hold && !command->is_used)
            look_at(queue, &req->cmd->nvme_cmd, command);
    }
    __real_spdk_nvmf_request_exec(req);
}

// A command leaves: its mark.
static coalesce_mark take_back(struct queue_line *queue, const struct spdk_nvmf_request *req)
{
    uint16_t cid = req->cmd->nvme_cmd.cid;
    struct command *command = &queue->commands[cid & queue->commands_mask];
    bool is_known = command->is_used && command->cid == cid;
    coalesce_mark mark = is_known ? command->mark : delivery_unknown_mark;
    if (is_known)
        command->is_used = false;
    queue->in_flight -= queue->in_flight > 0;
    return mark;
}

// The policy learns of it; then the transport posts the completion and, in the middle of that, may ask to interrupt. With adaptive
// interrupts it asks at a later poll, as there is something new: so what it asked before is not ours to announce any more,
// and the guest may have taken it.
static int req_complete(struct spdk_nvmf_request *req)
{
    struct queue_line *queue = is_connect(req) ? NULL : find_line(req->qpair);
    if (!queue)
        return real.req_complete(req);
    uint32_t cif = spdk_max(queue->in_flight, 1);
    coalesce_mark mark = take_back(queue, req);
    uint32_t class_of = spdk_nvme_cpl_is_error(&req->rsp->nvme_cpl) ? COALESCE_CLASS_FAILED
                        : queue->line.queue == 0                    ? COALESCE_CLASS_ADMIN
                                                                    : COALESCE_CLASS_IO;
    delivery_complete(&queue->line.delivery, cif, &mark, class_of);
    set_asked(queue, false);
    completing = queue;
    int rc = real.req_complete(req);
    completing = NULL;
    return rc;
}

// A command ends without a completion.
static int req_free(struct spdk_nvmf_request *req)
{
    struct queue_line *queue = find_line(req->qpair);
    if (queue)
        take_back(queue, req);
    return real.req_free(req);
}

// Before main.
void __wrap_spdk_nvmf_transport_register(const struct spdk_nvmf_transport_ops *ops)
{
    if (strcasecmp(ops->name, "VFIOUSER") != 0) {
        __real_spdk_nvmf_transport_register(ops);
        return;
    }
    for (struct chain *chain = chains; chain < chains + CHAINS; chain++)
        pthread_spin_init(&chain->lock, PTHREAD_PROCESS_PRIVATE);
    real = ours = *ops;
    ours.poll_group_create = poll_group_create;
    ours.poll_group_destroy = poll_group_destroy;
    ours.poll_group_remove = poll_group_remove;
    ours.poll_group_poll = poll_group_poll;
    ours.req_complete = req_complete;
    ours.req_free = req_free;
    __real_spdk_nvmf_transport_register(&ours);
}

#endif
