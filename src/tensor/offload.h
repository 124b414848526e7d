/* Storages whose data is in a file while it is not used.
 *
 * Note [Staged storages]. Storages that are used together (the master weights of an FSDP unit, or
 * the optimizer's moments for it) form a set. A set occupies memory during a read or a write, and
 * for some time afterwards. A read lasts from fsdp_tensor_begin_read() to the matching end, and a
 * write lasts from fsdp_tensor_begin_write() to the matching end. At other times the data is in a
 * stage: a file, and a thread that moves the bytes. Stages are called through a table of functions
 * (fsdp_stage_ops).
 *
 * A caller may announce the tensor that it will use next (fsdp_tensor_prefetch()). The tensor's set
 * is then read while the caller works. A set that was changed is written to the stage while the
 * caller works on the next set. Sets of parameters and sets of other data have separate limits. In
 * each of these two groups, memory is given to the sets in use and to two more sets. These two are
 * a set that is being read ahead and a set that is being written to the stage. If a set cannot be
 * written to the stage, it keeps its memory. The call that needed this memory returns the error,
 * which names the unit of the set.
 *
 * A stage reads and writes host memory. On a device with memory of its own, a set has a copy in
 * host memory while a request is pending. The rank's thread copies between this copy and the
 * device.
 *
 * On meta there is no stage, and memory is counted as if there were one. */
#pragma once
#include "src/tensor/tensor.h"

/* The functions of a stage, which move bytes between memory and the stage. Only one thread calls
 * them, except peek(). Requests run in the order in which they were made. */
typedef struct fsdp_stage_ops {
    const char *name;
    fsdp_status (*open)(const char *where, void **impl);
    void (*close)(void *impl);
    /* Make the stage at least `bytes` bytes large. Bytes that were never written are read as
     * zeros. */
    fsdp_status (*reserve)(void *impl, uint64_t bytes);
    /* Start a copy from the stage to memory (stage_in) or from memory to the stage (stage_out), and
     * return a ticket for it. The copy begins once the event `after` has occurred (NULL: at once);
     * the stage owns this event. The caller must not use `data` until it has waited for the ticket.
     * @{ */
    uint64_t (*stage_in)(void *impl, uint64_t at, void *data, size_t bytes, fsdp_event *after);
    uint64_t (*stage_out)(void *impl, uint64_t at, const void *data, size_t bytes,
                          fsdp_event *after);
    /* @} */
    fsdp_status (*wait)(void *impl, uint64_t ticket);
    /* Copy bytes from the stage. Any thread may call this while no request for these bytes is
     * pending. */
    fsdp_status (*peek)(void *impl, uint64_t at, void *out, size_t bytes);
} fsdp_stage_ops;

/* The functions of a stage that is an unnamed file. The argument `where` of open() is the file's
 * folder. */
extern const fsdp_stage_ops fsdp_stage_file;

/* A unit of staged storages. It has two sets: one contains the storages tagged FSDP_TAG_PARAM, and
 * the other contains all other storages. A unit is reference counted: its creator and each of its
 * storages hold a reference. */
typedef struct fsdp_offload_unit fsdp_offload_unit;

/* Create a unit whose stage is a file in the folder `dir`. All units of a device must use the same
 * folder; otherwise this fails with FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_unit_create(fsdp_device *device, const char *dir,
                                                     fsdp_offload_unit **unit);
void fsdp_offload_unit_release(fsdp_offload_unit *unit); /* accepts NULL */
/* Set the unit's name for error messages; it is truncated to 127 bytes. */
void fsdp_offload_unit_set_name(fsdp_offload_unit *unit, const char *name);
/* Create a contiguous tensor that is staged with the unit. Its values are undefined if the tag is
 * FSDP_TAG_PARAM, and zeros otherwise. */
FSDP_MUST_CHECK fsdp_status fsdp_offload_tensor(fsdp_offload_unit *unit, fsdp_dtype dtype, int ndim,
                                                const int64_t *shape, fsdp_tag tag,
                                                fsdp_tensor **tensor);
FSDP_MUST_CHECK fsdp_status fsdp_tensor_zeros(fsdp_device *device, fsdp_dtype dtype, int ndim,
                                              const int64_t *shape, fsdp_tag tag,
                                              fsdp_tensor **tensor);
/* Create a tensor of zeros. If `beside` is staged, the new tensor is staged with the same unit.
 * Otherwise it is an ordinary tensor on the device of `beside`. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_zeros_placed_like(const fsdp_tensor *beside,
                                                          fsdp_dtype dtype, int ndim,
                                                          const int64_t *shape, fsdp_tag tag,
                                                          fsdp_tensor **tensor);
/* Start reading a staged tensor ahead of its use, if there is enough memory. No effect on tensors
 * that are not staged. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_prefetch(fsdp_tensor *tensor);
/* Return true if no other tensor has the same fsdp_tensor_key() as `t`. */
static inline bool fsdp_tensor_has_own_key(const fsdp_tensor *t)
{
    return !t->storage->kind && t->storage->refs == 1;
}
/* Return the tensor's key. Tensors have the same key if they share a storage, if they are staged in
 * one set, or if they are halved tensors of one unit. A caller that uses many tensors should use
 * those with the same key one after the other, without other tensors between them. */
const void *fsdp_tensor_key(const fsdp_tensor *tensor);

/* These functions are only for snapshot.c. `staged` is a storage of a set. fsdp_staged_flush()
 * writes the current values of this set to the stage. Afterwards, any thread may call
 * fsdp_staged_read(), until a storage of the set is written again. fsdp_staged_read() reads bytes
 * [offset, offset + bytes) of the storage from the stage. */
FSDP_MUST_CHECK fsdp_status fsdp_staged_flush(struct fsdp_staged *staged);
FSDP_MUST_CHECK fsdp_status fsdp_staged_read(const struct fsdp_staged *staged, uint64_t offset,
                                             void *out, size_t bytes);
