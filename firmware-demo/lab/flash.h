// The flash's interface to the lab. device.h has its interface to the device.
#ifndef FLASH_H
#define FLASH_H

#include "nvme.h"
#include <stdint.h>

// The stored blocks. The host formats them.
extern uint32_t flash_cells[BLOCKS][BLOCK_WORDS];

// Begins a run: nothing is in flight, and latencies depend only on `seed`.
void flash_begin(uint32_t seed);

// The instant at which the last command on a block completed.
uint64_t flash_stamp(uint32_t block);

// The number of invalid commands in this run: the slot was in use, the block or address is out of range, or the command
// completed before one that is already collected (then the device is slower than the flash).
uint32_t flash_faults(void);

#endif
