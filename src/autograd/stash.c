/* See Note [Activation offload] in stash.h. */
#include "src/autograd/stash.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_stage.h"
#include "src/trace/trace.h"

enum {
    MIN_BYTES = 64 * 1024, /* smaller tensors stay in memory, because moving them would not pay
                              for the system calls */
    FILE_ALIGN = 4096,
    CALLS_IN_MEMORY = 2
};

struct fsdp_stashed {
    /* NULL: the tensor stays in memory, and the only other fields in use are `refs` and `tensor`.
     */
    fsdp_activation_offload *offload;
    int refs;
    fsdp_tensor *tensor; /* NULL while the tensor is only in the file */
    /* On a device with its own memory: the copy of the tensor in host memory that a request to the
     * file reads or writes. The copy exists from the start of the request until the rank's thread
     * has seen that the request has ended. Otherwise NULL. */
    void *host;
    /* The following fields are used only with offload. */
    uint64_t number; /* number of the first call that stored the tensor */
    uint64_t offset;
    size_t bytes;
    fsdp_file_ticket ticket; /* the last request to the file that uses the tensor's memory */
    bool is_back; /* backward has requested the tensor, so its memory is not released any more */
    bool is_read; /* `ticket` is a read, which must be waited for before the first use */
    fsdp_device *device;
    fsdp_dtype dtype;
    bool is_table;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];
};

struct fsdp_activation_offload {
    fsdp_file_stage *file;
    size_t min_bytes;
    uint64_t calls; /* number of calls begun so far */
    /* The stored items, in the order of their positions in the file. The entry of a dropped item
     * becomes NULL. */
    fsdp_stashed **items;
    size_t n_items, cap_items;
    int64_t peak_bytes;
};

/* --- the file --- */

fsdp_status fsdp_activation_offload_create(const fsdp_activation_offload_options *options,
                                           fsdp_activation_offload **offload)
{
    static const fsdp_activation_offload_options defaults = {0};
    const fsdp_activation_offload_options *o = options ? options : &defaults;
    fsdp_activation_offload *made = fsdp_calloc(1, sizeof *made);
    if (!made)
        return FSDP_ERR_NOMEM;
    made->min_bytes = o->min_bytes ? o->min_bytes : MIN_BYTES;
    fsdp_status status = fsdp_file_stage_create(o->dir, 0, &made->file);
    if (status != FSDP_OK) {
        fsdp_activation_offload_destroy(made);
        return status;
    }
    *offload = made;
    return FSDP_OK;
}

void fsdp_activation_offload_destroy(fsdp_activation_offload *offload)
{
    if (!offload)
        return;
    FSDP_ASSERT(offload->n_items == 0);
    fsdp_file_stage_destroy(offload->file);
    fsdp_free(offload->items);
    fsdp_free(offload);
}

int64_t fsdp_activation_offload_peak(const fsdp_activation_offload *offload)
{
    return offload->peak_bytes;
}

static bool is_meta(const fsdp_stashed *item)
{
    return !item->device->kernels;
}

static fsdp_status wait_for_file(const fsdp_stashed *item)
{
    fsdp_trace_begin(FSDP_TRACE_OPERATION, "activation offload", "wait");
    fsdp_status status = fsdp_file_stage_wait(item->offload->file, item->ticket);
    fsdp_trace_end();
    return status;
}

/* Return the end of the part of the file that is still needed. */
static uint64_t end_of_file(const fsdp_activation_offload *offload)
{
    if (!offload->n_items)
        return 0;
    const fsdp_stashed *last = offload->items[offload->n_items - 1];
    return (last->offset + last->bytes + FILE_ALIGN - 1) / FILE_ALIGN * FILE_ALIGN;
}

/* A request writes the item to the file or reads it from the file. Set *data to the memory that the
 * request uses, and set *after to the event for which the request must wait. */
static fsdp_status memory_of_request(fsdp_stashed *item, void **data, fsdp_event **after)
{
    *after = NULL;
    *data = fsdp_tensor_ptr(item->tensor);
    if (!fsdp_device_has_own_memory(item->device)) {
        *after = fsdp_device_record(item->device);
        return FSDP_OK;
    }
    if (!item->host)
        item->host = fsdp_realloc(NULL, item->bytes, 1);
    *data = item->host;
    return item->host ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void free_host(fsdp_stashed *item)
{
    fsdp_free(item->host);
    item->host = NULL;
}

static fsdp_status write_out(fsdp_stashed *item)
{
    fsdp_activation_offload *offload = item->offload;
    item->offset = end_of_file(offload);
    uint64_t end = item->offset + item->bytes;
    if ((int64_t)end > offload->peak_bytes)
        offload->peak_bytes = (int64_t)end;
    if (is_meta(item))
        return FSDP_OK;
    void *data;
    fsdp_event *after;
    FSDP_TRY(fsdp_file_stage_reserve(offload->file, end));
    FSDP_TRY(memory_of_request(item, &data, &after));
    if (item->host)
        FSDP_TRY(fsdp_device_to_host(item->device, item->host, fsdp_tensor_ptr(item->tensor),
                                     item->bytes));
    item->ticket = fsdp_file_stage_write(offload->file, item->offset, data, item->bytes, after);
    return FSDP_OK;
}

static fsdp_status begin_read(fsdp_stashed *item)
{
    item->is_back = true;
    if (item->tensor)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_create(item->device, item->dtype, item->ndim, item->shape,
                                FSDP_TAG_ACTIVATION, &item->tensor));
    item->tensor->is_table = item->is_table;
    if (is_meta(item))
        return FSDP_OK;
    void *data;
    fsdp_event *after;
    const fsdp_status status = memory_of_request(item, &data, &after);
    if (status != FSDP_OK) {
        fsdp_tensor_release(item->tensor);
        item->tensor = NULL;
        return status;
    }
    item->is_read = true;
    item->ticket =
        fsdp_file_stage_read(item->offload->file, item->offset, data, item->bytes, after);
    return FSDP_OK;
}

/* --- calls --- */

/* Release the tensor's memory, so that the tensor is only in the file. No effect if something else
 * holds the tensor, or if backward has requested it. */
static fsdp_status release_memory(fsdp_stashed *item)
{
    if (!item->tensor || item->is_back || item->tensor->refs > 1 || item->tensor->storage->refs > 1)
        return FSDP_OK;
    FSDP_TRY(wait_for_file(item));
    free_host(item);
    fsdp_tensor_release(item->tensor);
    item->tensor = NULL;
    return FSDP_OK;
}

fsdp_status fsdp_offload_begin_call(fsdp_activation_offload *offload, uint64_t *number)
{
    *number = 0;
    if (!offload)
        return FSDP_OK;
    *number = ++offload->calls;
    for (size_t i = 0; i < offload->n_items; i++) {
        fsdp_stashed *item = offload->items[i];
        if (item && item->number + CALLS_IN_MEMORY <= *number)
            FSDP_TRY(release_memory(item));
    }
    return FSDP_OK;
}

fsdp_status fsdp_offload_read_ahead(fsdp_activation_offload *offload, uint64_t number)
{
    uint64_t before = 0;
    for (size_t i = offload ? offload->n_items : 0; i-- > 0 && !before;)
        if (offload->items[i] && offload->items[i]->number < number)
            before = offload->items[i]->number;
    for (size_t i = 0; before && i < offload->n_items; i++)
        if (offload->items[i] && offload->items[i]->number == before)
            FSDP_TRY(begin_read(offload->items[i]));
    return FSDP_OK;
}

/* --- tensors --- */

static bool should_go_to_file(const fsdp_activation_offload *offload, const fsdp_tensor *t)
{
    size_t bytes = (size_t)fsdp_tensor_numel(t) * fsdp_dtype_size(t->dtype);
    return bytes >= offload->min_bytes && bytes == t->storage->bytes && t->storage->block &&
           fsdp_tensor_is_contiguous(t) && !t->sink;
}

/* Return the item in which `t` is already stored, or NULL if there is none. */
static fsdp_stashed *find_item(const fsdp_activation_offload *offload, const fsdp_tensor *t)
{
    for (size_t i = offload->n_items; i-- > 0;)
        if (offload->items[i] && offload->items[i]->tensor == t)
            return offload->items[i];
    return NULL;
}

static fsdp_status add_item(fsdp_activation_offload *offload, fsdp_stashed *item)
{
    if (!FSDP_GROW(offload->items, offload->cap_items, offload->n_items + 1))
        return FSDP_ERR_NOMEM;
    item->offload = offload;
    item->device = item->tensor->storage->device;
    item->dtype = item->tensor->dtype;
    item->is_table = item->tensor->is_table;
    item->ndim = item->tensor->ndim;
    memcpy(item->shape, item->tensor->shape, sizeof item->shape);
    item->bytes = (size_t)fsdp_tensor_numel(item->tensor) * fsdp_dtype_size(item->dtype);
    FSDP_TRY(write_out(item));
    offload->items[offload->n_items++] = item;
    return FSDP_OK;
}

fsdp_status fsdp_stash_put(fsdp_activation_offload *offload, uint64_t number, fsdp_tensor *t,
                           fsdp_stashed **stashed)
{
    bool to_file = offload && should_go_to_file(offload, t);
    fsdp_stashed *item = to_file ? find_item(offload, t) : NULL;
    if (item) {
        item->refs++;
        *stashed = item;
        return FSDP_OK;
    }
    item = fsdp_calloc(1, sizeof *item);
    if (!item)
        return FSDP_ERR_NOMEM;
    *item = (fsdp_stashed){.refs = 1, .number = number, .tensor = fsdp_tensor_retain(t)};
    fsdp_status status = to_file ? add_item(offload, item) : FSDP_OK;
    if (status != FSDP_OK) {
        fsdp_tensor_release(item->tensor);
        fsdp_free(item->host);
        fsdp_free(item);
        return status;
    }
    *stashed = item;
    return FSDP_OK;
}

fsdp_status fsdp_stash_get(fsdp_stashed *item, fsdp_tensor **t)
{
    if (item->offload) {
        FSDP_TRY(begin_read(item));
        if (item->is_read)
            FSDP_TRY(wait_for_file(item));
        if (item->is_read && item->host) {
            fsdp_device_from_host(item->device, fsdp_tensor_ptr(item->tensor), item->host,
                                  item->bytes);
            free_host(item);
        }
    }
    *t = fsdp_tensor_retain(item->tensor);
    return FSDP_OK;
}

static void remove_item(fsdp_activation_offload *offload, const fsdp_stashed *item)
{
    for (size_t i = offload->n_items; i-- > 0;)
        if (offload->items[i] == item)
            offload->items[i] = NULL;
    while (offload->n_items && !offload->items[offload->n_items - 1])
        offload->n_items--;
}

void fsdp_stash_drop(fsdp_stashed *item)
{
    if (!item || --item->refs > 0)
        return;
    if (item->offload) {
        /* The file's worker thread may still use the tensor's memory, so wait for the last request
         * for this tensor. If the request has failed, its error no longer matters. */
        fsdp_status ignored = item->tensor ? wait_for_file(item) : FSDP_OK;
        (void)ignored;
        remove_item(item->offload, item);
    }
    fsdp_tensor_release(item->tensor);
    fsdp_free(item->host);
    fsdp_free(item);
}
