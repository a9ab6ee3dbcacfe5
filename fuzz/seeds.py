#!/usr/bin/env python3
"""Writes the seeds of the targets of the device: fuzz/corpus/{chains,take_over,messages,vfio_user,control}.

A structure is read as the crate `arbitrary` does it: numbers in little endian, a bool before each element of a list and
before what may be missing, and an enum's variant as a fraction of 2^32. The order is that of the fields in
fuzz_targets/guest/mod.rs, ring/mod.rs, messages.rs and vfio_user.rs.
"""
import pathlib
import struct

def u8(n): return struct.pack("<B", n)
def u16(n): return struct.pack("<H", n)
def u32(n): return struct.pack("<I", n)
def u64(n): return struct.pack("<Q", n)
def some(what): return u8(1) + what
def items(*all): return b"".join(some(one) for one in all) + u8(0)
def variant(index, of): return u32(((index << 32) + of - 1) // of)

NONE = u8(0)

def never(zero): return u8(0) + zero
def always(what): return u8(7) + what

# guest/mod.rs
def place(index, what): return variant(index, 7) + what
DATA, ELSEWHERE = place(0, u16(0)), lambda high, at: place(5, u8(high) + u8(at))
NO_FLAW = never(u8(0) + variant(1, 4) + u32(0))
READ, WRITE, FLUSH, GET_ID, DISCARD, WRITE_ZEROES = 0, 2, 4, 5, 6, 7

def piece(len, at=None): return some((never(DATA) if at is None else always(at)) + u8(len))

def request(head, kind, *pieces, whole=True, sector=0, sectors=0, indirect=False):
    data = b"".join(pieces) + NONE * (4 - len(pieces))
    return (u8(head) + u8(kind) + u16(0) + u8(sector) + never(u64(0)) + data + u8(whole)
            + u8(sectors) + never(u32(0)) + u8(indirect) + never(DATA) + NO_FLAW)

# ring/mod.rs
def step(index, what=b""): return variant(index, 10) + what
def offer(*one, **other): return step(0, request(*one, **other))
def take(most): return step(2, u8(most))
def end(which): return step(3, u8(which))
LOOK, RESTART = step(6), step(8)
def set_memory(high): return step(7, u8(high))

def ring(*steps, size_bits=4, high=False, event_idx=True, can_flush=True, write_back=True, read_only=False):
    flags = bytes([high, event_idx, can_flush, write_back, read_only])
    return u8(size_bits) + never(DATA) * 3 + flags + u16(0) + never(u16(0)) + items(*steps)

def record(*entries, used_idx=0):
    head = u8(4) + never(u8(0)) + never(u16(1)) + never(u16(0)) + u16(0) + never(u16(used_idx))
    return head + items(*(bytes(entry) for entry in entries))

every_kind = [offer(0, READ, piece(1)), offer(4, WRITE, piece(2), piece(1), sector=2), offer(8, FLUSH),
              offer(9, GET_ID, piece(20), whole=False), offer(10, DISCARD, sectors=4), offer(12, WRITE_ZEROES, sectors=4)]
chains = {
    "every-kind": ring(*every_kind, take(9), LOOK, end(2), end(0), LOOK),
    "indirect": ring(offer(0, READ, piece(1), piece(1), indirect=True), take(1), end(0), LOOK),
    "no-event-idx": ring(*every_kind, take(9), LOOK, event_idx=False),
    "no-flush": ring(*every_kind, take(9), can_flush=False),
    "read-only": ring(*every_kind, take(9), read_only=True),
    "ring-of-one": ring(offer(0, FLUSH, indirect=True), take(1), end(0), offer(0, FLUSH, indirect=True), size_bits=0),
    "memory-changes": ring(offer(0, READ, piece(1)), take(1), set_memory(1), offer(4, READ, piece(1)), take(1)),
    "across-regions": ring(offer(0, READ, piece(1, place(2, struct.pack("<b", -100))))),
}
take_over = {
    "two-in-order": record((3, 1, 9), (0, 1, 4)) + ring(offer(0, READ, piece(1)), offer(3, FLUSH), take(3), end(1), RESTART),
    "restarts": record() + ring(*every_kind, take(4), end(1), RESTART, take(9), end(0), RESTART),
    "another-version": record((0, 1, 0)).replace(never(u16(1)), always(u16(7)), 1) + ring(offer(0, READ, piece(1))),
    "answer-not-noted": record((0, 1, 0), used_idx=0) + ring(offer(0, READ, piece(1)), take(1), end(0), RESTART),
    # Once the replayed heads lay in an available ring at guest address 1 << 62: a request could write over them.
    "writes-over-replayed-heads":
        record((0, 1, 0), (4, 1, 1))
        + ring(offer(0, GET_ID, piece(20, ELSEWHERE(1, 6)), whole=False), offer(4, FLUSH), take(3), end(0), end(0)),
}

# messages.rs
def message(index, what=b""): return variant(index, 14) + what
def gift(index, what=b""): return variant(index, 9) + what
RIGHT = gift(0)
def start(which, kick=None):
    gifts = never(RIGHT) * 2 + (never(RIGHT) if kick is None else always(kick))
    return message(0, u8(which) + never(u8(0)) + never(DATA) * 3 + never(u16(0)) + gifts)
def send(which, *one, **other): return message(10, u8(which) + request(*one, **other))
KICK = message(12)
odd = lambda size=0: never(u64(size)) + never(DATA) + never(u64(0))
served = [send(0, 0, READ, piece(1)), send(0, 4, WRITE, piece(1)), start(0), KICK]
messages = {
    "served": items(*served, message(7, u8(0))),
    "two-rings": items(start(0), start(1), send(1, 0, READ, piece(1)), KICK, message(6, u8(1) + u8(0))),
    "memory-is-cut": items(*served, message(13, u16(0x4000)), send(0, 8, READ, piece(1)), KICK),
    "kick-is-a-pipe": items(send(0, 0, FLUSH), start(0, gift(3, u8(0)))),
    "region-comes-and-goes": items(start(0), message(2, u8(1) + u8(1) + odd() + never(RIGHT)),
                                   message(2, u8(0) + u8(1) + odd() + never(RIGHT))),
    "record": items(message(4, never(u16(0)) * 2 + never(u64(0)) * 2 + gift(8)), *served, message(7, u8(0)), start(0)),
    "config": items(message(8, bytes([0, 0, 60])), message(8, bytes([1, 32, 1]))),
}

# vfio_user.rs
def step_of_client(index, what=b""): return variant(index, 11) + what
def map_(page, pages, offset=0, flags=None, with_gift=None):
    allowed = never(u32(0)) if flags is None else always(u32(flags))
    given = never(RIGHT) if with_gift is None else always(with_gift)
    return step_of_client(0, allowed + bytes([offset, page, pages]) + never(u64(0) * 3) + given)
def unmap(which): return step_of_client(1, never(u32(0)) + u8(which) + never(u64(0) * 2))
UNMAP_ALL = step_of_client(2)
def irqs(kind, count, start=None, data=0, with_gift=None):
    first = never(u32(0)) if start is None else always(u32(start))
    given = never(RIGHT) if with_gift is None else always(with_gift)
    return step_of_client(3, u8(kind) + never(u32(0)) * 2 + first + u8(count) + u8(data) + given)
BAR0, BAR4, CONFIG = 0, 2, 3
def access(write, region, offset, count, byte=0, post=False):
    return step_of_client(4, bytes([write, post, region]) + u16(offset) + u8(count) + never(u64(0) + u32(0)) + u8(byte))
def describe(command, index): return step_of_client(5, u8(command) + never(u32(0)) + u8(index))
RESET = step_of_client(6)
def use(at, len, write=True): return step_of_client(8, u16(at // 16) + u16(len) + u8(write))
def signal(vector): return step_of_client(9, u8(vector))
def cut(len): return step_of_client(10, u16(len))
def client(*steps): return never(u64(0)) + items(*steps)
vfio_user = {
    "a-session": client(describe(0, 0), describe(1, 0), describe(2, 2), map_(0, 8), map_(8, 8, 8), irqs(0, 4),
                        access(True, CONFIG, 4, 2, 6), access(True, BAR0, 0x1000, 4, post=True), use(0x7000, 0x1000),
                        signal(0), access(False, BAR0, 0, 255), unmap(1), UNMAP_ALL, RESET),
    "read-only": client(map_(0, 4, flags=1), use(0, 64, False), use(0, 64), unmap(0)),
    "no-file": client(map_(0, 4, with_gift=gift(8)), use(0, 64), map_(0, 4), unmap(0)),
    "memory-is-cut": client(map_(0, 16), map_(16, 8), use(0x8000, 64), cut(0x4000), use(0x8000, 64, False)),
    "eventfd-is-full": client(irqs(0, 2, with_gift=gift(2, u8(1) + u8(1))), signal(0), signal(1), irqs(2, 2), irqs(3, 2, data=2)),
    "eventfd-is-a-pipe": client(irqs(0, 2, with_gift=gift(3, u8(0))), signal(0), irqs(0, 1)),
    "pending": client(signal(3), access(False, BAR4, 4096, 8), irqs(0, 2, start=2), signal(3), irqs(2, 0), signal(3)),
    "function-level-reset": client(map_(0, 4), signal(1), use(0, 64), access(True, CONFIG, 0x51, 1, 0x80), access(False, CONFIG, 0, 255)),
    "no-version": always(bytes(8)) + items(map_(0, 4), RESET),
}

# control.rs
def call(method, params): return b'{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}' % (method, params)
control = {
    "list": call(b"list", b"{}"),
    "get-stats": call(b"get_stats", b'{"ctrlr":"a"}'),
    "set-policy": call(b"set_policy", b'{"ctrlr":"a","queue":0,"policy":"vic:cif_threshold=2"}'),
    "set-coalescing": call(b"vhost_controller_set_coalescing", b'{"ctrlr":"a","delay_base_us":1,"iops_threshold":2}'),
    "notification": b'{"jsonrpc":"2.0","method":"reset_stats"}',
    "memory-disk": b'[[disk]]\nsocket = "a"\nmemory = "64M"\nqueues = 2\npolicy = "auto"\npoll = "20us"\nserial = "x"\n',
    "image": b'[[disk]]\nname = "b"\nsocket = "b"\nfile = "i"\nread_only = true\ndirect = true\nblock_size = "4K"\n',
    "policy": b" cint:thr=8,barrier=strict,hints=all",
    "metrics": b"/GET /metrics HTTP/1.1\r\nHost: localhost:9100\r\nAccept: */*\r\n\r\n",
    "metrics-post": b"/POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nx=1",
    "metrics-partial": b"/\r\nGET /?a=%20 HTTP/1.1\nHost",
}

for name, seeds in {"chains": chains, "take_over": take_over, "messages": messages, "vfio_user": vfio_user, "control": control}.items():
    folder = pathlib.Path(__file__).parent / "corpus" / name
    folder.mkdir(parents=True, exist_ok=True)
    for seed, data in seeds.items():
        (folder / seed).write_bytes(data)
