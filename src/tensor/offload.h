/* Storages whose data is in a file while it is not used.
 *
 * Note [Staged storages]. Storages that are used together (the master weights of an FSDP unit, or
 * the optimizer's moments for it) form a set. A set has memory only from the beginning of a read or
 * a write (fsdp_tensor_begin_read(), fsdp_tensor_begin_write()) to some time after its end. In
 * between, the data is in a stage, reached through a table of functions, fsdp_stage_ops: a file,
 * with a thread that moves the bytes. A caller may announce what it uses next,
 * fsdp_tensor_prefetch(), and the set is read while the caller works. A set that was written is
 * written out while the caller works on the next one. For each purpose, the sets in use and two
 * more have memory at a time: one that is being read ahead and one that is being written out. If a
 * set cannot be written it keeps its memory, and the caller that needs the room gets the error,
 * which names the unit.
 *
 * On meta there is no stage, and memory is counted as if there were one. */
#pragma once
#include "src/tensor/tensor.h"

/* How bytes move between memory and the stage. Only one thread calls; requests run in the order in
 * which they were made. */
typedef struct fsdp_stage_ops {
    const char *name;
    fsdp_status (*open)(const char *where, void **impl);
    void (*close)(void *impl);
    /* Make room for `bytes` bytes in all; what was never written reads as zeros. */
    fsdp_status (*reserve)(void *impl, uint64_t bytes);
    /* Copy after the event `after`, which the stage then owns, and return a ticket. `data` belongs
     * to the stage until the ticket was waited for. @{ */
    uint64_t (*stage_in)(void *impl, uint64_t at, void *data, size_t bytes, fsdp_event *after);
    uint64_t (*stage_out)(void *impl, uint64_t at, const void *data, size_t bytes,
                          fsdp_event *after);
    /* @} */
    fsdp_status (*wait)(void *impl, uint64_t ticket);
    /* Copy the current bytes. Callable from any thread, while no request for them is pending. */
    fsdp_status (*peek)(void *impl, uint64_t at, void *out, size_t bytes);
} fsdp_stage_ops;

/* A file without a name in folder `where`. */
extern const fsdp_stage_ops fsdp_stage_file;

/* Two sets of storages: those tagged FSDP_TAG_PARAM and all others. Counted: its creator and each
 * storage in it hold a reference. */
typedef struct fsdp_offload_unit fsdp_offload_unit;

/* All units of a device use the same folder, else FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_unit_create(fsdp_device *device, const char *dir,
                                                     fsdp_offload_unit **unit);
void fsdp_offload_unit_release(fsdp_offload_unit *unit); /* accepts NULL */
/* For messages; truncated if long. */
void fsdp_offload_unit_set_name(fsdp_offload_unit *unit, const char *name);
/* A contiguous tensor that is staged with the unit. Its values are undefined for FSDP_TAG_PARAM,
 * else zeros. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_tensor(fsdp_offload_unit *unit, fsdp_dtype dtype, int ndim,
                                                const int64_t *shape, fsdp_tag tag,
                                                fsdp_tensor **tensor);
FSDP_MUST_CHECK fsdp_status fsdp_tensor_zeros(fsdp_device *device, fsdp_dtype dtype, int ndim,
                                              const int64_t *shape, fsdp_tag tag,
                                              fsdp_tensor **tensor);
/* A tensor of zeros, staged with `beside`'s unit if `beside` is staged, else an ordinary one. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_zeros_beside(const fsdp_tensor *beside, fsdp_dtype dtype,
                                                     int ndim, const int64_t *shape, fsdp_tag tag,
                                                     fsdp_tensor **tensor);
/* Begin to read a staged tensor ahead of its use, if there is room. No effect on others. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_prefetch(fsdp_tensor *tensor);
/* Whether no other tensor has its fsdp_tensor_key(). */
static inline bool fsdp_tensor_is_alone(const fsdp_tensor *t)
{
    return !t->storage->staged && !t->storage->halved && t->storage->refs == 1;
}
/* Tensors with the same key are best used together: they share a storage, are staged in one set, or
 * are halved tensors of one unit. */
const void *fsdp_tensor_key(const fsdp_tensor *tensor);

/* For storage.c. */
FSDP_MUST_CHECK fsdp_status fsdp_staged_begin(struct fsdp_staged *staged, bool write);
void fsdp_staged_end(struct fsdp_staged *staged);
void fsdp_staged_remove(struct fsdp_staged *staged); /* frees its memory too */
/* For snapshot.c: write the current values to the stage. Until the next write to the storage's set
 * any thread may then peek at bytes [offset, offset + bytes). */
FSDP_MUST_CHECK fsdp_status fsdp_staged_flush(struct fsdp_staged *staged);
FSDP_MUST_CHECK fsdp_status fsdp_staged_peek(const struct fsdp_staged *staged, uint64_t offset,
                                             void *out, size_t bytes);
