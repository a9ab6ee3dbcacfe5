// Runs every workload under every policy, then the golden traces. Prints a table, and exits with 0 if every check
// holds.
#include "board.h"
#include "device.h"
#include "flash.h"
#include "host.h"
#include "nvme.h"
#include "text.h"
#include "trace.h"
#include "vectors.h"

static const struct {
    const char *name;
    uint32_t hold_us; // the longest time that it holds a completion
    bool knows_hints;
} policies[POLICIES] = {
    [POLICY_NVME] = {"nvme", NVME_TIME * 100, false},
    [POLICY_VIC] = {"vic", 500, false},
    [POLICY_CINT] = {"cint", 100, true},
    [POLICY_STRICT] = {"strict", 1000, true},
    [POLICY_BUDGET] = {"budget", 200, true},
    [POLICY_AUTO] = {"auto", 200, true},
};

// The additional delay that a completion may have: this, and 1 µs of code for each command that may be ahead of it.
#ifndef SLACK_US
#define SLACK_US 10u
#endif

static const struct {
    struct workload workload;
    uint32_t most[POLICIES]; // the most interrupts per 1000 I/Os; 0: no limit
} runs[] = {
    {{"sync", .ios = 500, .requesters = {{1, 1, URGENT}, {2, 1, LOW_LATENCY}}}, {0}},
    {{"async", .ios = 2000, .requesters = {{1, 32, PLAIN}, {2, 32, PLAIN}}}, {200, 400, 400, 100, 300, 400}},
    {{"mixed", .ios = 2000, .requesters = {{1, 31, PLAIN}, {1, 1, URGENT}, {2, 8, PLAIN}}}, {0}},
    {{"batch", .ios = 1000, .requesters = {{1, 8, BATCH}, {2, 8, BATCH}}}, {0}},
    {{"batches", .ios = 2000, .requesters = {{1, 8, BATCH}, {1, 8, BATCH}, {2, 8, BATCH}, {2, 8, BATCH}}}, {0}},
    {{"storm", .ios = 2000, .storm_rate = 20000, .requesters = {{1, 32, URGENT}, {2, 1, URGENT}}}, {0}},
    {{"vector", .ios = 2000, .is_uncoalesced = true, .requesters = {{1, 32, PLAIN}, {2, 32, PLAIN}}}, {0}},
    {{"polled", .ios = 2000, .is_polled = true, .requesters = {{1, 16, PLAIN}, {2, 4, PLAIN}}}, {0}},
    {{"errors", .ios = 2000, .has_errors = true, .requesters = {{1, 32, PLAIN}, {2, 32, PLAIN}}}, {0}},
    {{"hostile", .ios = 0, .is_hostile = true, .requesters = {{2, 8, PLAIN}}}, {0}},
};

static bool all_good = true;

static void check(bool is_good, const char *what)
{
    if (is_good)
        return;
    struct text line = {.length = 0};
    text_add(&line, "FAILED: ");
    text_add(&line, what);
    text_add(&line, "\n");
    text_print(&line);
    all_good = false;
}

static const char *const columns[] = {"I/Os",      "interrupts", "per I/O", "mean us", "worst us",
                                      "urgent us", "spurious",   "lost",    "wrong",   "stack"};
#define FIRST_COLUMN 16u
#define COLUMN 11u

static void print_header(void)
{
    struct text line = {.length = 0};
    text_add(&line, "workload policy");
    for (unsigned i = 0; i < sizeof columns / sizeof *columns; i++) {
        size_t start = line.length;
        text_add(&line, columns[i]);
        text_align_right(&line, start, FIRST_COLUMN + (i + 1) * COLUMN);
    }
    text_add(&line, "\n");
    text_print(&line);
}

static void print_row(const char *workload, const char *policy, const struct result *result, size_t stack)
{
    const uint64_t us = BOARD_TICK_HZ / 1000000u, ios = result->ios[1] + result->ios[2];
    const uint64_t interrupts = result->interrupts[1] + result->interrupts[2];
    const struct {
        uint64_t numerator, denominator;
        unsigned decimals;
    } cells[] = {
        {ios, 1, 0},
        {interrupts, 1, 0},
        {interrupts, ios, 3},
        {result->delay, result->measured * us, 1},
        {result->delay_worst, us, 1},
        {result->urgent_worst, us, 1},
        {result->spurious, 1, 0},
        {result->lost, 1, 0},
        {result->wrong, 1, 0},
        {stack, 1, 0},
    };
    struct text line = {.length = 0};
    text_add(&line, workload);
    text_pad(&line, 9);
    text_add(&line, policy);
    for (unsigned i = 0; i < sizeof cells / sizeof *cells; i++) {
        size_t start = line.length;
        text_add_ratio(&line, cells[i].numerator, cells[i].denominator, cells[i].decimals);
        text_align_right(&line, start, FIRST_COLUMN + (i + 1) * COLUMN);
    }
    text_add(&line, "\n");
    text_print(&line);
}

static void check_result(const struct workload *workload, unsigned policy, uint32_t most, const struct result *result)
{
    const uint64_t us = BOARD_TICK_HZ / 1000000u, ios = result->ios[1] + result->ios[2];
    const uint64_t interrupts = result->interrupts[1] + result->interrupts[2];
    const bool has_guard = policies[policy].knows_hints && workload->storm_rate > 0;

    check(result->lost == 0, "an interrupt was lost");
    check(result->spurious == 0, "an interrupt covered nothing");
    check(result->wrong == 0, "an answer was wrong");
    check(ios >= workload->ios, "the run did not complete all I/O");
    check(most == 0 || interrupts * 1000 <= ios * most, "too many interrupts");
    check(!workload->is_uncoalesced || result->interrupts[1] == result->ios[1],
          "a vector with coalescing disabled held a completion");
    check(policy != POLICY_STRICT || result->partial == 0, "an interrupt covered a Barrier before its batch was complete");

    uint64_t slack_us = SLACK_US + (workload->is_hostile ? SQ_ENTRIES : 0);
    uint64_t hold_us = policies[policy].hold_us + (has_guard ? 1000000u / workload->storm_rate : 0);
    for (unsigned i = 0; i < REQUESTERS; i++)
        slack_us += workload->requesters[i].depth;
    check(result->delay_worst <= (hold_us + slack_us) * us, "a completion was held for too long");
    bool is_at_once = workload->has_errors || (policies[policy].knows_hints && !has_guard);
    check(!is_at_once || result->urgent_worst <= slack_us * us, "an Urgent or failed command was held");
    // The guard's average lags behind by at most this many interrupts.
    uint64_t storm = result->ticks * workload->storm_rate / BOARD_TICK_HZ + (2u << STORM_SHIFT) + 2;
    for (unsigned queue = 1; queue <= IO_QUEUES; queue++)
        check(!has_guard || result->interrupts[queue] <= storm, "a storm was not stopped");
}

static void run(unsigned index, unsigned policy)
{
    const struct workload *workload = &runs[index].workload;
    host_begin(workload, policy);
    flash_begin(index + 1);
    uint64_t now = board_now();
    trace_begin(now);
    board_stack_used();
    device_run(now);
    print_row(workload->name, policies[policy].name, host_result(), board_stack_used());
    check(trace_write(workload->name, policies[policy].name), "the trace cannot be written");
    check(registers.csts == 0, "the controller was not reset");
    check(flash_faults() == 0, "the device used the flash wrongly, or is slower than the flash");
    check_result(workload, policy, runs[index].most[policy], host_result());
}

int main(void)
{
    check(trace_create(), "trace.txt cannot be created");
    host_format();
    print_header();
    for (unsigned i = 0; i < sizeof runs / sizeof *runs; i++)
#ifdef ONLY_POLICY
        run(i, ONLY_POLICY);
#else
        for (unsigned policy = 0; policy < POLICIES; policy++)
            run(i, policy);
    check(vectors_replay(), "the golden traces were decided differently");
#endif
    board_exit(all_good ? 0 : 1);
}
