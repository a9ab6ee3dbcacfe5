/* What s390-ccw loads from a disk: checks each word of itself, and prints a line that was on the disk.
 * s390-ccw takes an image with this beginning for a kernel, loads it to address 0, and jumps to 0x10000 (head.S of Linux). */
	.set	base, 0x10000
	.text
	.org	0x8			/* the first channel command words of a kernel, by which an image is recognised */
	.byte	0x02, 0, 0, 0x18, 0x60, 0, 0, 0x50, 0x02, 0, 0, 0x68, 0x60, 0, 0, 0x50
	.byte	0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40
	.org	base
	j	start
	.org	base + 8
	.ascii	"S390EP"
	.byte	0, 1

start:	basr	%r13, 0
here:	l	%r2, first - here(%r13)
	l	%r3, last - here(%r13)
	l	%r6, factor - here(%r13)
	xr	%r4, %r4
check:	cl	%r4, 0(%r2)		/* each word is its index times a constant */
	jne	bad
	alr	%r4, %r6
	ahi	%r2, 4
	clr	%r2, %r3
	jl	check

	l	%r4, mask - here(%r13)
	l	%r5, masks - here(%r13)
	bras	%r14, call
	l	%r4, write - here(%r13)
	l	%r5, event - here(%r13)
	bras	%r14, call
bad:	lpsw	stop - here(%r13)	/* QEMU ends */

call:	.insn	rre, 0xb2200000, %r4, %r5	/* servc */
	brc	2, call			/* busy */
	br	%r14

	.balign	8
stop:	.long	0x000a0000, 0x80000000	/* a disabled wait */
first:	.long	pattern
last:	.long	pattern_end
factor:	.long	0x9e3779b1
mask:	.long	0x00780005		/* write event mask */
masks:	.long	mask_sccb
write:	.long	0x00760005		/* write event data */
event:	.long	event_sccb

	.balign	4096
mask_sccb:
	.short	24, 0, 0, 0
	.short	0, 4
	.long	0, 0x40, 0, 0		/* sends: event 26, characters */
	.balign	4096
event_sccb:
	.short	event_end - event_sccb, 0, 0, 0
	.short	event_end - . , 0x1a00, 0
	.incbin	"line"
event_end:
	.balign	4096
pattern:
	.include "pattern.inc"
pattern_end:
