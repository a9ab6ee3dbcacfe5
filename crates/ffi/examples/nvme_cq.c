// An NVMe completion queue between a device and a driver: phase tags, doorbells, and urgent commands out of order. The
// device has two vectors. At an urgent interrupt the driver reaps only urgent entries, at a normal one everything.
#include "example.h"

#define COMMANDS 20000u
#define ENTRIES 32u // of either queue
#define DEPTH 28u   // commands in flight; their identifiers are 0 to 27
#define CDW12_URGENT 0x10000u

// The memory that both sides share. The tail of the submission queue is free-running, to keep the example short.
static struct {
    uint32_t cid, cdw12;
} sq[ENTRIES];
static coalesce_reaper_entry cq[ENTRIES];
static uint32_t sq_tail, cq_head; // the doorbells
enum { NORMAL, URGENT };
static int doorbell, vectors[2]; // eventfds: a doorbell was written; an interrupt
static uint64_t interrupts[2];

static void act(coalesce_status decision)
{
    if (decision == COALESCE_HOLD)
        return;
    int vector = decision == COALESCE_DELIVER_URGENT ? URGENT : NORMAL; // an error gives a normal interrupt
    signal_eventfd(vectors[vector]);
    interrupts[vector]++;
}

static void *device(void *state)
{
    coalesce_cint_state *cint = (coalesce_cint_state *)state;
    for (uint32_t posted = 0; posted != COMMANDS;) {
        wait_until(&doorbell, 1, coalesce_cint_deadline(cint));
        take_eventfd(doorbell);
        // No unreaped entry is overwritten: when the queue is full, the rest waits for the driver's doorbell.
        while (posted != __atomic_load_n(&sq_tail, __ATOMIC_ACQUIRE) &&
               (posted + 1) % ENTRIES != __atomic_load_n(&cq_head, __ATOMIC_ACQUIRE)) {
            uint32_t index = posted % ENTRIES, phase = ~(posted / ENTRIES) & 1;
            cq[index].dword[2] = (index + 1) % ENTRIES; // the head of the submission queue
            __atomic_store_n(&cq[index].dword[3], sq[index].cid | phase << 16, __ATOMIC_SEQ_CST); // last: the phase tag
            uint32_t hint = coalesce_hint_from_cdw12(sq[index].cdw12, true);
            uint32_t cif = __atomic_load_n(&sq_tail, __ATOMIC_SEQ_CST) - posted++; // this one included
            act(coalesce_cint_on_completion(cint, now_ns(), hint, cif));
        }
        act(coalesce_cint_on_deadline(cint, now_ns())); // COALESCE_HOLD before the deadline
    }
    act(coalesce_cint_flush(cint, now_ns())); // the queue is deleted: delivers everything held
    return NULL;
}

// The driver.
static uint32_t submitted, taken;
static bool in_flight[DEPTH];

static bool is_urgent(uint32_t cid)
{
    return cid % 8 == 3;
}

static void submit(uint32_t cid)
{
    if (submitted == COMMANDS)
        return;
    in_flight[cid] = true;
    sq[submitted % ENTRIES].cid = cid;
    sq[submitted % ENTRIES].cdw12 = is_urgent(cid) ? CDW12_URGENT : 0;
    submitted++;
}

static bool take(void *vector, const coalesce_reaper_entry *entry)
{
    uint32_t cid = entry->dword[3] & 0xffff;
    must(cid < DEPTH && in_flight[cid], "an entry comes once");
    if (*(int *)vector == URGENT && !is_urgent(cid))
        return false; // left for the normal interrupt
    in_flight[cid] = false;
    taken++;
    submit(cid);
    return true;
}

static void handle_interrupt(uint64_t *reaper, int vector)
{
    uint32_t head;
    must(coalesce_reaper_reap(reaper, cq, take, &vector, &head) == COALESCE_OK, "coalesce_reaper_reap");
    if (head != COALESCE_NO_DOORBELL)
        __atomic_store_n(&cq_head, head, __ATOMIC_RELEASE);
    __atomic_store_n(&sq_tail, submitted, __ATOMIC_SEQ_CST);
    signal_eventfd(doorbell);
}

int main(void)
{
    static coalesce_cint_state cint;
    static uint64_t reaper[COALESCE_REAPER_WORDS(ENTRIES)];
    coalesce_cint_config config;
    coalesce_cint_config_optane(&config, sizeof config, 1000000000); // an urgent one interrupts alone
    config.thr = 64; // more than fit, so that the queue becomes full behind unreaped entries
    must(coalesce_cint_init(&cint, sizeof cint, &config, NULL) == COALESCE_OK, "coalesce_cint_init");
    must(coalesce_reaper_init(reaper, sizeof reaper, ENTRIES, NULL) == COALESCE_OK, "coalesce_reaper_init");
    doorbell = eventfd(0, EFD_NONBLOCK);
    vectors[NORMAL] = eventfd(0, EFD_NONBLOCK);
    vectors[URGENT] = eventfd(0, EFD_NONBLOCK);
    pthread_t thread;
    must(pthread_create(&thread, NULL, device, &cint) == 0, "pthread_create");

    for (uint32_t cid = 0; cid < DEPTH; cid++)
        submit(cid);
    handle_interrupt(reaper, NORMAL); // the queue is empty; writes the doorbell
    uint64_t seen[2] = {0, 0};
    while (taken != COMMANDS) {
        wait_for(vectors, 2);
        for (int vector = URGENT; vector >= NORMAL; vector--) {
            uint64_t count = take_eventfd(vectors[vector]);
            seen[vector] += count;
            if (count > 0)
                handle_interrupt(reaper, vector);
        }
    }
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    for (int vector = NORMAL; vector <= URGENT; vector++) {
        seen[vector] += take_eventfd(vectors[vector]);
        must(seen[vector] == interrupts[vector], "the driver saw every interrupt");
    }
    must(cq_head == COMMANDS % ENTRIES, "the head doorbell is behind the last entry");
    printf("nvme_cq: %u commands, %llu interrupts, %llu urgent ones beside them\n", COMMANDS, (unsigned long long)seen[NORMAL],
           (unsigned long long)seen[URGENT]);
    return 0;
}
