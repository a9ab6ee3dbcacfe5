// Calls one entry point in one of its usual paths so many times: what scripts/cost.sh counts the instructions of.
#include "algorithm2.h"
#include <coalesce.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HZ 1000000000u

static vic_state vic;
static cint_state cint;
static struct algorithm2 algorithm2 = {0, 200000000, HZ, 0, 2000, 4, 1, 1, 1};

// Two instructions: what is called for nothing.
static int __attribute__((noipa)) nothing_on_completion(void *state, uint64_t now, uint32_t cif)
{
    (void)state, (void)now, (void)cif;
    return 0;
}

static int nothing(uint64_t now, uint32_t cif) { return nothing_on_completion(&vic, now, cif); }
static int in_c(uint64_t now, uint32_t cif) { return algorithm2_on_completion(&algorithm2, now, cif); }
static int in_vic(uint64_t now, uint32_t cif) { return vic_on_completion(&vic, now, cif); }
static int plain(uint64_t now, uint32_t cif) { return cint_on_completion(&cint, now, COALESCE_HINT_PLAIN, cif); }
static int urgent(uint64_t now, uint32_t cif) { return cint_on_completion(&cint, now, COALESCE_HINT_URGENT, cif); }
static int barrier(uint64_t now, uint32_t cif) { return cint_on_completion(&cint, now, COALESCE_HINT_BARRIER, cif); }

// The name of the path, what is called, and commands in flight.
static const struct path {
    const char *name;
    int (*call)(uint64_t now, uint32_t cif);
    uint32_t cif;
} paths[] = {
    {"nothing", nothing, 0},
    {"c-low", in_c, 1}, {"c-ratio", in_c, 128},
    {"vic-low", in_vic, 1}, {"vic-ratio", in_vic, 128},
    {"cint-plain", plain, 128}, {"cint-urgent", urgent, 128}, {"cint-barrier", barrier, 128},
};

int main(int count, char **arguments)
{
    vic_config v;
    vic_config_default(&v, HZ);
    cint_config c;
    cint_config_default(&c, HZ);
    c.delta_ns = 1000000, c.max_hold_ns = 1000000000, c.thr = 65535, c.in_flight = 0;
    if (count != 3 || vic_init(&vic, sizeof vic, &v, NULL) || cint_init(&cint, sizeof cint, &c, NULL))
        return 2;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const struct path *path = &paths[i];
        if (strcmp(path->name, arguments[1]) != 0)
            continue;
        // A first epoch at 100 000 completions a second, so that a ratio is in force; then none ends while it is counted.
        uint64_t now = 1;
        uint32_t end = (uint32_t)atoi(arguments[2]), held = 0;
        for (; now < 200020000; now += 10000)
            held += path->call(now, path->cif) == COALESCE_HOLD;
        for (uint32_t n = 0; n < end; n++, now += 100)
            held += path->call(now, path->cif) == COALESCE_HOLD;
        printf("%s %u\n", path->name, held);
        return 0;
    }
    return 2;
}
