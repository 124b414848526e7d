/* Functions on the tensors of an open checkpoint. They get the dtype of a tensor, check its shape,
 * find the bytes of its rows, advise the kernel, and sort and search lists of tensors. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/torchfile/entry.h"
#include "src/torchfile/safetensors_dtype.h"

fsdp_status fsdp_checkpoint_entry_dtype(const fsdp_checkpoint_entry *entry, fsdp_dtype *dtype)
{
    const fsdp_safetensors_dtype *known = fsdp_safetensors_dtype_by_name(entry->dtype_name);
    if (!known || known->fsdp_dtype < 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: tensor '%s': dtype %s is not supported (F32, BF16, F16, F64, I64, "
                          "I32 and U8 are)",
                          entry->path, entry->name, entry->dtype_name);
    *dtype = (fsdp_dtype)known->fsdp_dtype;
    return FSDP_OK;
}

void fsdp_checkpoint_shape_text(const int64_t *shape, int ndim, char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "[");
    for (int i = 0; i < ndim && (size_t)used < bytes; i++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)shape[i]);
    if ((size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, "]");
}

fsdp_status fsdp_checkpoint_entry_check_shape(const fsdp_checkpoint_entry *entry,
                                              const int64_t *shape, int ndim)
{
    bool same = entry->ndim == ndim;
    for (int i = 0; same && i < ndim; i++)
        same = entry->shape[i] == shape[i];
    if (same)
        return FSDP_OK;
    char found[128], expected[128];
    fsdp_checkpoint_shape_text(entry->shape, entry->ndim, found, sizeof found);
    fsdp_checkpoint_shape_text(shape, ndim, expected, sizeof expected);
    return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' has shape %s, expected %s", entry->path,
                      entry->name, found, expected);
}

fsdp_status fsdp_checkpoint_entry_rows(const fsdp_checkpoint_entry *entry, int64_t begin,
                                       int64_t end, const void **data, size_t *bytes)
{
    int64_t rows = entry->ndim ? entry->shape[0] : 1;
    if (begin < 0 || end < begin || end > rows)
        return fsdp_error(FSDP_ERR_INVALID, "%s: tensor '%s' has %lld rows, not [%lld, %lld)",
                          entry->path, entry->name, (long long)rows, (long long)begin,
                          (long long)end);
    if (rows && entry->bytes % (size_t)rows != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s': rows of %s do not fill bytes",
                          entry->path, entry->name, entry->dtype_name);
    size_t row_bytes = rows ? entry->bytes / (size_t)rows : 0;
    *data = (const unsigned char *)entry->data + (size_t)begin * row_bytes;
    *bytes = (size_t)(end - begin) * row_bytes;
    return FSDP_OK;
}

void fsdp_checkpoint_advise(const void *data, size_t bytes, fsdp_checkpoint_advice advice)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)data, end = begin + bytes;
    if (advice == FSDP_CHECKPOINT_WILL_READ) {
        begin -= begin % page;
    } else { /* round inwards, because the first and the last page may hold bytes of a neighboring
                tensor */
        begin += (page - begin % page) % page;
        end -= end % page;
    }
    if (begin < end)
        (void)madvise((void *)begin, end - begin,
                      advice == FSDP_CHECKPOINT_WILL_READ ? MADV_WILLNEED : MADV_DONTNEED);
}

static int compare_names(const void *a, const void *b)
{
    const fsdp_checkpoint_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void fsdp_checkpoint_entries_sort(fsdp_checkpoint_entry *entries, size_t n)
{
    qsort(entries, n, sizeof *entries, compare_names);
}

const fsdp_checkpoint_entry *fsdp_checkpoint_entries_find(const fsdp_checkpoint_entry *entries,
                                                          size_t n, const char *name)
{
    fsdp_checkpoint_entry key = {.name = name};
    return bsearch(&key, entries, n, sizeof key, compare_names);
}
