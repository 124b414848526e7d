/* Host memory for metadata (names, arrays, parser state). Tensor data comes from the device's
 * allocator (src/tensor/allocator.h). Tests make the n-th allocation fail: alloc_testing.h. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Zero-filled (fsdp_calloc). A size of 0 gives a unique pointer. NULL with an error message when
 * out of memory. */
void *fsdp_calloc(size_t count, size_t size);
void *fsdp_realloc(void *p, size_t count, size_t size);
char *fsdp_strdup(const char *s);
char *fsdp_strndup(const char *s, size_t n);
FSDP_PRINTF(1, 2) char *fsdp_strdup_printf(const char *format, ...);
void fsdp_free(void *p); /* accepts NULL */

/* FSDP_ERR_NOMEM for a caller that got NULL from the functions above. */
fsdp_status fsdp_error_nomem(void);

/* A growing array: T *items; size_t len, cap. Grows by doubling; false when out of memory. */
bool fsdp_grow(void **items, size_t *cap, size_t need, size_t item_size);
#define FSDP_GROW(items, cap, need) fsdp_grow((void **)&(items), &(cap), (need), sizeof *(items))
