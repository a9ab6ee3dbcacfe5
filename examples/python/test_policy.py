"""A property test of any policy, through libcoalesce: POLICY=auto COALESCE_LIBRARY=libcoalesce.so python3 test_policy.py

hypothesis makes up sequences of submissions, completions and time. Under each of them no interrupt is lost, late or empty, and what
failed does not wait. Of the sequences that break a rule it prints the shortest. Needs hypothesis; pytest finds the test, too.
"""

import ctypes as c
import os
import sys

from hypothesis import given, settings, strategies as st

HOLD, DELIVER, DELIVER_URGENT = 1, 2, 3  # coalesce.h, and the structures below
NEVER, PLAIN, URGENT, FAILED = 2**64 - 1, 0, 2, 2
POLICY = os.environ.get("POLICY", "auto")


class Request(c.Structure):
    _fields_ = [(name, c.c_uint32) for name in "struct_size flags outstanding batch_len ioprio hint group before".split()]


class Mark(c.Structure):
    _fields_ = [("ticket", c.c_uint64), ("hint", c.c_uint32), ("source", c.c_uint32)]


class Completion(c.Structure):
    _fields_ = [(name, c.c_uint32) for name in "struct_size cif outstanding class_of".split()]
    _fields_ += [("mark", Mark), ("slice_end", c.c_uint64), ("before", c.c_uint32)]


lib = c.CDLL(os.environ.get("COALESCE_LIBRARY", "libcoalesce.so"))
lib.coalesce_policy_new.restype = c.c_void_p
lib.coalesce_policy_new.argtypes = [c.c_char_p, c.c_uint64, c.c_char_p, c.c_size_t]
for name in ("deadline", "max_hold", "held"):
    getattr(lib, f"coalesce_policy_{name}").restype = c.c_uint64
for name in ("free", "deadline", "max_hold", "held", "wants_batch_end"):
    getattr(lib, f"coalesce_policy_{name}").argtypes = [c.c_void_p]
for name in ("on_deadline", "on_batch_end", "flush"):
    getattr(lib, f"coalesce_policy_{name}").argtypes = [c.c_void_p, c.c_uint64]
lib.coalesce_policy_on_submit.argtypes = [c.c_void_p, c.c_uint64, c.POINTER(Request), c.POINTER(Mark)]
lib.coalesce_policy_on_completion.argtypes = [c.c_void_p, c.c_uint64, c.POINTER(Completion)]
lib.coalesce_policy_wants_batch_end.restype = c.c_bool


class Queue:
    """A device's side of a queue: the policy decides, and this checks what it decides."""

    def __init__(self, text):
        message = c.create_string_buffer(200)
        self.policy = lib.coalesce_policy_new(text.encode(), 10**9, message, len(message))
        if not self.policy:
            raise ValueError(message.value.decode())
        self.now, self.in_flight, self.held = 1, [], []  # marks; when each held one completed
        self.bound = lib.coalesce_policy_max_hold(self.policy)

    def act(self, decision, alone=1):
        assert decision in (HOLD, DELIVER, DELIVER_URGENT), f"an error: {decision}"
        if decision == DELIVER_URGENT:
            assert alone and self.held.pop() == self.now, "no urgent completion is there"
        elif decision == DELIVER:
            assert self.held, "an interrupt covers nothing"
            self.held.clear()
        assert len(self.held) == lib.coalesce_policy_held(self.policy), "the policy counts otherwise"
        late = [since for since in self.held if self.now - since > self.bound]
        assert not late, f"held since {late[0]}, now it is {self.now}"

    def wait(self, ns):
        end = self.now + ns
        while (deadline := lib.coalesce_policy_deadline(self.policy)) <= end:
            self.now = max(self.now, deadline)
            self.act(lib.coalesce_policy_on_deadline(self.policy, self.now), alone=0)
            assert lib.coalesce_policy_deadline(self.policy) > self.now, "the deadline that was met is still there"
        self.now = end

    def submit(self, hint):
        outstanding = len(self.in_flight) + len(self.held) + 1
        mark, request = Mark(), Request(c.sizeof(Request), 0, outstanding, 1, 0, hint, 0, 0)
        assert lib.coalesce_policy_on_submit(self.policy, self.now, request, mark) == 0
        self.in_flight.append(mark)

    def complete(self, nth, failed):
        if not self.in_flight:
            return
        cif, outstanding = len(self.in_flight), len(self.in_flight) + len(self.held)
        mark = self.in_flight.pop(nth % cif)
        said = Completion(c.sizeof(Completion), cif, outstanding, FAILED if failed else 0, mark, NEVER, 0)
        self.held.append(self.now)  # it is posted before it is decided about
        decision = lib.coalesce_policy_on_completion(self.policy, self.now, said)
        assert decision != HOLD or not failed, "what failed waits"
        self.act(decision)
        if lib.coalesce_policy_wants_batch_end(self.policy):
            self.act(lib.coalesce_policy_on_batch_end(self.policy, self.now), alone=0)

    def end(self):
        while self.in_flight:
            self.complete(0, False)
        if self.bound != NEVER:
            self.wait(self.bound)
            assert not self.held, "lost: nothing is in flight, and they are still held"
        self.act(lib.coalesce_policy_flush(self.policy, self.now), alone=0)
        assert not self.held, "a flush leaves something behind"


waits = st.tuples(st.just("wait"), st.integers(0, 10**7) | st.integers(0, 3000))
submits = st.tuples(st.just("submit"), st.sampled_from([PLAIN, PLAIN, PLAIN, URGENT]))
completes = st.tuples(st.just("complete"), st.integers(0, 9), st.sampled_from([False] * 9 + [True]))


@settings(max_examples=int(os.environ.get("EXAMPLES", 500)), deadline=None)
@given(st.lists(waits | submits | completes | completes, max_size=200))
def test_policy(events):
    queue = Queue(POLICY)
    try:
        for verb, *arguments in events:
            getattr(queue, verb)(*arguments)
        queue.end()
    finally:
        lib.coalesce_policy_free(queue.policy)


if __name__ == "__main__":
    try:
        Queue(POLICY)  # a policy that cannot be is no failing test case
    except ValueError as error:
        sys.exit(f"test_policy.py: {error}")
    test_policy()
    print(f"{POLICY}: no rule is broken")
