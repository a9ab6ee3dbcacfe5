// A QEMU plugin that counts instructions: those of each call of a policy, and those from the flash's interrupt to the
// host's.
//
//     -plugin count.so,map=FILE,out=FILE
//
// The map has one or more lines for each function: kind, address and length in hexadecimal, name. The first matching
// line counts.
//
//     policy    a call begins when other code of the device calls it, and ends when that code continues; functions of the
//               policy that it calls are included, interrupts are not
//     board     also runs in interrupts
//     begin     the handler of the flash's interrupt; the path begins here
//     end       pends the host's interrupt; the path ends here, and all code of device and board on it is counted
//     sleep     there was nothing to deliver: the path ends without an interrupt
//     lab       does not belong to the device
//     stop      ends the count
//
// Everything else is the device. The output has a line for each called function, and one for the path: name, number of
// calls, and the instructions of a call (least, median, mean, worst).
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The used part of QEMU's qemu-plugin.h, which Debian does not package.
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = PLUGIN_API;

#define MOST 8191u // instructions of a call; the median treats more as this many

struct tally {
    uint64_t calls, total, worst;
    uint32_t times[MOST + 1];
};

enum kind { DEVICE, POLICY, BOARD, BEGIN, END, SLEEP, LAB, STOP, KINDS };
static const char *const kinds[KINDS] = {"", "policy", "board", "begin", "end", "sleep", "lab", "stop"};

static struct function {
    enum kind kind;
    uint64_t address, length;
    char name[256];
    struct tally tally;
} * functions, device;
static unsigned function_count;
static const char *out_name;

static struct function *called; // the last called function of the policy
static uint64_t of_call;        // instructions since that call
static bool is_in_call, is_on_way, is_over;
static struct tally way;
static uint64_t of_way;

static void add(struct tally *tally, uint64_t instructions)
{
    tally->calls++;
    tally->total += instructions;
    tally->worst = instructions > tally->worst ? instructions : tally->worst;
    tally->times[instructions < MOST ? instructions : MOST]++;
}

static void end_call(void)
{
    if (called)
        add(&called->tally, of_call);
    of_call = 0;
}

static void on_instruction(unsigned cpu, void *data)
{
    const struct function *function = data;
    (void)cpu;
    of_way++;
    if (function->kind == POLICY) {
        is_in_call = true;
        of_call++;
    } else if (function->kind == DEVICE) {
        is_in_call = false;
    }
}

static void on_first(unsigned cpu, void *data)
{
    struct function *function = data;
    if (is_over)
        return;
    switch (function->kind) {
    case POLICY:
        if (!is_in_call) {
            end_call();
            called = function;
        }
        break;
    case BEGIN:
        if (!is_on_way)
            of_way = 0;
        is_on_way = true;
        break;
    case END:
        if (is_on_way)
            add(&way, of_way);
        is_on_way = false;
        break;
    case SLEEP:
        is_on_way = false;
        break;
    case STOP:
        end_call();
        is_over = true;
        break;
    default:
        break;
    }
    on_instruction(cpu, function);
}

static struct function *function_at(uint64_t address)
{
    for (unsigned i = 0; i < function_count; i++)
        if (address - functions[i].address < functions[i].length)
            return &functions[i];
    return &device;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        struct function *function = function_at(address);
        if (function->kind != LAB)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, address == function->address ? on_first : on_instruction, 0,
                                                   function);
    }
}

static void print(FILE *out, const char *name, const struct tally *tally)
{
    uint64_t least = 0, median = 0, seen = tally->times[0];
    while (least < MOST && tally->times[least] == 0)
        least++;
    while (seen * 2 < tally->calls)
        seen += tally->times[++median];
    if (tally->calls > 0)
        fprintf(out, "%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%.1f\t%" PRIu64 "\n", name, tally->calls, least, median,
                (double)tally->total / (double)tally->calls, tally->worst);
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
    (void)id;
    (void)data;
    if (!is_over)
        end_call();
    FILE *out = fopen(out_name, "w");
    for (unsigned i = 0; out && i < function_count; i++)
        print(out, functions[i].name, &functions[i].tally);
    if (out)
        print(out, "flash interrupt to host interrupt", &way);
    if (!out || fclose(out) != 0)
        perror(out_name);
}

static bool read_map(const char *name)
{
    FILE *map = fopen(name, "r");
    struct function f = {0};
    char kind[16];
    while (map && fscanf(map, "%15s %" SCNx64 " %" SCNx64 " %255[^\n]", kind, &f.address, &f.length, f.name) == 4) {
        for (f.kind = POLICY; f.kind < KINDS && strcmp(kinds[f.kind], kind) != 0;)
            f.kind++;
        functions = realloc(functions, (function_count + 1) * sizeof *functions);
        if (!functions || f.kind == KINDS)
            return false;
        functions[function_count++] = f;
    }
    return map && feof(map) && fclose(map) == 0;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0)
            out_name = strdup(argv[i] + 4);
        else if (strncmp(argv[i], "map=", 4) != 0 || !read_map(argv[i] + 4))
            return fprintf(stderr, "count: wrong: %s\n", argv[i]), -1;
    }
    if (!out_name || function_count == 0)
        return fprintf(stderr, "count: map=FILE,out=FILE are needed\n"), -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
