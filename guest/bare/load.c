// Loads: streams of reads that share queues or do not, each with its own depth, work for each read, bursts and pauses.
#include "bare.h"

// Latencies are counted in 16 steps for each power of two, in cycles.
enum { STEPS = 16, BUCKETS = 64 * STEPS };
// The interval between two looks for commands.
enum { LOOK_NS = 1000000 };

struct stream {
    unsigned queue, depth, burst; // burst: reads between two pauses, 0: there are none
    uint64_t work, pause;         // cycles
    unsigned in_flight, left;     // left: of the burst
    uint64_t resumes;             // when the pause ends
    uint64_t ios, bad, failed, slowest;
    uint32_t latencies[BUCKETS];
};
struct request {
    struct stream *stream; // NULL: the slot is free
    uint64_t block, submitted;
};

static struct stream streams[QUEUES_MAX + 1];
static unsigned stream_count;
static struct request requests[QUEUES_MAX][DEPTH_MAX];
static PAGE_ALIGNED uint8_t buffers[QUEUES_MAX][DEPTH_MAX][BLOCK_BYTES];
static uint64_t strays, waits;

static uint64_t random(void) // xorshift64: the same blocks in each run
{
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static unsigned bucket_of(uint64_t cycles)
{
    if (cycles < STEPS) {
        return cycles;
    }
    unsigned power = 63 - __builtin_clzl(cycles);
    return (power - 3) * STEPS + (cycles >> (power - 4)) % STEPS;
}

// The smallest that has this bucket.
static uint64_t cycles_at(unsigned bucket)
{
    unsigned power = bucket / STEPS + 3;
    return bucket < STEPS ? bucket : (STEPS + bucket % STEPS) * (1ull << (power - 4));
}

static uint64_t percentile_ns(const struct stream *stream, unsigned percent)
{
    uint64_t count = 0, wanted = stream->ios * percent / 100;
    unsigned bucket = 0;
    while (bucket + 1 < BUCKETS && (count += stream->latencies[bucket]) <= wanted) {
        bucket++;
    }
    return ns_of(cycles_at(bucket));
}

// Block n of the disk begins with n + 1, and ends with its complement.
static uint64_t *stamp(unsigned queue, unsigned slot, unsigned end)
{
    return (uint64_t *)buffers[queue][slot] + end * (BLOCK_BYTES / sizeof(uint64_t) - 1);
}

void completed(unsigned queue, unsigned slot, bool is_ok)
{
    struct request *request = &requests[queue][slot < DEPTH_MAX ? slot : 0];
    struct stream *stream = request->stream;
    if (slot >= DEPTH_MAX || !stream) {
        strays++;
        return;
    }
    uint64_t latency = now() - request->submitted, first = request->block + 1;
    stream->latencies[bucket_of(latency)]++;
    if (latency > stream->slowest) {
        stream->slowest = latency;
    }
    stream->ios++;
    stream->failed += !is_ok;
    stream->bad += *stamp(queue, slot, 0) != first || *stamp(queue, slot, 1) != ~first;
    stream->in_flight--;
    request->stream = NULL;
    if (stream->burst && stream->left == 0 && stream->in_flight == 0) {
        stream->left = stream->burst;
        stream->resumes = now() + stream->pause;
    }
}

static bool may_submit(const struct stream *stream)
{
    return stream->in_flight < stream->depth && (!stream->burst || (stream->left > 0 && now() >= stream->resumes));
}

static void submit(struct stream *stream)
{
    for (uint64_t end = now() + stream->work; stream->work && now() < end;) {
    }
    unsigned slot = 0;
    while (requests[stream->queue][slot].stream) {
        slot++;
    }
    uint64_t block = random() % disk.blocks;
    *stamp(stream->queue, slot, 0) = *stamp(stream->queue, slot, 1) = 0;
    requests[stream->queue][slot] = (struct request){stream, block, now()};
    disk.put(stream->queue, slot, block, buffers[stream->queue][slot]);
    stream->in_flight++;
    stream->left -= stream->burst != 0;
}

// What a stream may submit by now. Its queue is kicked after each read if reads need work, else once.
static bool advance(struct stream *stream)
{
    bool has_submitted = false;
    while (may_submit(stream)) {
        submit(stream);
        has_submitted = true;
        if (stream->work) {
            disk.kick(stream->queue);
        }
    }
    return has_submitted;
}

static bool skip(const char **text, char c)
{
    bool is_there = **text == c;
    *text += is_there;
    return is_there;
}

// QUEUE:DEPTH[:WORK-NS[:BURST:PAUSE-NS]]
static bool read_stream(const char **text, struct stream *stream)
{
    uint64_t values[5] = {0};
    unsigned count = 0;
    do {
        if (count == 5 || !read_number(text, &values[count++])) {
            return false;
        }
    } while (skip(text, ':'));
    *stream = (struct stream){.queue = values[0], .depth = values[1], .burst = values[3]};
    stream->work = cycles_of(values[2]);
    stream->pause = cycles_of(values[4]);
    stream->left = stream->burst;
    return count != 1 && count != 4 && stream->queue < disk.queues && stream->depth >= 1 && stream->depth <= DEPTH_MAX;
}

static bool read_streams(const char *text, uint64_t *goal)
{
    unsigned depths[QUEUES_MAX] = {0};
    stream_count = 0;
    if (!read_number(&text, goal)) {
        return false;
    }
    while (skip(&text, ' ')) {
        struct stream *stream = &streams[stream_count];
        if (stream_count == QUEUES_MAX + 1 || !read_stream(&text, stream)) {
            return false;
        }
        stream_count++;
        if ((depths[stream->queue] += stream->depth) > DEPTH_MAX) {
            return false;
        }
    }
    return *text == 0 && stream_count > 0;
}

// Whether a load without an end is to end. Lines that come during others are commands for afterwards.
static bool is_stopped(struct line *commands)
{
    if (!has_line(commands)) {
        return false;
    }
    bool is_stop = begins_with(commands->text, "stop");
    if (!is_stop) {
        print("GUEST-ERROR a load is running, and not stopped: %s\n", commands->text);
    }
    return is_stop;
}

void answer(struct line *questions)
{
    if (questions && has_line(questions)) {
        uint32_t sum = 0;
        for (unsigned n = 1; n <= disk.queues; n++) {
            sum += taken[n];
        }
        print_to(questions->port, "%s %u\n", questions->text, sum);
    }
}

static void print_result(uint64_t begin, const uint32_t *taken_before)
{
    print("RESULT {\"ns\":%l,\"kicks\":%l,\"waits\":%l,\"strays\":%l,\"taken\":[", ns_of(now() - begin), disk.kicks, waits,
          strays);
    for (unsigned n = 0; n <= disk.queues; n++) {
        print("%s%u", n ? "," : "", taken[n] - taken_before[n]);
    }
    print("],\"streams\":[");
    for (unsigned n = 0; n < stream_count; n++) {
        const struct stream *stream = &streams[n];
        print("%s{\"queue\":%u,\"ios\":%l,\"failed\":%l,\"bad\":%l,\"ns_p50\":%l,\"ns_p99\":%l,\"ns_max\":%l}", n ? "," : "",
              stream->queue, stream->ios, stream->failed, stream->bad, percentile_ns(stream, 50), percentile_ns(stream, 99),
              ns_of(stream->slowest));
    }
    print("]}\n");
}

// Looks at a queue only after its interrupt: of a lost one it never hears.
static void reap_interrupted(uint32_t *handled)
{
    for (unsigned n = 1; n <= disk.queues; n++) {
        if (handled[n] != taken[n]) {
            handled[n] = taken[n];
            disk.reap(n - 1);
        }
    }
}

void run_load(const char *words, struct line *commands, struct line *questions)
{
    uint64_t goal;
    if (!read_streams(words, &goal)) {
        print("GUEST-ERROR not a load for %u queues: %s\n", disk.queues, words);
        return;
    }
    uint32_t before[DISK_VECTORS], handled[DISK_VECTORS];
    for (unsigned n = 0; n < DISK_VECTORS; n++) {
        before[n] = handled[n] = taken[n];
    }
    disk.kicks = waits = strays = 0;
    bool is_over = false;
    for (uint64_t begin = now(), looked = begin;;) {
        uint32_t seen = events;
        reap_interrupted(handled);
        if (now() - looked >= cycles_of(LOOK_NS)) {
            looked = now();
            is_over |= goal == 0 && is_stopped(commands);
            answer(questions);
        }
        is_over |= goal && streams[0].ios >= goal;
        uint32_t to_kick = 0;
        uint64_t in_flight = 0, resumes = UINT64_MAX;
        for (unsigned n = 0; n < stream_count; n++) {
            struct stream *stream = &streams[n];
            if (!is_over && advance(stream)) {
                to_kick |= 1u << stream->queue;
            }
            in_flight += stream->in_flight;
            if (!is_over && stream->in_flight == 0 && stream->resumes < resumes) {
                resumes = stream->resumes;
            }
        }
        for (unsigned n = 0; n < disk.queues; n++) {
            if (to_kick >> n & 1) {
                disk.kick(n);
            }
        }
        if (is_over && in_flight == 0) {
            print_result(begin, before);
            return;
        }
        if (resumes != UINT64_MAX) {
            uint64_t at = now();
            set_alarm(resumes > at ? ns_of(resumes - at) : 0);
        }
        waits++;
        wait_for_events_after(seen);
    }
}
