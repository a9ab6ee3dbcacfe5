// A polling reactor, like SPDK's. It never sleeps, so it needs no timer: it compares the deadline in each turn.
#include "example.h"

#define PLAIN 5000u
#define DEPTH 24u
#define URGENT 100u
#define PER_TURN 4

static uint32_t submitted, posted; // free-running counts; the driver writes the first, the reactor the second
static uint32_t hint;              // the hint of all commands in flight
static bool stop;
static int call; // eventfd: an interrupt

typedef struct {
    coalesce_cint_state cint;
    uint64_t interrupts;
} poller;

static void act(poller *p, coalesce_status decision)
{
    if (decision != COALESCE_HOLD) {
        signal_eventfd(call);
        p->interrupts++;
    }
}

// One turn of the reactor: up to PER_TURN commands complete. Each is posted before the decision about it.
static void poll_device(poller *p)
{
    for (int i = 0; i < PER_TURN && posted != __atomic_load_n(&submitted, __ATOMIC_ACQUIRE); i++) {
        __atomic_store_n(&posted, posted + 1, __ATOMIC_RELEASE);
        act(p, coalesce_cint_on_completion(&p->cint, now_ns(), hint, COALESCE_CIF_UNKNOWN));
    }
    uint64_t now = now_ns(); // it never steps back: with a clock that does, also call if now is less than in the last turn
    if (now >= coalesce_cint_deadline(&p->cint)) // COALESCE_NEVER is the largest number
        act(p, coalesce_cint_on_deadline(&p->cint, now));
}

// The driver: submits `count` commands, with up to `depth` in flight. It checks for completions only when it is
// interrupted.
static uint64_t drive(uint32_t commands, uint32_t depth, uint32_t new_hint)
{
    uint64_t seen = 0;
    uint32_t taken = submitted, end = submitted + commands;
    hint = new_hint;
    while (taken != end) {
        __atomic_store_n(&submitted, end - taken > depth ? taken + depth : end, __ATOMIC_RELEASE);
        wait_for(&call, 1);
        seen += take_eventfd(call);
        taken = __atomic_load_n(&posted, __ATOMIC_ACQUIRE);
    }
    return seen;
}

static void *driver(void *seen)
{
    uint64_t urgent = drive(URGENT, 1, COALESCE_HINT_URGENT);
    must(urgent == URGENT, "each urgent command interrupts, once");
    *(uint64_t *)seen = urgent + drive(PLAIN, DEPTH, COALESCE_HINT_PLAIN);
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    return NULL;
}

int main(void)
{
    static poller p;
    coalesce_cint_config config;
    coalesce_cint_config_optane(&config, sizeof config, 1000000000); // the clock ticks in nanoseconds
    config.ooo = 0;                                                  // this driver reaps everything at every interrupt
    must(coalesce_cint_init(&p.cint, sizeof p.cint, &config, NULL) == COALESCE_OK, "coalesce_cint_init");
    call = eventfd(0, EFD_NONBLOCK);
    uint64_t seen = 0;
    pthread_t thread;
    must(pthread_create(&thread, NULL, driver, &seen) == 0, "pthread_create");

    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
        poll_device(&p);

    act(&p, coalesce_cint_flush(&p.cint, now_ns())); // the queue stops: delivers everything held
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    seen += take_eventfd(call);
    must(seen == p.interrupts, "the driver saw every interrupt");
    printf("poll_loop: %u commands, %llu interrupts\n", URGENT + PLAIN, (unsigned long long)seen);
    return 0;
}
