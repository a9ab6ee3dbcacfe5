// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * batch DEVICE ROUNDS: submits batches of 15 small reads from 128 MiB on and a large one from 192 MiB on, which takes longer,
 * and prints how many of them were whole when io_getevents returned first. It is to run on the CPU that gets the interrupts:
 * then it sees all that an interrupt takes at once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 16, SMALL = 4096, LARGE = 512 << 10, STEP = 1 << 20 };

int main(int argc, char **argv)
{
	int file = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECT) : -1;
	int rounds = argc == 3 ? atoi(argv[2]) : 0, whole = 0;
	struct iocb commands[BATCH] = {0}, *list[BATCH];
	struct io_event events[BATCH];
	aio_context_t context = 0;
	char *memory;

	if (file < 0 || syscall(SYS_io_setup, BATCH, &context)) {
		perror("batch DEVICE ROUNDS");
		return 2;
	}
	memory = aligned_alloc(STEP, (size_t)BATCH * STEP);
	if (!memory)
		return 1;
	for (int round = 0; round < rounds; round++) {
		long first, more = 0;

		for (int i = 0; i < BATCH; i++) {
			list[i] = &commands[i];
			commands[i] = (struct iocb){
				.aio_lio_opcode = IOCB_CMD_PREAD,
				.aio_fildes = file,
				.aio_buf = (uintptr_t)(memory + (size_t)i * STEP),
				.aio_nbytes = i == BATCH - 1 ? LARGE : SMALL,
				.aio_offset = (long long)((i == BATCH - 1 ? 192 : 128) +
							  (round + i) % 64) *
					      STEP,
			};
		}
		if (syscall(SYS_io_submit, context, BATCH, list) != BATCH) {
			perror("io_submit");
			return 1;
		}
		first = syscall(SYS_io_getevents, context, 1, BATCH, events, NULL);
		if (first < 1 ||
		    (first < BATCH && (more = syscall(SYS_io_getevents, context, BATCH - first,
						      BATCH - first, events + first, NULL)) < 0) ||
		    first + more != BATCH) {
			perror("io_getevents");
			return 1;
		}
		for (int i = 0; i < BATCH; i++) {
			if (events[i].res < SMALL) {
				fprintf(stderr, "a read gave %lld\n", (long long)events[i].res);
				return 1;
			}
		}
		whole += first == BATCH;
	}
	printf("%d\n", whole);
	return 0;
}
