// The board layer: what both firmwares need of a board, and all that they know of it. One file per board implements it.
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The clock. It counts up from reset, in ticks of BOARD_TICK_HZ, and does not wrap.
extern const uint32_t BOARD_TICK_HZ;
uint64_t board_now(void);

// No instant: the timer is off.
#define BOARD_NEVER UINT64_MAX

// Two one-shot timers, armed for an instant of the clock; one that has passed interrupts at once. Arming replaces what was
// armed. A handler runs with its own interrupt, and all of lower priority, blocked.
void board_arm_flash(uint64_t at);    // -> flash_interrupt(), priority above the host's
void board_arm_deadline(uint64_t at); // -> deadline_interrupt(), the same priority

// The host's interrupt lines, one per completion queue: pending one makes the host take it at once, unless interrupts are
// blocked. Pending it twice before it is taken is once.
#define BOARD_LINES 2
void board_pend(unsigned line); // -> host_interrupt(line)

// Blocks all interrupts; gives back what was before.
uint32_t board_block(void);
void board_restore(uint32_t before);

// Sleeps until an interrupt is pending. Call it with interrupts blocked, after a look whether there is anything to do: an
// interrupt that comes between the look and the sleep ends the sleep.
void board_sleep(void);

// The most of the stack that was in use since the last call, in bytes.
size_t board_stack_used(void);

// The console, through semihosting.
void board_print(const char *text, size_t length);
// A file on the machine that emulates the board, for writing; -1: it cannot be opened. Write returns whether all went out.
int board_create(const char *name);
bool board_write(int file, const void *bytes, size_t length);
// Ends the emulation: 0 is success.
void board_exit(int status) __attribute__((noreturn));

// What runs on the board.
int main(void);
void flash_interrupt(void);
void deadline_interrupt(void);
void host_interrupt(unsigned line);

#endif
