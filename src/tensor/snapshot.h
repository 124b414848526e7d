/* The values that tensors have now, for a thread that reads them later while the run continues.
 *
 * Note [Copy on write]. A snapshot puts a guard on each storage that it watches. Before the first
 * write (fsdp_storage_begin_write()) the guard makes the storage's blocks safe one by one. A block
 * that was already read needs nothing. Otherwise the writer copies the block, as long as the
 * snapshot's copies take no more than its pool; beyond that it waits until the reader has read the
 * block or has freed a copy. The reader holds a block only while it copies it, never while it waits
 * for the disk, so a writer waits at most for a copy in memory. A storage that is never written is
 * never copied. If only a part of a storage is written (the zero-copy master weights of a unit are
 * one storage, even if some of them are frozen), all its watched blocks may be copied.
 *
 * Staged storages (Note [Staged storages] in offload.h) are read from their stage: adding one
 * writes the values that are only in memory.
 *
 * The thread that owns the tensors creates, adds and destroys; one other thread reads. */
#pragma once
#include "src/tensor/tensor.h"

typedef struct fsdp_snapshot fsdp_snapshot;
/* The values of one tensor; owned by its snapshot. */
typedef struct fsdp_snapshot_part fsdp_snapshot_part;

typedef struct fsdp_snapshot_stats {
    uint64_t copied_bytes; /* copied before they were overwritten */
    double held_s;         /* time that writers spent copying and waiting */
} fsdp_snapshot_stats;

/* `pool_bytes`: limit of the copies at any time; 0: no copies, writers wait. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_create(uint64_t pool_bytes, fsdp_snapshot **snapshot);
/* Removes all guards. The reader must have ended. Accepts NULL. */
void fsdp_snapshot_destroy(fsdp_snapshot *snapshot);
/* Keep the current values of `tensor`, which is contiguous, until they were read. Retains its
 * storage. If another snapshot watches the storage, waits until that one is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_add(fsdp_snapshot *snapshot, const fsdp_tensor *tensor,
                                              fsdp_snapshot_part **part);
/* Copy bytes [offset, offset + bytes) into `out`. Each byte is read once, with rising offsets.
 * FSDP_ERR_STATE once the snapshot is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_read(fsdp_snapshot_part *part, uint64_t offset, void *out,
                                               size_t bytes);
/* From now on reads fail and no writer waits or copies. Callable from any thread. */
void fsdp_snapshot_close(fsdp_snapshot *snapshot);
fsdp_snapshot_stats fsdp_snapshot_get_stats(fsdp_snapshot *snapshot);
