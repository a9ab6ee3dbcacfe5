// Interrupt vectors.
#ifndef VECTOR_H
#define VECTOR_H

#include "board.h"
#include "nvme.h"

// Interrupts the host, with the cause. The caller has posted the entries before.
static inline void vector_raise(unsigned line, uint32_t cause)
{
    __atomic_fetch_or(&registers.cause[line], cause, __ATOMIC_RELEASE);
    board_pend(line);
}

#endif
