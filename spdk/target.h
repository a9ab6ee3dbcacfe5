// Who has a policy, and where its lines live.
//
// A *target* is what users name: a vhost controller or an NVMe subsystem. Its policy is the policy of each of its lines.
// A *home* is a place with one SPDK thread where lines live: a vhost controller, or a poll group. Lines are used on their
// home's thread alone; whoever else wants something of them sends it there.
#ifndef COALESCE_SPDK_TARGET_H
#define COALESCE_SPDK_TARGET_H

#include "delivery.h"

#include <spdk/queue.h>

struct spdk_interrupt;
struct spdk_thread;

enum target_kind { TARGET_VHOST, TARGET_NVME };

// Freed when it neither exists nor has users: lines, and whoever was given it.
struct target {
    enum target_kind kind;
    char *name;
    bool exists;
    uint32_t users; // under the lock
    char *policy;   // text form; under the lock
    SLIST_ENTRY(target) link;
};

struct line {
    struct delivery delivery;
    struct target *target;
    struct home *home;
    uint32_t queue;
    bool is_running; // a queue has it; else it keeps its statistics for the next
    SLIST_ENTRY(line) link;
};

struct home {
    struct spdk_thread *thread;
    SLIST_HEAD(, line) lines;
    // A line is due, or its deadline has passed, where nobody polls: interrupt.
    void (*wake)(struct line *line, uint64_t now);
    // Tells a line's delivery of completions that it does not know of. Null: it knows of all.
    void (*catch_up)(struct line *line);
    // Frees what a line has besides its delivery.
    void (*clear)(struct line *line);
    // In interrupt mode nobody polls: a timer for the earliest deadline.
    int timer;
    struct spdk_interrupt *timer_interrupt;
    uint64_t timer_set; // when it expires, in ticks; COALESCE_NEVER: it does not
    uint64_t id;
    uint32_t visits; // that are on their way to its thread
    bool is_gone;
    pthread_mutex_t mutex; // visits, and who uses a line from elsewhere while its thread does not
    TAILQ_ENTRY(home) link;
};

#define DEFAULT_POLICY "none"

// Whoever is given a target gives it back with target_put.
// The target of a name, new if there was none; null: no memory.
struct target *target_add(enum target_kind kind, const char *name);
// The target of a name if it exists.
struct target *target_find(enum target_kind kind, const char *name);
// It exists no more, and its policy is the default again.
void target_remove(struct target *target);
// The one after `target`, which is given back, of those that exist; the first after null.
struct target *target_next(struct target *target);
void target_put(struct target *target);
// A copy of the text form, to be freed.
char *target_policy(struct target *target);
// For the lines to come: those that there are need a visit.
bool target_set_policy(struct target *target, const char *policy);

// On its thread: a home without lines. False: no timer.
bool home_init(struct home *home, void (*wake)(struct line *line, uint64_t now), void (*catch_up)(struct line *line),
               void (*clear)(struct line *line));
// On its thread: frees it, with its lines, after the last visit.
void home_free(struct home *home);
// A line for a queue of `entries`: one that rests, or a new one of `line_size` bytes, whose first member is a struct line.
// Null: no memory.
struct line *home_take_line(struct home *home, struct target *target, uint32_t queue, uint32_t entries, size_t line_size);
// Sees to it that what `line` holds is announced at its deadline, or now if it is due, where nobody polls.
void home_watch(const struct line *line, uint64_t now);

// Calls `visit` for each line of `target`, or of all if null, on the line's thread; then `done` on the caller's, in any case.
// False: no memory, and nothing happens.
bool visit_lines(struct target *target, void (*visit)(struct line *line, void *context), void (*done)(void *context),
                 void *context);

#endif
