/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * Replays vectors/consumer.txt on module/cint.h: in user space (replay.c), and in the kernel (cint-replay.c). See
 * crates/cint-core/tests/consumer_vector.rs for the lines. Who includes this has replay_alloc() (of zeros), replay_free(),
 * sscanf() and snprintf().
 */
#ifndef CINT_REPLAY_H
#define CINT_REPLAY_H

#include "cint.h"

#define REPLAY_LINE 4096

struct replay_entry {
	u16 cid;
	u16 phase;
	bool urgent;
};

struct replay {
	struct cint_cursor cursor;
	struct cint_batches batches;
	bool strict;
	struct replay_entry *entries; /* as many as the size: sanitizers find what is read beyond */
	u64 *taken_bits;
	enum cint_look look;
	unsigned int looks;
	u8 batch_of[65536];	 /* by command identifier */
	char taken[REPLAY_LINE]; /* " CID" for each */
	size_t length;
};

static bool replay_is_new(void *context, u16 index, u16 phase)
{
	struct replay *replay = context;

	return replay->entries[index].phase == phase;
}

static u8 replay_batch_of(void *context, u16 index)
{
	struct replay *replay = context;

	return replay->batch_of[replay->entries[index].cid];
}

static bool replay_take(void *context, u16 index)
{
	struct replay *replay = context;
	const struct replay_entry *entry = &replay->entries[index];
	enum cint_hint hint = entry->urgent ? CINT_URGENT : CINT_PLAIN;
	u8 batch = replay->strict ? replay->batch_of[entry->cid] : 0;

	if (!cint_takes(replay->look, hint, &replay->batches, batch))
		return false;
	if (!cint_batch_take(&replay->batches, batch) && replay->look != CINT_LOOK_ALL &&
	    hint != CINT_URGENT)
		replay->length += snprintf(replay->taken + replay->length,
					   REPLAY_LINE - replay->length, " torn");
	if (replay->length < REPLAY_LINE)
		replay->length += snprintf(replay->taken + replay->length,
					   REPLAY_LINE - replay->length, " %u", entry->cid);
	return true;
}

static enum cint_hint replay_hint(const char *text)
{
	return !strcmp(text, "urgent")	  ? CINT_URGENT
	       : !strcmp(text, "barrier") ? CINT_BARRIER
					  : CINT_PLAIN;
}

/* What the kernel tells about a request of a call of Table 1. */
static const struct {
	const char *name;
	struct cint_clues clues;
} replay_calls[] = {
	{"read", {.submitter = CINT_SUBMITTER_BLOCKED, .read = true, .last = true}},
	{"write_direct", {.submitter = CINT_SUBMITTER_BLOCKED, .sync = true, .last = true}},
	{"preadv2", {.submitter = CINT_SUBMITTER_BLOCKED, .read = true, .last = true}},
	{"preadv2_nowait",
	 {.submitter = CINT_SUBMITTER_BLOCKED, .read = true, .nowait = true, .last = true}},
	{"io_submit", {.submitter = CINT_SUBMITTER_BATCH, .read = true}},
	{"io_submit_last", {.submitter = CINT_SUBMITTER_BATCH, .read = true, .last = true}},
	{"fsync", {.submitter = CINT_SUBMITTER_BLOCKED, .sync = true}},
	{"msync", {.submitter = CINT_SUBMITTER_BATCH, .sync = true}},
	{"msync_last", {.submitter = CINT_SUBMITTER_BATCH, .sync = true, .last = true}},
	{"msync_async", {.submitter = CINT_SUBMITTER_KERNEL, .last = true}},
};

static enum cint_hint replay_call(const char *call)
{
	size_t i;

	for (i = 0; i < sizeof(replay_calls) / sizeof(replay_calls[0]); i++)
		if (!strcmp(call, replay_calls[i].name))
			return cint_hint(~0u, &replay_calls[i].clues);
	return (enum cint_hint) - 1;
}

static void replay_end(struct replay *replay)
{
	replay_free(replay->entries);
	replay_free(replay->taken_bits);
}

static bool replay_queue(struct replay *replay, unsigned int size)
{
	replay_end(replay);
	replay->entries = replay_alloc(size, sizeof(*replay->entries));
	replay->taken_bits = replay_alloc((size + 63) / 64, sizeof(*replay->taken_bits));
	replay->cursor = (struct cint_cursor){.size = size, .phase = 1};
	replay->batches = (struct cint_batches){.seen = replay->cursor};
	replay->strict = false;
	return replay->entries && replay->taken_bits;
}

/* Returns whether the look gives that head, and those completions. */
static bool replay_look(struct replay *replay, enum cint_look look, unsigned int head,
			const char *expected)
{
	u16 before = replay->cursor.head;
	bool moved;

	replay->look = look;
	replay->looks++;
	replay->length = 0;
	replay->taken[0] = 0;
	if (replay->strict)
		cint_batch_see(&replay->batches, replay_is_new, replay_batch_of, replay);
	moved = cint_reap(&replay->cursor, replay->taken_bits, replay_is_new, replay_take, replay);
	return replay->cursor.head == head && moved == (head != before) &&
	       !strcmp(replay->taken, expected);
}

/* Replays a line. Returns NULL, or what is wrong. */
static const char *replay_line(struct replay *replay, const char *line)
{
	static const struct {
		const char *format;
		enum cint_look look;
	} looks[] = {
		{"urgent %u%n", CINT_LOOK_URGENT},
		{"complete %u%n", CINT_LOOK_COMPLETE},
		{"all %u%n", CINT_LOOK_ALL},
	};
	unsigned int a, b, c, d;
	char one[16], two[16], three[16];
	int rest;
	size_t i;

	if (sscanf(line, "queue %u", &a) == 1)
		return replay_queue(replay, a) ? NULL : "no memory";
	if (sscanf(line, "batches %u", &a) == 1) {
		replay->strict = true;
		replay->batches.count = a;
		return NULL;
	}
	if (sscanf(line, "submit %u %u %u", &a, &b, &c) == 3) {
		replay->batch_of[a] = cint_batch_submit(&replay->batches, b);
		return replay->batch_of[a] == c ? NULL : "another batch";
	}
	if (sscanf(line, "post %u %u %u %u", &a, &b, &c, &d) == 4 && a < replay->cursor.size) {
		replay->entries[a] = (struct replay_entry){.cid = b, .phase = c, .urgent = d};
		return NULL;
	}
	for (i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
		if (sscanf(line, looks[i].format, &a, &rest) == 1)
			return replay_look(replay, looks[i].look, a, line + rest) ? NULL : "a look";
	if (sscanf(line, "cdw12 %u %15s", &a, one) == 2)
		return cint_get(CINT_WIRE_DEFAULT, (u32[]){a, 0}) == replay_hint(one) ? NULL
										      : "CDW12";
	if (sscanf(line, "cdw13 %u %15s", &a, one) == 2)
		return cint_get((struct cint_wire){CINT_LATENCY, 0}, (u32[]){0, a}) ==
				       replay_hint(one)
			       ? NULL
			       : "CDW13";
	if (sscanf(line, "merge %15s %15s %15s", one, two, three) == 3)
		return cint_merge(replay_hint(one), replay_hint(two)) == replay_hint(three)
			       ? NULL
			       : "merge";
	if (sscanf(line, "call %15s %15s", one, two) == 2)
		return replay_call(one) == replay_hint(two) ? NULL : "a call";
	if (sscanf(line, "parts %15s %15s %15s", one, two, three) == 3)
		return cint_merge(replay_call(one), replay_call(two)) == replay_hint(three)
			       ? NULL
			       : "parts";
	return "not understood";
}

#endif
