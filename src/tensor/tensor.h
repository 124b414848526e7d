/* The internals of tensors and storages. Other layers attach their data to a tensor through opaque
 * pointers: autograd attaches a node and a gradient sink, and dtensor attaches a spec. */
#pragma once
#include <fsdp/tensor.h>

#include "src/tensor/device.h"

struct fsdp_tensor;

/* A guard: functions that allow, delay or refuse a write to a storage, or forbid reads. src/fsdp
 * uses guards to wait for readers, and a snapshot (snapshot.h) uses guards to copy values before
 * the first write. The guards of a storage form a list. Any function may be NULL. */
typedef struct fsdp_storage_guard {
    /* Return an error if operations must not read the values now. On meta, tensors never have data,
     * but the function must return an error exactly when it would do so in a real run. */
    fsdp_status (*check_read)(void *self, const struct fsdp_tensor *tensor);
    fsdp_status (*begin_write)(void *self);
    void (*end_write)(void *self);
    void (*leave)(void *self); /* called before the storage loses its memory and drops this guard */
    /* True if each open write to the storage occupies additional memory. Callers should then keep
     * as few writes open at one time as possible. */
    bool writes_take_memory;
    void *self;
    struct fsdp_storage_guard *next;
} fsdp_storage_guard;

typedef struct fsdp_staged fsdp_staged;
typedef struct fsdp_halved fsdp_halved;

/* The functions of a kind of storage whose data is elsewhere while nothing uses it: in a file
 * (offload.h), or in two halves (halved.h). */
typedef struct fsdp_storage_kind {
    /* Bring the data into memory for a read or, if `write` is true, a write. */
    fsdp_status (*begin)(struct fsdp_storage *storage, bool write);
    void (*end)(struct fsdp_storage *storage, bool wrote);
    /* Free what this kind of storage has allocated. Called when the last reference to the storage
     * is released. */
    void (*remove)(struct fsdp_storage *storage);
    /* The result of fsdp_tensor_key() for tensors of this storage. */
    const void *(*key)(const struct fsdp_storage *storage);
} fsdp_storage_kind;

struct fsdp_storage {
    int refs;
    fsdp_device *device;
    size_t bytes;
    /* address of the data; NULL on meta, while the tensor is resharded, and while the data is only
     * in a file or only in halves */
    void *data;
    fsdp_block *block;             /* owned; NULL if the storage does not own its memory */
    fsdp_storage_guard *guards;    /* list of guards; the code that added a guard owns it */
    const fsdp_storage_kind *kind; /* NULL: the data is always in memory */
    fsdp_staged *staged;           /* NULL unless the data is in a file between uses (offload.h) */
    fsdp_halved *halved;           /* NULL unless the data is stored in two halves (halved.h) */
    fsdp_tag tag;    /* tag of the memory of a staged or halved storage; otherwise unused */
    bool is_skipped; /* the storage was made by fsdp_tensor_without_memory() */
    /* Used in the storage of an unsharded parameter. `lasting` is another storage with the same
     * bytes, which keeps its data when the parameter is resharded. It may also lose its data later,
     * so do not keep a tensor over it. NULL if there is no such storage. Borrowed. */
    struct fsdp_storage *lasting;
};

/* Create a storage over foreign memory, such as a shared mapping. The storage does not own the
 * memory. `data` may be NULL at first and set later by fsdp_storage_set_data(). */
FSDP_MUST_CHECK fsdp_status fsdp_storage_from_memory(fsdp_device *device, void *data, size_t bytes,
                                                     fsdp_storage **storage);
void fsdp_storage_release(fsdp_storage *storage);
/* Change the data pointer of a storage over foreign memory. Views of the storage see the change. If
 * `data` is NULL, the storage has no data. */
void fsdp_storage_set_data(fsdp_storage *storage, void *data);
/* Call leave() of every guard, and remove all guards. Must be called before the storage's memory is
 * freed. */
void fsdp_storage_drop_guards(fsdp_storage *storage);
FSDP_MUST_CHECK fsdp_status fsdp_storage_begin_write(fsdp_storage *storage);
void fsdp_storage_end_write(fsdp_storage *storage);
FSDP_MUST_CHECK fsdp_status fsdp_storage_begin_read(fsdp_storage *storage);
void fsdp_storage_end_read(fsdp_storage *storage);
/* Return an error if a guard of the tensor's storage forbids operations to read `tensor` now. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_check_read(const struct fsdp_tensor *tensor);

struct fsdp_derived;
struct fsdp_grad_sink;
struct fsdp_tensor_spec;

struct fsdp_tensor {
    int refs;
    /* true once a write to the tensor has ended (fsdp_tensor_end_write(), fsdp_writing) */
    bool has_values;
    fsdp_dtype dtype;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];
    int64_t stride[FSDP_MAX_DIMS]; /* elements */
    int64_t offset;                /* in elements, from the start of the storage */
    fsdp_storage *storage;
    /* True if all elements are one, because backward made the tensor as the gradient of a root, and
     * nothing has written to it since. Operations then need not read it. */
    bool is_one;
    /* True for a table that operations read in float32, whatever the dtype of activations is, such
     * as a rotary table or T5's bias by distance. Mixed precision does not cast it. */
    bool is_table;
    /* For autograd: which node made the tensor. It is the node with index `node` - 1 on the tape
     * whose generation is `generation`, and the tensor is its output with index `output`. `node` is
     * 0 if no node made the tensor. */
    uint32_t node;
    uint64_t generation;
    uint16_t output;
    struct fsdp_grad_sink
        *sink; /* where the gradient of a leaf goes; NULL: the tensor is not a leaf */
    void (*sink_destroy)(struct fsdp_grad_sink *sink); /* NULL: `sink` is borrowed */
    struct fsdp_tensor_spec *spec; /* for dtensor; owned, freed by spec_destroy() */
    void (*spec_destroy)(struct fsdp_tensor_spec *spec);
    /* For autograd: how backward recomputes the tensor. NULL if backward does not recompute it. */
    struct fsdp_derived *derived;
    void (*derived_forget)(struct fsdp_derived *derived); /* called when the tensor is freed */
};

/* Create a contiguous tensor that begins at element `offset` of `storage`. Retains the storage. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_over(fsdp_storage *storage, fsdp_dtype dtype, int ndim,
                                             const int64_t *shape, int64_t offset,
                                             fsdp_tensor **tensor);
/* Create a tensor that is computed in forward and is not an activation, such as a gradient: Note
 * [What lasts] in allocator.h. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_create_in_forward(fsdp_device *device, fsdp_dtype dtype,
                                                          int ndim, const int64_t *shape,
                                                          fsdp_tag tag, fsdp_tensor **tensor);
/* Create a tensor whose values are never needed: it has a shape, but no memory. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_without_memory(fsdp_device *device, fsdp_dtype dtype,
                                                       int ndim, const int64_t *shape,
                                                       fsdp_tensor **tensor);
/* Swap the storages, offsets and dtypes of two tensors. Afterwards, tensor `a` has the memory and
 * values that tensor `b` had, and vice versa, for all holders of the two tensors. The tensors must
 * be contiguous and have the same shape, and nothing may be reading or writing them. */
void fsdp_tensor_exchange(fsdp_tensor *a, fsdp_tensor *b);
/* Return the tensor's address for kernels, without a wait or a check. The address is NULL on meta
 * and while the tensor is resharded. The host may not use the address: Note [Streams] in
 * device.h. */
static inline void *fsdp_tensor_ptr(const fsdp_tensor *t)
{
    char *base = t->storage->data;
    return base ? base + (size_t)t->offset * fsdp_dtype_size(t->dtype) : NULL;
}
/* Copy `n` elements of `dtype` from host memory at `src` to elements [at, at + n) of a contiguous
 * tensor. The elements are converted to the tensor's dtype. `src` must be aligned for `dtype`, and
 * may be reused when the call returns. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_from_host(fsdp_tensor *t, int64_t at, const void *src,
                                                  fsdp_dtype dtype, int64_t n);
/* Return FSDP_ERR_STATE, with the reason in the message, if the tensor has no data now. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_check_data(const fsdp_tensor *t);
/* Set *yes to true if all elements are finite, else to false. The tensor must be contiguous and of
 * a floating dtype. On meta, *yes is true. */
FSDP_MUST_CHECK fsdp_status fsdp_all_finite(const fsdp_tensor *t, bool *yes);
/* Like fsdp_all_finite(), for n tensors on one device. */
FSDP_MUST_CHECK fsdp_status fsdp_all_are_finite(const fsdp_tensor *const *tensors, size_t n,
                                                bool *yes);
/* Return true if the tensor has data only while a read or a write of it is open. */
static inline bool fsdp_tensor_is_held_elsewhere(const fsdp_tensor *t)
{
    return t->storage->kind != NULL;
}
/* Return true if the tensor occupies additional memory while a write to it is open. `in_halves` has
 * the same meaning as in fsdp_writing. */
bool fsdp_tensor_write_takes_memory(const fsdp_tensor *t, bool in_halves);
/* The state of a series of writes to tensors, one after another. If consecutive tensors share a
 * storage, the guards of this storage see a single write. Halved tensors with the same
 * fsdp_tensor_key() belong to one unit, but each has its own storage. If such tensors are
 * consecutive, the write of the next storage begins before end_write() of the previous storage's
 * guards is called. So at least one write of the unit is open all the time. Initialize with {0}. */
typedef struct fsdp_writing {
    fsdp_tensor *open; /* borrowed: the tensor that is being written */
    bool in_halves;    /* true if the caller writes halves directly, without a joined copy */
} fsdp_writing;
FSDP_MUST_CHECK fsdp_status fsdp_writing_next(fsdp_writing *writing, fsdp_tensor *tensor);
void fsdp_writing_end(fsdp_writing *writing);
/* Return the number of elements in one row of dimension 0; 1 if the tensor has at most one
 * dimension. */
int64_t fsdp_tensor_row_numel(const fsdp_tensor *t);
/* fsdp_shape_text() writes the shape into `buf` as text such as "[2, 3]", and returns `buf`. */
enum {
    FSDP_SHAPE_TEXT = 128
};
const char *fsdp_shape_text(int ndim, const int64_t *shape, char buf[FSDP_SHAPE_TEXT]);
/* Set *numel to the product of the sizes. Return FSDP_ERR_INVALID if it overflows or the shape is
 * not valid. */
FSDP_MUST_CHECK fsdp_status fsdp_shape_numel(int ndim, const int64_t *shape, int64_t *numel);
