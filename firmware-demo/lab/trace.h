// The decisions of a run: noted in memory, so that the device is not slowed down, and written to trace.txt after it.
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stdint.h>

// Creates the file. False: it cannot be written.
bool trace_create(void);
// A new run, whose instants count from `start`.
void trace_begin(uint64_t start);
// Writes what was noted since, a line each:
//
//     queue call now cif hint -> decision reason deadline
//
// False: there was more than fits in memory, or the file cannot be written.
bool trace_write(const char *workload, const char *policy);

#endif
