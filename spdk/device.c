#include "device.h"

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER; // the list, and every field of a device that changes
static SLIST_HEAD(, irq_device) g_devices = SLIST_HEAD_INITIALIZER(g_devices);

static struct irq_device *find_locked(enum irq_device_kind kind, const char *name)
{
    struct irq_device *device;
    SLIST_FOREACH(device, &g_devices, link)
        if (device->kind == kind && strcmp(device->name, name) == 0)
            break;
    return device;
}

static void free_device(struct irq_device *device)
{
    free(device->name);
    free(device->policy);
    free(device);
}

static struct irq_device *create_locked(enum irq_device_kind kind, const char *name)
{
    struct irq_device *device = calloc(1, sizeof(*device));
    if (!device)
        return NULL;
    device->kind = kind;
    device->name = strdup(name);
    device->policy = strdup(IRQ_DEFAULT_POLICY);
    if (!device->name || !device->policy) {
        free_device(device);
        return NULL;
    }
    SLIST_INSERT_HEAD(&g_devices, device, link);
    return device;
}

struct irq_device *irq_device_add(enum irq_device_kind kind, const char *name)
{
    pthread_mutex_lock(&g_mutex);
    struct irq_device *device = find_locked(kind, name);
    if (!device)
        device = create_locked(kind, name);
    if (device) {
        device->is_removed = false;
        device->refs++;
    }
    pthread_mutex_unlock(&g_mutex);
    return device;
}

struct irq_device *irq_device_find(enum irq_device_kind kind, const char *name)
{
    pthread_mutex_lock(&g_mutex);
    struct irq_device *device = find_locked(kind, name);
    if (device && device->is_removed)
        device = NULL;
    if (device)
        device->refs++;
    pthread_mutex_unlock(&g_mutex);
    return device;
}

struct irq_device *irq_device_ref(struct irq_device *device)
{
    pthread_mutex_lock(&g_mutex);
    device->refs++;
    pthread_mutex_unlock(&g_mutex);
    return device;
}

static void unref_locked(struct irq_device *device)
{
    if (--device->refs > 0 || !device->is_removed)
        return;
    SLIST_REMOVE(&g_devices, device, irq_device, link);
    free_device(device);
}

struct irq_device *irq_device_next(struct irq_device *device)
{
    pthread_mutex_lock(&g_mutex);
    struct irq_device *next = device ? SLIST_NEXT(device, link) : SLIST_FIRST(&g_devices);
    while (next && next->is_removed)
        next = SLIST_NEXT(next, link);
    if (next)
        next->refs++;
    if (device)
        unref_locked(device);
    pthread_mutex_unlock(&g_mutex);
    return next;
}

void irq_device_unref(struct irq_device *device)
{
    pthread_mutex_lock(&g_mutex);
    unref_locked(device);
    pthread_mutex_unlock(&g_mutex);
}

void irq_device_remove(struct irq_device *device)
{
    irq_device_set_policy(device, IRQ_DEFAULT_POLICY);
    pthread_mutex_lock(&g_mutex);
    device->is_removed = true;
    pthread_mutex_unlock(&g_mutex);
}

bool irq_device_is_removed(struct irq_device *device)
{
    pthread_mutex_lock(&g_mutex);
    bool is_removed = device->is_removed;
    pthread_mutex_unlock(&g_mutex);
    return is_removed;
}

char *irq_device_get_policy(struct irq_device *device)
{
    pthread_mutex_lock(&g_mutex);
    char *policy = strdup(device->policy);
    pthread_mutex_unlock(&g_mutex);
    return policy;
}

int irq_device_set_policy(struct irq_device *device, const char *policy)
{
    char *copy = strdup(policy);
    if (!copy)
        return -ENOMEM;
    pthread_mutex_lock(&g_mutex);
    char *old = device->policy;
    device->policy = copy;
    pthread_mutex_unlock(&g_mutex);
    free(old);
    return 0;
}
