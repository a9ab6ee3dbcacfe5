#include "text.h"
#include "board.h"

void text_add_bytes(struct text *text, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && text->length < sizeof text->bytes; i++)
        text->bytes[text->length++] = bytes[i];
}

void text_add(struct text *text, const char *string)
{
    for (; *string; string++)
        text_add_bytes(text, string, 1);
}

void text_add_number(struct text *text, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    for (; number > UINT32_MAX; number /= 10)
        digits[--at] = (char)('0' + number % 10);
    uint32_t rest = (uint32_t)number; // most numbers are small, and a 64-bit division is slow
    do
        digits[--at] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    text_add_bytes(text, &digits[at], sizeof digits - at);
}

void text_add_ratio(struct text *text, uint64_t numerator, uint64_t denominator, unsigned decimals)
{
    if (denominator == 0) {
        text_add(text, "-");
        return;
    }
    text_add_number(text, numerator / denominator);
    for (unsigned i = 0; i < decimals; i++) {
        numerator = numerator % denominator * 10;
        text_add(text, i == 0 ? "." : "");
        text_add_number(text, numerator / denominator);
    }
}

void text_pad(struct text *text, size_t column)
{
    while (text->length < column && text->length < sizeof text->bytes)
        text->bytes[text->length++] = ' ';
}

void text_align_right(struct text *text, size_t start, size_t column)
{
    size_t length = text->length - start;
    if (text->length >= column || column > sizeof text->bytes)
        return;
    for (size_t i = 1; i <= length; i++)
        text->bytes[column - i] = text->bytes[text->length - i];
    for (size_t i = start; i < column - length; i++)
        text->bytes[i] = ' ';
    text->length = column;
}

void text_print(struct text *text)
{
    board_print(text->bytes, text->length);
    text->length = 0;
}

bool text_equal(const char *a, size_t a_length, const char *b, size_t b_length)
{
    for (size_t i = 0; i < a_length && i < b_length; i++)
        if (a[i] != b[i])
            return false;
    return a_length == b_length;
}
