// A device that posts and interrupts by itself, as SPDK's targets do: own_interrupts [POLICY]. It asks at each poll whether an
// interrupt is due; sometimes it cannot send one. While the policy holds nothing, it interrupts without asking, and reports later.
#include "example.h"

#define COMMANDS 20000u
#define DEPTH 32u
#define FOUND 7u   // commands that are done at a poll, at most
#define REPORT 64u // interrupts without asking, after which the library hears of them

static uint32_t submitted, posted, taken; // free-running counts; the device writes the second, the guest the others
static int call;                          // eventfd: an interrupt

typedef struct {
    coalesce_delivery *delivery;
    coalesce_delivery_view view;
    coalesce_bypassed bypassed; // not reported
    uint64_t polls;
} device;

// Whether the device can interrupt now: another thread may use the line.
static bool try_interrupt(const device *d)
{
    if (d->polls % 5 == 0)
        return false;
    signal_eventfd(call);
    return true;
}

static void look(device *d)
{
    must(coalesce_delivery_look(d->delivery, &d->view, sizeof d->view) == COALESCE_OK, "coalesce_delivery_look");
}

// Before any other report: reported later, these interrupts could be taken to cover what completed after them.
static void report_bypassed(device *d)
{
    if (d->bypassed.interrupts == 0 && d->bypassed.completions == 0)
        return;
    must(coalesce_delivery_bypassed(d->delivery, now_ns(), &d->bypassed) == COALESCE_OK, "coalesce_delivery_bypassed");
    d->bypassed.interrupts = d->bypassed.outstanding = 0;
    d->bypassed.completions = 0;
    look(d);
}

static void interrupt(device *d)
{
    uint32_t outcome = try_interrupt(d) ? COALESCE_INTERRUPT_SENT : COALESCE_INTERRUPT_FAILED;
    report_bypassed(d);
    must(coalesce_delivery_interrupted(d->delivery, now_ns(), outcome) == COALESCE_OK, "coalesce_delivery_interrupted");
    look(d);
}

// Posts what was submitted, and says so at once: `count` plain commands.
static void complete(device *d, uint32_t count)
{
    __atomic_store_n(&posted, posted + count, __ATOMIC_SEQ_CST);
    uint32_t left = __atomic_load_n(&submitted, __ATOMIC_SEQ_CST) - posted;
    uint32_t outstanding = count + left;
    if (!d->view.may_hold && d->view.held == 0 && !d->view.is_due) {
        d->bypassed.completions += count;
        d->bypassed.outstanding = outstanding > d->bypassed.outstanding ? outstanding : d->bypassed.outstanding;
        if (try_interrupt(d))
            d->bypassed.interrupts++;
        else
            interrupt(d); // it has failed
        if (d->bypassed.interrupts >= REPORT)
            report_bypassed(d);
        return;
    }
    report_bypassed(d);
    coalesce_completion last = {sizeof last,        left + 1,       outstanding, COALESCE_CLASS_IO,
                                COALESCE_MARK_NONE, COALESCE_NEVER, count - 1};
    coalesce_status due = coalesce_delivery_on_completion(d->delivery, now_ns(), &last);
    if (due == COALESCE_HOLD) // what was found in this poll was found together
        due = coalesce_delivery_on_batch_end(d->delivery, now_ns());
    look(d);
    must((due != COALESCE_HOLD) == d->view.is_due, "the answer is what is due");
}

static void poll_device(device *d)
{
    d->polls++;
    uint32_t count = __atomic_load_n(&submitted, __ATOMIC_ACQUIRE) - posted;
    if (count > 0)
        complete(d, count < FOUND ? count : FOUND);
    uint64_t now = now_ns();
    if (now >= d->view.deadline && coalesce_delivery_on_deadline(d->delivery, now) != COALESCE_HOLD)
        interrupt(d);
    look(d);
}

static void *guest(void *seen)
{
    while (taken != COMMANDS) {
        __atomic_store_n(&submitted, COMMANDS - taken > DEPTH ? taken + DEPTH : COMMANDS, __ATOMIC_SEQ_CST);
        wait_for(&call, 1);
        *(uint64_t *)seen += take_eventfd(call);
        __atomic_store_n(&taken, __atomic_load_n(&posted, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    }
    return NULL;
}

static uint64_t run(const char *policy)
{
    char message[200];
    device d = {NULL, {0, 0, false, false, false, false, false}, {sizeof(coalesce_bypassed), 0, 0, 0, 0}, 0};
    d.delivery = coalesce_delivery_new(policy, 1000000000, message, sizeof message);
    must(d.delivery != NULL, message);
    look(&d);
    submitted = posted = taken = 0;
    uint64_t seen = 0;
    pthread_t thread;
    must(pthread_create(&thread, NULL, guest, &seen) == 0, "pthread_create");
    while (__atomic_load_n(&taken, __ATOMIC_ACQUIRE) != COMMANDS)
        poll_device(&d);
    must(pthread_join(thread, NULL) == 0, "pthread_join");
    seen += take_eventfd(call);

    report_bypassed(&d);
    coalesce_delivery_counts counts;
    must(coalesce_delivery_stats(d.delivery, &counts, sizeof counts) == COALESCE_OK, "coalesce_delivery_stats");
    must(counts.completions == COMMANDS, "every completion was counted");
    must(counts.interrupts == seen, "the guest saw every interrupt");
    printf("    %s: %llu interrupts, half of what was held for %llu ns at most\n", policy, (unsigned long long)seen,
           (unsigned long long)coalesce_delivery_hold_ns(d.delivery, 500000));
    coalesce_delivery_free(d.delivery);
    return seen;
}

int main(int argc, char **argv)
{
    const char *policies[] = {argc > 1 ? argv[1] : "auto", "cint:profile=optane,thr=8", "vic", "batch", "none"};
    call = eventfd(0, EFD_NONBLOCK);
    uint64_t interrupts = 0;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        interrupts += run(policies[i]);
    printf("own_interrupts: %u commands, %llu interrupts\n", COMMANDS, (unsigned long long)interrupts);
    return 0;
}
