// What boot.S and the C files both know. Constants only.
#pragma once

// Selectors of the GDT. The last two bits of those of user mode are its privilege level.
#define KERNEL_CODE 0x08
#define KERNEL_DATA 0x10
#define BOOT_CODE 0x18
#define USER_DATA 0x23
#define USER_CODE 0x2b
#define TASK 0x30

// Interrupt vectors: one for each vector of the disk, in its order, then the timer's.
#define DISK_VECTORS 16
#define FIRST_VECTOR 0x40
#define TIMER_VECTOR (FIRST_VECTOR + DISK_VECTORS)
#define EXCEPTIONS 32
// User mode waits with an invalid opcode, ud2: not every hypervisor delivers a software interrupt.
#define WAIT_VECTOR 6

// Distance of the stubs of interrupts and of exceptions.
#define INTERRUPT_STUB 32
#define EXCEPTION_STUB 16

// The local APIC, which the page tables map below 2^64 as well: a 32-bit displacement is extended with its sign.
#define APIC 0xfee00000
#define APIC_EOI 0xb0
