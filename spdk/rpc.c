// coalesce_set_policy, coalesce_get_policy, coalesce_get_stats, coalesce_reset_stats; and what save_config writes.
#include "channel.h"

#include <spdk/config.h>
#include <spdk/env.h>
#include <spdk/json.h>
#include <spdk/jsonrpc.h>
#include <spdk/rpc.h>
#include <spdk/string.h>
#include <spdk/util.h>
#include <spdk/vhost.h>

struct rpc_ctx {
    char *ctrlr, *nqn, *policy; // parameters
    struct spdk_jsonrpc_request *request;
    struct spdk_json_write_ctx *w;
    struct irq_device *device; // that the parameters name; null: all
    struct irq_device *cursor; // whose statistics are being written
};

static const struct spdk_json_object_decoder set_policy_decoders[] = {
    {"ctrlr", offsetof(struct rpc_ctx, ctrlr), spdk_json_decode_string, true},
    {"nqn", offsetof(struct rpc_ctx, nqn), spdk_json_decode_string, true},
    {"policy", offsetof(struct rpc_ctx, policy), spdk_json_decode_string, false},
};

static const struct spdk_json_object_decoder device_decoders[] = {
    {"ctrlr", offsetof(struct rpc_ctx, ctrlr), spdk_json_decode_string, true},
    {"nqn", offsetof(struct rpc_ctx, nqn), spdk_json_decode_string, true},
};

static void free_ctx(struct rpc_ctx *ctx)
{
    if (ctx->device)
        irq_device_unref(ctx->device);
    free(ctx->ctrlr);
    free(ctx->nqn);
    free(ctx->policy);
    free(ctx);
}

static void send_error(struct rpc_ctx *ctx, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = spdk_vsprintf_alloc(format, arguments);
    va_end(arguments);
    spdk_jsonrpc_send_error_response(ctx->request, code, message ? message : spdk_strerror(ENOMEM));
    free(message);
    free_ctx(ctx);
}

static void send_true(void *arg)
{
    struct rpc_ctx *ctx = arg;
    spdk_jsonrpc_send_bool_response(ctx->request, true);
    free_ctx(ctx);
}

#ifdef SPDK_CONFIG_VFIO_USER
#define NO_SUBSYSTEM "no NVMe subsystem \"%s\""
#else // subsystems that are reached over a network do not interrupt
#define NO_SUBSYSTEM "no NVMe subsystem \"%s\": this SPDK is configured without vfio-user"
#endif

static const struct spdk_json_object_decoder *find_decoder(const struct spdk_json_object_decoder *decoders, size_t count,
                                                           const struct spdk_json_val *name)
{
    for (size_t i = 0; i < count; i++)
        if (spdk_json_strequal(name, decoders[i].name))
            return &decoders[i];
    return NULL;
}

// Says what is wrong with parameters that spdk_json_decode_object() refuses; it says so in SPDK's debug log only.
static void refuse_params(struct rpc_ctx *ctx, const struct spdk_json_val *params,
                          const struct spdk_json_object_decoder *decoders, size_t count)
{
    if (params->type != SPDK_JSON_VAL_OBJECT_BEGIN)
        return send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "the parameters are not an object");
    uint32_t seen = 0; // a bit for each decoder
    // spdk_json_next() takes a value that it could change, and does not change it.
    struct spdk_json_val *name = spdk_json_object_first((struct spdk_json_val *)params);
    for (; name; name = spdk_json_next(name)) {
        const struct spdk_json_object_decoder *decoder = find_decoder(decoders, count, name);
        if (!decoder)
            return send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "unknown parameter \"%.*s\"; allowed: ctrlr, nqn%s",
                              (int)name->len, (const char *)name->start, count > 2 ? ", policy" : "");
        uint32_t bit = 1u << (decoder - decoders);
        if (seen & bit)
            return send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "%s is given twice", decoder->name);
        if (name[1].type != SPDK_JSON_VAL_STRING)
            return send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "%s is not a string", decoder->name);
        seen |= bit;
    }
    for (size_t i = 0; i < count; i++)
        if (!decoders[i].optional && !(seen & 1u << i))
            return send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "%s is missing", decoders[i].name);
    send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "%s", spdk_strerror(EINVAL));
}

// Decodes the parameters and finds their device. Null: an error response has been sent.
static struct rpc_ctx *decode(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params,
                              const struct spdk_json_object_decoder *decoders, size_t decoders_count, bool needs_device)
{
    struct rpc_ctx *ctx = calloc(1, sizeof(*ctx));
    if (!ctx) {
        spdk_jsonrpc_send_error_response(request, -ENOMEM, spdk_strerror(ENOMEM));
        return NULL;
    }
    ctx->request = request;
    if (params && spdk_json_decode_object(params, decoders, decoders_count, ctx) != 0) {
        refuse_params(ctx, params, decoders, decoders_count);
        return NULL;
    }
    if (ctx->ctrlr && ctx->nqn) {
        send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "ctrlr or nqn, not both");
        return NULL;
    }
    if (needs_device && !ctx->ctrlr && !ctx->nqn) {
        send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "ctrlr (a vhost-blk controller) or nqn (an NVMe subsystem) is needed");
        return NULL;
    }
    if (ctx->ctrlr && !(ctx->device = irq_device_find(IRQ_DEVICE_VHOST, ctx->ctrlr))) {
        send_error(ctx, -ENODEV, "no vhost-blk controller \"%s\"", ctx->ctrlr);
        return NULL;
    }
    if (ctx->nqn && !(ctx->device = irq_device_find(IRQ_DEVICE_NVME, ctx->nqn))) {
        send_error(ctx, -ENODEV, NO_SUBSYSTEM, ctx->nqn);
        return NULL;
    }
    return ctx;
}

static void write_name(struct spdk_json_write_ctx *w, const struct irq_device *device)
{
    spdk_json_write_named_string(w, device->kind == IRQ_DEVICE_VHOST ? "ctrlr" : "nqn", device->name);
}

static void reconfigure(struct irq_queue *queue, void *arg)
{
    struct rpc_ctx *ctx = arg;
    uint64_t now = delivery_now();
    delivery_reconfigure(&queue->delivery, now, ctx->policy);
    if (queue->is_running)
        irq_queue_arm_timer(queue, now);
}

// With SPDK's own coalescing and a policy, completions would be held twice.
static bool spdk_coalesces(const char *ctrlr)
{
    uint32_t delay_base_us = 0;
    spdk_vhost_lock();
    struct spdk_vhost_dev *vdev = spdk_vhost_dev_find(ctrlr);
    if (vdev)
        spdk_vhost_get_coalescing(vdev, &delay_base_us, NULL);
    spdk_vhost_unlock();
    return delay_base_us > 0;
}

static void rpc_coalesce_set_policy(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    char message[512];
    struct rpc_ctx *ctx = decode(request, params, set_policy_decoders, SPDK_COUNTOF(set_policy_decoders), true);
    if (!ctx)
        return;
    if (!delivery_check_policy(ctx->policy, message, sizeof(message)))
        return send_error(ctx, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "%s", message);
    if (ctx->ctrlr && strcmp(ctx->policy, IRQ_DEFAULT_POLICY) != 0 && spdk_coalesces(ctx->ctrlr))
        return send_error(ctx, -EBUSY,
                          "%s: SPDK's own coalescing is on; vhost_controller_set_coalescing with delay_base_us 0 first",
                          ctx->ctrlr);
    int rc = irq_device_set_policy(ctx->device, ctx->policy);
    if (rc == 0)
        rc = irq_for_each_queue(ctx->device, reconfigure, send_true, ctx);
    if (rc != 0)
        send_error(ctx, rc, "%s", spdk_strerror(-rc));
}
SPDK_RPC_REGISTER("coalesce_set_policy", rpc_coalesce_set_policy, SPDK_RPC_RUNTIME)

static void rpc_coalesce_get_policy(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    struct rpc_ctx *ctx = decode(request, params, device_decoders, SPDK_COUNTOF(device_decoders), false);
    if (!ctx)
        return;
    struct spdk_json_write_ctx *w = spdk_jsonrpc_begin_result(request);
    spdk_json_write_array_begin(w);
    for (struct irq_device *device = irq_device_next(NULL); device; device = irq_device_next(device)) {
        char *policy = !ctx->device || ctx->device == device ? irq_device_get_policy(device) : NULL;
        if (policy) {
            spdk_json_write_object_begin(w);
            write_name(w, device);
            spdk_json_write_named_string(w, "policy", policy);
            spdk_json_write_object_end(w);
        }
        free(policy);
    }
    spdk_json_write_array_end(w);
    spdk_jsonrpc_end_result(request, w);
    free_ctx(ctx);
}
SPDK_RPC_REGISTER("coalesce_get_policy", rpc_coalesce_get_policy, SPDK_RPC_RUNTIME)

static void write_queue(struct irq_queue *queue, void *arg)
{
    struct rpc_ctx *ctx = arg;
    spdk_json_write_object_begin(ctx->w);
    spdk_json_write_named_uint32(ctx->w, "queue", queue->qid);
    spdk_json_write_named_bool(ctx->w, "running", queue->is_running);
    delivery_write_stats(&queue->delivery, ctx->w);
    spdk_json_write_object_end(ctx->w);
}

static void write_next_device(struct rpc_ctx *ctx);

static void end_device(void *arg)
{
    struct rpc_ctx *ctx = arg;
    spdk_json_write_array_end(ctx->w);
    spdk_json_write_object_end(ctx->w);
    write_next_device(ctx);
}

static void write_next_device(struct rpc_ctx *ctx)
{
    if (!ctx->device)
        ctx->cursor = irq_device_next(ctx->cursor);
    else
        ctx->cursor = ctx->cursor ? NULL : ctx->device;
    if (!ctx->cursor) {
        spdk_json_write_array_end(ctx->w);
        spdk_jsonrpc_end_result(ctx->request, ctx->w);
        free_ctx(ctx);
        return;
    }
    spdk_json_write_object_begin(ctx->w);
    write_name(ctx->w, ctx->cursor);
    spdk_json_write_named_array_begin(ctx->w, "queues");
    if (irq_for_each_queue(ctx->cursor, write_queue, end_device, ctx) != 0)
        end_device(ctx);
}

static void rpc_coalesce_get_stats(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    struct rpc_ctx *ctx = decode(request, params, device_decoders, SPDK_COUNTOF(device_decoders), false);
    if (!ctx)
        return;
    ctx->w = spdk_jsonrpc_begin_result(request);
    spdk_json_write_array_begin(ctx->w);
    write_next_device(ctx);
}
SPDK_RPC_REGISTER("coalesce_get_stats", rpc_coalesce_get_stats, SPDK_RPC_RUNTIME)

static void reset_stats(struct irq_queue *queue, void *ctx)
{
    delivery_reset_stats(&queue->delivery);
}

static void rpc_coalesce_reset_stats(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    struct rpc_ctx *ctx = decode(request, params, device_decoders, SPDK_COUNTOF(device_decoders), false);
    if (ctx && irq_for_each_queue(ctx->device, reset_stats, send_true, ctx) != 0)
        send_error(ctx, -ENOMEM, "%s", spdk_strerror(ENOMEM));
}
SPDK_RPC_REGISTER("coalesce_reset_stats", rpc_coalesce_reset_stats, SPDK_RPC_RUNTIME)

// An SPDK subsystem, for save_config, which writes the configuration of each subsystem after those that it depends on;
// load_config replays it in that order. SPDK does not install the header that declares this, spdk_internal/init.h.
struct spdk_subsystem {
    const char *name;
    void (*init)(void);
    void (*fini)(void);
    void (*write_config_json)(struct spdk_json_write_ctx *w);
    TAILQ_ENTRY(spdk_subsystem) tailq;
};

struct spdk_subsystem_depend {
    const char *name;
    const char *depends_on;
    TAILQ_ENTRY(spdk_subsystem_depend) tailq;
};

void spdk_add_subsystem(struct spdk_subsystem *subsystem);
void spdk_add_subsystem_depend(struct spdk_subsystem_depend *depend);
void spdk_subsystem_init_next(int rc);
void spdk_subsystem_fini_next(void);

static void init_subsystem(void)
{
    irq_channels_init();
    spdk_subsystem_init_next(0);
}

static void fini_subsystem(void)
{
    irq_channels_fini();
    spdk_subsystem_fini_next();
}

static void write_config(struct spdk_json_write_ctx *w)
{
    spdk_json_write_array_begin(w);
    for (struct irq_device *device = irq_device_next(NULL); device; device = irq_device_next(device)) {
        char *policy = irq_device_get_policy(device);
        if (policy && strcmp(policy, IRQ_DEFAULT_POLICY) != 0) {
            spdk_json_write_object_begin(w);
            spdk_json_write_named_string(w, "method", "coalesce_set_policy");
            spdk_json_write_named_object_begin(w, "params");
            write_name(w, device);
            spdk_json_write_named_string(w, "policy", policy);
            spdk_json_write_object_end(w);
            spdk_json_write_object_end(w);
        }
        free(policy);
    }
    spdk_json_write_array_end(w);
}

static __attribute__((constructor)) void add_subsystem(void)
{
    static struct spdk_subsystem subsystem = {
        .name = "coalesce", .init = init_subsystem, .fini = fini_subsystem, .write_config_json = write_config};
    static struct spdk_subsystem_depend depends[] = {{.name = "coalesce", .depends_on = "vhost_blk"},
                                                     {.name = "coalesce", .depends_on = "nvmf"}};
    spdk_add_subsystem(&subsystem);
    for (size_t i = 0; i < SPDK_COUNTOF(depends); i++)
        spdk_add_subsystem_depend(&depends[i]);
}
