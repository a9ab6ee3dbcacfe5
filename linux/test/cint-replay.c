// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Replays vectors/consumer.txt on module/cint.h in the kernel. It is loaded if all lines are right, and fails otherwise. */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

static void *replay_alloc(size_t count, size_t size)
{
	return kcalloc(count, size, GFP_KERNEL);
}

static void replay_free(void *memory)
{
	kfree(memory);
}

#include "replay.h"

/* The vector, as the linker found it in the directory of the build. */
asm(".pushsection .rodata, \"a\"\n"
    "cint_replay_vector:\n"
    ".incbin \"" CINT_REPLAY_VECTOR "\"\n"
    ".byte 0\n"
    ".popsection\n");
extern const char cint_replay_vector[];

static unsigned int cint_lines, cint_looks;
module_param(cint_lines, uint, 0444);
MODULE_PARM_DESC(cint_lines, "lines that were replayed (read only)");
module_param(cint_looks, uint, 0444);
MODULE_PARM_DESC(cint_looks, "looks at a completion queue among them (read only)");

static int __init cint_replay_init(void)
{
	struct replay *replay = kvzalloc(sizeof(*replay), GFP_KERNEL);
	char *line = kmalloc(REPLAY_LINE, GFP_KERNEL);
	const char *at = cint_replay_vector, *what = NULL;

	if (!replay || !line)
		what = "no memory";
	while (!what && *at) {
		size_t length = strcspn(at, "\n");

		if (length >= REPLAY_LINE) {
			what = "too long";
			break;
		}
		memcpy(line, at, length);
		line[length] = 0;
		at += length + (at[length] == '\n');
		cint_lines++;
		what = replay_line(replay, line);
		cond_resched();
	}
	if (what)
		pr_err("cint-replay: line %u: %s\n", cint_lines, what);
	cint_looks = replay ? replay->looks : 0;
	if (replay)
		replay_end(replay);
	kvfree(replay);
	kfree(line);
	return what || !cint_looks ? -EINVAL : 0;
}

static void __exit cint_replay_exit(void)
{
}

module_init(cint_replay_init);
module_exit(cint_replay_exit);
MODULE_DESCRIPTION("Golden traces of a consumer with calibrated interrupts");
MODULE_LICENSE("Dual MIT/GPL");
