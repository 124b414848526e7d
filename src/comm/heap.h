/* Page-aligned, zero-filled heap memory, which ranks of one process share. */
#pragma once
#include <stdint.h>

#include "src/base/alloc.h"
#include "src/comm/group.h"

/* Allocate `bytes` of memory, and set *data to its address. Return the pointer that must be passed
 * to fsdp_free(), or NULL when out of memory. The memory comes from the heap and not from mmap(),
 * because sanitizers check the bounds of heap memory but not those of mapped memory. */
static inline void *fsdp_heap_alloc_pages(size_t bytes, void **data)
{
    unsigned char *base = fsdp_calloc(1, bytes + FSDP_COMM_PAGE - 1);
    if (!base)
        return NULL;
    *data = base + (-(uintptr_t)base & (FSDP_COMM_PAGE - 1));
    return base;
}
