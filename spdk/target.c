#include "target.h"

#include <spdk/env.h>
#include <spdk/string.h>
#include <spdk/thread.h>
#include <spdk/util.h>

#include <sys/timerfd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // the lists, and policies' texts
static SLIST_HEAD(, target) targets = SLIST_HEAD_INITIALIZER(targets);
static TAILQ_HEAD(, home) homes = TAILQ_HEAD_INITIALIZER(homes);

static struct target *look_up(enum target_kind kind, const char *name)
{
    struct target *target;
    SLIST_FOREACH(target, &targets, link)
        if (target->kind == kind && strcmp(target->name, name) == 0)
            return target;
    return NULL;
}

struct target *target_add(enum target_kind kind, const char *name)
{
    pthread_mutex_lock(&mutex);
    struct target *target = look_up(kind, name);
    if (!target && (target = calloc(1, sizeof(*target)))) {
        *target = (struct target){.kind = kind, .name = strdup(name), .policy = strdup(DEFAULT_POLICY)};
        if (target->name && target->policy) {
            SLIST_INSERT_HEAD(&targets, target, link);
        } else {
            free(target->name);
            free(target->policy);
            free(target);
            target = NULL;
        }
    }
    if (target) {
        target->exists = true;
        target->users++;
    }
    pthread_mutex_unlock(&mutex);
    return target;
}

struct target *target_find(enum target_kind kind, const char *name)
{
    pthread_mutex_lock(&mutex);
    struct target *target = look_up(kind, name);
    if (target && !target->exists)
        target = NULL;
    if (target)
        target->users++;
    pthread_mutex_unlock(&mutex);
    return target;
}

// Under the lock.
static void give_back(struct target *target)
{
    if (--target->users > 0 || target->exists)
        return;
    SLIST_REMOVE(&targets, target, target, link);
    free(target->name);
    free(target->policy);
    free(target);
}

void target_put(struct target *target)
{
    pthread_mutex_lock(&mutex);
    give_back(target);
    pthread_mutex_unlock(&mutex);
}

void target_remove(struct target *target)
{
    target_set_policy(target, DEFAULT_POLICY);
    pthread_mutex_lock(&mutex);
    target->exists = false;
    pthread_mutex_unlock(&mutex);
}

struct target *target_next(struct target *target)
{
    pthread_mutex_lock(&mutex);
    struct target *next = target ? SLIST_NEXT(target, link) : SLIST_FIRST(&targets);
    while (next && !next->exists)
        next = SLIST_NEXT(next, link);
    if (next)
        next->users++;
    if (target)
        give_back(target);
    pthread_mutex_unlock(&mutex);
    return next;
}

char *target_policy(struct target *target)
{
    pthread_mutex_lock(&mutex);
    char *policy = strdup(target->policy);
    pthread_mutex_unlock(&mutex);
    return policy;
}

bool target_set_policy(struct target *target, const char *policy)
{
    char *copy = strdup(policy);
    if (!copy)
        return false;
    pthread_mutex_lock(&mutex);
    char *old = target->policy;
    target->policy = copy;
    pthread_mutex_unlock(&mutex);
    free(old);
    return true;
}

static void set_timer(struct home *home, uint64_t deadline, uint64_t now)
{
    uint64_t ticks = deadline > now ? deadline - now : 0;
    uint64_t ns = spdk_max((uint64_t)((unsigned __int128)ticks * SPDK_SEC_TO_NSEC / spdk_get_ticks_hz()), 1);
    struct itimerspec at = {{0, 0}, {(time_t)(ns / SPDK_SEC_TO_NSEC), (long)(ns % SPDK_SEC_TO_NSEC)}};
    timerfd_settime(home->timer, 0, &at, NULL);
    home->timer_set = deadline;
}

static int on_timer(void *context)
{
    struct home *home = context;
    uint64_t count, now = spdk_get_ticks();
    if (read(home->timer, &count, sizeof(count)) < 0)
        return SPDK_POLLER_IDLE;
    home->timer_set = COALESCE_NEVER;
    struct line *line;
    pthread_mutex_lock(&home->mutex);
    SLIST_FOREACH(line, &home->lines, link) {
        if (!line->is_running)
            continue;
        if (line->delivery.is_due || line->delivery.deadline <= now)
            home->wake(line, now);
        else
            home_watch(line, now);
    }
    pthread_mutex_unlock(&home->mutex);
    return SPDK_POLLER_BUSY;
}

bool home_init(struct home *home, void (*wake)(struct line *line, uint64_t now), void (*catch_up)(struct line *line),
               void (*clear)(struct line *line))
{
    static uint64_t ids;
    *home = (struct home){
        .thread = spdk_get_thread(),
        .wake = wake,
        .catch_up = catch_up,
        .clear = clear,
        .timer = -1,
        .timer_set = COALESCE_NEVER,
    };
    if (spdk_interrupt_mode_is_enabled()) {
        home->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (home->timer < 0)
            return false;
        home->timer_interrupt = SPDK_INTERRUPT_REGISTER(home->timer, on_timer, home);
        if (!home->timer_interrupt) {
            close(home->timer);
            return false;
        }
    }
    pthread_mutex_init(&home->mutex, NULL);
    pthread_mutex_lock(&mutex);
    home->id = ++ids;
    TAILQ_INSERT_TAIL(&homes, home, link);
    pthread_mutex_unlock(&mutex);
    return true;
}

// Under the lock.
static void free_line(struct line *line)
{
    SLIST_REMOVE(&line->home->lines, line, line, link);
    line->home->clear(line);
    delivery_free(&line->delivery);
    give_back(line->target);
    free(line);
}

static void free_unvisited(struct home *home)
{
    if (!home->is_gone || home->visits > 0)
        return;
    while (!SLIST_EMPTY(&home->lines))
        free_line(SLIST_FIRST(&home->lines));
    pthread_mutex_destroy(&home->mutex);
    free(home);
}

void home_free(struct home *home)
{
    spdk_interrupt_unregister(&home->timer_interrupt);
    if (home->timer >= 0)
        close(home->timer);
    pthread_mutex_lock(&mutex);
    TAILQ_REMOVE(&homes, home, link);
    home->is_gone = true;
    free_unvisited(home);
    pthread_mutex_unlock(&mutex);
}

// Frees the lines that rest and whose target is gone. Under the home's lock.
static void free_forsaken(struct home *home)
{
    struct line *line, *next;
    pthread_mutex_lock(&mutex);
    SLIST_FOREACH_SAFE(line, &home->lines, link, next)
        if (!line->is_running && !line->target->exists)
            free_line(line);
    pthread_mutex_unlock(&mutex);
}

struct line *home_take_line(struct home *home, struct target *target, uint32_t queue, uint32_t entries, size_t line_size)
{
    char *policy = target_policy(target);
    if (!policy)
        return NULL;
    struct line *line, *taken = NULL;
    pthread_mutex_lock(&home->mutex);
    SLIST_FOREACH(line, &home->lines, link)
        if (!line->is_running && line->target == target && line->queue == queue && line->delivery.holds_size >= entries)
            taken = line;
    if (taken) {
        delivery_reconfigure(&taken->delivery, spdk_get_ticks(), policy);
    } else if ((taken = calloc(1, line_size))) {
        taken->target = target;
        taken->home = home;
        taken->queue = queue;
        if (delivery_init(&taken->delivery, policy, entries)) {
            free_forsaken(home);
            pthread_mutex_lock(&mutex);
            target->users++;
            pthread_mutex_unlock(&mutex);
            SLIST_INSERT_HEAD(&home->lines, taken, link);
        } else {
            free(taken);
            taken = NULL;
        }
    }
    if (taken)
        taken->is_running = true;
    pthread_mutex_unlock(&home->mutex);
    free(policy);
    return taken;
}

void home_watch(const struct line *line, uint64_t now)
{
    struct home *home = line->home;
    uint64_t deadline = line->delivery.is_due ? now : line->delivery.deadline;
    if (home->timer >= 0 && deadline < home->timer_set)
        set_timer(home, deadline, now);
}

// Messages can fail, where there is no room for them. So none is needed for the way back: a poller on the caller's thread sees
// that a visit is over, and sends the next, again and again if it must.
struct tour {
    struct target *target;
    void (*visit)(struct line *line, void *context);
    void (*done)(void *context);
    void *context;
    struct spdk_poller *poller;
    struct home *home;
    uint64_t last;        // id of the home that was visited last
    _Atomic bool is_away; // a visit has not ended
};

static void end_visit(struct home *home)
{
    pthread_mutex_lock(&mutex);
    home->visits--;
    free_unvisited(home);
    pthread_mutex_unlock(&mutex);
}

static void arrive(void *context)
{
    struct tour *tour = context;
    struct home *home = tour->home;
    if (!home->is_gone) {
        struct line *line;
        pthread_mutex_lock(&home->mutex);
        SLIST_FOREACH(line, &home->lines, link)
            if (!tour->target || line->target == tour->target) {
                if (home->catch_up && line->is_running)
                    home->catch_up(line);
                tour->visit(line, tour->context);
            }
        pthread_mutex_unlock(&home->mutex);
    }
    end_visit(home);
    tour->is_away = false;
}

static int go_on(void *context)
{
    struct tour *tour = context;
    struct home *home;
    if (tour->is_away)
        return SPDK_POLLER_IDLE;
    pthread_mutex_lock(&mutex); // a home in the list has a thread
    TAILQ_FOREACH(home, &homes, link)
        if (home->id > tour->last && !spdk_thread_is_exited(home->thread))
            break;
    if (home) {
        tour->home = home;
        tour->is_away = true; // before it may arrive
        if (spdk_thread_send_msg(home->thread, arrive, tour) == 0) {
            tour->last = home->id;
            home->visits++;
        } else {
            tour->is_away = false;
        }
    }
    pthread_mutex_unlock(&mutex);
    if (!home) {
        spdk_poller_unregister(&tour->poller);
        tour->done(tour->context);
        free(tour);
    }
    return SPDK_POLLER_BUSY;
}

bool visit_lines(struct target *target, void (*visit)(struct line *line, void *context), void (*done)(void *context),
                 void *context)
{
    struct tour *tour = calloc(1, sizeof(*tour));
    if (!tour)
        return false;
    tour->target = target;
    tour->visit = visit;
    tour->done = done;
    tour->context = context;
    tour->poller = SPDK_POLLER_REGISTER(go_on, tour, 0);
    if (!tour->poller) {
        free(tour);
        return false;
    }
    return true;
}
