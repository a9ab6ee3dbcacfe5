// Strict Barriers: a batch that completes out of order gives one interrupt, when its last command has completed. A
// window in this program's memory tracks the completions.
#include "example.h"

#define BATCHES 2000u
#define BATCH 16u

static int kick, call;  // eventfds: a batch is submitted; an interrupt
static uint32_t posted; // free-running count of completions

static void *device(void *interrupts)
{
    static coalesce_cint_state cint;
    static uint64_t window[COALESCE_WINDOW_WORDS(64)]; // for 64 commands, from the oldest in flight to the newest
    coalesce_cint_config config;
    coalesce_cint_config_optane(&config, sizeof config, 1000000000);
    config.delta_ns = 0; // only Barriers end a burst: neither a time
    config.thr = 65535;  // nor a count ends it
    must(coalesce_cint_init(&cint, sizeof cint, &config, NULL) == COALESCE_OK, "coalesce_cint_init");
    must(coalesce_window_init(window, sizeof window, 64, NULL) == COALESCE_OK, "coalesce_window_init");

    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        wait_for(&kick, 1);
        take_eventfd(kick);
        uint64_t tickets[BATCH];
        for (uint32_t i = 0; i < BATCH; i++)
            tickets[i] = coalesce_window_on_submit(window); // in the order of submission
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t which = (i * 5 + batch) % BATCH; // any order
            uint32_t hint = which == BATCH - 1 ? COALESCE_HINT_BARRIER : COALESCE_HINT_PLAIN;
            __atomic_store_n(&posted, posted + 1, __ATOMIC_RELEASE);
            coalesce_status decision =
                coalesce_cint_on_completion_strict(&cint, window, now_ns(), tickets[which], hint, COALESCE_CIF_UNKNOWN);
            if (decision != COALESCE_HOLD) {
                signal_eventfd(call);
                ++*(uint64_t *)interrupts;
            }
        }
    }
    return NULL;
}

int main(void)
{
    kick = eventfd(0, EFD_NONBLOCK);
    call = eventfd(0, EFD_NONBLOCK);
    uint64_t interrupts = 0;
    pthread_t thread;
    must(pthread_create(&thread, NULL, device, &interrupts) == 0, "pthread_create");
    for (uint32_t batch = 1; batch <= BATCHES; batch++) {
        signal_eventfd(kick);
        wait_for(&call, 1);
        must(take_eventfd(call) == 1, "one interrupt for a batch");
        must(__atomic_load_n(&posted, __ATOMIC_ACQUIRE) == batch * BATCH, "the whole batch is there");
    }
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    must(interrupts == BATCHES, "one interrupt for each batch");
    printf("strict_barrier: %u commands, %llu interrupts\n", BATCHES * BATCH, (unsigned long long)interrupts);
    return 0;
}
