// Targets and visits, with an SPDK that fails: messages that find no room, names without end.
#include "../target.h"

#include <spdk/thread.h>

#include <assert.h>

// Threads that take their messages when the test says so, and pollers of the first.
struct spdk_thread {
    spdk_msg_fn function;
    void *context;
    bool is_exited;
};
struct spdk_poller {
    spdk_poller_fn function;
    void *context;
};
static struct spdk_thread threads[3], *current = &threads[0];
static struct spdk_poller *poller;
static int failures; // the next so many messages find no room
static int lines, visits, ends;

struct spdk_thread *spdk_get_thread(void)
{
    return current;
}

bool spdk_thread_is_exited(struct spdk_thread *thread)
{
    return thread->is_exited;
}

int spdk_thread_send_msg(const struct spdk_thread *to, spdk_msg_fn function, void *context)
{
    struct spdk_thread *thread = (struct spdk_thread *)to;
    if (thread->is_exited || failures > 0) {
        failures -= failures > 0;
        return -ENOMEM;
    }
    assert(!thread->function);
    thread->function = function;
    thread->context = context;
    return 0;
}

struct spdk_poller *spdk_poller_register_named(spdk_poller_fn function, void *context, uint64_t period, const char *name)
{
    poller = malloc(sizeof(*poller));
    *poller = (struct spdk_poller){function, context};
    return poller;
}

struct spdk_poller *spdk_poller_register(spdk_poller_fn function, void *context, uint64_t period)
{
    return spdk_poller_register_named(function, context, period, NULL);
}

void spdk_poller_unregister(struct spdk_poller **one)
{
    assert(*one == poller);
    free(poller);
    poller = *one = NULL;
}

// Everybody does what there is to do, until nobody has anything.
static void run(void)
{
    for (bool is_busy = true; is_busy;) {
        is_busy = false;
        for (current = threads; current < threads + SPDK_COUNTOF(threads); current++)
            if (current->function) {
                spdk_msg_fn function = current->function;
                current->function = NULL;
                function(current->context);
                is_busy = true;
            }
        current = threads;
        if (poller) {
            poller->function(poller->context);
            is_busy = true;
        }
    }
}

bool spdk_interrupt_mode_is_enabled(void)
{
    return false;
}

struct spdk_interrupt *spdk_interrupt_register(int fd, spdk_interrupt_fn function, void *context, const char *name)
{
    return NULL;
}

void spdk_interrupt_unregister(struct spdk_interrupt **interrupt)
{
}

uint64_t spdk_get_ticks(void)
{
    return 0;
}

uint64_t spdk_get_ticks_hz(void)
{
    return SPDK_SEC_TO_NSEC;
}

bool delivery_init(struct delivery *line, const char *policy, uint32_t size)
{
    lines++;
    line->holds_size = size;
    return true;
}

void delivery_free(struct delivery *line)
{
    lines--;
}

void delivery_reconfigure(struct delivery *line, uint64_t now, const char *policy)
{
}

static void clear(struct line *line)
{
}

static void visit(struct line *line, void *context)
{
    assert(line->home->thread == current);
    visits++;
}

static void done(void *context)
{
    assert(current == threads);
    ends++;
}

static struct home *make_home(struct spdk_thread *thread)
{
    struct home *home = malloc(sizeof(*home));
    current = thread;
    assert(home_init(home, NULL, NULL, clear));
    current = threads;
    return home;
}

// Whatever fails, every line is visited once, and the caller hears of the end.
static void a_visit_ends_where_messages_find_no_room(void)
{
    struct home *homes[] = {make_home(&threads[1]), make_home(&threads[2])};
    struct target *target = target_add(TARGET_VHOST, "visited");
    for (int i = 0; i < 2; i++)
        assert(home_take_line(homes[i], target, 0, 16, sizeof(struct line)));
    for (int fail = 0; fail < 8; fail++) {
        visits = ends = 0;
        failures = fail;
        assert(visit_lines(target, visit, done, NULL));
        run();
        assert(visits == 2 && ends == 1);
    }
    // A thread that is gone is not waited for.
    threads[2].is_exited = true;
    visits = ends = 0;
    assert(visit_lines(NULL, visit, done, NULL));
    run();
    assert(visits == 1 && ends == 1);
    threads[2].is_exited = false;

    target_remove(target);
    target_put(target);
    for (int i = 0; i < 2; i++)
        home_free(homes[i]);
    assert(lines == 0 && !target_find(TARGET_VHOST, "visited"));
}

// Names that come and go leave nothing behind but what rests in the latest of them.
static void a_target_that_is_gone_is_freed(void)
{
    struct home *home = make_home(&threads[1]);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "nqn.%d", i);
        struct target *target = target_add(TARGET_NVME, name);
        struct line *line = home_take_line(home, target, 1, 16, sizeof(*line));
        assert(line && lines == 1);
        struct target *next = target_next(NULL);
        assert(next == target);
        assert(!target_next(next));
        line->is_running = false;
        target_remove(target);
        target_put(target);
    }
    home_free(home);
    assert(lines == 0);
}

int main(void)
{
    a_visit_ends_where_messages_find_no_room();
    a_target_that_is_gone_is_freed();
    puts("targets: all passed");
    return 0;
}
