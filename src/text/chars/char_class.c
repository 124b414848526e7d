/* Makes the table fsdp_char_classes from the runs of characters in char_class_data.c, and looks up
 * characters in the other runs of that file. */
#include "src/text/chars/char_class.h"

#include <string.h>

#include "src/base/alloc.h"

/* Let block[index] refer to a block with the contents `flags`. If the previous block has the same
 * contents, it is used again, because there are long runs of characters with equal flags.
 * Otherwise, a block is added. */
static fsdp_status add_block(fsdp_char_classes *classes, size_t index,
                             const uint16_t flags[FSDP_CHAR_BLOCK])
{
    const size_t n = classes->blocks, bytes = sizeof *classes->flags;
    if (!n || memcmp(classes->flags[n - 1], flags, bytes) != 0) {
        if (!FSDP_GROW(classes->flags, classes->cap, n + 1))
            return FSDP_ERR_NOMEM;
        memcpy(classes->flags[n], flags, bytes);
        classes->blocks++;
    }
    classes->block[index] = (uint16_t)(classes->blocks - 1);
    return FSDP_OK;
}

static fsdp_status add_blocks(fsdp_char_classes *classes)
{
    size_t run = 0;
    for (size_t i = 0; i < FSDP_CHAR_BLOCKS; i++) {
        uint16_t flags[FSDP_CHAR_BLOCK];
        for (size_t k = 0; k < FSDP_CHAR_BLOCK; k++) {
            const size_t c = i * FSDP_CHAR_BLOCK + k;
            while (run + 1 < fsdp_char_class_run_count && fsdp_char_class_runs[run + 1][0] <= c)
                run++;
            flags[k] = (uint16_t)fsdp_char_class_runs[run][1];
        }
        FSDP_TRY(add_block(classes, i, flags));
    }
    return FSDP_OK;
}

fsdp_status fsdp_char_classes_create(fsdp_char_classes **out)
{
    fsdp_char_classes *classes = fsdp_calloc(1, sizeof *classes);
    if (!classes)
        return FSDP_ERR_NOMEM;
    fsdp_status status = add_blocks(classes);
    if (status != FSDP_OK) {
        fsdp_char_classes_destroy(classes);
        return status;
    }
    *out = classes;
    return FSDP_OK;
}

void fsdp_char_classes_destroy(fsdp_char_classes *classes)
{
    if (!classes)
        return;
    fsdp_free(classes->flags);
    fsdp_free(classes);
}

uint32_t fsdp_char_lower(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (c == 0x130)
        return 'i';
    size_t low = 0, high = fsdp_char_lower_run_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int32_t *run = fsdp_char_lower_runs[middle];
        if ((int32_t)c < run[0])
            high = middle;
        else if ((int32_t)c > run[1])
            low = middle + 1;
        else
            return ((int32_t)c - run[0]) % run[2] ? c : (uint32_t)((int32_t)c + run[3]);
    }
    return c;
}

uint8_t fsdp_char_script(uint32_t c)
{
    size_t low = 0, high = fsdp_char_script_run_count;
    /* The run of c is in [low, high): the first run begins at 0. */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (fsdp_char_script_runs[middle][0] <= c)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)fsdp_char_script_runs[low][1];
}
