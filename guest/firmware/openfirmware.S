# What SLOF loads from a PReP partition: checks each word of itself, and prints a line that was on the disk. Open Firmware
# (IEEE 1275) enters a program with the address of its services in r5.
	.macro	serve	request
	lis	%r3, \request@ha
	addi	%r3, %r3, \request@l
	mtctr	%r31
	bctrl
	.endm
	.macro	copy	from, to
	lis	%r4, (\from)@ha
	lwz	%r5, (\from)@l(%r4)
	lis	%r4, (\to)@ha
	stw	%r5, (\to)@l(%r4)
	.endm

	.text
	.globl	_start
_start:	mr	%r31, %r5
	lis	%r4, pattern@ha
	addi	%r4, %r4, pattern@l
	lis	%r5, WORDS@ha
	addi	%r5, %r5, WORDS@l
	mtctr	%r5
	lis	%r6, 0x9e37
	ori	%r6, %r6, 0x79b1
	li	%r5, 0
check:	lwz	%r7, 0(%r4)		# each word is its index times a constant
	cmplw	%r7, %r5
	bne	bad
	add	%r5, %r5, %r6
	addi	%r4, %r4, 4
	bdnz	check
	serve	find
	copy	find + 16, get + 12	# the node
	serve	get
	copy	stdout, write + 12
	serve	write
bad:	serve	exit

	.data
	.balign	4
# A service, the number of its arguments and of its results, and both.
find:	.long	name_find, 1, 1, chosen, 0
get:	.long	name_get, 4, 1, 0, name_stdout, stdout, 4, 0
write:	.long	name_write, 3, 1, 0, line, line_end - line, 0
exit:	.long	name_exit, 0, 0
stdout:	.long	0
pattern:
	.include "pattern.inc"
name_find:	.asciz	"finddevice"
name_get:	.asciz	"getprop"
name_write:	.asciz	"write"
name_exit:	.asciz	"exit"
name_stdout:	.asciz	"stdout"
chosen:	.asciz	"/chosen"
line:	.incbin	"line"
line_end:
