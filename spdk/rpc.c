// coalesce_set_policy, coalesce_get_policy, coalesce_get_stats, coalesce_reset_stats; and what save_config writes.
#include "target.h"

#include <spdk/env.h>
#include <spdk/json.h>
#include <spdk/jsonrpc.h>
#include <spdk/nvmf.h>
#include <spdk/rpc.h>
#include <spdk/string.h>
#include <spdk/util.h>
#include <spdk/vhost.h>

// What a call is about, and how far it has come.
struct call {
    char *ctrlr, *nqn, *policy;
    struct spdk_jsonrpc_request *request;
    struct spdk_json_write_ctx *w;
    struct target *only;   // null: all
    struct target *target; // whose turn it is
};

static const struct spdk_json_object_decoder set_decoders[] = {
    {"ctrlr", offsetof(struct call, ctrlr), spdk_json_decode_string, true},
    {"nqn", offsetof(struct call, nqn), spdk_json_decode_string, true},
    {"policy", offsetof(struct call, policy), spdk_json_decode_string, false},
};

static const struct spdk_json_object_decoder other_decoders[] = {
    {"ctrlr", offsetof(struct call, ctrlr), spdk_json_decode_string, true},
    {"nqn", offsetof(struct call, nqn), spdk_json_decode_string, true},
};

static void end(struct call *call)
{
    if (call->only)
        target_put(call->only);
    free(call->ctrlr);
    free(call->nqn);
    free(call->policy);
    free(call);
}

static void refuse(struct call *call, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = spdk_vsprintf_alloc(format, arguments);
    va_end(arguments);
    spdk_jsonrpc_send_error_response(call->request, code, message ? message : spdk_strerror(ENOMEM));
    free(message);
    end(call);
}

static struct target *find_subsystem(const char *nqn)
{
    for (struct spdk_nvmf_tgt *tgt = spdk_nvmf_get_first_tgt(); tgt; tgt = spdk_nvmf_get_next_tgt(tgt))
        if (spdk_nvmf_tgt_find_subsystem(tgt, nqn))
            return target_add(TARGET_NVME, nqn);
    return NULL;
}

// Decodes a call and finds its target. Null: it has been answered.
static struct call *begin(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params,
                          const struct spdk_json_object_decoder *decoders, size_t decoders_count, bool needs_target)
{
    struct call *call = calloc(1, sizeof(*call));
    if (!call) {
        spdk_jsonrpc_send_error_response(request, -ENOMEM, spdk_strerror(ENOMEM));
        return NULL;
    }
    call->request = request;
    if (params ? spdk_json_decode_object(params, decoders, decoders_count, call) != 0 : needs_target) {
        refuse(call, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "Invalid parameters: %s",
               needs_target ? "ctrlr or nqn, and policy, are strings" : "ctrlr or nqn is a string");
        return NULL;
    }
    if (call->ctrlr && call->nqn) {
        refuse(call, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "ctrlr or nqn, not both");
        return NULL;
    }
    if (needs_target && !call->ctrlr && !call->nqn) {
        refuse(call, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "ctrlr (a vhost-blk controller) or nqn (an NVMe subsystem) is needed");
        return NULL;
    }
    if (call->ctrlr && !(call->only = target_find(TARGET_VHOST, call->ctrlr))) {
        refuse(call, -ENODEV, "no vhost-blk controller \"%s\"", call->ctrlr);
        return NULL;
    }
    if (call->nqn && !(call->only = find_subsystem(call->nqn))) {
        refuse(call, -ENODEV, "no NVMe subsystem \"%s\"", call->nqn);
        return NULL;
    }
    return call;
}

static void write_name(struct spdk_json_write_ctx *w, const struct target *target)
{
    spdk_json_write_named_string(w, target->kind == TARGET_VHOST ? "ctrlr" : "nqn", target->name);
}

static void answer_true(void *context)
{
    struct call *call = context;
    spdk_jsonrpc_send_bool_response(call->request, true);
    end(call);
}

static void visit(struct call *call, void (*look)(struct line *line, void *context), void (*done)(void *context))
{
    if (!visit_lines(call->target, look, done, call))
        refuse(call, -ENOMEM, "%s", spdk_strerror(ENOMEM));
}

static void apply_policy(struct line *line, void *context)
{
    struct call *call = context;
    uint64_t now = spdk_get_ticks();
    delivery_reconfigure(&line->delivery, now, call->policy);
    if (line->is_running)
        home_watch(line, now);
}

// SPDK's own coalescing delays the question; the two together would hold twice.
static bool spdk_coalesces(const char *ctrlr)
{
    uint32_t delay_base_us = 0;
    spdk_vhost_lock();
    struct spdk_vhost_dev *device = spdk_vhost_dev_find(ctrlr);
    if (device)
        spdk_vhost_get_coalescing(device, &delay_base_us, NULL);
    spdk_vhost_unlock();
    return delay_base_us > 0;
}

static void coalesce_set_policy(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    char message[512];
    struct call *call = begin(request, params, set_decoders, SPDK_COUNTOF(set_decoders), true);
    if (!call)
        return;
    if (!delivery_check(call->policy, message, sizeof(message)))
        return refuse(call, SPDK_JSONRPC_ERROR_INVALID_PARAMS, "%s", message);
    if (call->ctrlr && strcmp(call->policy, DEFAULT_POLICY) != 0 && spdk_coalesces(call->ctrlr))
        return refuse(call, -EBUSY, "%s: SPDK's own coalescing is on; vhost_controller_set_coalescing with delay_base_us 0 first",
                      call->ctrlr);
    if (!target_set_policy(call->only, call->policy))
        return refuse(call, -ENOMEM, "%s", spdk_strerror(ENOMEM));
    call->target = call->only;
    visit(call, apply_policy, answer_true);
}
SPDK_RPC_REGISTER("coalesce_set_policy", coalesce_set_policy, SPDK_RPC_RUNTIME)

static void coalesce_get_policy(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    struct call *call = begin(request, params, other_decoders, SPDK_COUNTOF(other_decoders), false);
    if (!call)
        return;
    struct spdk_json_write_ctx *w = spdk_jsonrpc_begin_result(request);
    spdk_json_write_array_begin(w);
    for (struct target *target = target_next(NULL); target; target = target_next(target)) {
        char *policy = !call->only || call->only == target ? target_policy(target) : NULL;
        if (policy) {
            spdk_json_write_object_begin(w);
            write_name(w, target);
            spdk_json_write_named_string(w, "policy", policy);
            spdk_json_write_object_end(w);
        }
        free(policy);
    }
    spdk_json_write_array_end(w);
    spdk_jsonrpc_end_result(request, w);
    end(call);
}
SPDK_RPC_REGISTER("coalesce_get_policy", coalesce_get_policy, SPDK_RPC_RUNTIME)

static void write_line(struct line *line, void *context)
{
    struct call *call = context;
    spdk_json_write_object_begin(call->w);
    spdk_json_write_named_uint32(call->w, "queue", line->queue);
    spdk_json_write_named_bool(call->w, "running", line->is_running);
    delivery_write_stats(&line->delivery, call->w);
    spdk_json_write_object_end(call->w);
}

static void write_next_target(struct call *call);

static void end_target(void *context)
{
    struct call *call = context;
    spdk_json_write_array_end(call->w);
    spdk_json_write_object_end(call->w);
    write_next_target(call);
}

static void write_next_target(struct call *call)
{
    if (!call->only)
        call->target = target_next(call->target);
    else
        call->target = call->target ? NULL : call->only;
    if (call->target) {
        spdk_json_write_object_begin(call->w);
        write_name(call->w, call->target);
        spdk_json_write_named_array_begin(call->w, "queues");
        if (!visit_lines(call->target, write_line, end_target, call))
            end_target(call);
    } else {
        spdk_json_write_array_end(call->w);
        spdk_jsonrpc_end_result(call->request, call->w);
        end(call);
    }
}

static void coalesce_get_stats(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    struct call *call = begin(request, params, other_decoders, SPDK_COUNTOF(other_decoders), false);
    if (!call)
        return;
    call->w = spdk_jsonrpc_begin_result(request);
    spdk_json_write_array_begin(call->w);
    write_next_target(call);
}
SPDK_RPC_REGISTER("coalesce_get_stats", coalesce_get_stats, SPDK_RPC_RUNTIME)

static void reset_line(struct line *line, void *context)
{
    delivery_reset_stats(&line->delivery);
}

static void coalesce_reset_stats(struct spdk_jsonrpc_request *request, const struct spdk_json_val *params)
{
    struct call *call = begin(request, params, other_decoders, SPDK_COUNTOF(other_decoders), false);
    if (!call)
        return;
    call->target = call->only;
    visit(call, reset_line, answer_true);
}
SPDK_RPC_REGISTER("coalesce_reset_stats", coalesce_reset_stats, SPDK_RPC_RUNTIME)

// save_config asks subsystems, in the order in which they depend on each other; load_config calls what they wrote, in the same
// order. SPDK does not install the header in which these are declared, spdk_internal/init.h.
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
    spdk_subsystem_init_next(0);
}

static void write_config(struct spdk_json_write_ctx *w)
{
    spdk_json_write_array_begin(w);
    for (struct target *target = target_next(NULL); target; target = target_next(target)) {
        char *policy = target_policy(target);
        if (policy && strcmp(policy, DEFAULT_POLICY) != 0) {
            spdk_json_write_object_begin(w);
            spdk_json_write_named_string(w, "method", "coalesce_set_policy");
            spdk_json_write_named_object_begin(w, "params");
            write_name(w, target);
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
        .name = "coalesce", .init = init_subsystem, .fini = spdk_subsystem_fini_next, .write_config_json = write_config};
    static struct spdk_subsystem_depend depends[] = {{.name = "coalesce", .depends_on = "vhost_blk"},
                                                     {.name = "coalesce", .depends_on = "nvmf"}};
    spdk_add_subsystem(&subsystem);
    for (size_t i = 0; i < SPDK_COUNTOF(depends); i++)
        spdk_add_subsystem_depend(&depends[i]);
}
