/* Host memory for metadata; see alloc.h. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"

fsdp_status fsdp_error_nomem(void)
{
    return fsdp_error(FSDP_ERR_NOMEM, "out of host memory");
}

void *fsdp_calloc(size_t count, size_t size)
{
    void *p = fsdp_alloc_should_fail() ? NULL : calloc(count ? count : 1, size ? size : 1);
    if (!p)
        (void)fsdp_error_nomem();
    return p;
}

void *fsdp_realloc(void *p, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) {
        (void)fsdp_error_nomem();
        return NULL;
    }
    size_t bytes = count * size;
    void *grown = fsdp_alloc_should_fail() ? NULL : realloc(p, bytes ? bytes : 1);
    if (!grown)
        (void)fsdp_error_nomem();
    return grown;
}

char *fsdp_strndup(const char *s, size_t n)
{
    size_t length = strnlen(s, n);
    char *copy = fsdp_calloc(length + 1, 1);
    if (copy)
        memcpy(copy, s, length);
    return copy;
}

char *fsdp_strdup(const char *s)
{
    return fsdp_strndup(s, strlen(s));
}

char *fsdp_strdup_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : fsdp_calloc((size_t)length + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void fsdp_free(void *p)
{
    free(p);
}

int fsdp_compare_addresses(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t) * (const void *const *)a,
                    y = (uintptr_t) * (const void *const *)b;
    return (x > y) - (x < y);
}

bool fsdp_array_grow(void **items, size_t *cap, size_t need, size_t item_size)
{
    if (need <= *cap)
        return true;
    size_t wanted = *cap ? *cap : 8;
    while (wanted < need)
        wanted *= 2;
    void *grown = fsdp_realloc(*items, wanted, item_size);
    if (!grown)
        return false;
    *items = grown;
    *cap = wanted;
    return true;
}
