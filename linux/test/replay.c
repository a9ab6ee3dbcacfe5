// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Replays vectors/consumer.txt on module/cint.h in user space, and checks what the vector does not have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *replay_alloc(size_t count, size_t size)
{
	return calloc(count, size);
}

static void replay_free(void *memory)
{
	free(memory);
}

#include "replay.h"

static int line_number;

static void fail(const char *what, const char *line)
{
	fprintf(stderr, "replay: line %d: %s: %s\n", line_number, what, line);
	exit(1);
}

static const char *name(enum cint_hint hint)
{
	return hint == CINT_URGENT ? "urgent" : hint == CINT_BARRIER ? "barrier" : "plain";
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
	static struct replay replay;
	static char line[REPLAY_LINE];
	FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;

	if (!file) {
		fprintf(stderr, "replay VECTOR\n");
		return 2;
	}
	check_sources();
	check_end();
	for (line_number = 1; fgets(line, sizeof(line), file); line_number++) {
		const char *what;

		line[strcspn(line, "\n")] = 0;
		what = replay_line(&replay, line);
		if (what)
			fail(what, line);
	}
	fclose(file);
	replay_end(&replay);
	printf("replay: %d lines, %u looks at a queue, all as in Rust\n", line_number - 1,
	       replay.looks);
	return replay.looks ? 0 : 1;
}
