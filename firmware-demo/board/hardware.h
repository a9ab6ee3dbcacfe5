// Between what the boards have in common and a board's own file.
#ifndef HARDWARE_H
#define HARDWARE_H

#include <stdint.h>

// ---- Of a board ----

// The lower half of the clock.
uint32_t hardware_now(void);

enum { FLASH_TIMER, DEADLINE_TIMER, TIMERS };
// Calls timer_interrupt() once, when so many ticks are over, or little later; 0: at once. Replaces what was started, but
// one that is pending already may come nevertheless. Interrupts are blocked.
#define TIMER_LONGEST (1u << 31)
void hardware_start_timer(unsigned timer, uint32_t ticks);

// Interrupts and their priorities. They are blocked.
void hardware_init(void);

// ---- Of start.c ----

// Where a reset leads to, with a stack: makes the memory what C expects, and runs main().
void start(void) __attribute__((noreturn));
// Where an exception leads to that should not be.
void fault(void) __attribute__((noreturn));

// ---- Of timers.c ----

void timer_interrupt(unsigned timer);

#endif
