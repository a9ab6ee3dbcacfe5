// The host: it submits, takes interrupts, reaps, checks every completion, and measures how long each waited for its
// interrupt. It lives in the interrupt handlers of the device's lines, at the lowest priority.
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>

// Keeps `depth` commands in flight: each by itself, or in batches, the next one when the last is complete. One in four is a
// write.
struct requester {
    uint8_t queue, depth;
    enum { PLAIN, URGENT, LOW_LATENCY, BATCH } kind; // BATCH: the last of the batch is a Barrier
};

#define REQUESTERS 4u

struct workload {
    const char *name;
    uint32_t ios;        // altogether
    uint32_t storm_rate; // the storm guard's limit, in interrupts a second; 0: no guard
    bool is_uncoalesced; // the vector of queue 1 has its coalescing disabled (Feature 09h)
    bool is_hostile;     // queue 1 belongs to hostile.c
    bool is_polled;      // every interrupt of queue 2 reaps queue 1 as well
    bool has_errors;     // one block in 32 cannot be read
    struct requester requesters[REQUESTERS];
};

struct result {
    uint32_t ios[3], interrupts[3]; // by queue
    uint64_t delay, delay_worst;    // from the end of a command to the entry of the interrupt's handler, in ticks
    uint64_t urgent_worst;          // of Urgent and failed ones alone
    uint32_t measured;              // how many
    uint32_t partial;               // interrupts that announced a Barrier without the whole of its batch
    uint32_t spurious;              // interrupts that announced nothing
    uint32_t lost;                  // completions that waited for the host to lose its patience, or did not come
    uint32_t wrong;                 // completions that are not what was asked for, or come twice
    uint64_t ticks;                 // that it took
};

// Writes every block of the flash. Once, before the first run.
void host_format(void);
// Enables the controller and asks for the policy. The run takes place in interrupts; at its end it disables the controller.
void host_begin(const struct workload *workload, uint32_t policy);
// What came of it.
const struct result *host_result(void);

// For the trace: whether a queue can have so many commands in flight.
void host_check_in_flight(unsigned queue, uint32_t cif);

// For the flash, whose timer is the host's too: when the host stops waiting for an interrupt, and that it does.
uint64_t host_alarm(void);
void host_is_impatient(void);

#define NVME_THR 7u  // of Feature 08h: 8 completions
#define NVME_TIME 1u // 100 µs

// ---- For hostile.c ----

struct sq_entry;

#define NO_REQUESTER REQUESTERS

struct host_queue {
    uint32_t sq_tail, cq_head, phase;
    uint32_t outstanding;
    bool is_deaf; // does not reap
};
extern struct host_queue host_queues[];

// Submits a command, and expects it to end with a status and, of the admin queue, a result. `cid` is below 64, and free.
void host_submit(unsigned queue, unsigned cid, const struct sq_entry *entry, uint32_t status, uint32_t result);
// Submits a read or write of a block that belongs to the identifier.
void host_submit_io(unsigned queue, unsigned cid, bool is_write, uint32_t hint, unsigned requester);
// Takes what is there, without an interrupt.
void host_reap(unsigned queue);
// Something is not as it must be.
void host_complain(void);

// The hostile host takes its next step, if the last one is over. Called at the end of each interrupt.
void hostile_begin(void);
void hostile_step(void);
// The controller has to be in its fatal state now.
bool hostile_wants_fatal(void);
// It is at its end: requesters may stop.
bool hostile_is_over(void);

#endif
