// Devices, channels and queues on SPDK's own threads, which this test polls by hand.
#include "../channel.h"

#include <spdk/env.h>
#include <spdk/thread.h>

#include <assert.h>

#define THREADS 3

static struct spdk_thread *threads[THREADS];
static struct spdk_io_channel *channels[THREADS];
static int destroyed, visited, completed;

static void poll_threads(void)
{
    for (int i = 0; i < 100; i++)
        for (int t = 0; t < THREADS; t++)
            spdk_thread_poll(threads[t], 0, 0);
}

static void destroy(struct irq_queue *queue)
{
    destroyed++;
}

static const struct irq_queue_ops ops = {.destroy = destroy};

static struct irq_queue *start(int t, struct irq_device *device, uint32_t qid, uint32_t entries)
{
    spdk_set_thread(threads[t]);
    struct irq_queue *queue = irq_queue_start(channels[t], &ops, device, qid, entries, sizeof(*queue));
    assert(queue && queue->is_running);
    spdk_set_thread(threads[0]);
    return queue;
}

static void get_channels(void)
{
    destroyed = 0;
    for (int t = 1; t < THREADS; t++) {
        spdk_set_thread(threads[t]);
        channels[t] = irq_get_io_channel();
        assert(channels[t]);
    }
    spdk_set_thread(threads[0]);
}

static void put_channels(void)
{
    for (int t = 1; t < THREADS; t++) {
        spdk_set_thread(threads[t]);
        spdk_put_io_channel(channels[t]);
    }
    poll_threads();
    spdk_set_thread(threads[0]);
}

static void visit(struct irq_queue *queue, void *ctx)
{
    struct spdk_io_channel *ch = spdk_io_channel_from_ctx(queue->channel);
    assert(spdk_io_channel_get_thread(ch) == spdk_get_thread());
    assert(ctx == &visited && completed == 0);
    visited++;
}

static void complete(void *ctx)
{
    assert(spdk_get_thread() == threads[0]);
    assert(ctx == &visited);
    completed++;
}

static int visit_queues(struct irq_device *device)
{
    visited = completed = 0;
    assert(irq_for_each_queue(device, visit, complete, &visited) == 0);
    poll_threads();
    spdk_set_thread(threads[0]);
    assert(completed == 1);
    return visited;
}

static void every_queue_of_a_device_is_visited_once_on_its_thread(void)
{
    assert(visit_queues(NULL) == 0); // no channel
    get_channels();
    struct irq_device *one = irq_device_add(IRQ_DEVICE_VHOST, "one"), *two = irq_device_add(IRQ_DEVICE_NVME, "two");
    start(1, one, 0, 16);
    start(1, one, 1, 16);
    start(2, one, 2, 16);
    start(2, two, 0, 16);
    assert(visit_queues(one) == 3 && visit_queues(two) == 1 && visit_queues(NULL) == 4);
    put_channels();
    assert(destroyed == 4 && one->refs == 1 && two->refs == 1);
    irq_device_remove(one);
    irq_device_remove(two);
    irq_device_unref(one);
    irq_device_unref(two);
    assert(!irq_device_next(NULL));
}

static void a_stopped_queue_starts_again_if_it_is_large_enough(void)
{
    get_channels();
    struct irq_device *device = irq_device_add(IRQ_DEVICE_VHOST, "device");
    struct irq_queue *queue = start(1, device, 0, 16);
    delivery_complete_plain(&queue->delivery, 5, 1);
    assert(start(1, device, 0, 16) != queue); // it runs
    queue->is_running = false;
    assert(irq_device_set_policy(device, "cint") == 0);
    assert(start(1, device, 0, 32) != queue);
    assert(start(1, device, 0, 8) == queue);
    coalesce_delivery_counts counts;
    coalesce_delivery_stats(queue->delivery.coalesce, &counts, sizeof(counts));
    assert(counts.completions == 5 && queue->delivery.view.may_hold);
    irq_device_remove(device);
    irq_device_unref(device);
    put_channels();
    assert(destroyed == 3);
}

static void queues_of_removed_devices_are_freed(void)
{
    get_channels();
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "nqn.%d", i);
        struct irq_device *device = irq_device_add(IRQ_DEVICE_NVME, name);
        struct irq_queue *queue = start(1, device, 1, 16);
        assert(destroyed == i);
        queue->is_running = false;
        irq_device_remove(device);
        irq_device_unref(device);
    }
    put_channels();
    assert(destroyed == 100);
}

static void a_removed_device_is_not_found_and_begins_anew(void)
{
    struct irq_device *device = irq_device_add(IRQ_DEVICE_NVME, "device"), *other = irq_device_add(IRQ_DEVICE_VHOST, "device");
    assert(device != other && irq_device_add(IRQ_DEVICE_NVME, "device") == device);
    assert(irq_device_set_policy(device, "vic") == 0);
    irq_device_remove(device);
    assert(!irq_device_find(IRQ_DEVICE_NVME, "device") && irq_device_is_removed(device));
    struct irq_device *first = irq_device_next(NULL);
    assert(first == other && !irq_device_next(first));
    assert(irq_device_add(IRQ_DEVICE_NVME, "device") == device);
    char *policy = irq_device_get_policy(device);
    assert(strcmp(policy, IRQ_DEFAULT_POLICY) == 0);
    free(policy);
    for (int i = 0; i < 3; i++) {
        irq_device_remove(device);
        irq_device_unref(device);
    }
    irq_device_remove(other);
    irq_device_unref(other);
    assert(!irq_device_next(NULL));
}

// Of the text forms that `coalesce-target policies` lists.
static void the_longest_times_in_ns_are_valid_with_every_clock(void)
{
    char message[512];
    const char *policies[] = {"cint:max_hold=500ms", "budget:max_hold=500ms", "auto:max_hold=500ms",
                              "cint:max_hold=500ms,storm=8"};
    assert(delivery_hz() > SPDK_SEC_TO_NSEC / 2 || delivery_hz() == spdk_get_ticks_hz());
    for (size_t i = 0; i < SPDK_COUNTOF(policies); i++)
        if (!delivery_check_policy(policies[i], message, sizeof(message)))
            fprintf(stderr, "%s\n", message), abort();
}

// As a device asks after each completion: SPDK's vfio-user transport without adaptive interrupts.
static unsigned interrupts_of_a_poll(const char *policy)
{
    struct delivery delivery;
    int rc = delivery_init(&delivery, policy, 64);
    assert(rc == 0);
    unsigned interrupts = 0;
    for (uint32_t in_flight = 16; in_flight > 8; in_flight--) {
        coalesce_mark mark = delivery_plain_mark;
        delivery_complete(&delivery, in_flight, &mark, COALESCE_CLASS_IO);
        if (delivery_should_interrupt(&delivery, delivery_now())) {
            delivery_interrupted(&delivery, delivery_now(), true);
            interrupts++;
        }
    }
    delivery_end_batch(&delivery, delivery_now());
    if ((delivery.view.held > 0 || delivery.view.is_due) && delivery_should_interrupt(&delivery, delivery_now())) {
        delivery_interrupted(&delivery, delivery_now(), true);
        interrupts++;
    }
    assert(delivery.view.held == 0);
    delivery_fini(&delivery);
    return interrupts;
}

static void what_waits_for_the_end_of_a_poll_is_not_due_before_it(void)
{
    assert(interrupts_of_a_poll("none") == 8);
    assert(interrupts_of_a_poll("batch") == 2); // the first at once
    assert(interrupts_of_a_poll("spdk_vhost") == 1);
    assert(interrupts_of_a_poll("cint:delta=0,max_hold=off,in_flight=off") == 1);
    assert(interrupts_of_a_poll("cint:delta=0,max_hold=100us,in_flight=off") == 1);
}

int main(void)
{
    struct spdk_env_opts opts = {.opts_size = sizeof(opts)};
    spdk_env_opts_init(&opts);
    opts.name = "test_channel";
    opts.core_mask = "0x1";
    opts.no_pci = opts.no_huge = true;
    opts.mem_size = 512;
    opts.iova_mode = "va";
    assert(spdk_env_init(&opts) == 0 && spdk_thread_lib_init(NULL, 0) == 0);
    for (int t = 0; t < THREADS; t++)
        assert((threads[t] = spdk_thread_create(NULL, NULL)));
    spdk_set_thread(threads[0]);
    irq_channels_init();

    what_waits_for_the_end_of_a_poll_is_not_due_before_it();
    every_queue_of_a_device_is_visited_once_on_its_thread();
    a_stopped_queue_starts_again_if_it_is_large_enough();
    queues_of_removed_devices_are_freed();
    a_removed_device_is_not_found_and_begins_anew();
    the_longest_times_in_ns_are_valid_with_every_clock();

    irq_channels_fini();
    for (int t = 0; t < THREADS; t++) {
        spdk_set_thread(threads[t]);
        spdk_thread_exit(threads[t]);
        while (!spdk_thread_is_exited(threads[t]))
            spdk_thread_poll(threads[t], 0, 0);
        spdk_thread_destroy(threads[t]);
    }
    spdk_thread_lib_fini();
    puts("channels: all passed");
    return 0;
}
