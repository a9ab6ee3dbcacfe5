// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Hints without a change of any driver: reads of an NVMe disk by io_uring passthrough, with a hint in each command.
 *
 *   passthrough /dev/ngXnY urgent|barrier|plain COUNT
 *
 * Reads 4 KiB each from the start of the disk, in batches of 16. A barrier is on the last of a batch. Linux 5.19 or newer.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/nvme_ioctl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BATCH = 16, BYTES = 4096, NVME_READ = 2 };
/* Bits 17:16 of command dword 12. */
enum { PLAIN = 0, URGENT = 1 << 16, BARRIER = 2 << 16 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

struct ring {
	int fd;
	char *queues;
	uint8_t *sqes; /* of 128 bytes: a command is in the second half */
	struct io_uring_params params;
};

static void ring_open(struct ring *ring)
{
	struct io_uring_params *p = &ring->params;
	size_t size;

	p->flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32;
	ring->fd = (int)syscall(__NR_io_uring_setup, BATCH, p);
	if (ring->fd < 0)
		die("io_uring_setup");
	size = p->cq_off.cqes + p->cq_entries * 2 * sizeof(struct io_uring_cqe);
	if (size < p->sq_off.array + p->sq_entries * sizeof(uint32_t))
		size = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
	ring->queues = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			    IORING_OFF_SQ_RING);
	ring->sqes = mmap(NULL, (size_t)p->sq_entries * 128, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	if (ring->queues == MAP_FAILED || ring->sqes == MAP_FAILED)
		die("mmap of the ring");
}

static _Atomic uint32_t *word(struct ring *ring, uint32_t offset)
{
	return (_Atomic uint32_t *)(ring->queues + offset);
}

/* Places the i-th command of a batch. */
static void place(struct ring *ring, uint32_t i, int file, const struct nvme_uring_cmd *command)
{
	struct io_uring_sqe *sqe = (struct io_uring_sqe *)(ring->sqes + (size_t)i * 128);
	uint32_t tail = atomic_load(word(ring, ring->params.sq_off.tail));
	uint32_t *array = (uint32_t *)(ring->queues + ring->params.sq_off.array);

	memset(sqe, 0, 128);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = file;
	sqe->cmd_op = NVME_URING_CMD_IO;
	sqe->user_data = i;
	memcpy((uint8_t *)sqe + offsetof(struct io_uring_sqe, cmd), command, sizeof(*command));
	array[tail & (ring->params.sq_entries - 1)] = i;
	atomic_store_explicit(word(ring, ring->params.sq_off.tail), tail + 1, memory_order_release);
}

/* Submits n commands and waits for all. */
static void submit(struct ring *ring, uint32_t n)
{
	uint32_t head = atomic_load(word(ring, ring->params.cq_off.head));
	uint32_t mask = ring->params.cq_entries - 1;

	if (syscall(__NR_io_uring_enter, ring->fd, n, n, IORING_ENTER_GETEVENTS, NULL, 0) != n)
		die("io_uring_enter");
	for (uint32_t i = 0; i < n; i++, head++) {
		const struct io_uring_cqe *cqe;

		while (atomic_load_explicit(word(ring, ring->params.cq_off.tail),
					    memory_order_acquire) == head)
			;
		cqe = (const struct io_uring_cqe *)(ring->queues + ring->params.cq_off.cqes +
						    (size_t)(head & mask) * 32);
		if (cqe->res) { /* an errno below 0, an NVMe status above */
			fprintf(stderr, "passthrough: command %u: %d\n", (unsigned)cqe->user_data,
				cqe->res);
			exit(1);
		}
		atomic_store_explicit(word(ring, ring->params.cq_off.head), head + 1,
				      memory_order_release);
	}
}

int main(int argc, char **argv)
{
	struct ring ring = {0};
	uint32_t hint, count;
	uint8_t *buffers;
	int file, nsid, block;

	if (argc != 4 || (count = (uint32_t)strtoul(argv[3], NULL, 10)) == 0) {
		fprintf(stderr, "passthrough /dev/ngXnY urgent|barrier|plain COUNT\n");
		return 2;
	}
	hint = !strcmp(argv[2], "urgent") ? URGENT : !strcmp(argv[2], "barrier") ? BARRIER : PLAIN;
	file = open(argv[1], O_RDONLY);
	if (file < 0)
		die(argv[1]);
	nsid = ioctl(file, NVME_IOCTL_ID);
	if (nsid < 0)
		die("NVME_IOCTL_ID");
	block = 512; /* of the disk; others: from Identify */
	buffers = aligned_alloc(BYTES, (size_t)BATCH * BYTES);
	if (!buffers)
		die("memory");
	ring_open(&ring);
	for (uint32_t done = 0; done < count;) {
		uint32_t n = count - done < BATCH ? count - done : BATCH;

		for (uint32_t i = 0; i < n; i++) {
			uint64_t lba = (uint64_t)(done + i) * (BYTES / (uint32_t)block);
			struct nvme_uring_cmd command = {
				.opcode = NVME_READ,
				.nsid = (uint32_t)nsid,
				.addr = (uintptr_t)(buffers + (size_t)i * BYTES),
				.data_len = BYTES,
				.cdw10 = (uint32_t)lba,
				.cdw11 = (uint32_t)(lba >> 32),
				.cdw12 = (uint32_t)(BYTES / block - 1) |
					 (hint == BARRIER && i + 1 < n ? PLAIN : hint),
			};

			place(&ring, i, file, &command);
		}
		submit(&ring, n);
		done += n;
	}
	printf("%u reads\n", count);
	return 0;
}
