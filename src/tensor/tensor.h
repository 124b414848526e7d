/* The internals of tensors and storages. Layers above tensor attach what they know through opaque
 * fields: autograd its node and gradient sink, dtensor its spec. */
#pragma once
#include <fsdp/tensor.h>

#include "src/tensor/device.h"

struct fsdp_tensor;

/* The guards of a storage form a list: fsdp uses one to wait for readers, a checkpoint uses one to
 * copy values before the first write. Any function may be NULL. */
typedef struct fsdp_storage_guard {
    /* Fails if operations may not read the values now. Gives the same answer on meta, where there
     * is never data. */
    fsdp_status (*check_read)(void *self, const struct fsdp_tensor *tensor);
    fsdp_status (*begin_write)(void *self);
    void (*end_write)(void *self);
    void (*leave)(void *self); /* the storage is about to lose its memory and this guard */
    void *self;
    struct fsdp_storage_guard *next;
} fsdp_storage_guard;

typedef struct fsdp_staged fsdp_staged;
typedef struct fsdp_halved fsdp_halved;

struct fsdp_storage {
    int refs;
    fsdp_device *device;
    size_t bytes;
    void *data;                 /* NULL on meta and while resharded, when reading it is an error */
    fsdp_block *block;          /* owned; NULL for foreign memory */
    fsdp_storage_guard *guards; /* list; each is borrowed from the code that added it */
    fsdp_staged *staged;        /* offload.h: the data is in a file between uses; else NULL */
    fsdp_halved *halved;        /* halved.h: the data is stored in two halves; else NULL */
    fsdp_tag tag;               /* of the memory of a staged or halved storage */
    bool is_skipped;            /* made by fsdp_tensor_without_memory() */
};

/* A foreign buffer (a shared mapping) as a storage; data may be NULL and set later. */
FSDP_MUST_CHECK fsdp_status fsdp_storage_from_memory(fsdp_device *device, void *data, size_t bytes,
                                                     fsdp_storage **storage);
void fsdp_storage_release(fsdp_storage *storage);
/* Empty or refill a storage of foreign memory under its views. */
void fsdp_storage_set_data(fsdp_storage *storage, void *data);
/* Call before the memory is freed: calls leave() of every guard and removes it. */
void fsdp_storage_drop_guards(fsdp_storage *storage);
FSDP_MUST_CHECK fsdp_status fsdp_storage_begin_write(fsdp_storage *storage);
void fsdp_storage_end_write(fsdp_storage *storage);
FSDP_MUST_CHECK fsdp_status fsdp_storage_begin_read(fsdp_storage *storage);
void fsdp_storage_end_read(fsdp_storage *storage);
/* Fails if a guard of its storage does not let operations read `tensor`. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_check_read(const struct fsdp_tensor *tensor);

struct fsdp_derived;
struct fsdp_grad_sink;
struct fsdp_tensor_spec;

struct fsdp_tensor {
    int refs;
    bool has_values; /* a write has ended: fsdp_tensor_end_write(), fsdp_writing */
    fsdp_dtype dtype;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];
    int64_t stride[FSDP_MAX_DIMS]; /* elements */
    int64_t offset;                /* elements, from the storage's start */
    fsdp_storage *storage;
    /* A table, such as rotary tables or T5's bias by distance. Operations read it in float32,
     * whatever the dtype of activations is, so mixed precision does not cast it. */
    bool is_table;
    /* autograd: the node that made it (index + 1 in the tape of this generation; 0: none) */
    uint32_t node;
    uint64_t generation;
    uint16_t output;
    struct fsdp_grad_sink *sink; /* where the gradient of a leaf goes; NULL: not a leaf */
    void (*sink_destroy)(struct fsdp_grad_sink *sink); /* NULL: the sink is borrowed */
    struct fsdp_tensor_spec *spec;                     /* owned by dtensor, which frees it through
                                                        * spec_destroy */
    void (*spec_destroy)(struct fsdp_tensor_spec *spec);
    struct fsdp_derived *derived; /* autograd: how backward computes it again; NULL: it does not */
    void (*derived_forget)(struct fsdp_derived *derived); /* called when the tensor is freed */
};

/* A contiguous tensor over `storage` at element `offset`. Retains the storage. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_over(fsdp_storage *storage, fsdp_dtype dtype, int ndim,
                                             const int64_t *shape, int64_t offset,
                                             fsdp_tensor **tensor);
/* A tensor for values that are not needed: it has a shape and no data. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_without_memory(fsdp_device *device, fsdp_dtype dtype,
                                                       int ndim, const int64_t *shape,
                                                       fsdp_tensor **tensor);
/* Swap storages, offsets and dtypes of two tensors: all holders of `a` then see what `b` referred
 * to, and vice versa. Both are contiguous and of one shape, and no one reads or writes them
 * meanwhile. */
void fsdp_tensor_exchange(fsdp_tensor *a, fsdp_tensor *b);
/* The address for kernels, without a wait or a check: NULL on meta and while resharded. The host
 * reads and writes through fsdp_tensor_data() and fsdp_tensor_host(): Note [Streams] in device.h.
 */
static inline void *fsdp_tensor_ptr(const fsdp_tensor *t)
{
    char *base = t->storage->data;
    return base ? base + (size_t)t->offset * fsdp_dtype_size(t->dtype) : NULL;
}
/* fsdp_tensor_data() with an error instead of NULL. On meta *data is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_host(const fsdp_tensor *t, void **data);
/* Set elements [at, at + n) of a contiguous tensor from `src` in host memory, rounded to the
 * tensor's dtype. `src` is aligned for `dtype` and may be reused on return. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_from_host(fsdp_tensor *t, int64_t at, const void *src,
                                                  fsdp_dtype dtype, int64_t n);
/* FSDP_ERR_STATE, with the reason, if it has no data now. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_check_data(const fsdp_tensor *t);
/* Whether a contiguous tensor of floats has neither NaN nor infinity. On meta always true. */
FSDP_MUST_CHECK fsdp_status fsdp_all_finite(const fsdp_tensor *t, bool *yes);
/* Whether it has data only between the begin and the end of a use. */
static inline bool fsdp_tensor_is_held_elsewhere(const fsdp_tensor *t)
{
    return t->storage->staged || t->storage->halved;
}
/* Writes to a series of tensors. Consecutive tensors that share a storage count as one write. For
 * the guards, consecutive halved tensors of one fsdp_tensor_key() count as one write too.
 * Initialise with zeros. */
typedef struct fsdp_writing {
    fsdp_tensor *open; /* borrowed: the last tensor, whose storage is being written */
    bool in_halves;    /* the caller writes halves directly, so no joined copy is made */
} fsdp_writing;
FSDP_MUST_CHECK fsdp_status fsdp_writing_next(fsdp_writing *writing, fsdp_tensor *tensor);
void fsdp_writing_end(fsdp_writing *writing);
/* Elements in one row of dimension 0 (1 for a vector or scalar). */
int64_t fsdp_tensor_row_numel(const fsdp_tensor *t);
/* Writes "[2, 3]" into buf and returns it. */
enum {
    FSDP_SHAPE_TEXT = 128
};
const char *fsdp_shape_text(int ndim, const int64_t *shape, char buf[FSDP_SHAPE_TEXT]);
/* prod(shape), checked against overflow. */
FSDP_MUST_CHECK fsdp_status fsdp_shape_numel(int ndim, const int64_t *shape, int64_t *numel);
