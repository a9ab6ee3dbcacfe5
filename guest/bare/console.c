// Serial ports (16550), without interrupts.
#include <stdarg.h>
#include "bare.h"

enum { DATA, LINE_STATUS = 5, SCRATCH = 7, HAS_DATA = 1, HAS_ROOM = 32 };

bool has_port(uint16_t port)
{
    outb(port + SCRATCH, 0x5a);
    return inb(port + SCRATCH) == 0x5a;
}

bool has_line(struct line *line)
{
    while (inb(line->port + LINE_STATUS) & HAS_DATA) {
        char c = inb(line->port + DATA);
        if (c == '\n' || line->length + 1 == sizeof(line->text)) {
            line->text[line->length] = 0;
            line->length = 0;
            return true;
        }
        line->text[line->length++] = c;
    }
    return false;
}

static void put(uint16_t port, char c)
{
    while (!(inb(port + LINE_STATUS) & HAS_ROOM)) {
    }
    outb(port + DATA, c);
}

static void put_number(uint16_t port, uint64_t number, unsigned base)
{
    char digits[20];
    unsigned n = 0;
    do {
        digits[n++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    while (n > 0) {
        put(port, digits[--n]);
    }
}

void print_to(uint16_t port, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    for (; *format; format++) {
        if (*format != '%') {
            put(port, *format);
            continue;
        }
        switch (*++format) {
        case 's':
            for (const char *c = va_arg(values, const char *); *c; c++) {
                put(port, *c);
            }
            break;
        case 'u':
            put_number(port, va_arg(values, unsigned), 10);
            break;
        case 'l':
            put_number(port, va_arg(values, uint64_t), 10);
            break;
        case 'x':
            put_number(port, va_arg(values, uint64_t), 16);
            break;
        }
    }
    va_end(values);
}

bool begins_with(const char *text, const char *word)
{
    while (*word) {
        if (*text++ != *word++) {
            return false;
        }
    }
    return true;
}

bool read_number(const char **text, uint64_t *number)
{
    const char *begin = *text;
    *number = 0;
    while (**text >= '0' && **text <= '9') {
        *number = *number * 10 + (*(*text)++ - '0');
    }
    return *text != begin;
}
