# A disk for BIOS: its boot sector reads it by INT 13h in pieces of 1 to 64 sectors, at addresses of all kinds, compares,
# writes, reads that back, and prints a line that was on the disk to COM1.
	.set	factor, 0x9e3779b1
	.set	line, 1			# sector of the line
	.set	data, 2			# first sector of the data
	.set	copy, data + 2048	# first sector of what is written
	.code16
	.text
	.globl	_start
_start:	xorw	%ax, %ax
	movw	%ax, %ds
	movw	%ax, %ss
	movw	$0x7c00, %sp
	movb	%dl, drive
	movw	%ax, round
	movb	$'>', %al
	call	putc
next:	movw	round, %bp
	andw	$63, %bp
	incw	%bp			# sectors
	movw	%bp, count
	movw	round, %ax
	imulw	$12, %ax, %ax
	movw	%ax, %si		# first sector, of the data
	addw	$data, %ax
	movw	%ax, lba
	movw	round, %ax
	imulw	$20, %ax, %ax
	andw	$0x1fc, %ax
	movw	%ax, offset
	movb	$0x42, %ah
	call	disk
	call	check
	testw	$7, round
	jnz	1f
	addw	$2048, lba
	movb	$0x43, %ah
	call	disk
	call	clear
	movb	$0x42, %ah
	call	disk
	call	check
	movb	$'.', %al
	call	putc
1:	incw	round
	cmpw	$128, round
	jb	next

	movw	$1, count
	movw	$line, lba
	movb	$0x42, %ah
	call	disk
	movw	offset, %si
2:	movb	%es:(%si), %al
	incw	%si
	testb	%al, %al
	jz	halt
	call	putc
	jmp	2b

disk:	pushw	%si			# %ah: what to do; %es: where it is
	movb	$0, %al
	movb	drive, %dl
	movw	$packet, %si
	int	$0x13
	popw	%si
	movb	$'D', %al
	jc	bad
	movw	$0x2000, %ax
	movw	%ax, %es
	ret

check:	movw	offset, %di		# %bp sectors: each of their words is its index times a factor
	movzwl	%si, %eax
	imull	$128 * factor, %eax, %eax
	movw	%bp, %cx
	shlw	$7, %cx
3:	cmpl	%es:(%di), %eax
	jne	4f
	addl	$factor, %eax
	addw	$4, %di
	loop	3b
	ret
4:	movb	$'C', %al
bad:	call	putc
halt:	hlt
	jmp	halt

clear:	movw	offset, %di
	movw	%bp, %cx
	shlw	$8, %cx
	xorw	%ax, %ax
	cld
	rep	stosw
	ret

putc:	pushw	%ax
	movw	$0x3fd, %dx
5:	inb	%dx, %al
	testb	$0x20, %al
	jz	5b
	popw	%ax
	movw	$0x3f8, %dx
	outb	%al, %dx
	ret

	.balign	4
packet:	.byte	16, 0
count:	.word	0
offset:	.word	0, 0x2000
lba:	.quad	0
drive:	.byte	0
round:	.word	0
	.org	510
	.word	0xaa55
	.incbin	"line"
	.org	data * 512
	.set	n, 0
	.rept	2048 * 128
	.long	(n * factor) & 0xffffffff
	.set	n, n + 1
	.endr
