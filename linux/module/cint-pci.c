// SPDX-License-Identifier: GPL-2.0
/*
 * Calibrated interrupts in the NVMe PCI driver. Included at the end of pci.c, whose functions it calls.
 *
 * Requests carry a hint in reserved bits of reads and writes. The interrupt handler takes urgent completions alone, and
 * leaves the others to their own interrupt (§3.5). Interrupts merge, and a device need not know of this, so nothing is left
 * without a timer: after cint_hold_us everything is taken.
 */
#include <linux/ioprio.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/version.h>
#include <asm/syscall.h>

#define NVME_CINT_SWITCH(name, value, text)                                                        \
	static bool cint_##name = value;                                                           \
	module_param(cint_##name, bool, 0644);                                                     \
	MODULE_PARM_DESC(cint_##name, text)

NVME_CINT_SWITCH(ioprio, true, "hint: real time is Urgent, idle has no hint");
NVME_CINT_SWITCH(sync, true, "hint: a request that blocks its submitter is Urgent");
NVME_CINT_SWITCH(flush, true,
		 "hint: a flush is Urgent (it has no bits; the device knows it by its opcode)");
NVME_CINT_SWITCH(fua, true, "hint: a write with forced unit access is Urgent");
NVME_CINT_SWITCH(last, true, "hint: the last request of a batch is a Barrier");
NVME_CINT_SWITCH(ooo, false,
		 "take urgent completions first, and leave the others to their own interrupt");
NVME_CINT_SWITCH(strict, false,
		 "hold a batch's completions back until all are there; from the next reset on");

static unsigned int cint_hold_us = 200;

static int cint_hold_us_set(const char *text, const struct kernel_param *param)
{
	return param_set_uint_minmax(text, param, 0, 10000000);
}

static const struct kernel_param_ops cint_hold_us_ops = {
	.set = cint_hold_us_set,
	.get = param_get_uint,
};
module_param_cb(cint_hold_us, &cint_hold_us_ops, &cint_hold_us, 0644);
MODULE_PARM_DESC(cint_hold_us,
		 "microseconds after which a completion that was left is taken, 10000000 at most");

/* Counters for tests: sums over all queues, which do not exclude each other. */
static unsigned long cint_early, cint_held, cint_torn, cint_timeouts;
module_param(cint_early, ulong, 0444);
MODULE_PARM_DESC(cint_early, "completions that were taken before an older one (read only)");
module_param(cint_held, ulong, 0444);
MODULE_PARM_DESC(cint_held, "interrupts that left completions of incomplete batches (read only)");
module_param(cint_torn, ulong, 0444);
MODULE_PARM_DESC(
	cint_torn,
	"completions of incomplete batches that an interrupt took: 0, or a bug (read only)");
module_param(cint_timeouts, ulong, 0444);
MODULE_PARM_DESC(cint_timeouts, "timers that took what was left (read only)");

static struct cint_wire cint_wire = CINT_WIRE_DEFAULT;

static int nvme_cint_wire_set(const char *text, const struct kernel_param *param)
{
	struct cint_wire wire = {CINT_NOWHERE, 0};
	unsigned int dword, shift;
	char end = '\n';

	if (sscanf(text, "cdw%u:%u%c", &dword, &shift, &end) >= 2) {
		if (!cint_has_room(dword, shift) || end != '\n')
			return -EINVAL;
		wire = (struct cint_wire){dword == 12 ? CINT_CDW12 : CINT_CDW13, shift};
	} else if (sysfs_streq(text, "latency")) {
		wire.place = CINT_LATENCY;
	} else if (!sysfs_streq(text, "none")) {
		return -EINVAL;
	}
	WRITE_ONCE(cint_wire, wire);
	return 0;
}

static int nvme_cint_wire_get(char *buffer, const struct kernel_param *param)
{
	struct cint_wire wire = READ_ONCE(cint_wire);

	switch (wire.place) {
	case CINT_CDW12:
	case CINT_CDW13:
		return sysfs_emit(buffer, "cdw%u:%u\n", wire.place == CINT_CDW12 ? 12 : 13,
				  wire.shift);
	default:
		return sysfs_emit(buffer, "%s\n", wire.place == CINT_LATENCY ? "latency" : "none");
	}
}

static const struct kernel_param_ops nvme_cint_wire_ops = {
	.set = nvme_cint_wire_set,
	.get = nvme_cint_wire_get,
};
module_param_cb(cint_wire, &nvme_cint_wire_ops, NULL, 0644);
MODULE_PARM_DESC(
	cint_wire,
	"where hints are: cdw12:16 to cdw12:24, cdw13:0 to cdw13:30 (the lower of two bits), "
	"latency (access latency, Urgent alone), none");

static unsigned int nvme_cint_sources(void)
{
	return (cint_ioprio ? CINT_SOURCE_IOPRIO : 0) | (cint_sync ? CINT_SOURCE_SYNC : 0) |
	       (cint_flush ? CINT_SOURCE_FLUSH : 0) | (cint_fua ? CINT_SOURCE_FUA : 0) |
	       (cint_last ? CINT_SOURCE_LAST : 0);
}

/*
 * The block layer does not say which system call a request comes from: REQ_SYNC is set for every direct write. As long as no
 * scheduler is between, the one who submits is the one who asks.
 */
static enum cint_submitter nvme_cint_submitter(struct request *req)
{
	int nr;

	if (req->q->elevator)
		return CINT_SUBMITTER_UNKNOWN;
	if (current->flags & PF_IO_WORKER)
		return CINT_SUBMITTER_BATCH; /* io_uring's own threads */
	if (current->flags & PF_KTHREAD)
		return CINT_SUBMITTER_KERNEL;
	nr = syscall_get_nr(current, task_pt_regs(current));
	if (nr == -1)
		return CINT_SUBMITTER_BLOCKED; /* a page fault */
	if (in_compat_syscall())
		return CINT_SUBMITTER_UNKNOWN; /* other numbers */
	switch (nr) {
	case __NR_io_submit:
	case __NR_io_uring_enter:
	case __NR_msync:
		return CINT_SUBMITTER_BATCH;
	default:
		return CINT_SUBMITTER_BLOCKED;
	}
}

static enum cint_hint nvme_cint_hint(struct nvme_queue *nvmeq, struct request *req, bool last)
{
	struct cint_clues clues = {
		.submitter = nvme_cint_submitter(req),
		.ioprio_class = IOPRIO_PRIO_CLASS(req_get_ioprio(req)),
		.read = req_op(req) == REQ_OP_READ,
		.polled = (req->cmd_flags & REQ_POLLED) || test_bit(NVMEQ_POLLED, &nvmeq->flags),
		.flush = req_op(req) == REQ_OP_FLUSH,
		.last = last,
	};
	enum cint_hint hint = CINT_PLAIN;
	struct bio *bio;

	if (!req->bio)
		return cint_hint(nvme_cint_sources(), &clues);
	/* The parts of a merged request. */
	__rq_for_each_bio(bio, req)
	{
		clues.sync = op_is_write(bio->bi_opf) && (bio->bi_opf & REQ_SYNC);
		clues.nowait = bio->bi_opf & REQ_NOWAIT;
		clues.fua = bio->bi_opf & REQ_FUA;
		hint = cint_merge(hint, cint_hint(nvme_cint_sources(), &clues));
	}
	return hint;
}

/* The batch of a command. Called with the submission queue's lock. */
static u8 nvme_cint_batch(struct nvme_cint_queue *cint, bool last)
{
	unsigned long flags;
	u8 batch;

	spin_lock_irqsave(&cint->lock, flags);
	batch = cint_batch_submit(&cint->batches, last);
	spin_unlock_irqrestore(&cint->lock, flags);
	return batch;
}

/* Puts its hint into a command that is about to be copied to the submission queue. */
static void nvme_cint_submit(struct nvme_queue *nvmeq, struct request *req, bool last)
{
	struct nvme_iod *iod = blk_mq_rq_to_pdu(req);
	struct nvme_common_command *command = &iod->cmd.common;
	bool has_bits = command->opcode == nvme_cmd_read || command->opcode == nvme_cmd_write;
	u32 cdw[2] = {le32_to_cpu(command->cdw12), le32_to_cpu(command->cdw13)};
	struct cint_wire wire = READ_ONCE(cint_wire);
	enum cint_hint hint = CINT_PLAIN;

	iod->cint.hint = CINT_PLAIN;
	iod->cint.batch = 0;
	if (!nvmeq->qid)
		return;
	if (nvmeq->cint.strict)
		iod->cint.batch = nvme_cint_batch(&nvmeq->cint, last);
	if (blk_rq_is_passthrough(req)) {
		/* What user space said stays; Urgent is to be known at its completion. */
		if (has_bits)
			hint = cint_get(wire, cdw);
	} else if (wire.place != CINT_NOWHERE) {
		hint = nvme_cint_hint(nvmeq, req, last);
		if (has_bits) {
			cint_put(wire, hint, cdw);
			command->cdw12 = cpu_to_le32(cdw[0]);
			command->cdw13 = cpu_to_le32(cdw[1]);
		}
	}
	iod->cint.hint = hint;
}

/* One look at a completion queue. */
struct nvme_cint_pass {
	struct nvme_queue *nvmeq;
	struct io_comp_batch *iob;
	enum cint_look look;
	unsigned int taken;
	unsigned int early;
	unsigned int left;
};

static bool nvme_cint_is_new(void *context, u16 index, u16 phase)
{
	struct nvme_cint_pass *pass = context;
	struct nvme_completion *cqe = &pass->nvmeq->cqes[index];

	return (le16_to_cpu(READ_ONCE(cqe->status)) & 1) == phase;
}

static bool nvme_cint_may_take(void *context, u16 index, u16 phase)
{
	struct nvme_cint_pass *pass = context;
	const struct nvme_cint_queue *cint = &pass->nvmeq->cint;

	if (cint->strict && cint_batch_is_unseen(&cint->batches, index, phase))
		return false;
	return nvme_cint_is_new(context, index, phase);
}

/* What is kept for the request of an entry; NULL if it has none. */
static struct nvme_cint_request *nvme_cint_of(struct nvme_queue *nvmeq, u16 index)
{
	u16 id = READ_ONCE(nvmeq->cqes[index].command_id);
	struct request *req;
	struct nvme_iod *iod;

	req = nvme_find_rq(nvme_queue_tagset(nvmeq), id);
	if (!req)
		return NULL;
	iod = blk_mq_rq_to_pdu(req);
	return &iod->cint;
}

static u8 nvme_cint_batch_of(void *context, u16 index)
{
	struct nvme_cint_pass *pass = context;
	struct nvme_cint_request *of;

	dma_rmb(); /* the phase tag before the rest of the entry */
	of = nvme_cint_of(pass->nvmeq, index);
	return of ? of->batch : 0;
}

static bool nvme_cint_take(void *context, u16 index)
{
	struct nvme_cint_pass *pass = context;
	struct nvme_queue *nvmeq = pass->nvmeq;
	struct cint_batches *batches = &nvmeq->cint.batches;
	struct nvme_cint_request *of = NULL;

	dma_rmb(); /* the phase tag before the rest of the entry */
	if (pass->look != CINT_LOOK_ALL || nvmeq->cint.strict)
		of = nvme_cint_of(nvmeq, index);
	/* An entry without a request is nobody's: it is taken, with a warning, in any pass. */
	if (of) {
		if (!cint_takes(pass->look, of->hint, batches, of->batch)) {
			pass->left++;
			return false;
		}
		if (!cint_batch_take(batches, of->batch) && pass->look != CINT_LOOK_ALL &&
		    of->hint != CINT_URGENT)
			cint_torn++;
	}
	nvme_handle_cqe(nvmeq, pass->iob, index);
	pass->taken++;
	pass->early += pass->left > 0;
	return true;
}

static void nvme_cint_pass(struct nvme_cint_pass *pass)
{
	struct nvme_queue *nvmeq = pass->nvmeq;
	struct cint_cursor cursor = {
		.size = nvmeq->q_depth,
		.head = nvmeq->cq_head,
		.phase = nvmeq->cq_phase,
	};
	bool moved =
		cint_reap(&cursor, nvmeq->cint.taken, nvme_cint_may_take, nvme_cint_take, pass);

	nvmeq->cq_head = cursor.head;
	nvmeq->cq_phase = cursor.phase;
	if (moved)
		nvme_ring_cq_doorbell(nvmeq);
	cint_early += pass->early;
}

static void nvme_cint_see(struct nvme_queue *nvmeq)
{
	struct nvme_cint_pass pass = {.nvmeq = nvmeq};

	if (nvmeq->cint.strict)
		cint_batch_see(&nvmeq->cint.batches, nvme_cint_is_new, nvme_cint_batch_of, &pass);
}

/* Takes everything. Returns how much that was. */
static int nvme_cint_reap_locked(struct nvme_queue *nvmeq, struct io_comp_batch *iob)
{
	struct nvme_cint_pass pass = {.nvmeq = nvmeq, .iob = iob};

	nvme_cint_see(nvmeq);
	nvme_cint_pass(&pass);
	return pass.taken;
}

static int nvme_cint_reap(struct nvme_queue *nvmeq, struct io_comp_batch *iob)
{
	unsigned long flags;
	int taken;

	spin_lock_irqsave(&nvmeq->cint.lock, flags);
	taken = nvme_cint_reap_locked(nvmeq, iob);
	spin_unlock_irqrestore(&nvmeq->cint.lock, flags);
	return taken;
}

static enum hrtimer_restart nvme_cint_timeout(struct hrtimer *timer)
{
	struct nvme_queue *nvmeq = container_of(timer, struct nvme_queue, cint.timer);
	unsigned long flags;

	spin_lock_irqsave(&nvmeq->cint.lock, flags);
	nvmeq->cint.armed = false;
	if (nvme_cint_reap_locked(nvmeq, NULL))
		cint_timeouts++;
	spin_unlock_irqrestore(&nvmeq->cint.lock, flags);
	return HRTIMER_NORESTART;
}

/* Handles an interrupt. Returns how many completions it took or left; 0 if it was not for this queue. */
static int nvme_cint_irq(struct nvme_queue *nvmeq, struct io_comp_batch *iob)
{
	struct nvme_cint_queue *cint = &nvmeq->cint;
	struct nvme_cint_pass pass = {.nvmeq = nvmeq, .iob = iob};
	unsigned long flags;

	spin_lock_irqsave(&cint->lock, flags);
	nvme_cint_see(nvmeq);
	if (READ_ONCE(cint_ooo) && nvmeq->qid) {
		pass.look = CINT_LOOK_URGENT;
		nvme_cint_pass(&pass);
	}
	if (!pass.taken) {
		/* No urgent one: this interrupt is for the others. */
		pass = (struct nvme_cint_pass){
			.nvmeq = nvmeq,
			.iob = iob,
			.look = cint->strict ? CINT_LOOK_COMPLETE : CINT_LOOK_ALL,
		};
		nvme_cint_pass(&pass);
		cint_held += pass.left > 0;
	}
	if (pass.left && !cint->armed) {
		cint->armed = true;
		hrtimer_start(&cint->timer, ns_to_ktime((u64)cint_hold_us * NSEC_PER_USEC),
			      HRTIMER_MODE_REL);
	}
	spin_unlock_irqrestore(&cint->lock, flags);
	return pass.taken + pass.left;
}

/* Once for the memory of a queue. */
static void nvme_cint_alloc(struct nvme_queue *nvmeq)
{
	spin_lock_init(&nvmeq->cint.lock);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&nvmeq->cint.timer, nvme_cint_timeout, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#else
	hrtimer_init(&nvmeq->cint.timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	nvmeq->cint.timer.function = nvme_cint_timeout;
#endif
}

/* At each creation of a queue in the device. */
static void nvme_cint_init(struct nvme_queue *nvmeq)
{
	struct nvme_cint_queue *cint = &nvmeq->cint;

	BUILD_BUG_ON(NVME_PCI_MAX_QUEUE_SIZE > NVME_CINT_ENTRIES);
	memset(cint->taken, 0, sizeof(cint->taken));
	memset(&cint->batches, 0, sizeof(cint->batches));
	cint->batches.seen = (struct cint_cursor){.size = nvmeq->q_depth, .phase = 1};
	cint->batches.count = CINT_BATCHES;
	cint->strict = cint_strict && nvmeq->qid;
}

/* After the queue's interrupt is freed. */
static void nvme_cint_stop(struct nvme_queue *nvmeq)
{
	hrtimer_cancel(&nvmeq->cint.timer);
	nvmeq->cint.armed = false;
}
