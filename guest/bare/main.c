// Finds the disk, says so, and does what is said on the console.
#include "bare.h"

struct disk disk;
static struct line commands = {.port = COM1}, questions = {.port = COM2};

// In user mode.
void guest(void)
{
    set_up_machine();
    struct line *asked = has_port(COM2) ? &questions : NULL;
    bool is_ready = virtio_blk_probe() || nvme_probe();
    print("GUEST-READY disk=%s queues=%u blocks=%l event_idx=%s accel=%s\n", is_ready ? disk.name : "none", disk.queues,
          disk.blocks, disk.event_idx ? "on" : "off", accelerator());
    for (;;) {
        answer(asked);
        if (!has_line(&commands)) {
            continue;
        }
        if (begins_with(commands.text, "run ") && is_ready) {
            run_load(commands.text + 4, &commands, asked);
        } else if (begins_with(commands.text, "off")) {
            outb(0x64, 0xfe); // the keyboard controller resets the machine: QEMU ends
        } else {
            print("GUEST-ERROR not a command%s: %s\n", is_ready ? "" : " without a disk", commands.text);
        }
    }
}
