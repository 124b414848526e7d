/* See too_large.h. */
#include "src/checkpoint_tools/too_large.h"

#include <string.h>

#include "src/base/alloc.h"

/* Return how many of n elements are infinite or NaN in `halves` and finite in `raw`. An element of
 * `raw` is not finite if all bits of its exponent are set. The exponent is in the last two bytes of
 * the element. */
static int64_t count(const unsigned char *halves, const unsigned char *raw,
                     const fsdp_safetensors_dtype *from, size_t n)
{
    const unsigned all = from->fsdp_dtype == (int)FSDP_DTYPE_F64   ? 0x7ff0
                         : from->fsdp_dtype == (int)FSDP_DTYPE_F16 ? 0x7c00
                                                                   : 0x7f80,
                   half_all = 0x7c00;
    const size_t width = (size_t)from->bits / 8;
    int64_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t half, wide;
        memcpy(&half, halves + i * sizeof half, sizeof half);
        memcpy(&wide, raw + (i + 1) * width - sizeof wide, sizeof wide);
        found += (half & half_all) == half_all && (wide & all) != all;
    }
    return found;
}

void fsdp_too_large_count(fsdp_too_large *t, const char *name, const void *from,
                          const fsdp_safetensors_dtype *from_dtype, const void *to,
                          const fsdp_safetensors_dtype *to_dtype, size_t n)
{
    if (to_dtype->fsdp_dtype != (int)FSDP_DTYPE_F16)
        return;
    const int64_t found = count(to, from, from_dtype, n);
    if (found && !t->n)
        t->name = name;
    t->n += found;
}

char *fsdp_too_large_note(const fsdp_too_large *t)
{
    return fsdp_strdup_printf("%lld element%s too large for float16 and became infinite, %s'%s'",
                              (long long)t->n, t->n == 1 ? " is" : "s are",
                              t->n == 1 ? "of " : "the first of them of ", t->name);
}
