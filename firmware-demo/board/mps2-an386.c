// Arm's MPS2 board with the FPGA image of application note AN386: a Cortex-M4 at 25 MHz.
#include "board.h"
#include "hardware.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))

// FPGAIO. With PRESCALE 0, its value after a reset, COUNTER counts cycles of 25 MHz.
#define FPGAIO_COUNTER REGISTER(0x40028018)

// CMSDK APB timers 0 and 1, also at 25 MHz, interrupts 8 and 9. VALUE counts down to 0. With RELOAD 0, its value after
// a reset, it stays there. The step from 1 to 0 sets INTSTATUS, which a write of 1 clears.
struct timer {
    volatile uint32_t ctrl, value, reload, intstatus;
};
#define TIMER(n) ((struct timer *)0x40000000 + (n) * (0x1000 / sizeof(struct timer)))
#define CTRL_ENABLE (1u << 0)
#define CTRL_INTERRUPT (1u << 3)

enum {
    IRQ_TIMER = 8,
    IRQ_LINE = 30, // the interrupts of unconnected GPIO pins
};

#define NVIC_ENABLE REGISTER(0xe000e100)
#define NVIC_PEND REGISTER(0xe000e200)
#define NVIC_PRIORITY ((volatile uint8_t *)0xe000e400) // a lower number has priority
#define CPACR REGISTER(0xe000ed88)

const uint32_t BOARD_TICK_HZ = 25000000;

uint32_t hardware_now(void)
{
    return FPGAIO_COUNTER;
}

void hardware_start_timer(unsigned timer, uint32_t ticks)
{
    TIMER(timer)->ctrl = 0;
    TIMER(timer)->intstatus = 1;
    TIMER(timer)->value = ticks;
    if (ticks > 0)
        TIMER(timer)->ctrl = CTRL_ENABLE | CTRL_INTERRUPT;
    else
        NVIC_PEND = 1u << (IRQ_TIMER + timer);
}

// After the barriers the interrupt has been taken, unless interrupts are blocked.
void board_pend(unsigned line)
{
    NVIC_PEND = 1u << (IRQ_LINE + line);
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

uint32_t board_block(void)
{
    uint32_t before;
    __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(before)::"memory");
    return before;
}

void board_restore(uint32_t before)
{
    __asm__ volatile("msr primask, %0\n\tisb" ::"r"(before) : "memory");
}

// A blocked interrupt ends the sleep too: PRIMASK does not prevent that.
void board_sleep(void)
{
    __asm__ volatile("dsb\n\twfi" ::: "memory");
}

void hardware_init(void)
{
    for (unsigned i = 0; i < TIMERS; i++) {
        NVIC_PRIORITY[IRQ_TIMER + i] = 0x40;
        NVIC_ENABLE = 1u << (IRQ_TIMER + i);
    }
    for (unsigned i = 0; i < BOARD_LINES; i++) {
        NVIC_PRIORITY[IRQ_LINE + i] = 0x80;
        NVIC_ENABLE = 1u << (IRQ_LINE + i);
    }
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}

// The stack is set up here, but the FPU is still off. No inlined code may use the FPU.
void entry(void)
{
    __asm__ volatile("cpsid i");
    CPACR |= 0xfu << 20;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    start();
}

static void flash_timer(void)
{
    timer_interrupt(FLASH_TIMER);
}

static void deadline_timer(void)
{
    timer_interrupt(DEADLINE_TIMER);
}

static void line_0(void)
{
    host_interrupt(0);
}

static void line_1(void)
{
    host_interrupt(1);
}

extern uint32_t stack_end[];

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*exceptions[15])(void);
    void (*interrupts[32])(void);
} vectors = {
    stack_end,
    {entry, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault},
    {[IRQ_TIMER] = flash_timer, deadline_timer, [IRQ_LINE] = line_0, line_1},
};
