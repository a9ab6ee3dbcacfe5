// A QEMU plugin that counts the guest's instructions, on all its CPUs, in user space and kernel.
//
//     -plugin count.so,out=FILE
//
// Each time the guest executes the instruction of mark.s, FILE gets a line with the number so far. A block of instructions
// counts as a whole when it begins, so one that an exception ends counts too many.
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// The used part of version 7 of qemu-plugin.h (QEMU 11.1), which Debian does not package.
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
typedef struct {
    struct qemu_plugin_scoreboard *score;
    size_t offset;
} qemu_plugin_u64;
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(struct qemu_plugin_tb *, void *), void *);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *, int op, qemu_plugin_u64, uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int flags, void *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 7;

static const uint8_t mark[] = {0x0f, 0x1f, 0x80, 'm', 'a', 'r', 'k'}; // mark.s
static qemu_plugin_u64 count;
static FILE *out;

static void on_mark(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    fprintf(out, "%" PRIu64 "\n", qemu_plugin_u64_sum(count));
    fflush(out);
}

static void on_translate(struct qemu_plugin_tb *tb, void *data)
{
    (void)data;
    const size_t n = qemu_plugin_tb_n_insns(tb);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, 0, count, n); // operation 0 is to add
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint8_t bytes[sizeof mark];
        if (qemu_plugin_insn_data(insn, bytes, sizeof bytes) == sizeof mark && !memcmp(bytes, mark, sizeof mark))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, 0, NULL);
    }
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    out = argc == 1 && !strncmp(argv[0], "out=", 4) ? fopen(argv[0] + 4, "w") : NULL;
    if (!out) {
        fprintf(stderr, "count: out=FILE is missing or cannot be written\n");
        return -1;
    }
    count.score = qemu_plugin_scoreboard_new(sizeof(uint64_t));
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate, NULL);
    return 0;
}
