// Devices that have a policy: vhost-blk controllers and NVMe subsystems. Every function may be called on any thread.
#ifndef COALESCE_SPDK_DEVICE_H
#define COALESCE_SPDK_DEVICE_H

#include <spdk/stdinc.h>

#include <spdk/queue.h>

#define IRQ_DEFAULT_POLICY "none"

enum irq_device_kind { IRQ_DEVICE_VHOST, IRQ_DEVICE_NVME };

// A removed device is freed with its last reference.
struct irq_device {
    enum irq_device_kind kind;
    char *name; // of the vhost controller, or the NQN
    char *policy;
    uint32_t refs;
    bool is_removed;
    SLIST_ENTRY(irq_device) link;
};

// Each of these takes a reference for its caller.
// The device of this name; a new one with the default policy if there is none. Null: no memory.
struct irq_device *irq_device_add(enum irq_device_kind kind, const char *name);
// Null: there is none.
struct irq_device *irq_device_find(enum irq_device_kind kind, const char *name);
struct irq_device *irq_device_ref(struct irq_device *device);
// The first device after null, else the next one; drops the reference to `device`. Null: there are no more.
struct irq_device *irq_device_next(struct irq_device *device);

void irq_device_unref(struct irq_device *device);

// The vhost controller or NVMe subsystem is gone. If it is created again, it begins with the default policy.
void irq_device_remove(struct irq_device *device);
bool irq_device_is_removed(struct irq_device *device);

// A copy of the policy's text form, which the caller frees. Null: no memory.
char *irq_device_get_policy(struct irq_device *device);
// For queues to come; those that run are reconfigured one by one. Returns 0, or -ENOMEM.
int irq_device_set_policy(struct irq_device *device, const char *policy);

#endif
