// A QEMU plugin that counts the guest's instructions, on all its CPUs, in user space and kernel.
//
//     -plugin count.so,out=FILE
//     -plugin count.so,socket=PATH
//
// Each time the guest executes the instruction of mark.s, FILE gets a line with the number so far. A client of the Unix socket
// gets a line for each CPU: its instructions, those of its interrupts, and its interrupts. An interrupt lasts until the iretq
// that ends it, with the soft interrupts that are run before that; one that ends in another task, until that task leaves the
// kernel or halts. A block of instructions counts as a whole when it begins, so one that an exception ends counts too many.
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// The used part of version 7 of qemu-plugin.h (QEMU 11.1), which Debian does not package.
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
typedef struct {
    struct qemu_plugin_scoreboard *score;
    size_t offset;
} qemu_plugin_u64;
enum { INTERRUPT = 1, EXCEPTION = 2 };
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *, unsigned);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64);
int qemu_plugin_num_vcpus(void);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(struct qemu_plugin_tb *, void *), void *);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *, int op, qemu_plugin_u64, uint64_t);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_vcpu_discon_cb(qemu_plugin_id_t, int type,
                                         void (*)(unsigned, int type, uint64_t from, uint64_t to, void *), void *);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = 7;

// Of one CPU of the guest.
struct cpu {
    uint64_t count, at_interrupt, in_interrupts, interrupts, depth;
};

static const uint8_t mark[] = {0x0f, 0x1f, 0x80, 'm', 'a', 'r', 'k'}; // mark.s
static const uint8_t iretq[] = {0x48, 0xcf}, sysretq[] = {0x48, 0x0f, 0x07}, hlt[] = {0xf4};
static qemu_plugin_u64 count;
static FILE *out;
static int listener = -1;

static struct cpu *of(unsigned cpu)
{
    return qemu_plugin_scoreboard_find(count.score, cpu);
}

static void on_mark(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    fprintf(out, "%" PRIu64 "\n", qemu_plugin_u64_sum(count));
    fflush(out);
}

static void on_discontinuity(unsigned nth, int type, uint64_t from, uint64_t to, void *data)
{
    (void)from, (void)to, (void)data;
    struct cpu *cpu = of(nth);
    if (type != INTERRUPT && !cpu->depth)
        return; // an exception outside of an interrupt
    if (!cpu->depth++) {
        cpu->interrupts++;
        cpu->at_interrupt = cpu->count;
    }
}

static void on_iretq(unsigned nth, void *data)
{
    (void)data;
    struct cpu *cpu = of(nth);
    if (cpu->depth && !--cpu->depth)
        cpu->in_interrupts += cpu->count - cpu->at_interrupt;
}

static void on_leave(unsigned nth, void *data)
{
    struct cpu *cpu = of(nth);
    if (cpu->depth) {
        cpu->depth = 1;
        on_iretq(nth, data);
    }
}

static void on_translate(struct qemu_plugin_tb *tb, void *data)
{
    (void)data;
    const size_t n = qemu_plugin_tb_n_insns(tb);
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, 0, count, n); // operation 0 is to add
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint8_t bytes[sizeof mark];
        const size_t length = qemu_plugin_insn_data(insn, bytes, sizeof bytes);
#define IS(code) (length == sizeof(code) && !memcmp(bytes, code, sizeof(code)))
        if (out && IS(mark))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, 0, NULL);
        if (!out && IS(iretq))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_iretq, 0, NULL);
        if (!out && (IS(sysretq) || IS(hlt)))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_leave, 0, NULL);
    }
}

// Reads while the CPUs count: each number is one that was there during the answer.
static void *answer(void *data)
{
    for (;;) {
        const int client = accept(listener, NULL, NULL);
        if (client < 0)
            return data;
        for (int i = 0; i < qemu_plugin_num_vcpus(); i++) {
            const struct cpu *cpu = of(i);
            dprintf(client, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", cpu->count, cpu->in_interrupts, cpu->interrupts);
        }
        close(client);
    }
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8) ||
                   pthread_create(&thread, NULL, answer, NULL)
               ? -1
               : 0;
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    const char *arg = argc == 1 ? argv[0] : "";
    count.score = qemu_plugin_scoreboard_new(sizeof(struct cpu));
    out = !strncmp(arg, "out=", 4) ? fopen(arg + 4, "w") : NULL;
    if (!out && (strncmp(arg, "socket=", 7) || listen_at(arg + 7))) {
        fprintf(stderr, "count: out=FILE or socket=PATH is missing or cannot be written\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate, NULL);
    if (!out)
        qemu_plugin_register_vcpu_discon_cb(id, INTERRUPT | EXCEPTION, on_discontinuity, NULL);
    return 0;
}
