// A device in an event loop. It interrupts through an eventfd. Its deadline is a timerfd in the same epoll.
#include "example.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define COMMANDS 20000u
#define DEPTH 24u

static uint32_t submitted, posted; // free-running counts; the consumer writes the first, the device the second
static int kick, call;             // eventfds: new commands; an interrupt

// Only the device's thread uses these.
static coalesce_cint_state cint;
static int timer;
static uint64_t armed = COALESCE_NEVER;
static uint64_t interrupts;

// The only place that interrupts. Only COALESCE_HOLD suppresses the interrupt: an error interrupts too.
static void act(coalesce_status decision)
{
    if (decision != COALESCE_HOLD) {
        signal_eventfd(call);
        interrupts++;
    }
}

// Post first, then decide, so that the consumer finds the completion at its interrupt.
static void complete_one(void)
{
    uint32_t index = posted;
    __atomic_store_n(&posted, index + 1, __ATOMIC_SEQ_CST);
    uint32_t cif = __atomic_load_n(&submitted, __ATOMIC_SEQ_CST) - index; // this one included
    uint32_t hint = index % 100 == 99 ? COALESCE_HINT_URGENT : COALESCE_HINT_PLAIN;
    act(coalesce_cint_on_completion(&cint, now_ns(), hint, cif));
}

// A timer that fires early is harmless. So it is set only for an earlier deadline, not at every completion.
static void arm_timer(void)
{
    uint64_t deadline = coalesce_cint_deadline(&cint);
    if (deadline >= armed)
        return;
    struct itimerspec at = {{0, 0}, {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)}};
    must(timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) == 0, "timerfd_settime");
    armed = deadline;
}

static void *device(void *unused)
{
    int epoll = epoll_create1(0), fds[] = {kick, timer};
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {EPOLLIN, {0}};
        event.data.fd = fds[i];
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) == 0, "epoll_ctl");
    }
    while (posted < COMMANDS) {
        struct epoll_event event;
        eventfd_t count;
        if (epoll_wait(epoll, &event, 1, -1) != 1 || eventfd_read(event.data.fd, &count) != 0)
            continue;
        if (event.data.fd == timer) {
            armed = COALESCE_NEVER;
            act(coalesce_cint_on_deadline(&cint, now_ns()));
        }
        while (posted != __atomic_load_n(&submitted, __ATOMIC_ACQUIRE))
            complete_one();
        arm_timer();
    }
    act(coalesce_cint_flush(&cint, now_ns())); // the queue stops: delivers everything held
    return unused;
}

int main(void)
{
    coalesce_cint_config config;
    coalesce_cint_config_optane(&config, sizeof config, 1000000000); // the clock ticks in nanoseconds
    config.ooo = 0;                                                  // this consumer reaps everything at every interrupt
    coalesce_error error;
    char text[100] = "coalesce_cint_init";
    coalesce_status status = coalesce_cint_init(&cint, sizeof cint, &config, &error);
    if (status == COALESCE_E_CONFIG)
        coalesce_error_print(&error, text, sizeof text); // "thr is 0; allowed: 1 to 65535"
    must(status == COALESCE_OK, text);
    kick = eventfd(0, EFD_NONBLOCK);
    call = eventfd(0, EFD_NONBLOCK);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    pthread_t thread;
    must(pthread_create(&thread, NULL, device, NULL) == 0, "pthread_create");

    // The consumer keeps DEPTH commands in flight, and checks for completions only when it is interrupted.
    uint64_t seen = 0;
    for (uint32_t taken = 0; taken != COMMANDS; taken = __atomic_load_n(&posted, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&submitted, COMMANDS - taken > DEPTH ? taken + DEPTH : COMMANDS, __ATOMIC_SEQ_CST);
        signal_eventfd(kick);
        wait_for(&call, 1);
        seen += take_eventfd(call);
    }
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    seen += take_eventfd(call);
    must(seen == interrupts, "the consumer saw every interrupt");
    printf("eventfd_loop: %u commands, %llu interrupts\n", COMMANDS, (unsigned long long)seen);
    return 0;
}
