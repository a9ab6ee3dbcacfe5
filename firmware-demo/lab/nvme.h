// What host and device share: queue entries, registers, and memory. They follow NVMe (NVM Express Base Specification
// 1.4), with less: three fixed queues, and one block per command.
#ifndef NVME_H
#define NVME_H

#include <stdint.h>

#define IO_QUEUES 2u
#define QUEUES (1u + IO_QUEUES) // queue 0 is the admin queue, and has line 0; queue n has line n - 1
#define SQ_ENTRIES 64u
#define CQ_ENTRIES 48u // fewer, so that it fills up when the host stops reaping

#define BLOCK_WORDS 4u
#define BLOCK_BYTES (4u * BLOCK_WORDS)
#define BLOCKS 4096u                         // in the only namespace
#define IS_BAD(block) ((block) % 32u == 31u) // the block is unreadable
#define BUFFERS (IO_QUEUES * 64u)            // the host's, one block each

struct sq_entry {
    uint32_t dword[16];
};

// Dword 0: result. 2: SQ head 15:0, SQ identifier 31:16. 3: command identifier 15:0, phase tag 16, status 31:17.
struct cq_entry {
    uint32_t dword[4];
};

// The host's memory that the device can access. A data pointer (PRP1) is a byte offset into `data`.
struct host_memory {
    struct sq_entry sq[QUEUES][SQ_ENTRIES];
    struct cq_entry cq[QUEUES][CQ_ENTRIES];
    uint32_t data[BUFFERS * BLOCK_WORDS];
};
extern struct host_memory host_memory;

// Either side may change a register at any time, so each is loaded and stored atomically.
struct registers {
    uint32_t cc;               // host: CC_ENABLE
    uint32_t csts;             // device: CSTS_...
    uint32_t event;            // device: the first EVENT_... since the host cleared it, with its queue in bits 31:16
    uint32_t cause[IO_QUEUES]; // device: all CAUSE_... of a raised line; the host reads them and sets 0
    struct {
        uint32_t sq_tail, cq_head; // host
    } doorbell[QUEUES];
};
extern struct registers registers;

#define CC_ENABLE 1u
#define CSTS_READY 1u
#define CSTS_FATAL 2u
#define EVENT_DOORBELL_VALUE 0x0100u // Invalid Doorbell Write Value, as in an asynchronous event; the value is ignored

// An interrupt may cover an urgent entry alone (cinterrupts §3.5). The host then leaves the other entries to their
// interrupt.
#define CAUSE_NORMAL 1u // reap everything
#define CAUSE_URGENT 2u // reap urgent and failed entries
#define CAUSE_ADMIN 4u  // reap the admin queue

// Command Dword 0: opcode 7:0, fused operation 9:8, PRP or SGL 15:14, command identifier 31:16.
#define ADMIN_SET_FEATURES 0x09u
#define ADMIN_GET_FEATURES 0x0au
#define IO_WRITE 0x01u
#define IO_READ 0x02u

// Command Dword 12 of a read or write: number of blocks 15:0, 0's based, and the hint in two bits from HINT_SHIFT on (in Rust
// also in command.rs). A controller with Key Per I/O needs other bits: NVMe calls 19:16 CETYPE. Dword 13: the access latency
// in 5:4.
#define HINT_SHIFT 16
#define CDW12_URGENT (1u << HINT_SHIFT)
#define CDW12_BARRIER (2u << HINT_SHIFT)
#define CDW13_LOW_LATENCY (3u << 4)

// Features. In Set and Get Features, Command Dword 10 has the feature's number in 7:0 and "save" in 31, Dword 11 the
// value.
#define FEATURE_COALESCING 0x08u // THR 7:0, 0's based; TIME 15:8 in units of 100 µs
#define FEATURE_VECTOR 0x09u     // vector 15:0; coalescing disabled 16
// Vendor specific: the policy. It can change only while all I/O is complete and reaped. Dword 11: POLICY_...; Dword 12:
// the limit of the storm guard of those that know hints, in interrupts per second; 0: no guard.
#define FEATURE_POLICY 0xc0u
#define STORM_SHIFT 5u

#define POLICY_NVME 0u   // Feature 08h only
#define POLICY_VIC 1u    // the defaults, with an epoch of 1 ms, because a run takes about 20 ms
#define POLICY_CINT 2u   // the defaults, with Δ = 30 µs, because this flash is slow
#define POLICY_STRICT 3u // cint with strict Barriers, which alone end a burst: Δ = 1 ms, thr = 32, max_hold = 1 ms
#define POLICY_BUDGET 4u // a latency budget of 5 %, with max_hold = 200 µs, so that learning is paid for within a run
#define POLICY_AUTO 5u   // the same with its regulator
#define POLICIES 6u

// Status, as in bits 31:17 of a completion's Dword 3: code 7:0, type 10:8.
#define STATUS_SUCCESS 0x000u
#define STATUS_INVALID_OPCODE 0x001u
#define STATUS_INVALID_FIELD 0x002u
#define STATUS_INVALID_NAMESPACE 0x00bu
#define STATUS_SEQUENCE_ERROR 0x00cu
#define STATUS_LBA_OUT_OF_RANGE 0x080u
#define STATUS_NOT_SAVEABLE 0x10du
#define STATUS_UNRECOVERED_READ 0x281u

#endif
