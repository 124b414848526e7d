/* A snapshot keeps the values that tensors have at one time. Another thread reads them later while
 * the run continues.
 *
 * Note [Copy on write]. A snapshot puts a guard on each storage that it watches. Before the first
 * write to the storage (fsdp_storage_begin_write()), the guard makes sure that the snapshot does
 * not lose the old values. It handles the storage's blocks one by one, in the thread of the writer.
 * If the reader has already read a block, there is nothing to do. Otherwise the block is copied to
 * the snapshot's pool. If the pool has no space left for the copy, the writer waits until the
 * reader has read the block or has freed another copy. If the reader is reading the block at this
 * moment, the writer waits for the end of this read. Such a wait is short, because the reader only
 * copies the block, and writes the copy to the disk later. A storage that is never written is never
 * copied.
 *
 * A write to one part of a storage may copy all watched blocks of the storage. For example, if the
 * operations of a unit read the master weights themselves, all master weights of the unit are in
 * one storage, even if some of them are frozen.
 *
 * Staged storages (Note [Staged storages] in offload.h) are read from their stage. When a staged
 * storage is added, values that are only in memory are written to the stage.
 *
 * The thread that owns the tensors creates and destroys snapshots and adds tensors. One other
 * thread reads. */
#pragma once
#include "src/tensor/tensor.h"

typedef struct fsdp_snapshot fsdp_snapshot;
/* The values of one tensor at the time of fsdp_snapshot_add(). The snapshot owns them. */
typedef struct fsdp_snapshot_part fsdp_snapshot_part;

typedef struct fsdp_snapshot_stats {
    uint64_t copied_bytes; /* bytes that writers copied to the pool before they overwrote the
                              originals */
    double held_s;         /* time that writers spent copying and waiting */
} fsdp_snapshot_stats;

/* Create a snapshot. `pool_bytes` limits the total size of the copies that exist at one time. If
 * `pool_bytes` is 0, nothing is copied, and writers wait for the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_create(uint64_t pool_bytes, fsdp_snapshot **snapshot);
/* Remove all guards and free the snapshot. The reader must have finished. Accepts NULL. */
void fsdp_snapshot_destroy(fsdp_snapshot *snapshot);
/* Keep the current values of `tensor`, which must be contiguous, until they have been read. The
 * snapshot retains the tensor's storage. If another snapshot watches the storage, wait until that
 * snapshot is closed. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_add(fsdp_snapshot *snapshot, const fsdp_tensor *tensor,
                                              fsdp_snapshot_part **part);
/* Copy bytes [offset, offset + bytes) of the part to `out`. The calls for a part must read each
 * byte once, in order of increasing offsets. Return FSDP_ERR_STATE if the snapshot has been
 * closed. */
FSDP_MUST_CHECK fsdp_status fsdp_snapshot_read(fsdp_snapshot_part *part, uint64_t offset, void *out,
                                               size_t bytes);
/* Close the snapshot. Later reads fail. Writers copy no more blocks, and wait at most until the
 * reader has finished the block that it is reading. Any thread may call this. */
void fsdp_snapshot_close(fsdp_snapshot *snapshot);
fsdp_snapshot_stats fsdp_snapshot_get_stats(fsdp_snapshot *snapshot);
