// Interrupt vectors.
#ifndef VECTOR_H
#define VECTOR_H

#include "board.h"
#include "nvme.h"

// Interrupts the host, and says why. What it is told of was written before.
static inline void vector_raise(unsigned line, uint32_t cause)
{
    __atomic_fetch_or(&registers.cause[line], cause, __ATOMIC_RELEASE);
    board_pend(line);
}

#endif
