/* Host memory for metadata (names, arrays, parser state). Tensor data comes from the device's
 * allocator (src/tensor/allocator.h). Tests can make the n-th allocation fail (alloc_testing.h).
 *
 * This folder has more than 25 source files, because each of them is a small tool of its own that
 * any other folder may use: memory, texts, JSON, files that appear completely or not at all. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Allocate memory, resize it, or copy a string. fsdp_calloc() fills the memory with zeros. For a
 * size of 0, the result is a unique pointer. When out of memory, these functions set the error
 * message and return NULL. */
void *fsdp_calloc(size_t count, size_t size);
void *fsdp_realloc(void *p, size_t count, size_t size);
char *fsdp_strdup(const char *s);
char *fsdp_strndup(const char *s, size_t n);
FSDP_PRINTF(1, 2) char *fsdp_strdup_printf(const char *format, ...);
void fsdp_free(void *p); /* accepts NULL */

/* Set the error message "out of host memory", and return FSDP_ERR_NOMEM. */
fsdp_status fsdp_error_nomem(void);

/* Compare two pointers by address, for qsort() and bsearch(). `a` and `b` point to elements of an
 * array of pointers. */
int fsdp_compare_addresses(const void *a, const void *b);

/* Make sure that an array has a capacity of at least `need` items, by doubling its capacity as
 * often as necessary. *cap is the capacity in items, which this function updates. Return false when
 * out of memory. */
bool fsdp_array_grow(void **items, size_t *cap, size_t need, size_t item_size);
#define FSDP_GROW(items, cap, need)                                                                \
    fsdp_array_grow((void **)&(items), &(cap), (need), sizeof *(items))
