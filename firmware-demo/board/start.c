// From the reset to main(), and the stack.
#include "board.h"
#include "hardware.h"

// Symbols of the linker script.
extern uint32_t data_begin[], data_end[], data_load[], bss_begin[], bss_end[], stack_begin[], stack_end[];

#define PAINT 0x50a1d0ffu

// Fills everything below the stack pointer. Requires blocked interrupts, because a handler would use that memory.
static void paint_stack(void)
{
    volatile uint32_t *top;
    __asm__ volatile("mov %0, sp" : "=r"(top));
    for (volatile uint32_t *word = stack_begin; word < top; word++)
        *word = PAINT;
}

size_t board_stack_used(void)
{
    uint32_t before = board_block();
    const uint32_t *word = stack_begin;
    while (*word == PAINT)
        word++;
    paint_stack();
    board_restore(before);
    return (size_t)(stack_end - word) * sizeof *word;
}

void start(void)
{
    for (uint32_t *to = data_begin, *from = data_load; to < data_end;)
        *to++ = *from++;
    for (uint32_t *word = bss_begin; word < bss_end; word++)
        *word = 0;
    paint_stack();
    hardware_init();
    board_restore(0);
    board_exit(main());
}

void fault(void)
{
    static const char text[] = "FAILED: a fault of the processor\n";
    board_print(text, sizeof text - 1);
    board_exit(1);
}
