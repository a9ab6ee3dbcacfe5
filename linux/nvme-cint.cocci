// SPDX-License-Identifier: GPL-2.0
// Where the NVMe PCI driver calls module/cint-pci.c. build.sh checks that each call is there.

@@
@@
 #include "nvme.h"
+#include "cint-pci.h"

@@
@@
 struct nvme_queue {
 ...
+struct nvme_cint_queue cint;
 };

@@
@@
 struct nvme_iod {
 ...
+struct nvme_cint_request cint;
 };

// One request. The block layer says whether more follow.
@@
identifier bd, iod;
expression queue;
@@
 nvme_queue_rq(..., const struct blk_mq_queue_data *bd)
 {
 <+...
+nvme_cint_submit(queue, bd->rq, bd->last);
 nvme_sq_copy_cmd(queue, &iod->cmd);
 ...+>
 }

// A list of them: two types, by version.
@@
identifier list, req, iod;
expression queue;
@@
 nvme_submit_cmds(..., struct request **list)
 {
 <+...
 struct nvme_iod *iod = blk_mq_rq_to_pdu(req);
+nvme_cint_submit(queue, req, rq_list_empty(*list));
 nvme_sq_copy_cmd(queue, &iod->cmd);
 ...+>
 }

@@
identifier list, req, iod;
expression queue;
@@
 nvme_submit_cmds(..., struct rq_list *list)
 {
 <+...
 struct nvme_iod *iod = blk_mq_rq_to_pdu(req);
+nvme_cint_submit(queue, req, rq_list_empty(list));
 nvme_sq_copy_cmd(queue, &iod->cmd);
 ...+>
 }

// The interrupt handler may leave completions. Everything else that looks at the queue takes them all.
@handler@
expression queue, batch;
@@
 nvme_irq(...)
 {
 <+...
-nvme_poll_cq
+nvme_cint_irq
 (queue, batch)
 ...+>
 }

@@
identifier f != nvme_poll_cq;
expression queue, batch;
@@
 f(...)
 {
 <+...
-nvme_poll_cq
+nvme_cint_reap
 (queue, batch)
 ...+>
 }

// A queue's life: its memory, its creation in the device, its end.
@@
expression queue;
@@
 nvme_alloc_queue(...)
 {
 <+...
 spin_lock_init(&queue->cq_poll_lock);
+nvme_cint_alloc(queue);
 ...+>
 }

@@
expression queue;
@@
 nvme_init_queue(...)
 {
 <+...
 queue->cq_phase = 1;
+nvme_cint_init(queue);
 ...+>
 }

@@
expression device, vector, queue;
@@
 nvme_suspend_queue(...)
 {
 <+...
 pci_free_irq(device, vector, queue);
+nvme_cint_stop(queue);
 ...+>
 }
