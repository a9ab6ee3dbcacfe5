// A guest of its own: a driver for a virtio-blk or an NVMe disk, and loads that count the interrupts they take.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "layout.h"

// Queues of a disk, at most: one vector is that of its configuration or of its administration queue.
#define QUEUES_MAX (DISK_VECTORS - 1)
// Requests of a queue at a time, at most.
#define DEPTH_MAX 64
// Bytes of a request. Blocks of this size are what disks are counted in.
#define BLOCK_BYTES 4096

#define PAGE_ALIGNED __attribute__((aligned(4096)))

// machine.c: the CPU, its ports, its clock.

// Interrupts so far: of each vector of the disk; of all of these and of the timer. Only interrupts change them.
extern volatile uint32_t taken[DISK_VECTORS], events;

static inline void outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}
static inline uint8_t inb(uint16_t port)
{
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
static inline void outl(uint16_t port, uint32_t value)
{
    __asm__ volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}
static inline uint32_t inl(uint16_t port)
{
    uint32_t value;
    __asm__ volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}
// Writes before it are seen before those after it, and reads likewise: x86 needs no instruction for that.
static inline void ordered(void)
{
    __asm__ volatile("" : : : "memory");
}
// Writes before it are seen before anything after it is read.
static inline void fence(void)
{
    __asm__ volatile("mfence" : : : "memory");
}
// The time, in cycles.
static inline uint64_t now(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}
// Halts until an interrupt comes, unless one has come since there were `seen` events.
static inline void wait_for_events_after(uint32_t seen)
{
    __asm__ volatile("ud2" : : "a"(seen) : "memory", "cc");
}

void set_up_machine(void);
uint64_t ns_of(uint64_t cycles);
uint64_t cycles_of(uint64_t ns);
const char *accelerator(void);
// Schedules an event in `ns` nanoseconds; it replaces the one before.
void set_alarm(uint64_t ns);

// console.c: lines on serial ports.

// The first port has commands and results, the second one, if there is one, questions and answers.
enum { COM1 = 0x3f8, COM2 = 0x2f8 };
struct line {
    uint16_t port;
    unsigned length;
    char text[256];
};
bool has_port(uint16_t port);
// Whether the line has come to its end; it has no line feed then, and the next one begins.
bool has_line(struct line *line);
// Prints: %s a text, %u an unsigned, %l a uint64_t, %x one in hexadecimal digits.
void print_to(uint16_t port, const char *format, ...);
#define print(...) print_to(COM1, __VA_ARGS__)
bool begins_with(const char *text, const char *word);
// The number that a text begins with, and goes on behind it; false: it begins with none.
bool read_number(const char **text, uint64_t *number);

// pci.c: the one disk of bus 0.

struct pci {
    unsigned device;
    uint8_t *bars[6];
    unsigned vectors;
};
uint32_t pci_read(const struct pci *pci, unsigned offset);
// The next capability with this ID after the one at `after`, 0: the first; 0: there is none.
unsigned pci_capability(const struct pci *pci, unsigned id, unsigned after);
// Finds a device whose (read of `offset`) >> shift is a value, maps it, and sends its message `n` as interrupt FIRST_VECTOR + n.
bool pci_find(struct pci *pci, unsigned offset, unsigned shift, uint32_t value);

// virtio_blk.c, nvme.c: drivers. Queue n interrupts with vector n + 1.

struct disk {
    const char *name;
    uint64_t blocks;
    unsigned queues;
    bool event_idx;
    uint64_t kicks; // doorbells that were rung
    // A read of a block into a buffer. The device need not see it before the kick.
    void (*put)(unsigned queue, unsigned slot, uint64_t block, void *buffer);
    void (*kick)(unsigned queue);
    // Calls `completed` for what has completed; to be called after an interrupt.
    void (*reap)(unsigned queue);
};
// Whether there is such a disk, which is then `disk`. One that cannot be used: a line GUEST-ERROR, and false.
bool virtio_blk_probe(void);
bool nvme_probe(void);
extern struct disk disk;

// load.c: what is done with it.

void completed(unsigned queue, unsigned slot, bool is_ok);
// "N STREAM...": runs streams until the first has completed N reads, or, with 0, until a line "stop" comes. See run-bare.sh.
void run_load(const char *words, struct line *commands, struct line *questions);
// Answers a question, if there is one and a line for it: "QUESTION COUNT", the interrupts of all queues so far.
void answer(struct line *questions);
