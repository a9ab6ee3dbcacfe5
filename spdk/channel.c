#include "channel.h"

#include <spdk/env.h>
#include <spdk/thread.h>
#include <spdk/util.h>

#include <sys/timerfd.h>

static char g_io_device; // its address is the I/O device

static void arm_timer(struct irq_channel *channel, uint64_t deadline, uint64_t now)
{
    uint64_t ticks = deadline > now ? deadline - now : 0;
    uint64_t ns = spdk_max((uint64_t)((unsigned __int128)ticks * SPDK_SEC_TO_NSEC / delivery_hz()), 1); // 0 would disarm
    struct itimerspec at = {{0, 0}, {(time_t)(ns / SPDK_SEC_TO_NSEC), (long)(ns % SPDK_SEC_TO_NSEC)}};
    timerfd_settime(channel->timerfd, 0, &at, NULL);
    channel->timer_deadline = deadline;
}

void irq_queue_arm_timer(const struct irq_queue *queue, uint64_t now)
{
    struct irq_channel *channel = queue->channel;
    uint64_t deadline = queue->delivery.view.deadline; // long ago if an interrupt is due
    if (channel->timerfd >= 0 && deadline < channel->timer_deadline)
        arm_timer(channel, deadline, now);
}

static int timer_expired(void *ctx)
{
    struct irq_channel *channel = ctx;
    struct irq_queue *queue;
    uint64_t count, now = delivery_now();
    if (read(channel->timerfd, &count, sizeof(count)) < 0)
        return SPDK_POLLER_IDLE;
    channel->timer_deadline = COALESCE_NEVER;
    pthread_mutex_lock(&channel->mutex);
    SLIST_FOREACH(queue, &channel->queues, link) {
        if (!queue->is_running)
            continue;
        if (queue->delivery.view.deadline <= now)
            queue->ops->wake(queue, now);
        else
            irq_queue_arm_timer(queue, now);
    }
    pthread_mutex_unlock(&channel->mutex);
    return SPDK_POLLER_BUSY;
}

static int create_channel(void *io_device, void *ctx_buf)
{
    struct irq_channel *channel = ctx_buf;
    *channel = (struct irq_channel){.timerfd = -1, .timer_deadline = COALESCE_NEVER};
    if (spdk_interrupt_mode_is_enabled()) {
        channel->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (channel->timerfd < 0)
            return -errno;
        channel->timer = SPDK_INTERRUPT_REGISTER(channel->timerfd, timer_expired, channel);
        if (!channel->timer) {
            close(channel->timerfd);
            return -ENOMEM;
        }
    }
    pthread_mutex_init(&channel->mutex, NULL);
    return 0;
}

static void free_queue(struct irq_queue *queue)
{
    SLIST_REMOVE(&queue->channel->queues, queue, irq_queue, link);
    queue->ops->destroy(queue);
    delivery_fini(&queue->delivery);
    irq_device_unref(queue->device);
    free(queue);
}

static void destroy_channel(void *io_device, void *ctx_buf)
{
    struct irq_channel *channel = ctx_buf;
    spdk_interrupt_unregister(&channel->timer);
    if (channel->timerfd >= 0)
        close(channel->timerfd);
    while (!SLIST_EMPTY(&channel->queues))
        free_queue(SLIST_FIRST(&channel->queues));
    pthread_mutex_destroy(&channel->mutex);
}

void irq_channels_init(void)
{
    delivery_clock_init();
    spdk_io_device_register(&g_io_device, create_channel, destroy_channel, sizeof(struct irq_channel), "coalesce");
}

// Channels that are still there live on until they are put.
void irq_channels_fini(void)
{
    spdk_io_device_unregister(&g_io_device, NULL);
}

struct spdk_io_channel *irq_get_io_channel(void)
{
    return spdk_get_io_channel(&g_io_device);
}

static void free_queues_of_removed_devices(struct irq_channel *channel)
{
    struct irq_queue *queue, *next;
    SLIST_FOREACH_SAFE(queue, &channel->queues, link, next)
        if (!queue->is_running && irq_device_is_removed(queue->device))
            free_queue(queue);
}

static struct irq_queue *find_stopped_queue(struct irq_channel *channel, struct irq_device *device, uint32_t qid,
                                            uint32_t entries)
{
    struct irq_queue *queue;
    SLIST_FOREACH(queue, &channel->queues, link)
        if (!queue->is_running && queue->device == device && queue->qid == qid && queue->delivery.size >= entries)
            break;
    return queue;
}

static struct irq_queue *create_queue(struct irq_channel *channel, const struct irq_queue_ops *ops, struct irq_device *device,
                                      uint32_t qid, uint32_t entries, const char *policy, size_t size)
{
    struct irq_queue *queue = calloc(1, size);
    if (!queue)
        return NULL;
    if (delivery_init(&queue->delivery, policy, entries) != 0) {
        free(queue);
        return NULL;
    }
    queue->ops = ops;
    queue->device = irq_device_ref(device);
    queue->channel = channel;
    queue->qid = qid;
    SLIST_INSERT_HEAD(&channel->queues, queue, link);
    return queue;
}

struct irq_queue *irq_queue_start(struct spdk_io_channel *ch, const struct irq_queue_ops *ops, struct irq_device *device,
                                  uint32_t qid, uint32_t entries, size_t size)
{
    struct irq_channel *channel = spdk_io_channel_get_ctx(ch);
    char *policy = irq_device_get_policy(device);
    if (!policy)
        return NULL;
    pthread_mutex_lock(&channel->mutex);
    free_queues_of_removed_devices(channel);
    struct irq_queue *queue = find_stopped_queue(channel, device, qid, entries);
    if (queue)
        delivery_reconfigure(&queue->delivery, delivery_now(), policy);
    else
        queue = create_queue(channel, ops, device, qid, entries, policy, size);
    if (queue)
        queue->is_running = true;
    pthread_mutex_unlock(&channel->mutex);
    free(policy);
    return queue;
}

struct for_each_queue {
    struct irq_device *device;
    void (*fn)(struct irq_queue *queue, void *ctx);
    void (*cpl)(void *ctx);
    void *ctx;
};

static void for_each_in_channel(struct spdk_io_channel_iter *i)
{
    struct for_each_queue *each = spdk_io_channel_iter_get_ctx(i);
    struct irq_channel *channel = spdk_io_channel_get_ctx(spdk_io_channel_iter_get_channel(i));
    struct irq_queue *queue;
    pthread_mutex_lock(&channel->mutex);
    SLIST_FOREACH(queue, &channel->queues, link) {
        if (each->device && queue->device != each->device)
            continue;
        if (queue->is_running && queue->ops->sync)
            queue->ops->sync(queue);
        each->fn(queue, each->ctx);
    }
    pthread_mutex_unlock(&channel->mutex);
    spdk_for_each_channel_continue(i, 0);
}

static void for_each_done(struct spdk_io_channel_iter *i, int status)
{
    struct for_each_queue *each = spdk_io_channel_iter_get_ctx(i);
    each->cpl(each->ctx);
    free(each);
}

int irq_for_each_queue(struct irq_device *device, void (*fn)(struct irq_queue *queue, void *ctx), void (*cpl)(void *ctx),
                       void *ctx)
{
    struct for_each_queue *each = malloc(sizeof(*each));
    if (!each)
        return -ENOMEM;
    *each = (struct for_each_queue){.device = device, .fn = fn, .cpl = cpl, .ctx = ctx};
    spdk_for_each_channel(&g_io_device, for_each_in_channel, each, for_each_done);
    return 0;
}
