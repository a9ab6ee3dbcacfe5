// The decisions of a run. They are recorded in memory, which does not delay the device, and written to trace.txt
// afterwards.
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stdint.h>

// Creates the file. Returns false if it cannot be written.
bool trace_create(void);
// Begins a run. Its instants count from `start`.
void trace_begin(uint64_t start);
// Writes the recorded decisions, one per line:
//
//     queue call now cif hint -> decision reason deadline
//
// Returns false if the decisions did not fit into memory, or the file cannot be written.
bool trace_write(const char *workload, const char *policy);

#endif
