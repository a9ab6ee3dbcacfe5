// A target whose user chooses the policy: policy_by_text [POLICY], such as "auto", "vic:cif_threshold=2" or "dim". The
// policy can change at any time. This program uses some others afterwards, and prints the number of decisions by
// reason.
#include "example.h"

#define POLICIES 4u
#define COMMANDS 10000u // a quarter of them under each
#define DEPTH 32u

static uint32_t submitted, posted, taken; // free-running counts; the device writes the second, the guest the others
static int call;                          // eventfd: an interrupt
static uint64_t interrupts;

static void act(coalesce_status decision)
{
    if (decision != COALESCE_HOLD) {
        signal_eventfd(call);
        interrupts++;
    }
}

// Reports a request, from which the policy infers a hint. The mark is passed with the completion.
static void submit(coalesce_policy *policy, uint32_t index, uint32_t end, coalesce_mark *mark)
{
    coalesce_request request = {sizeof request, 0, 0, 0, 0, COALESCE_HINT_PLAIN, 0, 0};
    request.flags = index + 1 == end ? COALESCE_REQUEST_LAST : 0;
    request.batch_len = end - index;
    request.outstanding = index + 1 - __atomic_load_n(&taken, __ATOMIC_ACQUIRE);
    must(coalesce_policy_on_submit(policy, now_ns(), &request, mark) == COALESCE_OK, "coalesce_policy_on_submit");
}

static void complete(coalesce_policy *policy, const coalesce_mark *mark)
{
    uint32_t index = posted;
    __atomic_store_n(&posted, index + 1, __ATOMIC_SEQ_CST);
    uint32_t cif = __atomic_load_n(&submitted, __ATOMIC_SEQ_CST) - index; // this one included
    uint32_t outstanding = __atomic_load_n(&submitted, __ATOMIC_SEQ_CST) - __atomic_load_n(&taken, __ATOMIC_ACQUIRE);
    coalesce_completion completion = {sizeof completion, cif, outstanding, COALESCE_CLASS_IO, *mark, COALESCE_NEVER, 0};
    act(coalesce_policy_on_completion(policy, now_ns(), &completion));
}

static void run_device(coalesce_policy *policy, uint32_t until)
{
    coalesce_mark marks[DEPTH];
    for (uint32_t known = posted; posted != until;) {
        uint32_t end = __atomic_load_n(&submitted, __ATOMIC_ACQUIRE);
        for (end = end < until ? end : until; known != end; known++)
            submit(policy, known, end, &marks[known % DEPTH]);
        while (posted != end)
            complete(policy, &marks[posted % DEPTH]);
        if (coalesce_policy_wants_batch_end(policy))
            act(coalesce_policy_on_batch_end(policy, now_ns()));
        if (now_ns() >= coalesce_policy_deadline(policy))
            act(coalesce_policy_on_deadline(policy, now_ns()));
    }
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

static void tell(void *context, const char *reason, bool is_hold, uint64_t count)
{
    uint64_t *decisions = (uint64_t *)context;
    *decisions += count;
    if (count > 0)
        printf("    %s %s %llu\n", is_hold ? "hold" : "deliver", reason, (unsigned long long)count);
}

int main(int argc, char **argv)
{
    const char *texts[POLICIES] = {argc > 1 ? argv[1] : "auto", "cint:profile=optane,thr=100", "nvme", "none"};
    char message[200];
    coalesce_policy *policy = coalesce_policy_new(texts[0], 1000000000, message, sizeof message);
    must(policy != NULL, message); // such as "cint: thr=0 is out of range; allowed: 1 to 65535"
    call = eventfd(0, EFD_NONBLOCK);
    uint64_t seen = 0, before = 0;
    pthread_t thread;
    must(pthread_create(&thread, NULL, guest, &seen) == 0, "pthread_create");

    for (uint32_t i = 0; i < POLICIES; i++) {
        coalesce_status decision = coalesce_policy_reconfigure(policy, now_ns(), texts[i], message, sizeof message);
        must(decision != COALESCE_E_CONFIG, message);
        act(decision); // a held completion may be due under the new policy
        before = interrupts;
        run_device(policy, COMMANDS / POLICIES * (i + 1));
        printf("    %s: %llu interrupts\n", texts[i], (unsigned long long)(interrupts - before));
    }
    must(interrupts - before == COMMANDS / POLICIES, "under \"none\" each command interrupts, once");
    act(coalesce_policy_flush(policy, now_ns())); // the queue stops: delivers everything held

    must(pthread_join(thread, NULL) == 0, "pthread_join");
    seen += take_eventfd(call);
    must(seen == interrupts, "the guest saw every interrupt");
    printf("policy_by_text: %u commands, %llu interrupts\n", COMMANDS, (unsigned long long)seen);
    uint64_t decisions = 0;
    must(coalesce_policy_stats(policy, tell, &decisions) == COALESCE_OK, "coalesce_policy_stats");
    must(decisions >= COMMANDS, "every decision was counted");
    coalesce_policy_free(policy);
    return 0;
}
