// A clock that does not wrap, and timers for any instant, on 32-bit hardware.
#include "board.h"
#include "hardware.h"

static uint64_t armed[TIMERS] = {BOARD_NEVER, BOARD_NEVER};

// Must be called at least once in 2^32 ticks. The timers ensure that, because they run at most half as long.
uint64_t board_now(void)
{
    static uint64_t last;
    uint32_t before = board_block();
    last += (uint32_t)(hardware_now() - (uint32_t)last);
    uint64_t now = last;
    board_restore(before);
    return now;
}

static void start_timer(unsigned timer)
{
    uint64_t now = board_now(), ticks = armed[timer] > now ? armed[timer] - now : 0;
    hardware_start_timer(timer, ticks < TIMER_LONGEST ? (uint32_t)ticks : TIMER_LONGEST);
}

static void arm(unsigned timer, uint64_t at)
{
    uint32_t before = board_block();
    armed[timer] = at;
    start_timer(timer);
    board_restore(before);
}

void timer_interrupt(unsigned timer)
{
    bool is_due = armed[timer] <= board_now();
    arm(timer, is_due ? BOARD_NEVER : armed[timer]);
    if (is_due)
        timer == FLASH_TIMER ? flash_interrupt() : deadline_interrupt();
}

void board_arm_flash(uint64_t at)
{
    arm(FLASH_TIMER, at);
}

void board_arm_deadline(uint64_t at)
{
    arm(DEADLINE_TIMER, at);
}
