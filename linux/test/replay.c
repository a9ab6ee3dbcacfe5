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
}

/* What is written is read back, at every place that has room, and the other bits are not touched. */
static void check_wire(struct cint_wire wire, u32 mask12, u32 mask13)
{
	for (enum cint_hint hint = CINT_PLAIN; hint <= CINT_BARRIER; hint++) {
		u32 cdw[2] = {0xa5a5a5a5 & ~mask12, 0x5a5a5a5a & ~mask13};
		bool is_said = wire.place == CINT_LATENCY ? hint == CINT_URGENT : mask12 | mask13;

		cint_put(wire, hint, cdw);
		if (cint_get(wire, cdw) != (is_said ? hint : CINT_PLAIN))
			fail("what is read", name(hint));
		if ((cdw[0] ^ 0xa5a5a5a5) & ~mask12 || (cdw[1] ^ 0x5a5a5a5a) & ~mask13)
			fail("other bits", name(hint));
	}
}

static void check_wires(void)
{
	const u32 both[2] = {3u << 16, 0};

	for (unsigned int shift = 0; shift < 40; shift++) {
		bool is_room[] = {shift >= 16 && shift <= 24, shift <= 30};

		if (cint_has_room(12, shift) != is_room[0] ||
		    cint_has_room(13, shift) != is_room[1] || cint_has_room(11, shift) ||
		    cint_has_room(14, shift))
			fail("room", "of a hint");
		if (is_room[0])
			check_wire((struct cint_wire){CINT_CDW12, shift}, 3u << shift, 0);
		if (is_room[1])
			check_wire((struct cint_wire){CINT_CDW13, shift}, 0, 3u << shift);
	}
	check_wire((struct cint_wire){CINT_LATENCY, 0}, 0, 3u << 4);
	check_wire((struct cint_wire){CINT_NOWHERE, 0}, 0, 0);
	if (CINT_WIRE_DEFAULT.place != CINT_CDW12 || CINT_WIRE_DEFAULT.shift != 16 ||
	    cint_get(CINT_WIRE_DEFAULT, both) != CINT_URGENT)
		fail("the paper's bits", name(CINT_URGENT));
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
	check_wires();
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
