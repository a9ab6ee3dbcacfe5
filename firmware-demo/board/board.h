// The board layer: the only interface of both firmwares to a board. Each board implements it in one file.
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The clock. It counts up from reset, in ticks of BOARD_TICK_HZ, and does not wrap.
extern const uint32_t BOARD_TICK_HZ;
uint64_t board_now(void);

// An instant that never comes: it switches a timer off.
#define BOARD_NEVER UINT64_MAX

// Two one-shot timers, armed for an instant of the clock. An instant that has passed interrupts at once. Arming
// replaces an earlier arming. A handler runs with its own interrupt and all of lower priority blocked.
void board_arm_flash(uint64_t at);    // -> flash_interrupt(), priority above the host's
void board_arm_deadline(uint64_t at); // -> deadline_interrupt(), the same priority

// The host's interrupt lines, one per completion queue. The host takes a pended line at once, unless interrupts are
// blocked. A line that is pended twice before it is taken interrupts once.
#define BOARD_LINES 2
void board_pend(unsigned line); // -> host_interrupt(line)

// Blocks all interrupts. Returns the previous state, for board_restore().
uint32_t board_block(void);
void board_restore(uint32_t before);

// Sleeps until an interrupt is pending. Call it with interrupts blocked, after a check that there is no work. An
// interrupt between the check and the sleep ends the sleep.
void board_sleep(void);

// The most stack used since the last call, in bytes.
size_t board_stack_used(void);

// The console, through semihosting.
void board_print(const char *text, size_t length);
// Opens a file for writing, on the machine that emulates the board; -1: it cannot be opened. board_write() returns
// whether it wrote everything.
int board_create(const char *name);
bool board_write(int file, const void *bytes, size_t length);
// Ends the emulation; status 0 is success.
void board_exit(int status) __attribute__((noreturn));

// The program that runs on the board.
int main(void);
void flash_interrupt(void);
void deadline_interrupt(void);
void host_interrupt(unsigned line);

#endif
