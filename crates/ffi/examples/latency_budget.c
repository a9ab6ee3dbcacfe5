// A device that spends a latency budget: see `coalesce_budget_config`.
// Flash, clock and host are simulated, so every run is the same. The host keeps an account of its own, and checks the
// promise. It needs nothing but a C library, so it runs on bare metal, too.
#include <coalesce.h>
#include <stdio.h>
#include <stdlib.h>

#define ENTRIES 64u // of either queue
#define READ_NS 80000u
#define BUS_NS 3000u  // between two completions
#define HOST_NS 7000u // from an interrupt to its handler
#define COMMANDS 20000u

static void must(bool good, const char *what)
{
    if (!good) {
        printf("FAILED: %s\n", what);
        exit(1);
    }
}

static uint64_t now;                                          // ns
static uint32_t sq_tail, fetched, posted, cq_head;            // free-running; the host writes the first and the last
static uint64_t finish[ENTRIES], handler_at = COALESCE_NEVER; // of a command, and of the host

// ---- The device ----

static coalesce_budget_state budget;

static void interrupt_host(void);

static void act(coalesce_status decision)
{
    if (decision != COALESCE_HOLD) // an error interrupts, too
        interrupt_host();
}

// The host has written its doorbells.
static void serve_doorbells(void)
{
    if (cq_head == posted)
        coalesce_budget_on_consumed(&budget, now); // nothing is left to interrupt for
    while (fetched != sq_tail) {
        uint64_t bus = fetched == posted ? 0 : finish[(fetched - 1) % ENTRIES] + BUS_NS;
        finish[fetched % ENTRIES] = bus > now + READ_NS ? bus : now + READ_NS;
        fetched++;
        coalesce_budget_on_submits(&budget, now, 1);
    }
}

// A command is complete. It is posted before the decision about it. What was submitted and is not reaped is outstanding.
static void complete(void)
{
    uint32_t cif = fetched - posted; // this one included
    posted++;
    act(coalesce_budget_on_completion(&budget, now, COALESCE_HINT_PLAIN, cif, sq_tail - cq_head));
}

static uint64_t next_completion(void)
{
    return posted == fetched ? COALESCE_NEVER : finish[posted % ENTRIES];
}

// ---- The host: it reaps everything at an interrupt, and submits as much ----

static uint32_t interrupts, covered, depth, left;
static uint64_t submitted_at[ENTRIES], waited, spent; // the account: the sum of what each request waited, and took

// Ends the wait of what is posted.
static void cover(void)
{
    for (; covered != posted; covered++)
        waited += now - finish[covered % ENTRIES];
}

static void interrupt_host(void)
{
    must(covered != posted, "an interrupt covers something");
    interrupts++;
    cover();
    if (handler_at == COALESCE_NEVER)
        handler_at = now + HOST_NS;
}

static void handle_interrupt(void)
{
    handler_at = COALESCE_NEVER;
    cover(); // completions since the interrupt
    for (; cq_head != posted; cq_head++)
        spent += now - submitted_at[cq_head % ENTRIES];
    for (; left > 0 && sq_tail - cq_head < depth; left--)
        submitted_at[sq_tail++ % ENTRIES] = now;
    serve_doorbells();
}

// Runs a number of commands at a depth, and returns the number of interrupts.
static uint32_t run(uint32_t commands, uint32_t new_depth)
{
    uint32_t before = interrupts;
    depth = new_depth, left = commands;
    handler_at = now;
    do {
        uint64_t completion = next_completion(), deadline = coalesce_budget_deadline(&budget);
        uint64_t device = completion < deadline ? completion : deadline;
        must(device != COALESCE_NEVER || handler_at != COALESCE_NEVER, "an interrupt was lost");
        now = device < handler_at ? device : handler_at;
        if (now == handler_at)
            handle_interrupt();
        else if (now == completion)
            complete();
        else
            act(coalesce_budget_on_deadline(&budget, now));
    } while (left > 0 || cq_head != sq_tail);
    return interrupts - before;
}

int main(void)
{
    coalesce_budget_config config;
    coalesce_budget_config_default(&config, sizeof config, 1000000000); // the clock ticks in nanoseconds
    must(config.budget == 500, "5 % is the default");
    must(coalesce_budget_init(&budget, sizeof budget, &config, NULL) == COALESCE_OK, "coalesce_budget_init");

    must(run(COMMANDS, 1) == COMMANDS, "nobody who is alone waits");
    uint32_t at_32 = run(COMMANDS, 32);
    uint32_t at_4 = run(COMMANDS, 4);
    must(at_32 < COMMANDS / 2 && at_4 < COMMANDS, "company saves interrupts");

    // The device's own account says the same as the host's, and both are within the budget.
    coalesce_budget_info info;
    must(coalesce_budget_get_info(&budget, &info, sizeof info) == COALESCE_OK, "coalesce_budget_get_info");
    must(info.held_time == waited, "what was held is what waited");
    must(waited <= spent / 100 * config.budget / 100 + info.learning, "the budget is kept");
    unsigned used = (unsigned)(waited * 1000 / spent); // tenths of a per cent
    printf("latency_budget: %u of %u commands interrupted at depth 32; %u.%u %% of %u %% used\n", (unsigned)at_32, COMMANDS,
           used / 10, used % 10, (unsigned)config.budget / 100);
    return 0;
}
