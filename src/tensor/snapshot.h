/* Values of tensors as they are now, for a thread that reads them later while the run goes on.
 *
 * Note [Copy on write]. A snapshot puts a guard on each storage that it watches: before the first
 * write (fsdp_storage_begin_write()) its blocks are made safe one by one. A block that was read is
 * nobody's concern; of one that was not, the writer makes a copy, as long as the copies of a
 * snapshot take no more than its pool; beyond that it waits until the reader has got there, or has
 * made room. The reader holds a block only while it copies it out, never while the disk has it, so
 * that memory, not the disk, is what a writer waits for in between. A storage that nobody writes is
 * never copied; of one that is written in part (a unit's zero-copy masters are one storage, be some
 * of them frozen) all that is watched may be.
 *
 * Storages that are staged (Note [Staged storages] in offload.h) are read from their stage: values
 * that were in memory alone are written there when they are added.
 *
 * The thread that owns the tensors creates, adds and destroys; one other thread reads. */
#pragma once
#include "src/tensor/tensor.h"

typedef struct fsdp_snapshot fsdp_snapshot;
/* A tensor's values; its snapshot's. */
typedef struct fsdp_snapshot_part fsdp_snapshot_part;

typedef struct fsdp_snapshot_stats {
    uint64_t copied_bytes; /* before they were overwritten */
    double held_s;         /* that writers took for it, or waited */
} fsdp_snapshot_stats;

/* `pool_bytes`: of copies at a time; 0: none, writers wait. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_create(uint64_t pool_bytes, fsdp_snapshot **snapshot);
/* The storages are as they were before add(). The reader has ended. Accepts NULL. */
void fsdp_snapshot_destroy(fsdp_snapshot *snapshot);
/* The values of `tensor`, contiguous, from now on until they were read. Its storage is retained;
 * another snapshot that watches it is waited for until it is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_add(fsdp_snapshot *snapshot, const fsdp_tensor *tensor,
                                              fsdp_snapshot_part **part);
/* Bytes [offset, offset + bytes) into `out`. Each is read once, with rising offsets.
 * FSDP_ERR_STATE once closed. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_read(fsdp_snapshot_part *part, uint64_t offset, void *out,
                                               size_t bytes);
/* Nothing is read any more, and no writer waits or copies. From any thread. */
void fsdp_snapshot_close(fsdp_snapshot *snapshot);
fsdp_snapshot_stats fsdp_snapshot_get_stats(fsdp_snapshot *snapshot);
