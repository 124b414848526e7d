/* Storages that lie elsewhere while nobody uses them.
 *
 * Note [Staged storages]. Storages that are used together (the masters of an FSDP unit; the moments
 * of the optimizer for it) form a set, which has memory only from the begin of a read or a write
 * (fsdp_tensor_begin_read(), fsdp_tensor_begin_write()) to some time after its end. In between it
 * is behind a const table of functions, fsdp_stage_ops: a file, with a thread that moves the bytes.
 * What is used next may be announced (fsdp_tensor_prefetch()): it comes in while the caller works;
 * what was written goes out while the caller works on the next one. Of the sets of one purpose
 * those in use and two more have memory at a time: one ahead, one behind. A set that could not be
 * written keeps its memory; whoever needs the room gets the error, which names the unit.
 *
 * On meta there is no stage: memory is counted as it would be. */
#pragma once
#include "src/tensor/tensor.h"

/* How bytes get there and back. One thread calls; requests run in the order they were made. */
typedef struct fsdp_stage_ops {
    const char *name;
    fsdp_status (*open)(const char *where, void **impl);
    void (*close)(void *impl);
    /* Have room for the first `bytes` bytes, zeros where nothing was written. */
    fsdp_status (*reserve)(void *impl, uint64_t bytes);
    /* Copy once `after`, which becomes the stage's, has been reached; returns a ticket. `data`
     * belongs to the stage until it was waited for. @{ */
    uint64_t (*stage_in)(void *impl, uint64_t at, void *data, size_t bytes, fsdp_event *after);
    uint64_t (*stage_out)(void *impl, uint64_t at, const void *data, size_t bytes,
                          fsdp_event *after);
    /* @} */
    fsdp_status (*wait)(void *impl, uint64_t ticket);
    /* Copy what is there now. From any thread; nothing of it is on its way. */
    fsdp_status (*peek)(void *impl, uint64_t at, void *out, size_t bytes);
} fsdp_stage_ops;

/* A file without a name in folder `where`. */
extern const fsdp_stage_ops fsdp_stage_file;

/* Two sets, of parameters and of what belongs to them (FSDP_TAG_PARAM or not). Counted: by who made
 * it and by the storages in it. */
typedef struct fsdp_offload_unit fsdp_offload_unit;

/* All units of a device have the same folder, else FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_unit_create(fsdp_device *device, const char *dir,
                                                     fsdp_offload_unit **unit);
void fsdp_offload_unit_release(fsdp_offload_unit *unit); /* accepts NULL */
/* For messages; cut off if long. */
void fsdp_offload_unit_set_name(fsdp_offload_unit *unit, const char *name);
/* A contiguous tensor, staged with the unit: of zeros, or undefined for FSDP_TAG_PARAM. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_tensor(fsdp_offload_unit *unit, fsdp_dtype dtype, int ndim,
                                                const int64_t *shape, fsdp_tag tag,
                                                fsdp_tensor **tensor);
FSDP_MUST_CHECK fsdp_status fsdp_tensor_zeros(fsdp_device *device, fsdp_dtype dtype, int ndim,
                                              const int64_t *shape, fsdp_tag tag,
                                              fsdp_tensor **tensor);
/* A tensor of zeros that is staged with `beside`'s unit, or an ordinary one if that has none. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_zeros_beside(const fsdp_tensor *beside, fsdp_dtype dtype,
                                                     int ndim, const int64_t *shape, fsdp_tag tag,
                                                     fsdp_tensor **tensor);
/* Have it come in ahead of time, if it is staged and there is room. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_prefetch(fsdp_tensor *tensor);
/* Does nothing else have its key? */
static inline bool fsdp_tensor_is_alone(const fsdp_tensor *t)
{
    return !t->storage->staged && !t->storage->halved && t->storage->refs == 1;
}
/* Tensors of one key are best used together: they share a storage, are staged as one, or halved
 * ones of one unit. */
const void *fsdp_tensor_key(const fsdp_tensor *tensor);

/* For storage.c. */
FSDP_MUST_CHECK fsdp_status fsdp_staged_begin(struct fsdp_staged *staged, bool write);
void fsdp_staged_end(struct fsdp_staged *staged);
void fsdp_staged_remove(struct fsdp_staged *staged); /* and its memory */
/* For snapshot.c: have the stage hold the values of now. Until the next write of the storage's
 * set they can be peeked at, by any thread: bytes [offset, offset + bytes). */
FSDP_MUST_CHECK fsdp_status fsdp_staged_flush(struct fsdp_staged *staged);
FSDP_MUST_CHECK fsdp_status fsdp_staged_peek(const struct fsdp_staged *staged, uint64_t offset,
                                             void *out, size_t bytes);
