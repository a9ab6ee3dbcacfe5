// A device's firmware, without an operating system, a libc or a heap. Both interrupt handlers have the same priority,
// so that neither interrupts the other. That replaces a lock.
#define COALESCE_BARE_METAL
#include "board.h"
#include <coalesce.h>

static coalesce_cint_state cint;

// Widens the 32-bit counter to the 64 bits of the machine's clock. While a completion is held, it must be read at least
// once in 43 s.
static uint64_t now(void)
{
    static uint64_t last;
    last += (uint32_t)(board.count - (uint32_t)last);
    return last;
}

// Interrupts the host unless the decision is to hold, and sets the timer for the deadline. The timer counts down from
// now, so a deadline that has passed meanwhile is not missed.
static void act(coalesce_status decision)
{
    if (decision != COALESCE_HOLD)
        board.host_interrupt = 1;
    uint64_t deadline = coalesce_cint_deadline(&cint), instant = now();
    if (deadline == COALESCE_NEVER)
        board.one_shot = 0;
    else if (deadline <= instant)
        board.one_shot = 1;
    else if (deadline - instant < UINT32_MAX)
        board.one_shot = (uint32_t)(deadline - instant);
    else
        board.one_shot = UINT32_MAX; // early is harmless
}

// The flash has completed commands. Each is posted before the decision about it.
void flash_handler(void)
{
    while (board.posted != board.finished) {
        uint32_t index = board.posted;
        board.posted = index + 1;
        uint32_t hint = board.is_urgent[index % 64] ? COALESCE_HINT_URGENT : COALESCE_HINT_PLAIN;
        uint32_t cif = board.submitted - index; // this one included
        act(coalesce_cint_on_completion(&cint, now(), hint, cif));
    }
}

void timer_handler(void)
{
    act(coalesce_cint_on_deadline(&cint, now()));
}

void reset_handler(void)
{
    coalesce_cint_config config;
    coalesce_cint_config_default(&config, sizeof config, 100000000);
    config.ooo = 0; // the host has one vector, and reaps everything
    // If this fails, every call returns an error, so every completion interrupts: slow, but no interrupt is lost.
    board.fault = coalesce_cint_init(&cint, sizeof cint, &config, 0) != COALESCE_OK;
}
