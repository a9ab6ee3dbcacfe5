/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * Calibrated interrupts in a driver: the hint of a request, and completions that are taken out of order. Pure functions,
 * for the kernel and for the tests in user space. "Paper" is cinterrupts, "§" is a section of it.
 */
#ifndef CINT_H
#define CINT_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

/* In the order of urgency. The values are the paper's bits. */
enum cint_hint {
	CINT_PLAIN = 0,
	CINT_URGENT = 1,
	CINT_BARRIER = 2,
};

/* Where hints come from: bits of a set. */
enum cint_source {
	CINT_SOURCE_IOPRIO = 1 << 0,
	CINT_SOURCE_SYNC = 1 << 1,
	CINT_SOURCE_FLUSH = 1 << 2,
	CINT_SOURCE_FUA = 1 << 3,
	CINT_SOURCE_LAST = 1 << 4,
};

/* Who submits a request, as far as that says whether somebody waits for it. */
enum cint_submitter {
	CINT_SUBMITTER_UNKNOWN, /* perhaps not the one who asked for it: an I/O scheduler is between */
	CINT_SUBMITTER_KERNEL, /* a kernel thread */
	CINT_SUBMITTER_BLOCKED, /* a task in a system call, or page fault, that returns when the data is there */
	CINT_SUBMITTER_BATCH, /* a task in a system call that submits, and waits elsewhere */
};

/* What the kernel tells about a request, or about a part of a merged one: the request's hint is cint_merge() of its parts'. */
struct cint_clues {
	enum cint_submitter submitter;
	u8 ioprio_class; /* 1: real time, 3: idle */
	bool read;
	bool sync;   /* a write for which somebody waits, here or at a later fsync */
	bool nowait; /* the caller does not want to block */
	bool polled; /* its completion is polled for */
	bool flush;
	bool fua;
	bool last; /* of those that are submitted together */
};

/* The hint of a request merged from two: Urgent wins over Barrier, and Barrier over none (§4.1.1). */
static inline enum cint_hint cint_merge(enum cint_hint a, enum cint_hint b)
{
	if (a == CINT_URGENT || b == CINT_URGENT)
		return CINT_URGENT;
	return a == CINT_BARRIER || b == CINT_BARRIER ? CINT_BARRIER : CINT_PLAIN;
}

/* Whether the submitter waits for this very request (Table 1). */
static inline bool cint_is_awaited(const struct cint_clues *clues)
{
	switch (clues->submitter) {
	case CINT_SUBMITTER_BLOCKED:
		return (clues->read || clues->sync) && !clues->nowait;
	case CINT_SUBMITTER_KERNEL:
		return clues->sync; /* journals, and writeback for sync (§4.3) */
	default:
		return false;
	}
}

/* The hint of a request. Sources that are not in the set are not looked at. */
static inline enum cint_hint cint_hint(unsigned int sources, const struct cint_clues *clues)
{
	bool ioprio = sources & CINT_SOURCE_IOPRIO;

	if (clues->polled || (ioprio && clues->ioprio_class == 3))
		return CINT_PLAIN;
	if ((sources & CINT_SOURCE_FLUSH) && clues->flush)
		return CINT_URGENT;
	if ((sources & CINT_SOURCE_FUA) && clues->fua)
		return CINT_URGENT;
	if (ioprio && clues->ioprio_class == 1)
		return CINT_URGENT;
	if ((sources & CINT_SOURCE_SYNC) && cint_is_awaited(clues))
		return CINT_URGENT;
	/* A task that does not want to block asks for no interrupt. Writeback that nobody waits for asks for none either. */
	if ((sources & CINT_SOURCE_LAST) && clues->last && (clues->read || clues->sync) &&
	    !(clues->nowait && clues->submitter == CINT_SUBMITTER_BLOCKED))
		return CINT_BARRIER;
	return CINT_PLAIN;
}

/* Where a read or write carries its hint: in two neighbouring bits of a command dword, or as its access latency. */
enum cint_place { CINT_NOWHERE, CINT_CDW12, CINT_CDW13, CINT_LATENCY };

struct cint_wire {
	u8 place;
	u8 shift; /* of the lower bit, in a command dword */
};

/* The paper's: bits 17:16 of command dword 12 (§4.2.1). */
#define CINT_WIRE_DEFAULT ((struct cint_wire){CINT_CDW12, 16})
/* The access latency of the command set: bits 5:4 of command dword 13, of which 11b is low latency. */
#define CINT_LATENCY_SHIFT 4

/*
 * Whether two bits from this one on are free for a hint. Bits 15:0 of command dword 12 are the number of blocks, bits 31:26
 * are protection information, forced unit access and limited retry.
 */
static inline bool cint_has_room(unsigned int dword, unsigned int shift)
{
	return dword == 12 ? shift >= 16 && shift <= 24 : dword == 13 && shift <= 30;
}

/* Puts a hint into command dwords 12 and 13. As access latency, Urgent is low latency, and a Barrier cannot be said. */
static inline void cint_put(struct cint_wire wire, enum cint_hint hint, u32 cdw[2])
{
	switch (wire.place) {
	case CINT_CDW12:
		cdw[0] |= (u32)hint << wire.shift;
		break;
	case CINT_CDW13:
		cdw[1] |= (u32)hint << wire.shift;
		break;
	case CINT_LATENCY:
		cdw[1] |= hint == CINT_URGENT ? 3 << CINT_LATENCY_SHIFT : 0;
		break;
	}
}

/* The hint in command dwords 12 and 13; both bits are an Urgent request merged with a Barrier. */
static inline enum cint_hint cint_get(struct cint_wire wire, const u32 cdw[2])
{
	u32 bits = 0;

	if (wire.place == CINT_LATENCY)
		return (cdw[1] >> CINT_LATENCY_SHIFT & 3) == 3 ? CINT_URGENT : CINT_PLAIN;
	if (wire.place != CINT_NOWHERE)
		bits = cdw[wire.place == CINT_CDW13] >> wire.shift & 3;
	return bits == 3 ? CINT_URGENT : (enum cint_hint)bits;
}

/* A position in a completion queue. */
struct cint_cursor {
	u16 size; /* entries of the queue, 2 or more */
	u16 head;
	u16 phase; /* the phase tag of a new entry at the head: 0 or 1 */
};

static inline void cint_advance(struct cint_cursor *cursor)
{
	if (++cursor->head == cursor->size) {
		cursor->head = 0;
		cursor->phase ^= 1;
	}
}

/*
 * Passes each new entry that is not taken yet to take(), which returns whether it takes the entry. The head moves only over
 * taken entries, so that the device overwrites no other. Returns whether it moves.
 *
 * taken has a bit for each entry, 64 a word, all 0 at the start. is_new() returns whether the entry has that phase tag.
 */
static inline bool cint_reap(struct cint_cursor *cursor, u64 *taken,
			     bool (*is_new)(void *context, u16 index, u16 phase),
			     bool (*take)(void *context, u16 index), void *context)
{
	struct cint_cursor at = *cursor;
	u16 before = cursor->head, n;
	bool all_taken = true; /* from the head up to at */

	for (n = 0; n < cursor->size && is_new(context, at.head, at.phase); n++) {
		u64 *word = &taken[at.head / 64], bit = 1ull << at.head % 64;

		if (!(*word & bit) && take(context, at.head))
			*word |= bit;
		all_taken = all_taken && (*word & bit);
		cint_advance(&at);
		if (all_taken) {
			*word &= ~bit;
			*cursor = at;
		}
	}
	return cursor->head != before;
}

/*
 * Strict Barriers in the driver (§4.3): a batch's completions are left in the queue until all of them are there. A batch is
 * what is submitted up to a command that is the last. Calls are serialised by the caller.
 */
#define CINT_BATCHES 128

struct cint_batch {
	u16 missing; /* commands whose completion was not seen; one more while it is open */
	u16 left;    /* commands whose completion was not taken */
};

struct cint_batches {
	struct cint_cursor seen; /* the completions that were counted */
	u8 count;		 /* 1 to CINT_BATCHES */
	u8 open;		 /* the batch that is being submitted; 0: none */
	u8 newest;
	struct cint_batch batch[CINT_BATCHES + 1]; /* 0: of commands that are not held back */
};

/* The batch of a command that is submitted. 0: it is alone, or the next batch is not over yet. */
static inline u8 cint_batch_submit(struct cint_batches *batches, bool last)
{
	u8 number = batches->open;
	struct cint_batch *batch;

	if (!number) {
		if (last)
			return 0;
		number = batches->newest % batches->count + 1;
		if (batches->batch[number].missing || batches->batch[number].left)
			return 0;
		batches->newest = batches->open = number;
		batches->batch[number].missing = 1;
	}
	batch = &batches->batch[number];
	batch->left++;
	/* The last command takes the place of the open batch. */
	if (last)
		batches->open = 0;
	else
		batch->missing++;
	return number;
}

/* Counts the new entries that were not seen yet. batch_of() returns the batch of an entry's command. */
static inline void cint_batch_see(struct cint_batches *batches,
				  bool (*is_new)(void *context, u16 index, u16 phase),
				  u8 (*batch_of)(void *context, u16 index), void *context)
{
	struct cint_cursor *seen = &batches->seen;
	u16 n;

	for (n = 0; n < seen->size && is_new(context, seen->head, seen->phase); n++) {
		u8 number = batch_of(context, seen->head);

		if (number && batches->batch[number].missing)
			batches->batch[number].missing--;
		cint_advance(seen);
	}
}

/* Whether an entry was not counted yet. It must not be taken: afterwards its command's identifier is another's. */
static inline bool cint_batch_is_unseen(const struct cint_batches *batches, u16 index, u16 phase)
{
	return index == batches->seen.head && phase == batches->seen.phase;
}

/* Notes that a completion is taken. Returns whether its batch is complete. */
static inline bool cint_batch_take(struct cint_batches *batches, u8 number)
{
	struct cint_batch *batch = &batches->batch[number];

	if (number && batch->left)
		batch->left--;
	return !batch->missing;
}

/* What a look at the queue takes. */
enum cint_look {
	CINT_LOOK_ALL,
	CINT_LOOK_COMPLETE, /* urgent completions, and those whose batch is complete */
	CINT_LOOK_URGENT,
};

static inline bool cint_takes(enum cint_look look, enum cint_hint hint,
			      const struct cint_batches *batches, u8 number)
{
	if (look == CINT_LOOK_ALL || hint == CINT_URGENT)
		return true;
	return look == CINT_LOOK_COMPLETE && !batches->batch[number].missing;
}

#endif
