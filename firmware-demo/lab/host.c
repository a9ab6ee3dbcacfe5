#include "host.h"
#include "board.h"
#include "device.h"
#include "flash.h"
#include "nvme.h"

#define CIDS 64u
#define BLOCKS_PER_CID (BLOCKS / (IO_QUEUES * CIDS))
#define PATIENCE_MS 5u
#define ENOUGH_LOST 20u

struct host_memory host_memory;
struct registers registers;
struct host_queue host_queues[QUEUES];

// A command in flight. Each identifier has blocks and a buffer of its own.
static struct command {
    uint32_t status, result; // the expected ones
    uint32_t block;
    uint8_t requester;
    bool is_busy, is_write, is_urgent, is_barrier, is_io;
} commands[QUEUES][CIDS];

static uint32_t turns[QUEUES][CIDS];                  // the next one of its blocks
static uint32_t versions[BLOCKS];                     // the number of writes to a block
static bool taken[QUEUES][CQ_ENTRIES];                // urgent entries that were reaped out of order
static uint32_t rung_tail[QUEUES], rung_head[QUEUES]; // the doorbells as last written
static uint32_t in_flight[REQUESTERS], submitted;
static uint32_t barriers, batches; // Barriers and complete batches that one interrupt covers
static const struct workload *workload;
static struct result result;
static uint64_t alarm = NEVER, begun;
static bool is_running, is_set_up, is_impatient;

// The expected content of a block.
static uint32_t pattern(uint32_t block, uint32_t word)
{
    return (block * BLOCK_WORDS + word) * 2654435761u ^ versions[block] * 40503u;
}

static uint32_t *buffer(unsigned queue, unsigned cid)
{
    return &host_memory.data[((queue - 1) * CIDS + cid) * BLOCK_WORDS];
}

static void format(uint32_t block)
{
    for (uint32_t word = 0; word < BLOCK_WORDS; word++)
        flash_cells[block][word] = pattern(block, word);
}

void host_format(void)
{
    for (uint32_t block = 0; block < BLOCKS; block++)
        format(block);
}

void host_complain(void)
{
    result.wrong++;
}

void host_check_in_flight(unsigned queue, uint32_t cif)
{
    if (cif == 0 || queue >= QUEUES || cif > host_queues[queue].outstanding)
        host_complain();
}

// ---- Submission ----

void host_submit(unsigned queue, unsigned cid, const struct sq_entry *entry, uint32_t status, uint32_t expected)
{
    struct command *command = &commands[queue][cid];
    if (command->is_busy || host_queues[queue].outstanding == SQ_ENTRIES - 1)
        host_complain();
    *command = (struct command){.status = status, .result = expected, .requester = NO_REQUESTER, .is_busy = true};
    command->is_urgent = (entry->dword[12] & CDW12_URGENT) || (entry->dword[13] & CDW13_LOW_LATENCY) == CDW13_LOW_LATENCY;
    command->is_barrier = entry->dword[12] & CDW12_BARRIER;
    struct sq_entry *place = &host_memory.sq[queue][host_queues[queue].sq_tail];
    *place = *entry;
    place->dword[0] |= cid << 16;
    host_queues[queue].sq_tail = (host_queues[queue].sq_tail + 1) % SQ_ENTRIES;
    host_queues[queue].outstanding++;
}

void host_submit_io(unsigned queue, unsigned cid, bool is_write, uint32_t hint, unsigned requester)
{
    uint32_t block = ((queue - 1) * CIDS + cid) * BLOCKS_PER_CID + turns[queue][cid]++ % BLOCKS_PER_CID;
    if (IS_BAD(block) && !workload->has_errors)
        block--;
    uint32_t *data = buffer(queue, cid);
    if (is_write)
        versions[block]++;
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        data[i] = is_write ? pattern(block, i) : ~pattern(block, i);

    struct sq_entry entry = {{is_write ? IO_WRITE : IO_READ, 1}};
    entry.dword[6] = (uint32_t)((char *)data - (char *)host_memory.data);
    entry.dword[10] = block;
    entry.dword[12] = hint & (CDW12_URGENT | CDW12_BARRIER);
    entry.dword[13] = hint & CDW13_LOW_LATENCY;
    host_submit(queue, cid, &entry, IS_BAD(block) && !is_write ? STATUS_UNRECOVERED_READ : STATUS_SUCCESS, 0);

    struct command *command = &commands[queue][cid];
    command->block = block;
    command->requester = (uint8_t)requester;
    command->is_write = is_write;
    command->is_io = true;
}

static void submit_next(unsigned index, unsigned cid)
{
    static const uint32_t hints[] = {[PLAIN] = 0, [URGENT] = CDW12_URGENT, [LOW_LATENCY] = CDW13_LOW_LATENCY};
    const struct requester *requester = &workload->requesters[index];
    uint32_t hint = hints[requester->kind % BATCH];
    if (requester->kind == BATCH && in_flight[index] == requester->depth - 1u)
        hint = CDW12_BARRIER;
    host_submit_io(requester->queue, cid, submitted % 4 == 3, hint, index);
    in_flight[index]++;
    submitted++;
}

// The identifiers of a requester follow those of the requester before it.
static unsigned first_cid(unsigned index)
{
    unsigned cid = 0;
    for (unsigned i = 0; i < index; i++)
        cid += workload->requesters[i].depth;
    return cid;
}

static bool wants_more(void)
{
    return workload->is_hostile ? !hostile_is_over() : submitted < workload->ios;
}

static void submit_all(unsigned index)
{
    for (unsigned i = 0; i < workload->requesters[index].depth && wants_more(); i++)
        submit_next(index, first_cid(index) + i);
}

// ---- Completion ----

static bool is_urgent(unsigned queue, uint32_t dword3)
{
    const struct command *command = &commands[queue][(dword3 & 0xffff) % CIDS];
    return command->is_urgent || dword3 >> 17 != STATUS_SUCCESS;
}

static bool is_as_expected(unsigned queue, unsigned cid, const struct cq_entry *entry)
{
    const struct command *command = &commands[queue][cid];
    if (entry->dword[3] >> 17 != command->status || entry->dword[0] != command->result || entry->dword[2] >> 16 != queue ||
        (entry->dword[2] & 0xffff) >= SQ_ENTRIES)
        return false;
    for (unsigned i = 0; command->is_io && command->status == STATUS_SUCCESS && i < BLOCK_WORDS; i++)
        if (buffer(queue, cid)[i] != pattern(command->block, i))
            return false;
    return true;
}

static void measure(const struct command *command, uint64_t now)
{
    uint64_t delay = now - flash_stamp(command->block);
    result.delay += delay;
    result.measured++;
    if (result.delay_worst < delay)
        result.delay_worst = delay;
    if ((command->is_urgent || command->status != STATUS_SUCCESS) && result.urgent_worst < delay)
        result.urgent_worst = delay;
}

static void complete(unsigned queue, const struct cq_entry *entry, uint64_t now)
{
    unsigned cid = entry->dword[3] & 0xffff;
    if (cid >= CIDS || !commands[queue][cid].is_busy) {
        host_complain();
        return;
    }
    struct command command = commands[queue][cid];
    commands[queue][cid].is_busy = false;
    host_queues[queue].outstanding--;
    result.ios[queue]++;
    if (!is_as_expected(queue, cid, entry))
        host_complain();
    if (command.requester == NO_REQUESTER)
        return;
    measure(&command, now);
    in_flight[command.requester]--;
    barriers += command.is_barrier;
    if (workload->requesters[command.requester].kind != BATCH) {
        if (wants_more())
            submit_next(command.requester, cid);
    } else if (in_flight[command.requester] == 0) {
        batches++;
        submit_all(command.requester);
    }
}

// Reaps the new entries, or only the urgent ones. Returns their number.
static uint32_t reap(unsigned queue, bool urgent_alone, uint64_t now)
{
    struct host_queue *q = &host_queues[queue];
    uint32_t at = q->cq_head, phase = q->phase, found = 0;
    bool all_taken = true;
    barriers = batches = 0;
    for (unsigned i = 0; i < CQ_ENTRIES; i++) {
        struct cq_entry *place = &host_memory.cq[queue][at], entry;
        entry.dword[3] = __atomic_load_n(&place->dword[3], __ATOMIC_ACQUIRE); // first: the device writes it last
        if ((entry.dword[3] >> 16 & 1) != phase)
            break;
        if (!taken[queue][at] && (!urgent_alone || is_urgent(queue, entry.dword[3]))) {
            for (unsigned j = 0; j < 3; j++)
                entry.dword[j] = place->dword[j];
            taken[queue][at] = true;
            found++;
            complete(queue, &entry, now);
        }
        all_taken = all_taken && taken[queue][at];
        bool is_taken = all_taken;
        if (is_taken)
            taken[queue][at] = false;
        if (++at == CQ_ENTRIES) {
            at = 0;
            phase ^= 1;
        }
        if (is_taken) {
            q->cq_head = at;
            q->phase = phase;
        }
    }
    if (barriers > 0 && batches == 0)
        result.partial++;
    return found;
}

void host_reap(unsigned queue)
{
    reap(queue, false, board_now());
}

// ---- Interrupts ----

static void be_patient(uint64_t now)
{
    alarm = now + PATIENCE_MS * (BOARD_TICK_HZ / 1000u);
}

uint64_t host_alarm(void)
{
    return alarm;
}

void host_is_impatient(void)
{
    is_impatient = true;
    be_patient(board_now());
    board_pend(0);
}

static void ring_doorbells(void)
{
    for (unsigned i = 0; i < QUEUES; i++) {
        if (host_queues[i].cq_head != rung_head[i])
            __atomic_store_n(&registers.doorbell[i].cq_head, rung_head[i] = host_queues[i].cq_head, __ATOMIC_RELEASE);
        if (host_queues[i].sq_tail != rung_tail[i])
            __atomic_store_n(&registers.doorbell[i].sq_tail, rung_tail[i] = host_queues[i].sq_tail, __ATOMIC_RELEASE);
    }
}

static void end(void)
{
    is_running = false;
    alarm = NEVER;
    result.ticks = board_now() - begun;
    __atomic_store_n(&registers.cc, 0, __ATOMIC_RELEASE);
}

static uint32_t outstanding(void)
{
    uint32_t sum = 0;
    for (unsigned i = 0; i < QUEUES; i++)
        sum += host_queues[i].outstanding;
    return sum;
}

// The wait for an interrupt timed out. Posted entries count as lost, and are reaped now. If there are none, the run
// ends.
static void look_for_lost(uint64_t now)
{
    if (__atomic_load_n(&registers.csts, __ATOMIC_ACQUIRE) & CSTS_FATAL) {
        if (!workload->is_hostile || !hostile_wants_fatal())
            host_complain();
        end();
        return;
    }
    uint32_t found = 0;
    for (unsigned i = 0; i < QUEUES; i++)
        if (!host_queues[i].is_deaf)
            found += reap(i, false, now);
    result.lost += found > 0 ? found : outstanding();
    if (found == 0 || result.lost > ENOUGH_LOST)
        end();
}

void host_interrupt(unsigned line)
{
    uint64_t now = board_now();
    uint32_t cause = __atomic_exchange_n(&registers.cause[line], 0, __ATOMIC_ACQUIRE);
    unsigned queue = line + 1;
    uint32_t found = 0;
    bool was_impatient = is_impatient;
    if (cause & CAUSE_ADMIN)
        found += reap(0, false, now);
    if (cause & (CAUSE_NORMAL | CAUSE_URGENT)) {
        result.interrupts[queue]++;
        if (!host_queues[queue].is_deaf)
            found += reap(queue, !(cause & CAUSE_NORMAL), now);
        if (workload->is_polled && queue == 2)
            host_reap(1);
    }
    if (was_impatient) {
        is_impatient = false;
        if (is_running)
            look_for_lost(now);
    } else if (found == 0 && !host_queues[queue].is_deaf) {
        result.spurious++;
    }
    if (!is_running)
        return;

    if (!is_set_up && host_queues[0].outstanding == 0) {
        is_set_up = true;
        for (unsigned i = 0; i < REQUESTERS; i++)
            submit_all(i);
    }
    if (workload->is_hostile && is_set_up)
        hostile_step();
    be_patient(now);
    ring_doorbells();
    if (is_set_up && outstanding() == 0 && !wants_more())
        end();
}

// ---- A run ----

static void set_up(uint32_t policy)
{
    const uint32_t coalescing = NVME_TIME << 8 | NVME_THR, disabled = workload->is_uncoalesced << 16;
    const struct {
        uint32_t opcode, feature, value, storm_rate, status, result;
    } all[] = {
        {ADMIN_SET_FEATURES, FEATURE_POLICY, POLICIES, 0, STATUS_INVALID_FIELD, 0},
        {ADMIN_SET_FEATURES, FEATURE_POLICY, POLICY_CINT, 1, STATUS_INVALID_FIELD, 0}, // such a guard would hold for a second
        {ADMIN_SET_FEATURES, FEATURE_POLICY, policy, workload->storm_rate, STATUS_SUCCESS, 0},
        {ADMIN_SET_FEATURES, FEATURE_COALESCING, coalescing, 0, STATUS_SUCCESS, 0},
        {ADMIN_SET_FEATURES, FEATURE_VECTOR, 0 | disabled, 0, STATUS_SUCCESS, 0},
        {ADMIN_SET_FEATURES, FEATURE_VECTOR, 1, 0, STATUS_SUCCESS, 0},
        {ADMIN_GET_FEATURES, FEATURE_POLICY, 0, 0, STATUS_SUCCESS, policy},
        {ADMIN_GET_FEATURES, FEATURE_COALESCING, 0, 0, STATUS_SUCCESS, coalescing},
        {ADMIN_GET_FEATURES, FEATURE_VECTOR, 0, 0, STATUS_SUCCESS, 0 | disabled},
        {ADMIN_GET_FEATURES, FEATURE_VECTOR, 1, 0, STATUS_SUCCESS, 1},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        struct sq_entry entry = {{all[i].opcode}};
        entry.dword[10] = all[i].feature;
        entry.dword[11] = all[i].value;
        entry.dword[12] = all[i].storm_rate;
        host_submit(0, i, &entry, all[i].status, all[i].result);
    }
}

void host_begin(const struct workload *next, uint32_t policy)
{
    workload = next;
    result = (struct result){0};
    registers = (struct registers){0};
    submitted = 0;
    is_set_up = is_impatient = false;
    for (unsigned i = 0; i < REQUESTERS; i++)
        in_flight[i] = 0;
    for (unsigned i = 0; i < QUEUES; i++) {
        host_queues[i] = (struct host_queue){.phase = 1};
        rung_tail[i] = rung_head[i] = 0;
        for (unsigned j = 0; j < CIDS; j++) {
            if (commands[i][j].is_busy && commands[i][j].is_write)
                format(commands[i][j].block); // the reset left its content unknown
            commands[i][j].is_busy = false;
        }
        for (unsigned j = 0; j < CQ_ENTRIES; j++) {
            host_memory.cq[i][j] = (struct cq_entry){{0}}; // an old phase tag could look like a new one
            taken[i][j] = false;
        }
    }
    if (workload->is_hostile)
        hostile_begin();
    begun = board_now();
    be_patient(begun);
    is_running = true;
    set_up(policy);
    ring_doorbells();
    __atomic_store_n(&registers.cc, CC_ENABLE, __ATOMIC_RELEASE);
}

const struct result *host_result(void)
{
    return &result;
}
