# A program of the guest that computes while its CPU has nothing better to do (SCHED_IDLE). After each round it writes a byte to the port
# of QEMU's -debugcon: the host counts them.
        .globl _start
_start: mov $144, %eax          # sched_setscheduler(0, SCHED_IDLE, &priority)
        xor %edi, %edi
        mov $5, %esi
        lea priority(%rip), %rdx
        syscall
        test %eax, %eax
        jnz failed
        mov $172, %eax          # iopl(3)
        mov $3, %edi
        syscall
        test %eax, %eax
        jnz failed
round:  mov $100000, %ecx
step:   dec %ecx
        jnz step
        out %al, $0xe9
        jmp round
failed: mov $60, %eax           # exit(1)
        mov $1, %edi
        syscall
priority: .long 0
