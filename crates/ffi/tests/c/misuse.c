// Invalid states, sizes and parameters give an error, never COALESCE_HOLD, and nothing is written. Calls every function
// of the library.
#include <coalesce.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *about = "";

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "misuse.c:%d: %s: FAILED: %s\n", __LINE__, about, #condition); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

// The valid arguments beside the invalid one.
static coalesce_vic_config a_vic_config;
static coalesce_cint_config a_cint_config;
static coalesce_cint_state a_cint;
static coalesce_budget_config a_budget_config;
static coalesce_budget_state a_budget;
static coalesce_auto_state an_auto;
static uint64_t a_window[COALESCE_WINDOW_WORDS(64)];
static coalesce_reaper_entry a_queue[2];

static bool take_all(void *context, const coalesce_reaper_entry *entry)
{
    (void)context, (void)entry;
    return true;
}

// Calls every function that takes a state, with any memory as the state. EITHER: functions that take a budget or an auto.
typedef enum { VIC, CINT, BUDGET, AUTO, GATE, WINDOW, REAPER, KINDS, EITHER = KINDS, GROUPS } kind;
static const size_t sizes[KINDS] = {sizeof(coalesce_vic_state),
                                    sizeof(coalesce_cint_state),
                                    sizeof(coalesce_budget_state),
                                    sizeof(coalesce_auto_state),
                                    sizeof(coalesce_ipi_gate),
                                    sizeof a_window,
                                    COALESCE_REAPER_WORDS(64) * sizeof(uint64_t)};
// What they write besides: an info or a number.
static const size_t answers[KINDS] = {sizeof(coalesce_vic_info),
                                      sizeof(coalesce_cint_info),
                                      sizeof(coalesce_budget_info),
                                      sizeof(coalesce_budget_info),
                                      sizeof(uint64_t),
                                      sizeof(uint64_t),
                                      sizeof(uint32_t)};

static bool takes(int functions, kind state)
{
    return functions == (int)state || (functions == EITHER && (state == BUDGET || state == AUTO));
}

// What a call answers, if its arguments are valid.
#define DONE(status) ((status) == COALESCE_OK)
#define DECISION(status) \
    (!DONE(status) && ((status) == COALESCE_HOLD || (status) == COALESCE_DELIVER || (status) == COALESCE_DELIVER_URGENT))

#define FUNCTIONS(X)                                                                                                           \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_on_completion(state, 1, 100))                                            \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_on_completion_in_slice(state, 1, 100, 2))                                \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_on_deadline(state, 1))                                                   \
    X(VIC, coalesce_vic_state, DONE, coalesce_vic_on_consumed(state, 1))                                                       \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_on_schedule(state, 1))                                                   \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_on_deschedule(state, 1))                                                 \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_flush(state, 1))                                                         \
    X(VIC, coalesce_vic_state, DECISION, coalesce_vic_reconfigure(state, &a_vic_config, 1, NULL))                              \
    X(VIC, coalesce_vic_state, DONE, coalesce_vic_get_info(state, (coalesce_vic_info *)out, sizeof(coalesce_vic_info)))        \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_on_completion(state, 1, COALESCE_HINT_PLAIN, 100))                    \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_on_completion_strict(state, a_window, 1, COALESCE_NO_TICKET, 0, 100)) \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_on_cancel(state, a_window, 1, COALESCE_NO_TICKET, 0))                 \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_on_deadline(state, 1))                                                \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_on_batch_end(state, 1))                                               \
    X(CINT, coalesce_cint_state, DONE, coalesce_cint_on_consumed(state, 1))                                                    \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_flush(state, 1))                                                      \
    X(CINT, coalesce_cint_state, DECISION, coalesce_cint_reconfigure(state, &a_cint_config, 1, NULL))                          \
    X(CINT, coalesce_cint_state, DONE, coalesce_cint_get_info(state, (coalesce_cint_info *)out, sizeof(coalesce_cint_info)))   \
    X(EITHER, coalesce_budget_state, DONE, coalesce_budget_on_submits(state, 1, 100))                                          \
    X(BUDGET, coalesce_budget_state, DECISION, coalesce_budget_on_completion(state, 1, COALESCE_HINT_PLAIN, 100, 100))         \
    X(BUDGET, coalesce_budget_state, DECISION,                                                                                 \
      coalesce_budget_on_completion_strict(state, a_window, 1, COALESCE_NO_TICKET, 0, 100, 100))                               \
    X(EITHER, coalesce_budget_state, DECISION, coalesce_budget_on_cancel(state, a_window, 1, COALESCE_NO_TICKET, 0))           \
    X(EITHER, coalesce_budget_state, DECISION, coalesce_budget_on_deadline(state, 1))                                          \
    X(EITHER, coalesce_budget_state, DONE, coalesce_budget_on_consumed(state, 1))                                              \
    X(EITHER, coalesce_budget_state, DECISION, coalesce_budget_flush(state, 1))                                                \
    X(BUDGET, coalesce_budget_state, DONE, coalesce_budget_forget(state))                                                      \
    X(BUDGET, coalesce_budget_state, DECISION, coalesce_budget_reconfigure(state, &a_budget_config, 1, NULL))                  \
    X(EITHER, coalesce_budget_state, DONE,                                                                                     \
      coalesce_budget_get_info(state, (coalesce_budget_info *)out, sizeof(coalesce_budget_info)))                              \
    X(AUTO, coalesce_auto_state, DECISION, coalesce_auto_on_completion(state, 1, COALESCE_HINT_PLAIN, 100, 100))               \
    X(AUTO, coalesce_auto_state, DECISION,                                                                                     \
      coalesce_auto_on_completion_strict(state, a_window, 1, COALESCE_NO_TICKET, 0, 100, 100))                                 \
    X(AUTO, coalesce_auto_state, DONE, coalesce_auto_forget(state))                                                            \
    X(AUTO, coalesce_auto_state, DECISION, coalesce_auto_reconfigure(state, &a_budget_config, 1, NULL))                        \
    X(GATE, coalesce_ipi_gate, DONE, coalesce_ipi_gate_delivered(state, 1))                                                    \
    X(GATE, coalesce_ipi_gate, DECISION, coalesce_ipi_gate_should_send(state, 1, (uint64_t *)out))                             \
    X(WINDOW, uint64_t, DONE, coalesce_window_reset(state))                                                                    \
    X(WINDOW, uint64_t, DECISION, coalesce_cint_on_completion_strict(&a_cint, state, 1, 0, COALESCE_HINT_PLAIN, 100))          \
    X(WINDOW, uint64_t, DECISION, coalesce_cint_on_cancel(&a_cint, state, 1, 0, 0))                                            \
    X(WINDOW, uint64_t, DECISION, coalesce_budget_on_completion_strict(&a_budget, state, 1, 0, COALESCE_HINT_PLAIN, 100, 100)) \
    X(WINDOW, uint64_t, DECISION, coalesce_auto_on_completion_strict(&an_auto, state, 1, 0, COALESCE_HINT_PLAIN, 100, 100))    \
    X(WINDOW, uint64_t, DECISION, coalesce_budget_on_cancel(&a_budget, state, 1, 0, 0))                                        \
    X(REAPER, uint64_t, DONE, coalesce_reaper_reap(state, a_queue, take_all, NULL, (uint32_t *)out))

#define ALL_REFUSE(of, type, answer, call)           \
    if (which == of) {                               \
        type *state = (type *)memory;                \
        about = #call;                               \
        CHECK((call) == expected);                   \
        CHECK(out[0] == 0x5555 && out[1] == 0x5555); \
    }

static void group_refused(int which, void *memory, coalesce_status expected)
{
    uint64_t out[4] = {0x5555, 0x5555, 0, 0};
    CHECK(expected != COALESCE_HOLD && expected != COALESCE_DELIVER && expected != COALESCE_DELIVER_URGENT);
    FUNCTIONS(ALL_REFUSE)
    if (which == VIC)
        CHECK(coalesce_vic_deadline((coalesce_vic_state *)memory) == COALESCE_NEVER &&
              coalesce_vic_reason((coalesce_vic_state *)memory) == COALESCE_REASON_NONE);
    if (which == CINT)
        CHECK(coalesce_cint_deadline((coalesce_cint_state *)memory) == COALESCE_NEVER &&
              coalesce_cint_reason((coalesce_cint_state *)memory) == COALESCE_REASON_NONE);
    if (which == EITHER)
        CHECK(coalesce_budget_deadline((coalesce_budget_state *)memory) == COALESCE_NEVER &&
              coalesce_budget_reason((coalesce_budget_state *)memory) == COALESCE_REASON_NONE);
    if (which == WINDOW)
        CHECK(coalesce_window_on_submit((uint64_t *)memory) == COALESCE_NO_TICKET);
}

// Every function that takes such a state refuses this memory.
static void refused(kind which, void *memory, coalesce_status expected)
{
    for (int functions = VIC; functions < GROUPS; functions++)
        if (takes(functions, which))
            group_refused(functions, memory, expected);
}

static coalesce_status init(kind which, void *memory, size_t size)
{
    switch (which) {
    case VIC:
        return coalesce_vic_init((coalesce_vic_state *)memory, size, &a_vic_config, NULL);
    case CINT:
        return coalesce_cint_init((coalesce_cint_state *)memory, size, &a_cint_config, NULL);
    case BUDGET:
        return coalesce_budget_init((coalesce_budget_state *)memory, size, &a_budget_config, NULL);
    case AUTO:
        return coalesce_auto_init((coalesce_auto_state *)memory, size, &a_budget_config, NULL);
    case GATE:
        return coalesce_ipi_gate_init((coalesce_ipi_gate *)memory, size, COALESCE_IPI_GATE_PAPER_NS, 1000000000, NULL);
    case WINDOW:
        return coalesce_window_init((uint64_t *)memory, size, 64, NULL);
    default:
        return coalesce_reaper_init((uint64_t *)memory, size, 64, NULL);
    }
}

// Separate memory for each attempt, no larger than a state, so that a sanitizer detects accesses beyond it.
static void what_is_no_state(kind which)
{
    size_t size = sizes[which];
    refused(which, NULL, COALESCE_E_NULL);
    CHECK(init(which, NULL, size) == COALESCE_E_NULL);
    const int patterns[] = {0, 0x01, 0x55, ' ', 'A', 'B', 'C', 'V', 0xff};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char *memory = (char *)malloc(size + 8), *copy = (char *)malloc(size + 8);
        memset(memory, patterns[i], size + 8);
        memset(copy, patterns[i], size + 8);
        refused(which, memory, COALESCE_E_STATE);
        for (int by = 1; by < 8; by++) {
            refused(which, memory + by, COALESCE_E_ALIGNMENT);
            CHECK(init(which, memory + by, size) == COALESCE_E_ALIGNMENT);
        }
        const size_t others[] = {0, 1, size - 8, size - 1};
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            CHECK(init(which, memory, others[k]) == COALESCE_E_SIZE);
        if (which < WINDOW) // the size of the others is up to the caller
            CHECK(init(which, memory, size + 8) == COALESCE_E_SIZE);
        CHECK(memcmp(memory, copy, size + 8) == 0);
        free(memory), free(copy);
    }
}

// A valid state of one kind is invalid as another kind, and in another version of the ABI.
static void what_is_another_state(kind made)
{
    unsigned char *memory = (unsigned char *)calloc(1, 4096);
    CHECK(init(made, memory, sizes[made]) == COALESCE_OK);
    for (int functions = VIC; functions < GROUPS; functions++)
        if (!takes(functions, made))
            group_refused(functions, memory, COALESCE_E_STATE);
    for (int byte = 0; byte < 4; byte++)
        for (int bit = 0; bit < 8; bit++) {
            memory[byte] ^= (unsigned char)(1 << bit);
            refused(made, memory, COALESCE_E_STATE);
            memory[byte] ^= (unsigned char)(1 << bit);
        }
    free(memory);
}

#define ALL_RUN(of, type, answer, call)  \
    if (takes(of, which)) {              \
        type *state = (type *)memory;    \
        about = #call;                   \
        coalesce_status status = (call); \
        CHECK(answer(status));           \
    }

// A valid state and its info, in memory of exactly their size: no function accesses memory beyond them.
static void what_is_a_state(kind which)
{
    void *memory = malloc(sizes[which]), *out = malloc(answers[which]);
    about = "init";
    CHECK(init(which, memory, sizes[which]) == COALESCE_OK);
    if (which == WINDOW)
        for (uint64_t ticket = 0; ticket < 65; ticket++)
            CHECK(coalesce_window_on_submit((uint64_t *)memory) == (ticket < 64 ? ticket : COALESCE_NO_TICKET));
    FUNCTIONS(ALL_RUN)
    free(memory), free(out);
}

// The other parameter that sets the bound, if there is one.
static uint32_t bound_by;

// Checks the error of `call` for a parameter out of range: the field and its bounds.
#define REFUSED(call, parameter, number, wrong, smallest, largest)                                                     \
    do {                                                                                                               \
        about = #call ": " #parameter;                                                                                 \
        memset(&error, 0x55, sizeof error);                                                                            \
        parameter = (wrong);                                                                                           \
        CHECK((call) == COALESCE_E_CONFIG);                                                                            \
        CHECK(error.field == (number) && error.value == (wrong) && error.min == (smallest) && error.max == (largest)); \
        CHECK(error.because == bound_by && (error.because_value == 0) == (bound_by == 0));                             \
    } while (0)

// Checks values just outside the bounds, and that values at the bounds are accepted.
#define BELOW(call, parameter, number, smallest, largest)                  \
    do {                                                                   \
        REFUSED(call, parameter, number, (smallest)-1, smallest, largest); \
        parameter = (smallest);                                            \
        CHECK((call) == COALESCE_OK);                                      \
    } while (0)
#define ABOVE(call, parameter, number, smallest, largest)                   \
    do {                                                                    \
        REFUSED(call, parameter, number, (largest) + 1, smallest, largest); \
        parameter = (largest);                                              \
        CHECK((call) == COALESCE_OK);                                       \
    } while (0)
#define BOUNDS(call, parameter, number, smallest, largest) \
    do {                                                   \
        BELOW(call, parameter, number, smallest, largest); \
        ABOVE(call, parameter, number, smallest, largest); \
    } while (0)

static coalesce_error error;

static void parameters_of_vic(void)
{
    coalesce_vic_config c;
    coalesce_vic_state state;
    for (int profile = 0; profile < 2; profile++) {
        profile == 0 ? coalesce_vic_config_default(&c, sizeof c, 1000000000)
                     : coalesce_vic_config_paper(&c, sizeof c, 1000000000);
        coalesce_vic_config sound = c;
#define VIC_INIT coalesce_vic_init(&state, sizeof state, &c, &error)
        CHECK(VIC_INIT == COALESCE_OK);
        BOUNDS(VIC_INIT, c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 10000000000u);
        c = sound;
        BOUNDS(VIC_INIT, c.cif_threshold, COALESCE_FIELD_CIF_THRESHOLD, 2u, 65535u);
        REFUSED(VIC_INIT, c.cif_threshold, COALESCE_FIELD_CIF_THRESHOLD, UINT32_MAX, 2u, 65535u);
        c = sound;
        BOUNDS(VIC_INIT, c.epoch_ns, COALESCE_FIELD_EPOCH_NS, 1000000u, 60000000000u);
        BOUNDS(VIC_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, 1u, 1000000000u);
        REFUSED(VIC_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, COALESCE_NEVER - 1, 1u, 1000000000u);
        c = sound;
        ABOVE(VIC_INIT, c.margin_ns, COALESCE_FIELD_MARGIN_NS, 0u, 100000000u);
        BOUNDS(VIC_INIT, c.max_skip, COALESCE_FIELD_MAX_SKIP, 2u, 65535u);
        ABOVE(VIC_INIT, c.live_clamp, COALESCE_FIELD_LIVE_CLAMP, 0u, 1u);
        ABOVE(VIC_INIT, c.reserved, COALESCE_FIELD_RESERVED, 0u, 0u);
        about = "coalesce_vic_init";
        CHECK(coalesce_vic_init(&state, sizeof state, NULL, &error) == COALESCE_E_NULL);
        c.reserved = 1;
        CHECK(coalesce_vic_init(&state, sizeof state, &c, NULL) == COALESCE_E_CONFIG);
        // The clock cannot change. With invalid parameters the machine stays unchanged.
        c = sound;
        CHECK(VIC_INIT == COALESCE_OK);
        CHECK(coalesce_vic_on_completion(&state, 1, 1) == COALESCE_DELIVER);
        REFUSED(coalesce_vic_reconfigure(&state, &c, 1, &error), c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 1000000000u,
                1000000000u);
        CHECK(coalesce_vic_reconfigure(&state, NULL, 1, NULL) == COALESCE_E_NULL);
        for (c.struct_size = 0; c.struct_size < 2 * sizeof c; c.struct_size++)
            if (c.struct_size != sizeof c) {
                coalesce_vic_config *exact = (coalesce_vic_config *)malloc(c.struct_size > 4 ? c.struct_size : 4);
                memcpy(exact, &c.struct_size, 4);
                CHECK(coalesce_vic_init(&state, sizeof state, exact, NULL) == COALESCE_E_SIZE);
                CHECK(coalesce_vic_reconfigure(&state, exact, 1, NULL) == COALESCE_E_SIZE);
                CHECK(coalesce_vic_config_print(exact, NULL, 0) == 0);
                free(exact);
            }
        CHECK(coalesce_vic_reason(&state) == COALESCE_REASON_LOW_CIF);
    }
}

static void parameters_of_cint(void)
{
    coalesce_cint_config c, sound;
    coalesce_cint_state state;
#define CINT_INIT coalesce_cint_init(&state, sizeof state, &c, &error)
    for (int profile = 0; profile < 3; profile++) {
        (profile == 0   ? coalesce_cint_config_default
         : profile == 1 ? coalesce_cint_config_optane
                        : coalesce_cint_config_p3700)(&c, sizeof c, 1000000000);
        CHECK(CINT_INIT == COALESCE_OK);
        sound = c;
        BOUNDS(CINT_INIT, c.thr, COALESCE_FIELD_THR, 1u, 65535u);
        REFUSED(CINT_INIT, c.thr, COALESCE_FIELD_THR, UINT32_MAX, 1u, 65535u);
        c = sound;
        BOUNDS(CINT_INIT, c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 10000000000u);
        c = sound;
        ABOVE(CINT_INIT, c.delta_ns, COALESCE_FIELD_DELTA_NS, 0u, 10000000u);
        BOUNDS(CINT_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, 1u, 500000000u);
        BOUNDS(CINT_INIT, c.in_flight, COALESCE_FIELD_IN_FLIGHT, 2u, 32767u);
        ABOVE(CINT_INIT, c.ooo, COALESCE_FIELD_OOO, 0u, 1u);
        ABOVE(CINT_INIT, c.reserved, COALESCE_FIELD_RESERVED, 0u, 0u);
        // With the storm guard: a rate of 0 means no guard, and max_hold must be at least the guard's interval.
        c = sound;
        c.max_hold_ns = COALESCE_NEVER;
        BOUNDS(CINT_INIT, c.storm_max_rate, COALESCE_FIELD_STORM_MAX_RATE, 8u, 200000000u);
        BOUNDS(CINT_INIT, c.storm_shift, COALESCE_FIELD_STORM_SHIFT, 5u, 16u);
        REFUSED(CINT_INIT, c.storm_shift, COALESCE_FIELD_STORM_SHIFT, 65536u + 7u, 5u, 16u);
        c = sound;
        c.storm_max_rate = 10000;
        bound_by = COALESCE_FIELD_STORM_MAX_RATE;
        BELOW(CINT_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, 100000u, 500000000u);
        bound_by = 0;
        about = "coalesce_cint_init";
        CHECK(coalesce_cint_init(&state, sizeof state, NULL, &error) == COALESCE_E_NULL);
        c.reserved = 1;
        CHECK(coalesce_cint_init(&state, sizeof state, &c, NULL) == COALESCE_E_CONFIG);
    }
    c = sound;
    CHECK(CINT_INIT == COALESCE_OK);
    CHECK(coalesce_cint_on_completion(&state, 1, COALESCE_HINT_BARRIER, 100) == COALESCE_DELIVER);
    REFUSED(coalesce_cint_reconfigure(&state, &c, 1, &error), c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 1000000000u, 1000000000u);
    CHECK(coalesce_cint_reconfigure(&state, NULL, 1, NULL) == COALESCE_E_NULL);
    for (c.struct_size = 0; c.struct_size < 2 * sizeof c; c.struct_size++)
        if (c.struct_size != sizeof c) {
            coalesce_cint_config *exact = (coalesce_cint_config *)malloc(c.struct_size > 4 ? c.struct_size : 4);
            memcpy(exact, &c.struct_size, 4);
            CHECK(coalesce_cint_init(&state, sizeof state, exact, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_cint_reconfigure(&state, exact, 1, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_cint_config_print(exact, NULL, 0) == 0);
            free(exact);
        }
    CHECK(coalesce_cint_reason(&state) == COALESCE_REASON_BARRIER);
}

static void parameters_of_budget(void)
{
    coalesce_budget_config c, sound;
    coalesce_budget_state state;
#define BUDGET_INIT coalesce_budget_init(&state, sizeof state, &c, &error)
    coalesce_budget_config_default(&c, sizeof c, 1000000000);
    CHECK(BUDGET_INIT == COALESCE_OK);
    sound = c;
    BOUNDS(BUDGET_INIT, c.budget, COALESCE_FIELD_BUDGET, 1u, 5000u);
    REFUSED(BUDGET_INIT, c.budget, COALESCE_FIELD_BUDGET, UINT32_MAX, 1u, 5000u);
    c = sound;
    BOUNDS(BUDGET_INIT, c.thr, COALESCE_FIELD_THR, 1u, 65535u);
    REFUSED(BUDGET_INIT, c.thr, COALESCE_FIELD_THR, UINT32_MAX, 1u, 65535u);
    c = sound;
    BOUNDS(BUDGET_INIT, c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 10000000000u);
    c = sound;
    BOUNDS(BUDGET_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, 1u, 500000000u);
    REFUSED(BUDGET_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, COALESCE_NEVER, 1u, 500000000u);
    c = sound;
    ABOVE(BUDGET_INIT, c.ooo, COALESCE_FIELD_OOO, 0u, 1u);
    ABOVE(BUDGET_INIT, c.reserved, COALESCE_FIELD_RESERVED, 0u, 0u);
    // With the storm guard: a rate of 0 means no guard, and max_hold must be at least the guard's interval.
    c = sound;
    c.max_hold_ns = 500000000;
    BOUNDS(BUDGET_INIT, c.storm_max_rate, COALESCE_FIELD_STORM_MAX_RATE, 8u, 200000000u);
    BOUNDS(BUDGET_INIT, c.storm_shift, COALESCE_FIELD_STORM_SHIFT, 5u, 16u);
    REFUSED(BUDGET_INIT, c.storm_shift, COALESCE_FIELD_STORM_SHIFT, 65536u + 7u, 5u, 16u);
    c = sound;
    c.storm_max_rate = 10000;
    bound_by = COALESCE_FIELD_STORM_MAX_RATE;
    BELOW(BUDGET_INIT, c.max_hold_ns, COALESCE_FIELD_MAX_HOLD_NS, 100000u, 500000000u);
    bound_by = 0;
    about = "coalesce_budget_init";
    CHECK(coalesce_budget_init(&state, sizeof state, NULL, &error) == COALESCE_E_NULL);
    c.reserved = 1;
    CHECK(coalesce_budget_init(&state, sizeof state, &c, NULL) == COALESCE_E_CONFIG);
    c = sound;
    CHECK(BUDGET_INIT == COALESCE_OK);
    CHECK(coalesce_budget_on_completion(&state, 1, COALESCE_HINT_BARRIER, 100, 100) == COALESCE_DELIVER);
    REFUSED(coalesce_budget_reconfigure(&state, &c, 1, &error), c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 1000000000u,
            1000000000u);
    CHECK(coalesce_budget_reconfigure(&state, NULL, 1, NULL) == COALESCE_E_NULL);
    c = sound;
    coalesce_auto_state regulated;
#define AUTO_INIT coalesce_auto_init(&regulated, sizeof regulated, &c, &error)
    BOUNDS(AUTO_INIT, c.thr, COALESCE_FIELD_THR, 1u, 65535u);
    c = sound;
    CHECK(AUTO_INIT == COALESCE_OK);
    REFUSED(coalesce_auto_reconfigure(&regulated, &c, 1, &error), c.tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 1000000000u,
            1000000000u);
    for (c.struct_size = 0; c.struct_size < 2 * sizeof c; c.struct_size++)
        if (c.struct_size != sizeof c) {
            coalesce_budget_config *exact = (coalesce_budget_config *)malloc(c.struct_size > 4 ? c.struct_size : 4);
            memcpy(exact, &c.struct_size, 4);
            CHECK(coalesce_budget_init(&state, sizeof state, exact, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_budget_reconfigure(&state, exact, 1, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_auto_init(&regulated, sizeof regulated, exact, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_auto_reconfigure(&regulated, exact, 1, NULL) == COALESCE_E_SIZE);
            free(exact);
        }
    CHECK(coalesce_budget_reason(&state) == COALESCE_REASON_BARRIER);
}

static void parameters_of_the_others(void)
{
    coalesce_ipi_gate gate;
    uint64_t threshold_ns = 0, tick_hz = 1000000000;
#define GATE_INIT coalesce_ipi_gate_init(&gate, sizeof gate, threshold_ns, tick_hz, &error)
    ABOVE(GATE_INIT, threshold_ns, COALESCE_FIELD_IPI_THRESHOLD_NS, 0u, 1000000000u);
    BOUNDS(GATE_INIT, tick_hz, COALESCE_FIELD_TICK_HZ, 1000u, 10000000000u);

    coalesce_nvme_coalescing value = {1, 0, 0};
    uint32_t cdw11, vector;
    BOUNDS(coalesce_nvme_coalescing_encode(&value, &cdw11, &error), value.threshold, COALESCE_FIELD_AGGREGATION_THRESHOLD, 1u,
           256u);
    ABOVE(coalesce_nvme_coalescing_encode(&value, &cdw11, &error), value.time_ns, COALESCE_FIELD_AGGREGATION_TIME_NS, 0u,
          25500000u);
    ABOVE(coalesce_nvme_vector_encode(vector, true, &cdw11, &error), vector, COALESCE_FIELD_VECTOR, 0u, 65535u);

    uint64_t memory[COALESCE_WINDOW_WORDS(4096)];
    uint32_t commands, entries;
#define WINDOW_INIT coalesce_window_init(memory, sizeof memory, commands, &error)
    BOUNDS(WINDOW_INIT, commands, COALESCE_FIELD_COMMANDS, 64u, 4096u);
    REFUSED(WINDOW_INIT, commands, COALESCE_FIELD_COMMANDS, 0u, 64u, 4096u);
    REFUSED(WINDOW_INIT, commands, COALESCE_FIELD_COMMANDS, 100u, 64u, 4096u);
    REFUSED(WINDOW_INIT, commands, COALESCE_FIELD_COMMANDS, UINT32_MAX, 64u, 4096u);
    static uint64_t large[COALESCE_REAPER_WORDS(65535)];
#define REAPER_INIT coalesce_reaper_init(large, sizeof large, entries, &error)
    BOUNDS(REAPER_INIT, entries, COALESCE_FIELD_ENTRIES, 2u, 65535u);
    REFUSED(REAPER_INIT, entries, COALESCE_FIELD_ENTRIES, 0u, 2u, 65535u);
    REFUSED(REAPER_INIT, entries, COALESCE_FIELD_ENTRIES, UINT32_MAX, 2u, 65535u);

    // The functions for sizes agree with the macros, and return 0 for invalid numbers.
    about = "sizes";
    for (uint32_t n = 0; n < 70000; n++) {
        bool is_window = n >= 64 && n <= 4096 && (n & (n - 1)) == 0, is_queue = n >= 2 && n <= 65535;
        CHECK(coalesce_window_size(n) == (is_window ? COALESCE_WINDOW_WORDS(n) * sizeof(uint64_t) : 0));
        CHECK(coalesce_reaper_size(n) == (is_queue ? COALESCE_REAPER_WORDS(n) * sizeof(uint64_t) : 0));
    }
}

static void arguments_beside_the_state(void)
{
    about = "null, and sizes of another header";
    coalesce_vic_config_default(NULL, 0, 1), coalesce_vic_config_paper(NULL, 0, 1);
    coalesce_cint_config_default(NULL, 0, 1), coalesce_cint_config_optane(NULL, 0, 1), coalesce_cint_config_p3700(NULL, 0, 1);
    coalesce_budget_config_default(NULL, 0, 1);

    coalesce_vic_state vic;
    coalesce_vic_info vic_about;
    coalesce_cint_info cint_about;
    coalesce_budget_info budget_about;
    coalesce_ipi_gate gate;
    CHECK(coalesce_vic_init(&vic, sizeof vic, &a_vic_config, NULL) == COALESCE_OK);
    CHECK(coalesce_vic_get_info(&vic, NULL, sizeof vic_about) == COALESCE_E_NULL);
    CHECK(coalesce_vic_get_info(&vic, &vic_about, sizeof vic_about - 1) == COALESCE_E_SIZE);
    CHECK(coalesce_cint_get_info(&a_cint, NULL, sizeof cint_about) == COALESCE_E_NULL);
    CHECK(coalesce_cint_get_info(&a_cint, &cint_about, sizeof cint_about + 1) == COALESCE_E_SIZE);
    CHECK(coalesce_budget_get_info(&a_budget, NULL, sizeof budget_about) == COALESCE_E_NULL);
    CHECK(coalesce_budget_get_info(&a_budget, &budget_about, sizeof budget_about - 8) == COALESCE_E_SIZE);
    CHECK(coalesce_ipi_gate_init(&gate, sizeof gate, 100, 1000000000, NULL) == COALESCE_OK);
    CHECK(coalesce_ipi_gate_delivered(&gate, 5) == COALESCE_OK);
    CHECK(coalesce_ipi_gate_should_send(&gate, 5, NULL) == COALESCE_HOLD);

    // An unknown hint delivers, and so does a ticket that was never issued.
    CHECK(coalesce_cint_on_completion(&a_cint, 1, COALESCE_HINT_FAILED_BARRIER, 100) == COALESCE_DELIVER);
    CHECK(coalesce_cint_reason(&a_cint) == COALESCE_REASON_BARRIER);
    for (uint32_t hint = COALESCE_HINT_FAILED_BARRIER + 1; hint < 100; hint++) {
        CHECK(coalesce_cint_on_completion(&a_cint, 1, hint, 100) == COALESCE_DELIVER);
        CHECK(coalesce_cint_reason(&a_cint) == COALESCE_REASON_ERROR);
        CHECK(coalesce_budget_on_completion(&a_budget, 1, hint, 100, 100) == COALESCE_DELIVER);
        CHECK(coalesce_budget_reason(&a_budget) == COALESCE_REASON_ERROR);
        CHECK(coalesce_auto_on_completion(&an_auto, 1, hint, 100, 100) == COALESCE_DELIVER);
        CHECK(coalesce_budget_reason(&an_auto.budget) == COALESCE_REASON_ERROR);
        CHECK(coalesce_cint_on_completion_strict(&a_cint, a_window, 1, COALESCE_NO_TICKET, hint, 100) == COALESCE_DELIVER);
        CHECK(coalesce_cint_on_completion_strict(&a_cint, a_window, 1, hint, COALESCE_HINT_PLAIN, 100) == COALESCE_DELIVER);
        CHECK(coalesce_budget_on_completion_strict(&a_budget, a_window, 1, hint, COALESCE_HINT_PLAIN, 100, 100) ==
              COALESCE_DELIVER);
        CHECK(coalesce_hint_merge(hint, COALESCE_HINT_PLAIN) == COALESCE_HINT_URGENT);
        CHECK(coalesce_hint_split(hint, true, true) == COALESCE_HINT_URGENT);
        CHECK(coalesce_hint_from_call(hint + 2, 0) == COALESCE_HINT_URGENT);
    }
    for (uint32_t bits = 0; bits < 32; bits++) {
        CHECK(coalesce_hint_from_cdw12(1u << bits, true) <= COALESCE_HINT_URGENT);
        CHECK(coalesce_hint_from_bits(bits, bits & 1) == coalesce_hint_from_cdw12(bits << 16, bits & 1));
        CHECK(coalesce_hint_from_access_latency(1u << bits) <= COALESCE_HINT_URGENT);
    }

    uint64_t reaper[COALESCE_REAPER_WORDS(2)];
    uint32_t doorbell, cdw11;
    CHECK(coalesce_reaper_init(reaper, sizeof reaper, 2, NULL) == COALESCE_OK);
    CHECK(coalesce_reaper_reap(reaper, NULL, take_all, NULL, &doorbell) == COALESCE_E_NULL);
    CHECK(coalesce_reaper_reap(reaper, a_queue, NULL, NULL, &doorbell) == COALESCE_E_NULL);
    CHECK(coalesce_reaper_reap(reaper, a_queue, take_all, NULL, NULL) == COALESCE_E_NULL);
    const coalesce_reaper_entry *misaligned = (const coalesce_reaper_entry *)((const char *)a_queue + 1);
    CHECK(coalesce_reaper_reap(reaper, misaligned, take_all, NULL, &doorbell) == COALESCE_E_ALIGNMENT);

    coalesce_nvme_coalescing value = {1, 0, 0};
    bool is_disabled;
    CHECK(coalesce_nvme_coalescing_decode(0xffff, NULL, sizeof value) == COALESCE_E_NULL);
    CHECK(coalesce_nvme_coalescing_decode(0xffff, &value, sizeof value - 1) == COALESCE_E_SIZE);
    CHECK(coalesce_nvme_coalescing_encode(NULL, &cdw11, NULL) == COALESCE_E_NULL);
    CHECK(coalesce_nvme_coalescing_encode(&value, NULL, NULL) == COALESCE_E_NULL);
    CHECK(coalesce_nvme_vector_encode(1, true, NULL, NULL) == COALESCE_E_NULL);
    CHECK(coalesce_nvme_vector_decode(0x10007, NULL) == 7 && coalesce_nvme_vector_decode(0x10007, &is_disabled) == 7 &&
          is_disabled);

    coalesce_stats stats;
    memset(&stats, 0, sizeof stats);
    CHECK(coalesce_stats_count(NULL, sizeof stats, 1) == COALESCE_E_NULL);
    CHECK(coalesce_stats_count(&stats, sizeof stats - 1, 1) == COALESCE_E_SIZE);
    CHECK(coalesce_stats_count(&stats, sizeof stats, 64) == COALESCE_OK);
    CHECK(coalesce_stats_count(&stats, sizeof stats, UINT32_MAX) == COALESCE_OK);
    CHECK(stats.decisions[COALESCE_REASON_NONE] == 2);
}

static void count(void *counters, const char *reason, bool is_hold, uint64_t times)
{
    CHECK(strlen(reason) > 0);
    ((uint64_t *)counters)[is_hold] += times;
}

static void policies(void)
{
    about = "a policy that is null";
    uint64_t counters[2] = {0, 0};
    coalesce_request request;
    memset(&request, 0, sizeof request);
    request.struct_size = sizeof request;
    coalesce_mark mark;
    coalesce_completion completion;
    memset(&completion, 0, sizeof completion);
    completion.struct_size = sizeof completion;
    completion.cif = 100;
    completion.slice_end = COALESCE_NEVER;
    coalesce_bypassed bypassed;
    memset(&bypassed, 0, sizeof bypassed);
    bypassed.struct_size = sizeof bypassed;
    coalesce_policy_free(NULL);
    CHECK(coalesce_policy_on_submit(NULL, 1, &request, &mark) == COALESCE_E_NULL && mark.hint == COALESCE_HINT_URGENT);
    completion.mark = mark;
    CHECK(coalesce_policy_on_completion(NULL, 1, &completion) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_deadline(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_batch_end(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_flush(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_consumed(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_bypassed(NULL, 1, &bypassed) == COALESCE_E_NULL);
    CHECK(coalesce_policy_reset(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_cancel(NULL, 1, NULL) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_schedule(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_on_deschedule(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_policy_reset_stats(NULL) == COALESCE_E_NULL);
    CHECK(coalesce_policy_reconfigure(NULL, 1, "none", NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_policy_stats(NULL, count, counters) == COALESCE_E_NULL);
    CHECK(coalesce_policy_deadline(NULL) == COALESCE_NEVER && coalesce_policy_held(NULL) == 0);
    CHECK(coalesce_policy_max_hold(NULL) == COALESCE_NEVER && coalesce_policy_untracked(NULL) == 0);
    CHECK(coalesce_policy_times_back(NULL) == 0);
    coalesce_spent spent = {1, 1, 1, 1};
    CHECK(coalesce_policy_spent(NULL, &spent) == COALESCE_E_NULL);
    CHECK(spent.budget == 0 && spent.held_time == 0 && spent.outstanding_time == 0);
    CHECK(coalesce_policy_print(NULL, NULL, 0) == 0 && !coalesce_policy_wants_batch_end(NULL));
    CHECK(coalesce_policy_hint(NULL, 0, 0) == COALESCE_HINT_URGENT);
    CHECK(!coalesce_policy_wants_submit(NULL) && !coalesce_policy_wants_each_submit(NULL) && !coalesce_policy_may_hold(NULL));

    const char *refused[] = {NULL, "", "nonsense", "cint:thr=0", "vic:max_skip", "\xff"};
    coalesce_policy *policy = coalesce_policy_new("cint:delta=20us", 1000000000, NULL, 0);
    CHECK(policy != NULL);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        about = refused[i] != NULL ? refused[i] : "null";
        char message[200] = "", small[4];
        CHECK(coalesce_policy_new(refused[i], 1000000000, message, sizeof message) == NULL && strlen(message) > 0);
        CHECK(coalesce_policy_new(refused[i], 1000000000, small, sizeof small) == NULL && strlen(small) < sizeof small);
        CHECK(coalesce_policy_new(refused[i], 1000000000, NULL, 0) == NULL);
        CHECK(coalesce_policy_reconfigure(policy, 1, refused[i], message, sizeof message) == COALESCE_E_CONFIG);
    }
    CHECK(coalesce_policy_new("vic", 999, NULL, 0) == NULL);

    about = "a request that was never submitted";
    static const coalesce_mark none = COALESCE_MARK_NONE, urgent = COALESCE_MARK_OF(COALESCE_HINT_URGENT);
    coalesce_policy *strict = coalesce_policy_new("cint:barrier=strict,in_flight=off", 1000000000, NULL, 0);
    completion.mark = none;
    CHECK(coalesce_policy_on_completion(strict, 1, &completion) == COALESCE_HOLD);
    CHECK(coalesce_policy_max_hold(strict) != COALESCE_NEVER && coalesce_policy_untracked(strict) == 0);
    completion.mark = urgent;
    CHECK(coalesce_policy_on_completion(strict, 2, &completion) == COALESCE_DELIVER_URGENT);
    CHECK(coalesce_policy_flush(strict, 3) == COALESCE_DELIVER);
    coalesce_policy_free(strict);
    completion.mark = mark;

    about = "arguments of a policy";
    CHECK(coalesce_policy_on_submit(policy, 1, NULL, &mark) == COALESCE_E_NULL && mark.hint == COALESCE_HINT_URGENT);
    CHECK(coalesce_policy_on_submit(policy, 1, &request, NULL) == COALESCE_OK);
    request.struct_size--;
    CHECK(coalesce_policy_on_submit(policy, 1, &request, &mark) == COALESCE_E_SIZE && mark.hint == COALESCE_HINT_URGENT);
    request.struct_size++;
    request.outstanding = request.batch_len = 100;
    CHECK(coalesce_policy_on_submit(policy, 1, &request, &mark) == COALESCE_OK);
    completion.mark = mark;
    CHECK(coalesce_policy_on_completion(policy, 1, &completion) == COALESCE_HOLD && coalesce_policy_held(policy) == 1);
    // An error interrupts, so the policy drops what it holds.
    CHECK(coalesce_policy_on_completion(policy, 1, NULL) == COALESCE_E_NULL && coalesce_policy_held(policy) == 0);
    completion.struct_size++;
    CHECK(coalesce_policy_on_completion(policy, 1, &completion) == COALESCE_E_SIZE);
    completion.struct_size--;
    completion.class_of = 77;
    CHECK(coalesce_policy_on_completion(policy, 1, &completion) != COALESCE_HOLD);
    completion.class_of = COALESCE_CLASS_IO;
    completion.mark.hint = 77;
    CHECK(coalesce_policy_on_completion(policy, 1, &completion) != COALESCE_HOLD);
    CHECK(DONE(coalesce_policy_on_consumed(policy, 1)) && DONE(coalesce_policy_on_bypassed(policy, 1, &bypassed)));
    bypassed.struct_size++;
    CHECK(coalesce_policy_on_bypassed(policy, 1, &bypassed) == COALESCE_E_SIZE);
    CHECK(coalesce_policy_on_bypassed(policy, 1, NULL) == COALESCE_E_NULL);
    CHECK(DECISION(coalesce_policy_on_deadline(policy, 1)) && DECISION(coalesce_policy_on_batch_end(policy, 1)));
    CHECK(DECISION(coalesce_policy_on_schedule(policy, 1)) && DECISION(coalesce_policy_on_deschedule(policy, 1)));
    CHECK(DECISION(coalesce_policy_on_cancel(policy, 1, &mark)) && DECISION(coalesce_policy_flush(policy, 1)));
    CHECK(DECISION(coalesce_policy_reset(policy, 1)) && DECISION(coalesce_policy_reconfigure(policy, 1, "cint", NULL, 0)));
    CHECK(DONE(coalesce_policy_spent(policy, &spent)));
    CHECK(coalesce_policy_stats(policy, NULL, counters) == COALESCE_E_NULL);
    CHECK(coalesce_policy_stats(policy, count, counters) == COALESCE_OK && counters[false] > 0 && counters[true] > 0);
    coalesce_policy_free(policy);
}

static void deliveries(void)
{
    about = "a delivery that is null";
    coalesce_request request;
    memset(&request, 0, sizeof request);
    request.struct_size = sizeof request;
    request.outstanding = request.batch_len = 100;
    coalesce_mark mark;
    coalesce_completion completion;
    memset(&completion, 0, sizeof completion);
    completion.struct_size = sizeof completion;
    completion.cif = 100;
    completion.slice_end = COALESCE_NEVER;
    coalesce_bypassed bypassed;
    memset(&bypassed, 0, sizeof bypassed);
    bypassed.struct_size = sizeof bypassed;
    coalesce_delivery_view view;
    coalesce_delivery_counts counts;
    uint64_t counters[2] = {0, 0};
    char message[200];
    coalesce_delivery_free(NULL);
    CHECK(coalesce_delivery_policy(NULL) == NULL && coalesce_delivery_hold_ns(NULL, 500000) == 0);
    CHECK(coalesce_delivery_look(NULL, &view, sizeof view) == COALESCE_E_NULL && view.is_due && view.deadline == 1);
    CHECK(!view.may_hold && view.held == 0);
    CHECK(coalesce_delivery_on_submit(NULL, 1, &request, &mark) == COALESCE_E_NULL && mark.hint == COALESCE_HINT_URGENT);
    completion.mark = mark;
    CHECK(coalesce_delivery_on_completion(NULL, 1, &completion) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_on_batch_end(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_on_deadline(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_interrupted(NULL, 1, COALESCE_INTERRUPT_SENT) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_bypassed(NULL, 1, &bypassed) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_on_consumed(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_on_cancel(NULL, 1, &mark) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_on_schedule(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_on_deschedule(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_flush(NULL, 1) == COALESCE_E_NULL && coalesce_delivery_reset(NULL, 1) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_reconfigure(NULL, 1, "none", NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_stats(NULL, &counts, sizeof counts) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_reset_stats(NULL) == COALESCE_E_NULL);

    about = "arguments of a delivery";
    CHECK(coalesce_delivery_new("cint:dleta=1us", 1000000000, message, sizeof message) == NULL && strlen(message) > 0);
    CHECK(coalesce_delivery_new(NULL, 1000000000, NULL, 0) == NULL && coalesce_delivery_new("cint", 1, NULL, 0) == NULL);
    // 500 ticks are 1 us.
    coalesce_delivery *delivery = coalesce_delivery_new("cint:delta=20us,max_hold=100us,in_flight=off", 500000000, NULL, 0);
    CHECK(delivery != NULL);
    CHECK(coalesce_delivery_look(delivery, NULL, sizeof view) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_look(delivery, &view, sizeof view - 1) == COALESCE_E_SIZE);
    CHECK(coalesce_delivery_stats(delivery, NULL, sizeof counts) == COALESCE_E_NULL);
    CHECK(coalesce_delivery_stats(delivery, &counts, sizeof counts + 1) == COALESCE_E_SIZE);
    CHECK(coalesce_delivery_on_submit(delivery, 1, NULL, &mark) == COALESCE_E_NULL && mark.hint == COALESCE_HINT_URGENT);
    CHECK(DONE(coalesce_delivery_on_submit(delivery, 1, &request, &mark)) && mark.hint == COALESCE_HINT_PLAIN);
    completion.mark = mark;
    CHECK(coalesce_delivery_on_completion(delivery, 1000, &completion) == COALESCE_HOLD);
    CHECK(DONE(coalesce_delivery_look(delivery, &view, sizeof view)) && !view.is_due && view.may_hold && view.held == 1);
    CHECK(view.deadline == 11000 && coalesce_policy_held(coalesce_delivery_policy(delivery)) == 1);
    // A clock that steps back neither loses what is held nor moves its deadline.
    CHECK(coalesce_delivery_on_deadline(delivery, 5) == COALESCE_HOLD);
    CHECK(coalesce_delivery_on_completion(delivery, 5, &completion) == COALESCE_HOLD);
    CHECK(coalesce_delivery_on_deadline(delivery, 11000) == COALESCE_DELIVER);
    // What is due stays due: it has failed, and nobody knows what 77 is.
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 12000, COALESCE_INTERRUPT_FAILED)));
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 12000, 77)));
    CHECK(coalesce_delivery_reconfigure(delivery, 12000, "cint:dleta=1us", message, sizeof message) == COALESCE_E_CONFIG);
    CHECK(coalesce_delivery_reconfigure(delivery, 12000, "cint:in_flight=off", NULL, 0) == COALESCE_DELIVER);
    CHECK(coalesce_delivery_on_completion(delivery, 12000, &completion) == COALESCE_DELIVER);
    CHECK(DONE(coalesce_delivery_look(delivery, &view, sizeof view)) && view.is_due && view.deadline == 1);
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 13000, COALESCE_INTERRUPT_SENT)));
    CHECK(DONE(coalesce_delivery_look(delivery, &view, sizeof view)) && !view.is_due && view.held == 0);
    CHECK(view.deadline == COALESCE_NEVER);
    CHECK(DONE(coalesce_delivery_stats(delivery, &counts, sizeof counts)));
    CHECK(counts.completions == 3 && counts.interrupts == 1 && counts.suppressed == 0 && counts.holds == 3);
    // 10000, 10995 and 1000 ticks, to 1 %.
    uint64_t median = coalesce_delivery_hold_ns(delivery, 500000), longest = coalesce_delivery_hold_ns(delivery, 1000000);
    CHECK(median >= 20000 && median < 20300 && longest >= 21990 && longest < 22300);
    CHECK(coalesce_delivery_hold_ns(delivery, UINT32_MAX) == longest && counts.hold_mean_ns / 1000 == 14);

    // What is not known of a completion: it is due.
    CHECK(coalesce_delivery_on_completion(delivery, 20000, NULL) == COALESCE_E_NULL);
    CHECK(DONE(coalesce_delivery_look(delivery, &view, sizeof view)) && view.is_due);
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 20000, COALESCE_INTERRUPT_UNWANTED)));
    completion.struct_size++;
    CHECK(coalesce_delivery_on_completion(delivery, 20000, &completion) == COALESCE_E_SIZE);
    completion.struct_size--;
    CHECK(coalesce_delivery_on_deadline(delivery, 20000) == COALESCE_DELIVER);
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 20000, COALESCE_INTERRUPT_SENT)));

    // A report of a bypass that comes when something is held.
    CHECK(coalesce_delivery_on_completion(delivery, 30000, &completion) == COALESCE_HOLD);
    bypassed.interrupts = 1, bypassed.completions = 4, bypassed.outstanding = 1;
    CHECK(coalesce_delivery_bypassed(delivery, 30000, NULL) == COALESCE_E_NULL);
    bypassed.struct_size--;
    CHECK(coalesce_delivery_bypassed(delivery, 30000, &bypassed) == COALESCE_E_SIZE);
    bypassed.struct_size++;
    CHECK(DONE(coalesce_delivery_bypassed(delivery, 30000, &bypassed)));
    CHECK(coalesce_delivery_on_deadline(delivery, 30000) == COALESCE_DELIVER);
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 30000, COALESCE_INTERRUPT_SENT)));

    CHECK(coalesce_delivery_on_completion(delivery, 40000, &completion) == COALESCE_HOLD);
    CHECK(DONE(coalesce_delivery_on_consumed(delivery, 40000)));
    CHECK(coalesce_delivery_on_deadline(delivery, 1000000) == COALESCE_HOLD);
    CHECK(DECISION(coalesce_delivery_on_batch_end(delivery, 50000)) && DECISION(coalesce_delivery_flush(delivery, 50000)));
    CHECK(DECISION(coalesce_delivery_on_schedule(delivery, 50000)) && DECISION(coalesce_delivery_on_deschedule(delivery, 50000)));
    CHECK(DECISION(coalesce_delivery_on_cancel(delivery, 50000, NULL)));
    CHECK(coalesce_delivery_on_completion(delivery, 60000, &completion) == COALESCE_HOLD);
    CHECK(coalesce_delivery_flush(delivery, 60000) == COALESCE_DELIVER);
    CHECK(DONE(coalesce_delivery_reset(delivery, 60000)));
    CHECK(DONE(coalesce_delivery_interrupted(delivery, 60000, COALESCE_INTERRUPT_FAILED)));
    CHECK(coalesce_delivery_on_deadline(delivery, 60000) == COALESCE_DELIVER);
    CHECK(DONE(coalesce_delivery_reset(delivery, 60000)));
    CHECK(DONE(coalesce_delivery_look(delivery, &view, sizeof view)) && !view.is_due && view.held == 0);
    CHECK(DONE(coalesce_delivery_stats(delivery, &counts, sizeof counts)));
    CHECK(counts.completions == 12 && counts.interrupts == 4 && counts.suppressed == 1 && counts.consumed == 1);
    CHECK(DONE(coalesce_policy_stats(coalesce_delivery_policy(delivery), count, counters)) && counters[true] > 0);
    CHECK(DONE(coalesce_delivery_reset_stats(delivery)));
    counters[false] = counters[true] = 0;
    CHECK(DONE(coalesce_policy_stats(coalesce_delivery_policy(delivery), count, counters)) && counters[true] == 0);
    CHECK(DONE(coalesce_delivery_stats(delivery, &counts, sizeof counts)) && counts.completions == 0 && counts.holds == 0);
    CHECK(coalesce_delivery_hold_ns(delivery, 1000000) == 0);
    coalesce_delivery_free(delivery);
}

static void texts(void)
{
    about = "texts";
    for (int status = -100; status < 100; status++)
        CHECK(strlen(coalesce_strerror(status)) > 0);
    CHECK(strcmp(coalesce_strerror(COALESCE_E_NULL), coalesce_strerror(-100)) != 0);
    for (uint32_t number = 0; number < 1000; number++)
        CHECK(strlen(coalesce_reason_name(number)) > 0 && strlen(coalesce_field_name(number)) > 0);
    CHECK(strcmp(coalesce_field_name(COALESCE_FIELD_THR), "thr") == 0);

    // Texts are cut to fit, and zero-terminated.
    coalesce_vic_config vic;
    coalesce_cint_config cint;
    const char *sentence = "thr is 0; allowed: 1 to 65535";
    coalesce_error wrong = {COALESCE_FIELD_THR, 0, 0, 1, 65535, 0};
    for (size_t room = 0; room < 40; room++) {
        char *text = (char *)malloc(room > 0 ? room : 1);
        CHECK(coalesce_error_print(&wrong, text, room) == strlen(sentence));
        CHECK(room == 0 || (strlen(text) < room && strncmp(text, sentence, strlen(text)) == 0));
        CHECK(coalesce_vic_config_print(&a_vic_config, text, room) > 0 && (room == 0 || strlen(text) < room));
        CHECK(coalesce_cint_config_print(&a_cint_config, text, room) > 0 && (room == 0 || strlen(text) < room));
        CHECK(coalesce_vic_config_parse("vic:max_skip=1", 1000000000, &vic, sizeof vic, text, room) == COALESCE_E_CONFIG);
        CHECK(room == 0 || strlen(text) < room);
        CHECK(coalesce_cint_config_parse("cint:thr=0", 1000000000, &cint, sizeof cint, text, room) == COALESCE_E_CONFIG);
        CHECK(room == 0 || strlen(text) < room);
        free(text);
    }
    CHECK(coalesce_error_print(NULL, NULL, 0) == 0 && coalesce_error_print(&wrong, NULL, 7) == strlen(sentence));
    CHECK(coalesce_vic_config_print(NULL, NULL, 0) == 0 && coalesce_cint_config_print(NULL, NULL, 0) == 0);
    coalesce_budget_config budget;
    CHECK(coalesce_budget_config_print(NULL, NULL, 0) == 0);
    CHECK(coalesce_budget_config_parse(NULL, 1000000000, &budget, sizeof budget, NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_budget_config_parse("budget", 1000000000, NULL, sizeof budget, NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_budget_config_parse("budget", 1000000000, &budget, sizeof budget - 1, NULL, 0) == COALESCE_E_SIZE);
    CHECK(coalesce_vic_config_parse(NULL, 1000000000, &vic, sizeof vic, NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_vic_config_parse("vic", 1000000000, NULL, sizeof vic, NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_vic_config_parse("vic", 1000000000, &vic, sizeof vic - 1, NULL, 0) == COALESCE_E_SIZE);
    CHECK(coalesce_cint_config_parse(NULL, 1000000000, &cint, sizeof cint, NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_cint_config_parse("cint", 1000000000, NULL, sizeof cint, NULL, 0) == COALESCE_E_NULL);
    CHECK(coalesce_cint_config_parse("cint", 1000000000, &cint, sizeof cint + 1, NULL, 0) == COALESCE_E_SIZE);
    const char *nonsense[] = {"", "none", "vic,", "\xff\xfe", "cint:thr", "cint:thr=", "cint:thr=1,thr=2", "vic:=1"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        about = nonsense[i];
        memset(&vic, 0x55, sizeof vic);
        CHECK(coalesce_vic_config_parse(nonsense[i], 1000000000, &vic, sizeof vic, NULL, 0) == COALESCE_E_CONFIG);
        CHECK(coalesce_cint_config_parse(nonsense[i], 1000000000, &cint, sizeof cint, NULL, 0) == COALESCE_E_CONFIG);
        CHECK(vic.struct_size == 0x55555555);
    }

    about = "header and library";
    char version[32];
    snprintf(version, sizeof version, "%u.%u.%u", COALESCE_VERSION_MAJOR, COALESCE_VERSION_MINOR, COALESCE_VERSION_PATCH);
    CHECK(strcmp(coalesce_version(), version) == 0);
    unsigned part[3];
    CHECK(sscanf(coalesce_version(), "%u.%u.%u", &part[0], &part[1], &part[2]) == 3);
    CHECK(COALESCE_VERSION_NUMBER == part[0] * 1000000 + part[1] * 1000 + part[2]);
    CHECK(coalesce_abi_version() == COALESCE_ABI_VERSION);
}

// A configuration of another header is not written beyond its size, and is refused.
static void configurations_of_another_size(void)
{
    about = "configurations of another size";
    void (*const of_vic[])(coalesce_vic_config *, size_t, uint64_t) = {coalesce_vic_config_default, coalesce_vic_config_paper};
    void (*const of_cint[])(coalesce_cint_config *, size_t, uint64_t) = {coalesce_cint_config_default,
                                                                         coalesce_cint_config_optane, coalesce_cint_config_p3700};
    coalesce_vic_state vic;
    coalesce_cint_state cint;
    coalesce_budget_state budget;
    union {
        coalesce_vic_config vic;
        coalesce_cint_config cint;
        coalesce_budget_config budget;
        unsigned char bytes[128];
    } config;
    for (size_t which = 0; which < 6; which++)
        for (size_t size = 0; size < sizeof config; size++) {
            if (size == (which < 2 ? sizeof config.vic : which < 5 ? sizeof config.cint : sizeof config.budget))
                continue;
            memset(&config, 0x55, sizeof config);
            if (which < 2)
                of_vic[which](&config.vic, size, 1000000000);
            else if (which < 5)
                of_cint[which - 2](&config.cint, size, 1000000000);
            else
                coalesce_budget_config_default(&config.budget, size, 1000000000);
            for (size_t byte = size < 4 ? 0 : 4; byte < sizeof config; byte++)
                CHECK(config.bytes[byte] == 0x55);
            CHECK(size < 4 || config.vic.struct_size == 0);
            CHECK(coalesce_vic_init(&vic, sizeof vic, &config.vic, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_cint_init(&cint, sizeof cint, &config.cint, NULL) == COALESCE_E_SIZE);
            CHECK(coalesce_budget_init(&budget, sizeof budget, &config.budget, NULL) == COALESCE_E_SIZE);
        }
}

// Under valgrind: no byte of a state is undefined, so a checkpoint leaks nothing.
static void states_are_whole(void)
{
    about = "checkpoints";
    FILE *nowhere = fopen("/dev/null", "wb");
    CHECK(nowhere != NULL && setvbuf(nowhere, NULL, _IONBF, 0) == 0);
    coalesce_vic_state vic;
    coalesce_cint_state cint;
    coalesce_budget_state budget;
    coalesce_auto_state regulated;
    CHECK(coalesce_vic_init(&vic, sizeof vic, &a_vic_config, NULL) == COALESCE_OK);
    CHECK(coalesce_cint_init(&cint, sizeof cint, &a_cint_config, NULL) == COALESCE_OK);
    CHECK(coalesce_budget_init(&budget, sizeof budget, &a_budget_config, NULL) == COALESCE_OK);
    CHECK(coalesce_auto_init(&regulated, sizeof regulated, &a_budget_config, NULL) == COALESCE_OK);
    for (uint64_t now = 0; now < 100; now++) {
        CHECK(fwrite(&vic, sizeof vic, 1, nowhere) == 1 && fwrite(&cint, sizeof cint, 1, nowhere) == 1);
        CHECK(fwrite(&budget, sizeof budget, 1, nowhere) == 1);
        CHECK(coalesce_vic_on_completion(&vic, now, 100) >= 0 &&
              coalesce_cint_on_completion(&cint, now, (uint32_t)now % 4, 100) >= 0);
        CHECK(coalesce_budget_on_submits(&budget, now, 100) == COALESCE_OK);
        CHECK(coalesce_budget_on_completion(&budget, now, (uint32_t)now % 4, 100, 100) >= 0);
        CHECK(fwrite(&regulated, sizeof regulated, 1, nowhere) == 1);
        CHECK(coalesce_auto_on_completion(&regulated, now, (uint32_t)now % 4, 100, 100) >= 0);
    }
    fclose(nowhere);
}

int main(void)
{
    coalesce_vic_config_default(&a_vic_config, sizeof a_vic_config, 1000000000);
    coalesce_cint_config_default(&a_cint_config, sizeof a_cint_config, 1000000000);
    coalesce_budget_config_default(&a_budget_config, sizeof a_budget_config, 1000000000);
    CHECK(coalesce_cint_init(&a_cint, sizeof a_cint, &a_cint_config, NULL) == COALESCE_OK);
    CHECK(coalesce_budget_init(&a_budget, sizeof a_budget, &a_budget_config, NULL) == COALESCE_OK);
    CHECK(coalesce_auto_init(&an_auto, sizeof an_auto, &a_budget_config, NULL) == COALESCE_OK);
    CHECK(coalesce_window_init(a_window, sizeof a_window, 64, NULL) == COALESCE_OK);
    for (int which = VIC; which < KINDS; which++) {
        what_is_a_state((kind)which);
        what_is_no_state((kind)which);
        what_is_another_state((kind)which);
    }
    parameters_of_vic();
    parameters_of_cint();
    parameters_of_budget();
    parameters_of_the_others();
    arguments_beside_the_state();
    configurations_of_another_size();
    states_are_whole();
    policies();
    deliveries();
    texts();
    printf("misuse: every error is one\n");
    return 0;
}
