// The CPU: its descriptor tables, its local APIC, its clock, and what happens when it cannot go on.
#include "bare.h"

struct gate {
    uint16_t offset_0;
    uint16_t selector;
    uint8_t stack, type;
    uint16_t offset_16;
    uint32_t offset_32, reserved;
};
struct __attribute__((packed)) task {
    uint32_t reserved;
    uint64_t kernel_stack;
    uint8_t unused[90];
    uint16_t ports_offset;
    uint8_t ports[65536 / 8], end; // a bit for each port that user mode may not use
};

extern uint8_t interrupt_stubs[], timer_stub[], exception_stubs[], wait_for_event[], kernel_stack_end[];
extern uint64_t gdt[];
struct gate idt[256];
static struct task task;
volatile uint32_t taken[DISK_VECTORS], events;
static uint32_t tsc_khz, hypervisor;

// What compilers call without being asked.
void *memset(void *to, int value, size_t bytes)
{
    void *at = to;
    __asm__ volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(value) : "memory");
    return to;
}
void *memcpy(void *to, const void *from, size_t bytes)
{
    void *at = to;
    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(bytes) : : "memory");
    return to;
}

static void set_gate(unsigned vector, const uint8_t *code)
{
    uintptr_t at = (uintptr_t)code;
    idt[vector] = (struct gate){.offset_0 = at, .selector = KERNEL_CODE, .type = 0x8e, .offset_16 = at >> 16};
}

// In kernel mode.
void set_up_kernel(void)
{
    for (unsigned n = 0; n < EXCEPTIONS; n++) {
        set_gate(n, exception_stubs + n * EXCEPTION_STUB);
    }
    for (unsigned n = 0; n < DISK_VECTORS; n++) {
        set_gate(FIRST_VECTOR + n, interrupt_stubs + n * INTERRUPT_STUB);
    }
    set_gate(TIMER_VECTOR, timer_stub);
    set_gate(WAIT_VECTOR, wait_for_event);
    task = (struct task){.kernel_stack = (uintptr_t)kernel_stack_end, .ports_offset = offsetof(struct task, ports), .end = 0xff};
    uint64_t at = (uintptr_t)&task;
    gdt[TASK / 8] = (sizeof(task) - 1) | (at & 0xffffff) << 16 | 0x89ull << 40 | (at >> 24 & 0xff) << 56;
    gdt[TASK / 8 + 1] = at >> 32;
    uint32_t a = 0x40000000, c, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(hypervisor), "=c"(c), "=d"(d));
}

void report_exception(const uint64_t *stack)
{
    print("\nGUEST-ERROR exception %l, then on the stack %x %x %x\n", stack[0], stack[1], stack[2], stack[3]);
}

static volatile uint32_t *apic(unsigned offset)
{
    return (volatile uint32_t *)(uintptr_t)(APIC + offset);
}

// Cycles of the time stamp counter in 10 ms of the PC's timer: channel 2, mode 0, whose output is bit 5 of port 0x61.
static uint32_t measure_tsc_khz(void)
{
    const unsigned ticks = 11932; // at 1.193182 MHz
    outb(0x61, (inb(0x61) & ~2) | 1);
    outb(0x43, 0xb0);
    outb(0x42, ticks & 0xff);
    outb(0x42, ticks >> 8);
    uint64_t begin = now();
    while (!(inb(0x61) & 0x20)) {
    }
    return (now() - begin) / 10;
}

void set_up_machine(void)
{
    outb(0x21, 0xff); // the old interrupt controllers
    outb(0xa1, 0xff);
    *apic(0xf0) = 0x1ff; // on; spurious interrupts have a vector that is an exception here
    *apic(0x80) = 0;     // every priority
    *apic(0x350) = 1 << 16;
    *apic(0x3e0) = 0xb; // the timer's clock divided by 1: in QEMU and KVM a nanosecond
    *apic(0x320) = TIMER_VECTOR;
    tsc_khz = measure_tsc_khz();
}

uint64_t ns_of(uint64_t cycles)
{
    return cycles * 1000000 / tsc_khz;
}
uint64_t cycles_of(uint64_t ns)
{
    return ns * tsc_khz / 1000000;
}
const char *accelerator(void)
{
    return hypervisor == 0x54474354 ? "tcg" : "kvm"; // "TCGT" of "TCGTCGTCGTCG"
}
void set_alarm(uint64_t ns)
{
    *apic(0x380) = ns == 0 ? 1 : ns > UINT32_MAX ? UINT32_MAX : ns;
}
