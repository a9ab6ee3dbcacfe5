// A device's firmware: no operating system, no libc, no memory but its own. Both interrupt handlers have the same
// priority, so that none interrupts the other: that is the lock.
#define COALESCE_BARE_METAL
#include "board.h"
#include <coalesce.h>

static cint_state cint;

// The counter has 32 bits and the machine wants 64: correct as long as it is read once in 43 s while something is held.
static uint64_t now(void)
{
    static uint64_t last;
    last += (uint32_t)(board.count - (uint32_t)last);
    return last;
}

// Interrupts the host unless told not to, and sets the timer for what is held. The timer counts down from now, so a
// deadline that has passed meanwhile cannot be missed.
static void act(coalesce_status decision)
{
    if (decision != COALESCE_HOLD)
        board.host_interrupt = 1;
    uint64_t deadline = cint_deadline(&cint), instant = now();
    if (deadline == COALESCE_NEVER)
        board.one_shot = 0;
    else if (deadline <= instant)
        board.one_shot = 1;
    else if (deadline - instant < UINT32_MAX)
        board.one_shot = (uint32_t)(deadline - instant);
    else
        board.one_shot = UINT32_MAX; // early is harmless
}

// The flash has finished commands. Each is posted before it is decided upon.
void flash_handler(void)
{
    while (board.posted != board.finished) {
        uint32_t index = board.posted;
        board.posted = index + 1;
        uint32_t hint = board.is_urgent[index % 64] ? COALESCE_HINT_URGENT : COALESCE_HINT_PLAIN;
        uint32_t cif = board.submitted - index; // this one counts
        act(cint_on_completion(&cint, now(), hint, cif));
    }
}

void timer_handler(void)
{
    act(cint_on_deadline(&cint, now()));
}

void reset_handler(void)
{
    cint_config config;
    cint_config_default(&config, sizeof config, 100000000);
    config.ooo = 0; // the host has one vector, and takes everything
    // If it fails, every call answers with an error, and every completion interrupts: slow, but nothing is lost.
    board.fault = cint_init(&cint, sizeof cint, &config, 0) != COALESCE_OK;
}
