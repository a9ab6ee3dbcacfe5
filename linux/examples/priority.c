// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * A hint that needs neither passthrough nor another driver on virtio-blk: an I/O priority. Real time is Urgent, idle is none.
 *
 *   priority FILE realtime|idle|default COUNT
 *
 * Reads 4 KiB each from the start of the file, with O_DIRECT. A virtio-blk device sees the priority of each request; an NVMe
 * device sees none, unless the driver makes a hint of it. Real time needs CAP_SYS_ADMIN or CAP_SYS_NICE.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/ioprio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 4096 };

int main(int argc, char **argv)
{
	int file = argc == 4 ? open(argv[1], O_RDONLY | O_DIRECT) : -1;
	long count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
	void *buffer = aligned_alloc(BYTES, BYTES);
	int class;

	if (file < 0 || !buffer) {
		perror("priority FILE realtime|idle|default COUNT");
		return 2;
	}
	class = !strcmp(argv[2], "realtime") ? IOPRIO_CLASS_RT
		: !strcmp(argv[2], "idle")   ? IOPRIO_CLASS_IDLE
					     : IOPRIO_CLASS_NONE;
	/* Of this thread, for all its requests; io_uring and libaio can set it for each (ioprio, aio_reqprio). */
	if (syscall(__NR_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(class, 0))) {
		perror("ioprio_set");
		return 1;
	}
	for (long i = 0; i < count; i++) {
		if (pread(file, buffer, BYTES, i * BYTES) != BYTES) {
			perror("pread");
			return 1;
		}
	}
	free(buffer);
	printf("%ld reads\n", count);
	return 0;
}
