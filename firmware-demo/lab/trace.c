#include "trace.h"
#include "board.h"
#include "device.h"
#include "host.h"
#include "text.h"

static struct traced all[16384];
static uint32_t count;
static uint64_t start;
static int file;

bool trace_create(void)
{
    file = board_create("trace.txt");
    return file >= 0;
}

void trace_begin(uint64_t instant)
{
    start = instant;
    count = 0;
}

void trace(const struct traced *traced)
{
    if (traced->call == CALL_COMPLETION)
        host_check_in_flight(traced->queue, traced->cif);
    if (count < sizeof all / sizeof *all)
        all[count] = *traced;
    count++;
}

static void add_instant(struct text *text, uint64_t instant)
{
    if (instant == NEVER)
        text_add(text, "-");
    else
        text_add_number(text, instant - start);
}

static void add_line(struct text *text, const struct traced *traced)
{
    static const char *const calls[] = {"completion", "deadline", "consumed", "flush"};
    static const char *const hints[] = {"plain", "barrier", "urgent"};
    static const char *const decisions[] = {"-", "deliver", "deliver_urgent", "hold"};
    text_add_number(text, traced->queue);
    text_add(text, " ");
    text_add(text, calls[traced->call & 3]);
    text_add(text, " ");
    add_instant(text, traced->now);
    if (traced->call == CALL_COMPLETION) {
        text_add(text, " ");
        text_add_number(text, traced->cif);
        text_add(text, " ");
        text_add(text, hints[traced->hint % 3]);
    } else {
        text_add(text, " - -");
    }
    text_add(text, " -> ");
    text_add(text, decisions[traced->decision & 3]);
    text_add(text, " ");
    if (traced->reason_length > 0)
        text_add_bytes(text, traced->reason, traced->reason_length);
    else
        text_add(text, "-");
    text_add(text, " ");
    add_instant(text, traced->deadline);
    text_add(text, "\n");
}

bool trace_write(const char *workload, const char *policy)
{
    static char buffer[16384];
    size_t length = 0;
    bool is_good = count <= sizeof all / sizeof *all;
    struct text line = {.length = 0};
    text_add(&line, "# ");
    text_add(&line, workload);
    text_add(&line, " ");
    text_add(&line, policy);
    text_add(&line, "\n");
    for (uint32_t i = 0; is_good;) {
        for (size_t j = 0; j < line.length; j++)
            buffer[length++] = line.bytes[j];
        bool is_last = i == count;
        if (is_last || length > sizeof buffer - sizeof line.bytes) {
            is_good = board_write(file, buffer, length);
            length = 0;
        }
        if (is_last)
            break;
        line.length = 0;
        add_line(&line, &all[i++]);
    }
    return is_good;
}
