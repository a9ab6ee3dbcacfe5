// Arm's Versatile Platform Baseboard with a Cortex-R5F, a combination that exists only in QEMU. Like a controller's
// chip it has a vectored interrupt controller that nests by priority (PL190), and timers (SP804).
#include "board.h"
#include "hardware.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))

// A system register that counts at 24 MHz from power on.
#define SYS_24MHZ REGISTER(0x1000005c)

// Two SP804 at 1 MHz, interrupts 4 and 5. Each has two timers; only the first is used. Writing LOAD starts the timer.
// Writing any value to INTCLR clears its interrupt.
struct timer {
    volatile uint32_t load, value, control, intclr;
};
#define TIMER(n) ((struct timer *)0x101e2000 + (n) * (0x1000 / sizeof(struct timer)))
#define CONTROL_ONE_SHOT (1u << 0)
#define CONTROL_32_BITS (1u << 1)
#define CONTROL_INTERRUPT (1u << 5)
#define CONTROL_ENABLE (1u << 7)
#define TICKS_PER_COUNT 24u

enum {
    IRQ_LINES = 1, // the software interrupt
    IRQ_TIMER = 4,
};

// PL190. A lower slot has priority. Reading VECTADDR gives the handler, and blocks its slot and those above until
// VECTADDR is written.
#define VIC_ENABLE REGISTER(0x10140010)
#define VIC_PEND REGISTER(0x10140018)
#define VIC_UNPEND REGISTER(0x1014001c)
#define VIC_VECTADDR REGISTER(0x10140030)
#define VIC_SLOT_ADDR ((volatile uint32_t *)0x10140100)
#define VIC_SLOT_CONTROL ((volatile uint32_t *)0x10140200)
#define SLOT_ENABLE (1u << 5)

const uint32_t BOARD_TICK_HZ = 24000000;

static uint32_t pending; // lines; all share one interrupt, so that none interrupts another

uint32_t hardware_now(void)
{
    return SYS_24MHZ;
}

// Rounded up, so that the interrupt is not early.
void hardware_start_timer(unsigned timer, uint32_t ticks)
{
    TIMER(timer)->control = 0;
    TIMER(timer)->intclr = 1;
    VIC_UNPEND = 1u << (IRQ_TIMER + timer);
    TIMER(timer)->load = ticks / TICKS_PER_COUNT + 1;
    if (ticks > 0)
        TIMER(timer)->control = CONTROL_ONE_SHOT | CONTROL_32_BITS | CONTROL_INTERRUPT | CONTROL_ENABLE;
    else
        VIC_PEND = 1u << (IRQ_TIMER + timer);
}

void board_pend(unsigned line)
{
    uint32_t before = board_block();
    pending |= 1u << line;
    VIC_PEND = 1u << IRQ_LINES;
    __asm__ volatile("dsb" ::: "memory");
    board_restore(before);
}

uint32_t board_block(void)
{
    uint32_t before;
    __asm__ volatile("mrs %0, cpsr\n\tcpsid i" : "=r"(before)::"memory");
    return before & 0x80;
}

void board_restore(uint32_t before)
{
    if (before == 0)
        __asm__ volatile("cpsie i" ::: "memory");
}

// A blocked interrupt ends the sleep too: CPSR.I does not prevent that.
void board_sleep(void)
{
    __asm__ volatile("dsb\n\twfi" ::: "memory");
}

// The handlers of timers run with all interrupts blocked, so neither interrupts the other.
static void flash_timer(void)
{
    timer_interrupt(FLASH_TIMER);
}

static void deadline_timer(void)
{
    timer_interrupt(DEADLINE_TIMER);
}

// Timers may interrupt this handler.
static void lines(void)
{
    VIC_UNPEND = 1u << IRQ_LINES;
    uint32_t taken = pending;
    pending = 0;
    __asm__ volatile("cpsie i" ::: "memory");
    for (unsigned line = 0; line < BOARD_LINES; line++)
        if (taken & 1u << line)
            host_interrupt(line);
    __asm__ volatile("cpsid i" ::: "memory");
}

void hardware_init(void)
{
    const struct {
        void (*handler)(void);
        uint32_t interrupt;
    } slots[] = {{flash_timer, IRQ_TIMER}, {deadline_timer, IRQ_TIMER + 1}, {lines, IRQ_LINES}};
    for (unsigned i = 0; i < sizeof slots / sizeof *slots; i++) {
        VIC_SLOT_ADDR[i] = (uintptr_t)slots[i].handler;
        VIC_SLOT_CONTROL[i] = SLOT_ENABLE | slots[i].interrupt;
        VIC_ENABLE = 1u << slots[i].interrupt;
    }
}

__attribute__((used)) static void interrupt(void)
{
    void (*handler)(void) = (void (*)(void))VIC_VECTADDR;
    handler();
    VIC_VECTADDR = 0;
}

// Everything runs in System mode on one stack, so that handlers can nest. CLREX is needed because an interrupt may come
// between LDREX and STREX, and this processor does not notice it. The FPU's registers are saved because compilers use
// them for copies.
__asm__(".pushsection .vectors, \"ax\"\n"
        ".arm\n"
        "    ldr pc, =entry\n"
        "    ldr pc, =fault\n" // undefined instruction
        "    ldr pc, =fault\n" // supervisor call
        "    ldr pc, =fault\n" // prefetch abort
        "    ldr pc, =fault\n" // data abort
        "    nop\n"
        "    ldr pc, =irq\n"
        "    ldr pc, =fault\n" // fast interrupt
        ".globl entry\n"
        "entry:\n"
        "    cpsid if, #0x1f\n"
        "    ldr sp, =stack_end\n"
        "    mrc p15, 0, r0, c1, c0, 2\n" // CPACR: full access to the FPU
        "    orr r0, r0, #0xf << 20\n"
        "    mcr p15, 0, r0, c1, c0, 2\n"
        "    isb\n"
        "    mov r0, #1 << 30\n" // FPEXC: the FPU is on
        "    vmsr fpexc, r0\n"
        "    b start\n"
        "irq:\n"
        "    sub lr, lr, #4\n"
        "    srsdb sp!, #0x1f\n"
        "    cps #0x1f\n"
        "    push {r0-r4, r12, lr}\n"
        "    and r4, sp, #4\n" // the ABI requires an alignment of 8 bytes
        "    sub sp, sp, r4\n"
        "    vmrs r0, fpscr\n"
        "    push {r0, r1}\n"
        "    vpush {d0-d7}\n"
        "    bl interrupt\n"
        "    vpop {d0-d7}\n"
        "    pop {r0, r1}\n"
        "    vmsr fpscr, r0\n"
        "    add sp, sp, r4\n"
        "    pop {r0-r4, r12, lr}\n"
        "    clrex\n"
        "    rfeia sp!\n"
        ".ltorg\n"
        ".popsection\n");
