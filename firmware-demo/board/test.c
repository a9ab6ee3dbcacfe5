// Checks the promises of board.h on the board.
#include "board.h"

#define US (BOARD_TICK_HZ / 1000000)
#define S ((uint64_t)BOARD_TICK_HZ)
#define SLACK (3 * US) // one tick of a 1 MHz timer, and the time of the code

static void print(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    board_print(text, length);
}

static void check(bool is_good, const char *what)
{
    if (is_good)
        return;
    print("FAILED: ");
    print(what);
    print("\n");
    board_exit(1);
}

// What the handlers saw, and what they do next.
static volatile unsigned count_of[4];
static volatile uint64_t time_of[4];
enum { FLASH, DEADLINE, LINE }; // LINE + 1 is the second line
static void (*volatile on_flash)(void), (*volatile on_deadline)(void), (*volatile on_line)(void);

static void note(unsigned what)
{
    time_of[what] = board_now();
    count_of[what]++;
}

void flash_interrupt(void)
{
    note(FLASH);
    if (on_flash)
        on_flash();
}

void deadline_interrupt(void)
{
    note(DEADLINE);
    if (on_deadline)
        on_deadline();
}

void host_interrupt(unsigned line)
{
    note(LINE + line);
    if (line == 0 && on_line)
        on_line();
}

// Sleeps until a handler has run again.
static void await(unsigned what, unsigned count)
{
    while (count_of[what] == count) {
        uint32_t before = board_block();
        if (count_of[what] == count)
            board_sleep();
        board_restore(before);
    }
}

static void busy_until(uint64_t at)
{
    while (board_now() < at) {
    }
}

static void test_timer(unsigned timer, void (*arm)(uint64_t at))
{
    static const uint32_t delays_us[] = {0, 1, 10, 100, 1000};
    for (unsigned i = 0; i < sizeof delays_us / sizeof *delays_us; i++) {
        unsigned count = count_of[timer];
        uint64_t at = board_now() + delays_us[i] * US;
        arm(at);
        await(timer, count);
        check(time_of[timer] >= at, "a timer is early");
        check(time_of[timer] <= at + SLACK, "a timer is late");
    }

    unsigned count = count_of[timer];
    arm(board_now() - 1);
    check(count_of[timer] == count + 1, "an instant that has passed does not interrupt at once");
    arm(0);
    check(count_of[timer] == count + 2, "the first instant of all does not interrupt at once");
    busy_until(board_now() + 3000 * US);
    check(count_of[timer] == count + 2, "a timer is not one-shot");

    arm(board_now() + 20 * US);
    arm(board_now() + 200 * US);
    busy_until(board_now() + 100 * US);
    check(count_of[timer] == count + 2, "arming does not replace");
    arm(BOARD_NEVER);
    busy_until(board_now() + 200 * US);
    check(count_of[timer] == count + 2, "a timer cannot be switched off");

    // A timer that is already pending is replaced too.
    uint32_t before = board_block();
    arm(board_now() + 2 * US);
    busy_until(board_now() + 10 * US);
    arm(BOARD_NEVER);
    board_restore(before);
    check(count_of[timer] == count + 2, "arming does not replace what is pending");
}

// An instant beyond 32 bits of any timer. The clock wraps several times before it, and nothing reads the clock
// meanwhile.
static void test_far(unsigned timer, void (*arm)(uint64_t at))
{
    unsigned count = count_of[timer];
    uint64_t at = board_now() + 1000 * S;
    arm(at);
    await(timer, count);
    check(time_of[timer] >= at && time_of[timer] <= at + SLACK, "a distant instant is missed");
}

static void arm_again(void)
{
    board_arm_flash(board_now() + 2 * US);
}

// Reads the clock all around its wrap, from handlers too.
static void test_clock(void)
{
    for (unsigned round = 0; round < 100; round++) {
        uint64_t wrap = (board_now() | UINT32_MAX) + 1;
        unsigned count = count_of[FLASH];
        board_arm_flash(wrap - 10 * US);
        await(FLASH, count);
        uint64_t last = board_now();
        check(last < wrap, "the wrap was missed");
        for (volatile unsigned i = 0; i < round; i++) {
        }
        on_flash = arm_again;
        board_arm_flash(0);
        while (last < wrap + 10 * US) {
            uint64_t now = board_now();
            check(now >= last && now - last <= 3 * US, "the clock jumps");
            last = now;
        }
        on_flash = 0;
        board_arm_flash(BOARD_NEVER);
    }
}

static void pend_in_line(void)
{
    unsigned flash = count_of[FLASH], other = count_of[LINE + 1];
    board_arm_flash(0);
    check(count_of[FLASH] == flash + 1, "a timer does not interrupt the host");
    board_pend(1);
    check(count_of[LINE + 1] == other, "a line interrupts another");
}

static void pend_in_flash(void)
{
    unsigned line = count_of[LINE], deadline = count_of[DEADLINE];
    board_pend(0);
    check(count_of[LINE] == line, "a line interrupts a timer");
    board_arm_deadline(0);
    check(count_of[DEADLINE] == deadline, "a timer interrupts another");
}

static void pend_in_deadline(void)
{
    unsigned flash = count_of[FLASH];
    board_arm_flash(0);
    check(count_of[FLASH] == flash, "a timer interrupts another");
}

static void test_lines(void)
{
    for (unsigned line = 0; line < BOARD_LINES; line++) {
        unsigned count = count_of[LINE + line];
        board_pend(line);
        check(count_of[LINE + line] == count + 1, "a line is not taken at once");

        uint32_t before = board_block(), inner = board_block();
        board_pend(line);
        board_pend(line);
        board_restore(inner);
        check(count_of[LINE + line] == count + 1, "a line is taken though interrupts are blocked");
        board_restore(before);
        check(count_of[LINE + line] == count + 2, "a line that is pended twice is not taken once");
    }

    unsigned flash = count_of[FLASH];
    on_deadline = pend_in_deadline;
    board_arm_deadline(0);
    check(count_of[FLASH] == flash + 1, "a timer that a handler armed is lost");
    on_deadline = 0;

    unsigned line = count_of[LINE], other = count_of[LINE + 1], deadline = count_of[DEADLINE];
    on_flash = pend_in_flash;
    board_arm_flash(0);
    check(count_of[LINE] == line + 1 && count_of[DEADLINE] == deadline + 1,
          "a line or timer that a timer's handler pended is lost");
    on_flash = 0;

    on_line = pend_in_line;
    board_pend(0);
    check(count_of[LINE + 1] == other + 1, "a line that a line's handler pended is lost");
    on_line = 0;
}

// The interrupt comes at every moment around the last check: before it, between it and the sleep, and after. If the
// sleep misses it, it is seen only when a timer is restarted.
static void test_sleep(unsigned timer, void (*arm)(uint64_t at))
{
    for (unsigned wait = 0; wait < 3000; wait++) {
        unsigned count = count_of[timer];
        uint64_t at = board_now() + 2 * US;
        arm(at);
        for (unsigned i = 0; i < wait; i++)
            __asm__ volatile("");
        await(timer, count);
        check(board_now() - at <= 10 * US, "a wake-up is lost");
    }
}

static void use_registers(void)
{
    static volatile float one = 1, three = 3;
    one = one * three / three;
    check(!(three < one), "the FPU computes wrongly");
    board_arm_flash(board_now() + 1 * US);
}

// An interrupt at any instruction preserves registers and flags, those of the FPU included.
static void test_registers(void)
{
    volatile float two = 2, sum = 0;
    on_flash = use_registers;
    for (uint32_t steps = 1; steps <= 1000; steps++) {
        board_arm_flash(board_now() + 1 * US);
        register uint32_t r0 __asm__("r0") = 2000 + steps, r1 __asm__("r1") = 1, r2 __asm__("r2") = 2, r3 __asm__("r3") = 3;
        register uint32_t r12 __asm__("r12") = 12, lr __asm__("lr") = 14;
        __asm__ volatile("1: subs %0, %0, #1\n\tbne 1b" : "+r"(r0), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r12), "+r"(lr)::"cc");
        check(r0 == 0 && r1 == 1 && r2 == 2 && r3 == 3 && r12 == 12 && lr == 14, "an interrupt changes a register");
        for (unsigned i = 0; i < 10; i++) {
            sum = sum + two * two;
            check(two < sum, "an interrupt changes a flag of the FPU");
        }
        check(sum == (float)steps * 40, "an interrupt changes a register of the FPU");
    }
    on_flash = 0;
    board_arm_flash(BOARD_NEVER);
}

static void use_stack(unsigned bytes)
{
    char block[bytes];
    volatile char *byte = block;
    for (unsigned i = 0; i < bytes; i++)
        byte[i] = 1;
}

static void test_stack(void)
{
    board_stack_used();
    use_stack(3000);
    size_t used = board_stack_used();
    check(used > 3000 && used < 4000, "the stack is measured wrongly");
    check(board_stack_used() < used, "the measurement of the stack does not restart");
}

int main(void)
{
    static const char text[] = "written by the board\n";
    int file = board_create("board.txt");
    check(file >= 0 && board_write(file, text, sizeof text - 1), "a file cannot be written");
    check(board_create("no such directory/board.txt") < 0, "an impossible file is created");

    test_timer(FLASH, board_arm_flash);
    test_timer(DEADLINE, board_arm_deadline);
    test_far(FLASH, board_arm_flash);
    test_far(DEADLINE, board_arm_deadline);
    test_clock();
    test_lines();
    test_sleep(FLASH, board_arm_flash);
    test_sleep(DEADLINE, board_arm_deadline);
    test_registers();
    test_stack();
    print("board: all good\n");
    return 0;
}
