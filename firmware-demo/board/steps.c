// Not a board either: a host that does one thing at a time, each while the firmware is about to sleep. What the host of the lab,
// which is always busy, does not show.
#include "board.h"
#include "device.h"
#include "nvme.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct host_memory host_memory;
struct registers registers;
const uint32_t BOARD_TICK_HZ = 25000000;
#define TICKS_PER_US 25u
#define START 1000u // the clock stands still

static uint64_t alarm_at;
static unsigned started[64], started_count;
static struct flash_done done[64];
static unsigned done_count, done_taken;
static unsigned step, failures;
static void (*scenario)(void);

uint64_t board_now(void)
{
    return START;
}
void board_arm_flash(uint64_t at)
{
    (void)at;
}
void board_arm_deadline(uint64_t at)
{
    alarm_at = at;
}
void board_pend(unsigned line)
{
    (void)line;
}
uint32_t board_block(void)
{
    return 0;
}
void board_restore(uint32_t before)
{
    (void)before;
}
void board_print(const char *text, size_t length)
{
    fwrite(text, 1, length, stdout);
}
void board_exit(int status)
{
    exit(status);
}
void flash_start(unsigned slot, bool is_write, uint32_t block, uint32_t address, uint64_t now)
{
    (void)is_write, (void)block, (void)address, (void)now;
    started[started_count++] = slot;
}
bool flash_collect(struct flash_done *taken)
{
    if (done_taken == done_count)
        return false;
    *taken = done[done_taken++];
    return true;
}
bool flash_is_past(uint64_t instant)
{
    return START >= instant;
}
void flash_abort(void)
{
}
void trace(const struct traced *traced)
{
    (void)traced;
}
__attribute__((weak)) void rust_eh_personality(void)
{
} // as in host.c

void board_sleep(void)
{
    step++;
    scenario();
}

static void expect(bool is_so, const char *what)
{
    if (!is_so) {
        printf("steps: %s\n", what);
        failures++;
    }
}

// The number-th command of the admin queue, from 1 on.
static void set_feature(unsigned number, uint32_t feature, uint32_t value)
{
    struct sq_entry entry = {{ADMIN_SET_FEATURES | number << 16}};
    entry.dword[10] = feature;
    entry.dword[11] = value;
    host_memory.sq[0][number - 1] = entry;
    registers.doorbell[0].sq_tail = number;
}

static void set_aggregation(unsigned number, uint32_t completions, uint32_t units_of_100_us)
{
    set_feature(number, FEATURE_COALESCING, (completions - 1) | units_of_100_us << 8);
}

static void read_blocks(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct sq_entry entry = {{IO_READ | i << 16, 1}};
        entry.dword[10] = i;
        host_memory.sq[1][i] = entry;
    }
    registers.doorbell[1].sq_tail = count;
}

static void complete_all(void)
{
    for (unsigned i = 0; i < started_count; i++)
        done[done_count++] = (struct flash_done){.stamp = START, .slot = (uint16_t)started[i]};
    started_count = 0;
    flash_interrupt();
}

// The host has reaped everything, and says so before it selects a policy.
static void what_was_rung_first_counts_first(void)
{
    if (step == 1)
        read_blocks(1);
    if (step == 2)
        complete_all();
    if (step == 3) {
        registers.doorbell[1].cq_head = 1;
        set_feature(1, FEATURE_POLICY, POLICY_VIC);
    }
    if (step == 4) {
        expect(host_memory.cq[0][0].dword[3] >> 17 == STATUS_SUCCESS, "a policy is refused although all I/O is reaped");
        registers.cc = 0;
    }
}

// Feature 08h changes while completions are held: switched off, with a time that would be longer, or to fewer than are held.
static unsigned new_threshold;
static void what_feature_08h_holds_is_delivered_when_it_changes(void)
{
    if (step == 1)
        set_aggregation(1, 16, 1);
    if (step == 2) {
        registers.doorbell[0].cq_head = 1;
        read_blocks(10);
    }
    if (step == 3)
        complete_all();
    if (step == 4) {
        expect(!(registers.cause[0] & CAUSE_NORMAL) && alarm_at == START + 100 * TICKS_PER_US, "ten are not held for 100 us");
        set_aggregation(2, new_threshold, 255);
    }
    if (step == 5) {
        expect(registers.cause[0] & CAUSE_NORMAL, "ten that are held wait for the new time");
        registers.cc = 0;
    }
}

// A policy that is refused changes nothing: `auto` still holds the first of many.
static uint32_t refused_policy, refused_storm_rate;
static void a_policy_that_is_refused_leaves_the_one_in_force(void)
{
    if (step == 1)
        set_feature(1, FEATURE_POLICY, POLICY_AUTO);
    if (step == 2) {
        expect(host_memory.cq[0][0].dword[3] >> 17 == STATUS_SUCCESS, "auto is refused");
        registers.doorbell[0].cq_head = 1;
        set_feature(2, FEATURE_POLICY, refused_policy);
        host_memory.sq[0][1].dword[12] = refused_storm_rate;
    }
    if (step == 3) {
        expect(host_memory.cq[0][1].dword[3] >> 17 == STATUS_INVALID_FIELD, "a policy is not refused");
        registers.doorbell[0].cq_head = 2;
        read_blocks(24);
    }
    if (step == 4) {
        started_count = 1;
        complete_all();
    }
    if (step == 5) {
        expect(!(registers.cause[0] & CAUSE_NORMAL), "after a refusal auto holds nothing any more");
        registers.cc = 0;
    }
}

static void run(void (*what)(void))
{
    memset(&registers, 0, sizeof registers);
    memset(&host_memory, 0, sizeof host_memory);
    step = started_count = done_count = done_taken = 0;
    scenario = what;
    registers.cc = CC_ENABLE;
    device_run(START);
}

int main(void)
{
    run(what_was_rung_first_counts_first);
    for (new_threshold = 1; new_threshold <= 4; new_threshold += 3)
        run(what_feature_08h_holds_is_delivered_when_it_changes);
    refused_policy = POLICIES;
    run(a_policy_that_is_refused_leaves_the_one_in_force);
    refused_policy = POLICY_CINT, refused_storm_rate = 7000; // cint's max_hold is shorter than its interval, the budget's is not
    run(a_policy_that_is_refused_leaves_the_one_in_force);
    return failures != 0;
}
