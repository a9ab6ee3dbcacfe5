// From the reset vector to user mode, and all that runs in kernel mode afterwards: interrupts, and the wait for one.
//
// QEMU maps the image (-bios) below 4 GiB and below 1 MiB. It goes through protected mode, copies itself to RAM at 1 MiB, and enters
// long mode with 4 GiB of memory mapped one to one. The driver runs in user mode, with access to ports: some hypervisors run user
// mode at full speed and interpret every instruction of kernel mode.
#include "layout.h"

#define IMAGE 0xf0000
#define RAM 0x100000

    .section .reset, "ax"
    .code16
    jmp     start16
    .org    16

    .section .start, "ax"
start16:
    cli
    lgdtl   %cs:boot_gdtr - IMAGE
    movl    %cr0, %eax
    orb     $1, %al
    movl    %eax, %cr0
    ljmpl   $BOOT_CODE, $start32
boot_gdtr:
    .word   gdt_end - gdt - 1
    .long   gdt - RAM + IMAGE

    .code32
start32:
    movl    $KERNEL_DATA, %eax
    movl    %eax, %ds
    movl    %eax, %es
    movl    %eax, %ss
    cld
    movl    $IMAGE, %esi
    movl    $RAM, %edi
    movl    $image_longs, %ecx
    rep movsl
    // Pages of 2 MiB, for everyone. The upper GiB once more at the end of the address space.
    movl    $tables_3 + 7, tables_4
    movl    $tables_3 + 7, tables_4 + 511 * 8
    movl    $tables_2 + 0x0007, tables_3
    movl    $tables_2 + 0x1007, tables_3 + 8
    movl    $tables_2 + 0x2007, tables_3 + 16
    movl    $tables_2 + 0x3007, tables_3 + 24
    movl    $tables_2 + 0x3007, tables_3 + 511 * 8
    movl    $tables_2, %edi
    movl    $0x87, %eax
1:  movl    %eax, (%edi)
    addl    $8, %edi
    addl    $0x200000, %eax
    jnc     1b
    movl    $tables_4, %eax
    movl    %eax, %cr3
    movl    $0x20, %eax                 // CR4.PAE
    movl    %eax, %cr4
    movl    $0xc0000080, %ecx           // EFER.LME
    rdmsr
    orl     $0x100, %eax
    wrmsr
    movl    $0x80010001, %eax           // CR0: PG, WP, PE
    movl    %eax, %cr0
    ljmpl   $KERNEL_CODE, $start64

    .text
    .code64
start64:
    movl    $kernel_stack_end, %esp
    lgdt    gdtr
    movl    $KERNEL_DATA, %eax
    movl    %eax, %ds
    movl    %eax, %es
    movl    %eax, %ss
    call    set_up_kernel
    lidt    idtr
    movl    $TASK, %eax
    ltr     %ax
    pushq   $USER_DATA
    pushq   $user_stack_end - 8
    pushq   $0x202                      // RFLAGS: IF
    pushq   $USER_CODE
    pushq   $guest
    iretq

// Each vector of the disk counts for itself, and all of them together with the timer.
    .macro  interrupt counter
    .balign INTERRUPT_STUB
    .ifnb   \counter
    incl    \counter
    .endif
    incl    events
    movl    $0, APIC - (1 << 32) + APIC_EOI
    iretq
    .endm

    .globl  interrupt_stubs, timer_stub, exception_stubs, wait_for_event
    .balign INTERRUPT_STUB
interrupt_stubs:
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    interrupt "taken + 4 * \n"
    .endr
    .balign INTERRUPT_STUB
timer_stub:
    interrupt

// Halts until an interrupt comes, unless one has come since there were EAX of them. Interrupts are off until the halt, and an
// instruction longer.
wait_for_event:
    cmpl    %eax, events
    jne     1f
    sti
    hlt
1:  addq    $2, (%rsp)                  // behind ud2
    iretq

    .balign EXCEPTION_STUB
exception_stubs:
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    .balign EXCEPTION_STUB
    pushq   $\n
    jmp     exception
    .endr
exception:
    movq    %rsp, %rdi
    andq    $-16, %rsp
    call    report_exception
1:  cli
    hlt
    jmp     1b

    .data
    .globl  gdt
    .balign 16
gdt:
    .quad   0
    .quad   0x00af9b000000ffff          // KERNEL_CODE
    .quad   0x00cf93000000ffff          // KERNEL_DATA
    .quad   0x00cf9b000000ffff          // BOOT_CODE
    .quad   0x00cff3000000ffff          // USER_DATA
    .quad   0x00affb000000ffff          // USER_CODE
    .quad   0, 0                        // TASK: set_up_kernel
gdt_end:
gdtr:
    .word   gdt_end - gdt - 1
    .quad   gdt
idtr:
    .word   256 * 16 - 1
    .quad   idt

    .bss
    .globl  kernel_stack_end
    .balign 4096
tables_4:
    .skip   4096
tables_3:
    .skip   4096
tables_2:
    .skip   4 * 4096
    .skip   8192
kernel_stack_end:
    .skip   32768
user_stack_end:
