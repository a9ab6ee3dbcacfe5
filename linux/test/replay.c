// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Replays vectors/consumer.txt on module/cint.h: see crates/cint-core/tests/consumer_vector.rs for the lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cint.h"

struct entry {
	u16 cid;
	u16 phase;
	bool urgent;
};

struct queue {
	struct entry
		*entries; /* as many as the size: what is read beyond is found by the sanitizer */
	u64 *taken_bits;
	struct cint_cursor cursor;
	bool only_urgent;
	char taken[65536]; /* " CID" for each */
};

static int line_number;

static void fail(const char *what, const char *line)
{
	fprintf(stderr, "replay: line %d: %s: %s\n", line_number, what, line);
	exit(1);
}

static bool is_new(void *context, u16 index, u16 phase)
{
	struct queue *queue = context;

	return queue->entries[index].phase == phase;
}

static bool take(void *context, u16 index)
{
	struct queue *queue = context;
	const struct entry *entry = &queue->entries[index];

	if (queue->only_urgent && !entry->urgent)
		return false;
	sprintf(queue->taken + strlen(queue->taken), " %u", entry->cid);
	return true;
}

static const char *name(enum cint_hint hint)
{
	return hint == CINT_URGENT ? "urgent" : hint == CINT_BARRIER ? "barrier" : "plain";
}

static enum cint_hint hint_of(const char *text)
{
	return !strcmp(text, "urgent")	  ? CINT_URGENT
	       : !strcmp(text, "barrier") ? CINT_BARRIER
					  : CINT_PLAIN;
}

/* What the kernel tells about a request of a call of Table 1. */
static const struct {
	const char *name;
	struct cint_clues clues;
} calls[] = {
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

static enum cint_hint hint_of_call(const char *call)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(call, calls[i].name))
			return cint_hint(~0u, &calls[i].clues);
	fail("no such call", call);
	return CINT_PLAIN;
}

static void make(struct queue *queue, unsigned int size)
{
	free(queue->entries);
	free(queue->taken_bits);
	queue->entries = calloc(size, sizeof(*queue->entries));
	queue->taken_bits = calloc((size + 63) / 64, sizeof(*queue->taken_bits));
	queue->cursor = (struct cint_cursor){.size = size, .phase = 1};
}

static void reap(struct queue *queue, const char *line, unsigned int head, const char *expected)
{
	u16 before = queue->cursor.head;
	bool moved;

	queue->taken[0] = 0;
	moved = cint_reap(&queue->cursor, queue->taken_bits, is_new, take, queue);
	if (queue->cursor.head != head || moved != (head != before))
		fail("another head", line);
	if (strcmp(queue->taken, expected))
		fail(queue->taken, line);
}

/* Each source gives its hint, and none when it is off. Idle and polled requests have none. */
static void check_sources(void)
{
	static const struct {
		enum cint_source source;
		struct cint_clues clues;
		enum cint_hint hint;
	} rows[] = {
		{CINT_SOURCE_IOPRIO, {.ioprio_class = 1}, CINT_URGENT},
		{CINT_SOURCE_SYNC,
		 {.submitter = CINT_SUBMITTER_BLOCKED, .read = true},
		 CINT_URGENT},
		{CINT_SOURCE_SYNC, {.submitter = CINT_SUBMITTER_KERNEL, .sync = true}, CINT_URGENT},
		{CINT_SOURCE_FLUSH, {.flush = true}, CINT_URGENT},
		{CINT_SOURCE_FUA, {.fua = true}, CINT_URGENT},
		{CINT_SOURCE_LAST, {.read = true, .last = true}, CINT_BARRIER},
		{CINT_SOURCE_LAST, {.sync = true, .last = true}, CINT_BARRIER},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cint_clues clues = rows[i].clues;

		line_number = -1 - (int)i;
		if (cint_hint(rows[i].source, &clues) != rows[i].hint)
			fail("its source", name(rows[i].hint));
		if (cint_hint(~(unsigned int)rows[i].source, &clues) != CINT_PLAIN)
			fail("the others", name(rows[i].hint));
		clues.polled = true;
		if (cint_hint(~0u, &clues) != CINT_PLAIN)
			fail("polled", name(rows[i].hint));
		clues.polled = false;
		clues.ioprio_class = 3;
		if (cint_hint(~0u, &clues) != CINT_PLAIN)
			fail("idle", name(rows[i].hint));
	}
	/* What is written is read back, and the rest of the dword is not touched. */
	for (enum cint_hint hint = CINT_PLAIN; hint <= CINT_BARRIER; hint++) {
		u32 cdw12 = cint_to_cdw12(hint), cdw13 = cint_to_cdw13(hint);

		if (cint_from_cdw12(cdw12) != hint || (cdw12 & ~(3u << 16)))
			fail("cdw12", name(hint));
		if (cint_from_cdw13(cdw13) != (hint == CINT_URGENT ? hint : CINT_PLAIN) ||
		    (cdw13 & ~(3u << 4)))
			fail("cdw13", name(hint));
	}
}

static bool is_always_new(void *context, u16 index, u16 phase)
{
	(void)context;
	(void)index;
	(void)phase;
	return true;
}

static bool count(void *context, u16 index)
{
	int *counted = context;

	(void)index;
	return ++*counted <= 3;
}

/* A device that turns entries new while they are looked at does not keep the driver for ever. */
static void check_end(void)
{
	u64 taken = 0;
	int counted = 0;
	struct cint_cursor cursor = {.size = 3, .phase = 1};

	cint_reap(&cursor, &taken, is_always_new, count, &counted);
	if (counted != 3 || cursor.head != 0)
		fail("the end", "of a queue that has none");
}

int main(int argc, char **argv)
{
	static struct queue queue;
	static char line[65536];
	FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
	int reaps = 0;

	if (!file) {
		fprintf(stderr, "replay VECTOR\n");
		return 2;
	}
	check_sources();
	check_end();
	for (line_number = 1; fgets(line, sizeof(line), file); line_number++) {
		unsigned int a, b, c, d;
		char one[32], two[32], three[32];
		int rest;

		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "queue %u", &a) == 1) {
			make(&queue, a);
		} else if (sscanf(line, "post %u %u %u %u", &a, &b, &c, &d) == 4 &&
			   a < queue.cursor.size) {
			queue.entries[a] = (struct entry){.cid = b, .phase = c, .urgent = d};
		} else if (sscanf(line, "urgent %u%n", &a, &rest) == 1) {
			queue.only_urgent = true;
			reap(&queue, line, a, line + rest);
			reaps++;
		} else if (sscanf(line, "all %u%n", &a, &rest) == 1) {
			queue.only_urgent = false;
			reap(&queue, line, a, line + rest);
			reaps++;
		} else if (sscanf(line, "cdw12 %u %31s", &a, one) == 2) {
			if (cint_from_cdw12(a) != hint_of(one))
				fail(name(cint_from_cdw12(a)), line);
		} else if (sscanf(line, "cdw13 %u %31s", &a, one) == 2) {
			if (cint_from_cdw13(a) != hint_of(one))
				fail(name(cint_from_cdw13(a)), line);
		} else if (sscanf(line, "merge %31s %31s %31s", one, two, three) == 3) {
			if (cint_merge(hint_of(one), hint_of(two)) != hint_of(three))
				fail(name(cint_merge(hint_of(one), hint_of(two))), line);
		} else if (sscanf(line, "call %31s %31s", one, two) == 2) {
			if (hint_of_call(one) != hint_of(two))
				fail(name(hint_of_call(one)), line);
		} else {
			fail("not understood", line);
		}
	}
	fclose(file);
	free(queue.entries);
	free(queue.taken_bits);
	printf("replay: %d lines, %d looks at a queue, all as in Rust\n", line_number - 1, reaps);
	return reaps ? 0 : 1;
}
