// Two threads of a hypervisor. Its kernel completes commands, and sends an IPI to the guest's CPU to run the VMM.
// The gate defers that IPI if the VMM ran a moment ago. The VMM decides with vIC whether the guest gets a
// virtual interrupt. Here an IPI is an eventfd, and the guest runs within its virtual interrupt.
#include "example.h"

#define COMMANDS 20000u
#define DEPTH 32u

static uint32_t submitted, completed; // free-running counts; the guest writes the first, the kernel the second
static int kick, ipi;                 // eventfds: new commands; an inter-processor interrupt
static coalesce_ipi_gate gate;        // shared by both threads, without a lock

// The kernel. If the gate defers an IPI, the kernel asks again, at the next completion or at the instant of the gate.
// Without that, nothing might tell the VMM about the completion.
static void *kernel(void *sent)
{
    uint64_t ask_again = COALESCE_NEVER;
    while (completed != COMMANDS || ask_again != COALESCE_NEVER) {
        bool is_new = completed != __atomic_load_n(&submitted, __ATOMIC_ACQUIRE);
        if (is_new)
            __atomic_store_n(&completed, completed + 1, __ATOMIC_RELEASE);
        if (!is_new && now_ns() < ask_again) {
            wait_until(&kick, 1, ask_again);
            take_eventfd(kick);
        } else if (coalesce_ipi_gate_should_send(&gate, now_ns(), &ask_again) != COALESCE_HOLD) {
            ask_again = COALESCE_NEVER;
            signal_eventfd(ipi);
            ++*(uint64_t *)sent;
        }
    }
    return NULL;
}

int main(void)
{
    static coalesce_vic_state vic;
    coalesce_vic_config config;
    coalesce_vic_config_paper(&config, sizeof config,
                              1000000000); // needs no timer: with few commands in flight each completion interrupts
    config.epoch_ns = 1000000;             // 1 ms instead of 200 ms, as this program ends soon
    must(coalesce_vic_init(&vic, sizeof vic, &config, NULL) == COALESCE_OK, "coalesce_vic_init");
    must(coalesce_ipi_gate_init(&gate, sizeof gate, COALESCE_IPI_GATE_PAPER_NS, 1000000000, NULL) == COALESCE_OK,
         "coalesce_ipi_gate_init");
    kick = eventfd(0, EFD_NONBLOCK);
    ipi = eventfd(0, EFD_NONBLOCK);
    uint64_t ipis = 0, interrupts = 0;
    submitted = DEPTH;
    pthread_t thread;
    must(pthread_create(&thread, NULL, kernel, &ipis) == 0, "pthread_create");

    // The VMM handles completions as long as there are any, then waits for an IPI.
    uint32_t looked_at = 0, taken = 0;
    while (taken != COMMANDS) {
        while (looked_at != __atomic_load_n(&completed, __ATOMIC_ACQUIRE)) {
            uint32_t cif = submitted - looked_at++; // for the VMM a command is in flight until it handles the completion
            if (coalesce_vic_on_completion(&vic, now_ns(), cif) == COALESCE_HOLD)
                continue;
            interrupts++;
            must(coalesce_ipi_gate_delivered(&gate, now_ns()) == COALESCE_OK, "coalesce_ipi_gate_delivered");
            taken = looked_at; // the guest runs: it reaps everything, and keeps DEPTH in flight
            __atomic_store_n(&submitted, COMMANDS - taken > DEPTH ? taken + DEPTH : COMMANDS, __ATOMIC_RELEASE);
            signal_eventfd(kick);
        }
        if (taken != COMMANDS) {
            wait_for(&ipi, 1);
            take_eventfd(ipi);
        }
    }
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    must(interrupts <= COMMANDS && ipis <= COMMANDS, "no more interrupts than completions");
    printf("ipi_gate: %u commands, %llu virtual interrupts, %llu IPIs\n", COMMANDS, (unsigned long long)interrupts,
           (unsigned long long)ipis);
    return 0;
}
