// What the examples share, besides interrupts: a clock, eventfds, and the exit on an error.
#ifndef EXAMPLE_H
#define EXAMPLE_H
#define _GNU_SOURCE 1 // ppoll
#include <coalesce.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

static inline void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "FAILED: %s\n", what);
        exit(1);
    }
}

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// Waits for one of `count` (1 or 2) descriptors, at most until an instant. Returns whether one is readable.
static inline bool wait_until(const int *fds, nfds_t count, uint64_t instant)
{
    struct pollfd wanted[2] = {{fds[0], POLLIN, 0}, {fds[count - 1], POLLIN, 0}};
    uint64_t now = now_ns(), left = instant > now ? instant - now : 0;
    struct timespec timeout = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
    return ppoll(wanted, count, &timeout, NULL) > 0;
}

// Waits for a descriptor that must become readable: after a minute the interrupt counts as lost.
static inline void wait_for(const int *fds, nfds_t count)
{
    must(wait_until(fds, count, now_ns() + 60000000000), "an interrupt was lost");
}

static inline void signal_eventfd(int fd)
{
    must(eventfd_write(fd, 1) == 0, "eventfd_write");
}

// The number of signals since the last call.
static inline uint64_t take_eventfd(int fd)
{
    eventfd_t count;
    return eventfd_read(fd, &count) == 0 ? count : 0;
}

#endif
