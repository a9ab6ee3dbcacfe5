#!/usr/bin/env python3
"""Stands between the native client and SPDK: mem_slots.py LISTEN TARGET

The client adds its memory region by region (vhost-user's CONFIGURE_MEM_SLOTS), which DPDK does not offer: each region
becomes a new memory table. Only the set-up passes through here; rings and eventfds are shared by the two directly.
"""

import array
import os
import select
import socket
import struct
import sys
import threading

HEADER = struct.Struct("=III")  # request, flags, size
REPLY, NEED_REPLY = 4, 8
SET_MEM_TABLE, GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES = 5, 15, 16
GET_MAX_MEM_SLOTS, ADD_MEM_REG, REM_MEM_REG = 36, 37, 38
CONFIGURE_MEM_SLOTS = 1 << 15
SLOTS = 8  # of DPDK


def receive(peer):
    """One message and its descriptors; None at the end."""
    head, ancillary, _, _ = peer.recvmsg(HEADER.size, socket.CMSG_SPACE(SLOTS * 4))
    if not head:
        return None
    while len(head) < HEADER.size:
        head += peer.recv(HEADER.size - len(head))
    request, flags, size = HEADER.unpack(head)
    body = b""
    while len(body) < size:
        part = peer.recv(size - len(body))
        if not part:
            return None
        body += part
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return request, flags, body, list(fds)


def send(peer, request, flags, body, fds=()):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    peer.sendmsg([HEADER.pack(request, flags, len(body)) + body], rights)


def serve(client, path):
    target = socket.socket(socket.AF_UNIX)
    target.connect(path)
    regions = []  # (the region as the client describes it, its descriptor)

    def from_client(request, flags, body, fds):
        if request == SET_PROTOCOL_FEATURES:
            body = struct.pack("=Q", struct.unpack("=Q", body)[0] & ~CONFIGURE_MEM_SLOTS)
        elif request == GET_MAX_MEM_SLOTS:
            return send(client, request, 1 | REPLY, struct.pack("=Q", SLOTS))
        elif request in (ADD_MEM_REG, REM_MEM_REG):
            region = body[8:40]
            if request == ADD_MEM_REG:
                regions.append((region, os.dup(fds[0])))
            else:
                for gone in [entry for entry in regions if entry[0][:24] == region[:24]]:
                    regions.remove(gone)
                    os.close(gone[1])
            request = SET_MEM_TABLE
            body = struct.pack("=II", len(regions), 0) + b"".join(region for region, _ in regions)
            send(target, request, flags, body, [fd for _, fd in regions])
            if flags & NEED_REPLY:
                _, reply_flags, answer, _ = receive(target)
                send(client, ADD_MEM_REG, reply_flags, answer)
            return None
        return send(target, request, flags, body, fds)

    def from_target(request, flags, body, fds):
        if request == GET_PROTOCOL_FEATURES:
            body = struct.pack("=Q", struct.unpack("=Q", body)[0] | CONFIGURE_MEM_SLOTS)
        send(client, request, flags, body, fds)

    try:
        while True:
            for ready in select.select([client, target], [], [])[0]:
                message = receive(ready)
                if message is None:
                    return
                (from_client if ready is client else from_target)(*message)
                for fd in message[3]:
                    os.close(fd)
    except OSError:
        pass
    finally:
        client.close()
        target.close()
        for _, fd in regions:
            os.close(fd)


def main():
    listen, target = sys.argv[1:]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(listen)
    listener.listen()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, target), daemon=True).start()


main()
