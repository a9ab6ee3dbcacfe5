#include "vectors.h"
#include "device.h"
#include "text.h"

// VECTORS is the path of the packed traces, as a string.
__asm__(".pushsection .rodata.vectors, \"a\"\n"
        ".balign 8\n"
        ".globl vectors\n"
        "vectors:\n"
        ".incbin " VECTORS "\n"
        ".popsection\n");
extern const uint64_t vectors[];

static size_t length_of(const char *name, size_t size)
{
    size_t length = 0;
    while (length < size && name[length])
        length++;
    return length;
}

static bool is_same(const struct vector_event *event, const struct vector_answer *answer)
{
    return event->decision == answer->decision && event->deadline == answer->deadline &&
           (event->call != ON_SUBMIT || event->ticket == answer->ticket) &&
           text_equal(event->reason, length_of(event->reason, sizeof event->reason), answer->reason, answer->reason_length);
}

// Returns the number of events before the first one that was decided differently.
static uint32_t replay_trace(const struct vector_trace *trace, const struct vector_event *events)
{
    for (uint32_t i = 0; i < trace->events; i++) {
        struct vector_answer answer = {NEVER, NEVER, "", 0, DECISION_NONE};
        replay(&events[i], &answer);
        if (!is_same(&events[i], &answer))
            return i;
    }
    return trace->events;
}

bool vectors_replay(void)
{
    uint64_t total = 0;
    const char *at = (const char *)&vectors[1];
    struct text line = {.length = 0};
    for (uint64_t i = 0; i < vectors[0]; i++) {
        const struct vector_trace *trace = (const struct vector_trace *)at;
        const struct vector_config *configs = (const struct vector_config *)(trace + 1);
        const struct vector_event *events = (const struct vector_event *)(configs + trace->configs);
        at = (const char *)(events + trace->events);
        replay_begin(trace, configs);
        uint32_t same = replay_trace(trace, events);
        total += same;
        if (same != trace->events) {
            text_add(&line, "FAILED: vectors/");
            text_add_bytes(&line, trace->file, length_of(trace->file, sizeof trace->file));
            text_add(&line, ":");
            text_add_number(&line, same + 2); // the first line has the configurations
            text_add(&line, ": decided differently\n");
            text_print(&line);
            return false;
        }
    }
    text_add(&line, "vectors: ");
    text_add_number(&line, total);
    text_add(&line, " events of ");
    text_add_number(&line, vectors[0]);
    text_add(&line, " traces, all decided the same\n");
    text_print(&line);
    return total > 0;
}
