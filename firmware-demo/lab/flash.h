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

// What of this run the flash cannot do with a device: a slot in use, a block or an address that is not there, and a command that
// finished, by its stamp, before one that was collected, because the device was slower than the flash. 0, or it is broken.
uint32_t flash_faults(void);

#endif
