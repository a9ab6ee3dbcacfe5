// The flash, for the lab; device.h has what the device knows of it.
#ifndef FLASH_H
#define FLASH_H

#include "nvme.h"
#include <stdint.h>

// What is stored. The host formats it.
extern uint32_t flash_cells[BLOCKS][BLOCK_WORDS];

// A new run: nothing in flight, and latencies that depend on `seed` alone.
void flash_begin(uint32_t seed);

// When the last command on a block finished.
uint64_t flash_stamp(uint32_t block);

// How often the flash could not do what the device of this run asked for: its slot was in use, its block or address is none,
// or it finished, by its stamp, before another one that was collected: the device is slower than the flash.
uint32_t flash_faults(void);

#endif
