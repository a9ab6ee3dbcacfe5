// Simulates the board of examples/bare_metal_irq.c: registers are memory, and time is counted. No command may be lost,
// or wait longer for its interrupt than the machine's max_hold.
#include "../../examples/board.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMANDS 1000000u
#define DEPTH 32u
#define MAX_HOLD 10000u // 100 us

volatile struct registers board;
static uint64_t ticks = 0xffff0000; // the counter soon wraps
static uint32_t finished_at[64];    // the low bits of the time, which suffice for the wait of any command
static uint32_t taken, interrupts, longest;

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "FAILED: board: %s: %u commands taken\n", what, taken);
        exit(1);
    }
}

// Pseudo-random numbers, the same on every machine.
static uint32_t random_below(uint32_t limit)
{
    static uint64_t seed = 1;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 32) * limit >> 32);
}

// The host reaps everything at an interrupt, and keeps DEPTH commands in flight, or sometimes one.
static void host(void)
{
    if (!board.host_interrupt)
        return;
    board.host_interrupt = 0;
    interrupts++;
    for (; taken != board.posted; taken++) {
        uint32_t waited = (uint32_t)ticks - finished_at[taken % 64];
        longest = waited > longest ? waited : longest;
    }
    uint32_t depth = taken / 1000 % 4 == 0 ? 1 : DEPTH;
    uint32_t wanted = COMMANDS - taken < depth ? COMMANDS : taken + depth;
    board.submitted = wanted > board.submitted ? wanted : board.submitted;
}

// Advances the time; the timer interrupts in between.
static void pass(uint32_t span)
{
    while (board.one_shot != 0 && board.one_shot <= span) {
        uint32_t until = board.one_shot;
        span -= until;
        ticks += until;
        board.count = (uint32_t)ticks;
        board.one_shot = 0;
        timer_handler();
        host();
    }
    if (board.one_shot != 0)
        board.one_shot -= span;
    ticks += span;
    board.count = (uint32_t)ticks;
}

int main(void)
{
    board.count = (uint32_t)ticks;
    reset_handler();
    must(!board.fault, "coalesce_cint_init");
    board.submitted = DEPTH;
    while (taken != COMMANDS) {
        pass(1 + random_below(random_below(100) == 0 ? 100000 : 500));
        if (board.finished == board.submitted) {
            pass(MAX_HOLD); // the flash is idle, and the host submits nothing before its next interrupt
            must(taken == board.submitted, "an interrupt was lost");
            continue;
        }
        for (uint32_t n = 1 + random_below(4); n > 0 && board.finished != board.submitted; n--) {
            board.is_urgent[board.finished % 64] = random_below(50) == 0;
            finished_at[board.finished % 64] = (uint32_t)ticks;
            board.finished++;
        }
        flash_handler();
        host();
    }
    must(longest <= MAX_HOLD, "a completion was held too long");
    must(interrupts < COMMANDS / 2, "nothing was coalesced");
    printf("bare_metal_irq: %u commands, %u interrupts, at most %u us late\n", COMMANDS, interrupts, longest / 100);
    return 0;
}
