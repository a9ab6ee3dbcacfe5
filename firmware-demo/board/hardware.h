// The interface between the code common to all boards and a board's own file.
#ifndef HARDWARE_H
#define HARDWARE_H

#include <stdint.h>

// ---- A board's own file ----

// The lower 32 bits of the clock.
uint32_t hardware_now(void);

enum { FLASH_TIMER, DEADLINE_TIMER, TIMERS };
// Calls timer_interrupt() once, after `ticks` or a little later; 0: at once. Replaces an earlier start, but its
// interrupt may still come if it is already pending. Requires blocked interrupts.
#define TIMER_LONGEST (1u << 31)
void hardware_start_timer(unsigned timer, uint32_t ticks);

// Sets up interrupts and their priorities. Requires blocked interrupts.
void hardware_init(void);

// ---- start.c ----

// Called after a reset, with a stack: initialises the memory as C expects, and runs main().
void start(void) __attribute__((noreturn));
// Called by an unexpected exception.
void fault(void) __attribute__((noreturn));

// ---- timers.c ----

void timer_interrupt(unsigned timer);

#endif
