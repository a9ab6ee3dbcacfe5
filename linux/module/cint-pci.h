/* SPDX-License-Identifier: GPL-2.0 */
/* What pci.c keeps for calibrated interrupts, and what it calls. Included behind its other headers. */
#ifndef CINT_PCI_H
#define CINT_PCI_H

#include <linux/hrtimer.h>
#include <linux/spinlock.h>
#include "cint.h"

/* The largest queue of pci.c has 4096 entries. */
#define NVME_CINT_ENTRIES 4096

struct nvme_cint_request {
	u8 hint;
	u8 batch; /* 0: none */
};

struct nvme_cint_queue {
	spinlock_t
		lock; /* completions: the interrupt handler and the timer; batches, inside the submission queue's lock */
	struct hrtimer timer;
	bool armed;
	bool strict; /* as it was when the queue was created */
	u64 taken[NVME_CINT_ENTRIES / 64];
	struct cint_batches batches; /* for strict Barriers */
};

struct nvme_queue;

static void nvme_cint_alloc(struct nvme_queue *nvmeq);
static void nvme_cint_init(struct nvme_queue *nvmeq);
static void nvme_cint_stop(struct nvme_queue *nvmeq);
static void nvme_cint_submit(struct nvme_queue *nvmeq, struct request *req, bool last);
static int nvme_cint_irq(struct nvme_queue *nvmeq, struct io_comp_batch *iob);
static int nvme_cint_reap(struct nvme_queue *nvmeq, struct io_comp_batch *iob);

#endif
