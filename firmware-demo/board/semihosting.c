// Semihosting calls, which the emulator executes (Arm, "Semihosting for AArch32 and AArch64").
#include "board.h"

enum { SYS_OPEN = 0x01, SYS_WRITE = 0x05, SYS_EXIT_EXTENDED = 0x20 };
#define MODE_WB 5u
#define APPLICATION_EXIT 0x20026u

static int32_t call(uint32_t operation, const uint32_t *arguments)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const uint32_t *r1 __asm__("r1") = arguments;
#if __ARM_ARCH_PROFILE == 'M'
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
#else
    __asm__ volatile("svc 0x123456" : "+r"(r0) : "r"(r1) : "memory");
#endif
    return (int32_t)r0;
}

int board_create(const char *name)
{
    uint32_t length = 0;
    while (name[length])
        length++;
    return call(SYS_OPEN, (const uint32_t[]){(uintptr_t)name, MODE_WB, length});
}

// The call returns the number of bytes that it did not write.
bool board_write(int file, const void *bytes, size_t length)
{
    return call(SYS_WRITE, (const uint32_t[]){(uint32_t)file, (uintptr_t)bytes, length}) == 0;
}

void board_print(const char *text, size_t length)
{
    static int console;
    if (console == 0)
        console = board_create(":tt");
    board_write(console, text, length);
}

void board_exit(int status)
{
    for (;;)
        call(SYS_EXIT_EXTENDED, (const uint32_t[]){APPLICATION_EXIT, (uint32_t)status});
}
