// Not a board: the firmware as a program of the build machine, for sanitizers and for irregular time. With a number in
// the environment variable SEED, time advances at random at each call. The decisions must not change.
#include "board.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const uint32_t BOARD_TICK_HZ = 25000000;

static uint64_t now, flash_at = BOARD_NEVER, deadline_at = BOARD_NEVER, random_state;
static uint32_t pending, is_blocked;
static enum { MAIN, HOST, TIMERS } priority;

// Takes the pending interrupts that are not blocked.
static void take_interrupts(void)
{
    int before = priority;
    while (!is_blocked) {
        void (*handler)(void) = 0;
        unsigned line = 0;
        if (before < TIMERS && flash_at <= now) {
            flash_at = BOARD_NEVER;
            handler = flash_interrupt;
        } else if (before < TIMERS && deadline_at <= now) {
            deadline_at = BOARD_NEVER;
            handler = deadline_interrupt;
        } else if (before < HOST && pending) {
            line = pending & 1 ? 0 : 1;
            pending &= ~(1u << line);
        } else {
            return;
        }
        priority = handler ? TIMERS : HOST;
        if (handler)
            handler();
        else
            host_interrupt(line);
        priority = before;
    }
}

// Advances the time.
static void pass(void)
{
    if (random_state) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        uint32_t ticks = (uint32_t)(random_state >> 33);
        now += ticks % 64 == 0 ? ticks >> 6 & 255 : ticks & 3; // sometimes by much
    }
    take_interrupts();
}

uint64_t board_now(void)
{
    pass();
    return now;
}

void board_arm_flash(uint64_t at)
{
    flash_at = at;
    take_interrupts();
}

void board_arm_deadline(uint64_t at)
{
    deadline_at = at;
    take_interrupts();
}

void board_pend(unsigned line)
{
    pending |= 1u << line;
    take_interrupts();
}

uint32_t board_block(void)
{
    pass();
    uint32_t before = is_blocked;
    is_blocked = 1;
    return before;
}

void board_restore(uint32_t before)
{
    is_blocked = before;
    pass();
}

void board_sleep(void)
{
    uint64_t next = flash_at < deadline_at ? flash_at : deadline_at;
    if (next == BOARD_NEVER && !pending) {
        fprintf(stderr, "asleep for ever\n");
        exit(1);
    }
    if (!pending && now < next)
        now = next;
}

size_t board_stack_used(void)
{
    return 0;
}

void board_print(const char *text, size_t length)
{
    fwrite(text, 1, length, stdout);
}

int board_create(const char *name)
{
    return open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
}

bool board_write(int file, const void *bytes, size_t length)
{
    return write(file, bytes, length) == (ssize_t)length;
}

void board_exit(int status)
{
    exit(status);
}

__attribute__((constructor)) static void begin(void)
{
    const char *seed = getenv("SEED");
    random_state = seed ? strtoull(seed, 0, 10) : 0;
}

// Rust's core library for hosts refers to this symbol. Nothing here unwinds.
__attribute__((weak)) void rust_eh_personality(void)
{
}
