// The board of bare_metal_irq.c: its registers, and the interrupt handlers of its vector table.
#ifndef BOARD_H
#define BOARD_H
#include <stdint.h>

struct registers {
    uint32_t submitted;      // commands that the host has submitted, free-running
    uint32_t finished;       // commands that the flash has finished, free-running
    uint32_t is_urgent[64];  // of the last 64 finished
    uint32_t posted;         // for the host: commands whose completions it may take, free-running
    uint32_t host_interrupt; // writing 1 interrupts the host
    uint32_t count;          // of the timer, up, at 100 MHz; it wraps
    uint32_t one_shot;       // writing n: a timer interrupt in n ticks; 0: none
    uint32_t fault;          // a light for the developer
};
extern volatile struct registers board; // the linker script says where

void reset_handler(void);
void flash_handler(void);
void timer_handler(void);

#endif
