// The host submits commands, takes interrupts, reaps and checks every completion, and measures the delay of each until
// its interrupt. It runs in the interrupt handlers of the device's lines, at the lowest priority.
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>

// Keeps `depth` commands in flight, one by one or as batches. The next batch begins when the last one is complete. One
// command in four is a write.
struct requester {
    uint8_t queue, depth;
    enum { PLAIN, URGENT, LOW_LATENCY, BATCH } kind; // BATCH: the last of the batch is a Barrier
};

#define REQUESTERS 4u

struct workload {
    const char *name;
    uint32_t ios;        // the total
    uint32_t storm_rate; // the storm guard's limit, in interrupts per second; 0: no guard
    bool is_uncoalesced; // coalescing is disabled for the vector of queue 1 (Feature 09h)
    bool is_hostile;     // queue 1 belongs to hostile.c
    bool is_polled;      // every interrupt of queue 2 also reaps queue 1
    bool has_errors;     // one block in 32 is unreadable
    struct requester requesters[REQUESTERS];
};

struct result {
    uint32_t ios[3], interrupts[3]; // by queue
    uint64_t delay, delay_worst;    // from the completion to the entry of the interrupt handler, in ticks: sum, maximum
    uint64_t urgent_worst;          // the same maximum, of Urgent and failed commands only
    uint32_t measured;              // the number of measured delays
    uint32_t partial;               // interrupts that covered a Barrier without its whole batch
    uint32_t spurious;              // interrupts that covered nothing
    uint32_t lost;                  // completions that were found by the host's timeout, or never came
    uint32_t wrong;                 // completions that are unexpected, or come twice
    uint64_t ticks;                 // the duration of the run
};

// Writes every block of the flash. Call it once, before the first run.
void host_format(void);
// Enables the controller and selects the policy. The run takes place in interrupts. At its end the host disables the
// controller.
void host_begin(const struct workload *workload, uint32_t policy);
// The result of the run.
const struct result *host_result(void);

// For the trace: checks that a queue can have this many commands in flight.
void host_check_in_flight(unsigned queue, uint32_t cif);

// For the flash, whose timer the host shares: the instant of the host's timeout, and its handler.
uint64_t host_alarm(void);
void host_is_impatient(void);

#define NVME_THR 7u  // Feature 08h: 8 completions
#define NVME_TIME 1u // 100 µs

// ---- For hostile.c ----

struct sq_entry;

#define NO_REQUESTER REQUESTERS

struct host_queue {
    uint32_t sq_tail, cq_head, phase;
    uint32_t outstanding;
    bool is_deaf; // the host does not reap
};
extern struct host_queue host_queues[];

// Submits a command with its expected status and, for the admin queue, its expected result. `cid` is below 64 and free.
void host_submit(unsigned queue, unsigned cid, const struct sq_entry *entry, uint32_t status, uint32_t result);
// Submits a read or write of a block that belongs to the identifier.
void host_submit_io(unsigned queue, unsigned cid, bool is_write, uint32_t hint, unsigned requester);
// Reaps everything posted, without an interrupt.
void host_reap(unsigned queue);
// Counts a wrong behaviour of the device.
void host_complain(void);

// Runs the next step of the hostile host, if the last one is over. Called at the end of each interrupt.
void hostile_begin(void);
void hostile_step(void);
// Whether the controller must be in its fatal state now.
bool hostile_wants_fatal(void);
// Whether the hostile host has finished, so that the requesters may stop.
bool hostile_is_over(void);

#endif
