// Text without a C library.
#ifndef TEXT_H
#define TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A buffer for lines. Text that does not fit is cut off.
struct text {
    char bytes[256];
    size_t length;
};

void text_add(struct text *text, const char *string);
void text_add_bytes(struct text *text, const char *bytes, size_t length);
// In decimal.
void text_add_number(struct text *text, uint64_t number);
// numerator / denominator with `decimals` decimals, rounded down.
void text_add_ratio(struct text *text, uint64_t numerator, uint64_t denominator, unsigned decimals);
// Adds spaces up to a column.
void text_pad(struct text *text, size_t column);
// Moves the text since `start` to the right, so that it ends at a column.
void text_align_right(struct text *text, size_t start, size_t column);

// Prints the buffer and empties it.
void text_print(struct text *text);

bool text_equal(const char *a, size_t a_length, const char *b, size_t b_length);

#endif
