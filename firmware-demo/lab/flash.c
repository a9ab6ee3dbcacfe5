#include "flash.h"
#include "board.h"
#include "device.h"
#include "host.h"

// Channels work in parallel, and each channel executes its commands in order. So commands complete out of order.
#define CHANNELS 8u   // blocks are spread over them, as by an FTL
#define WAKE_US 200u  // the time before the first command reaches the flash
#define COMMAND_US 2u // the time before each command reaches it, one after the other
#define READ_US 50u
#define WRITE_US 90u
#define SPREAD_US 32u
#define RETRY_US 150u // a read that needs another voltage, one in 64

struct command {
    uint64_t finish;
    struct command *next;
    uint32_t block, address;
    bool is_write, is_busy;
};

static struct command commands[FLASH_SLOTS];
static struct command *first; // a list in the order of completion
static uint64_t bus_free_at, free_at[CHANNELS], stamps[BLOCKS], collected;
static uint32_t random, faults;
uint32_t flash_cells[BLOCKS][BLOCK_WORDS];

static uint32_t next_random(void)
{
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    return random;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t latency(bool is_write)
{
    uint32_t us = BOARD_TICK_HZ / 1000000u, ticks = next_random() % (SPREAD_US * us);
    if (is_write)
        return ticks + WRITE_US * us;
    return ticks + (READ_US + (next_random() % 64 == 0 ? RETRY_US : 0)) * us;
}

// The flash's timer also serves the host's timeout.
static void arm(void)
{
    uint64_t at = host_alarm();
    if (first && first->finish < at)
        at = first->finish;
    board_arm_flash(at);
}

void flash_begin(uint32_t seed)
{
    flash_abort();
    for (unsigned i = 0; i < CHANNELS; i++)
        free_at[i] = 0;
    bus_free_at = collected = 0;
    faults = 0;
    random = seed;
    arm();
}

void flash_abort(void)
{
    uint32_t before = board_block();
    for (unsigned i = 0; i < FLASH_SLOTS; i++)
        commands[i].is_busy = false;
    first = 0;
    board_restore(before);
}

void flash_start(unsigned slot, bool is_write, uint32_t block, uint32_t address, uint64_t now)
{
    if (slot >= FLASH_SLOTS || commands[slot].is_busy || block >= BLOCKS || address % BLOCK_BYTES != 0 ||
        address >= sizeof host_memory.data) {
        faults++;
        return;
    }
    const uint32_t us = BOARD_TICK_HZ / 1000000u;
    uint64_t *channel = &free_at[block * 2654435761u >> 29];
    if (bus_free_at == 0)
        bus_free_at = now + WAKE_US * us;
    bus_free_at = later(now, bus_free_at) + COMMAND_US * us;
    *channel = later(bus_free_at, *channel) + latency(is_write);

    struct command *command = &commands[slot];
    *command = (struct command){*channel, 0, block, address, is_write, true};
    uint32_t before = board_block();
    if (command->finish < collected)
        faults++;
    struct command **place = &first;
    while (*place && (*place)->finish <= command->finish)
        place = &(*place)->next;
    command->next = *place;
    *place = command;
    arm();
    board_restore(before);
}

bool flash_collect(struct flash_done *done)
{
    uint64_t now = board_now();
    if (!first || first->finish > now) {
        if (now >= host_alarm())
            host_is_impatient();
        arm();
        return false;
    }
    struct command *command = first;
    first = command->next;
    command->is_busy = false;
    stamps[command->block] = collected = command->finish;
    uint32_t *memory = &host_memory.data[command->address / 4], *cell = flash_cells[command->block];
    for (unsigned i = 0; i < BLOCK_WORDS; i++)
        if (command->is_write)
            cell[i] = memory[i];
        else
            memory[i] = cell[i];
    done->stamp = command->finish;
    done->slot = (uint16_t)(command - commands);
    done->failed = !command->is_write && IS_BAD(command->block);
    return true;
}

bool flash_is_past(uint64_t instant)
{
    uint32_t before = board_block();
    bool is_past = instant <= board_now() && (!first || first->finish > instant);
    board_restore(before);
    return is_past;
}

uint64_t flash_stamp(uint32_t block)
{
    return stamps[block];
}

uint32_t flash_faults(void)
{
    return faults;
}
