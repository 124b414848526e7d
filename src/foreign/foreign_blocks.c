/* Reads optimizer states in 8 bits that bitsandbytes saved: their keys, and the scales of their
 * blocks (absmax1 and absmax2).
 *
 * bitsandbytes divides the flat parameter into blocks of FSDP_MAP_BLOCK elements, so its scales
 * have the shape [blocks]. This library divides each row into blocks of its own, so its scales have
 * the shape [rows, blocks of a row]. The last block of a row may be shorter. The value of an
 * element is the value of its code times the scale of its block. If each block of this library is
 * within one block of bitsandbytes, each gets the scale of the block that contains it, and all
 * values stay exactly the same. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/dynamic_map.h"
#include "src/foreign/foreign_internal.h"
#include "src/tensor/tensor.h"

const char *fsdp_foreign_state_key(const char *key)
{
    static const char wrapper[] = FSDP_FOREIGN_BNB_STATE ".";
    return strncmp(key, wrapper, strlen(wrapper)) == 0 ? key + strlen(wrapper) : key;
}

static int64_t elements_of_row(const fsdp_parameter *p)
{
    return fsdp_parameter_numel(p) / fsdp_parameter_shape(p)[0];
}

static int64_t blocks_of_row(const fsdp_parameter *p)
{
    return (elements_of_row(p) + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
}

bool fsdp_foreign_is_flat(const fsdp_parameter *p, const fsdp_tensor *state,
                          const fsdp_source_item *item)
{
    return state->ndim == 2 && state->dtype == FSDP_DTYPE_F32 && item->ndim == 1 &&
           fsdp_parameter_shape(p)[0] > 0 && fsdp_dtensor_shape(state)[1] == blocks_of_row(p) &&
           item->shape[0] == (fsdp_parameter_numel(p) + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
}

/* Return FSDP_ERR_UNSUPPORTED if a block of this library extends over two blocks of bitsandbytes.
 */
static fsdp_status check_blocks(const fsdp_foreign_run *run, const fsdp_foreign_slot *slot,
                                const char *key)
{
    const int64_t inner = elements_of_row(slot->parameter);
    if (inner % FSDP_MAP_BLOCK == 0 || FSDP_MAP_BLOCK % inner == 0)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "%s: state '%s' of %s is bitsandbytes', whose blocks of %d elements cross the rows of %lld "
        "elements: here blocks end with rows, so the codes would have to be rounded again. To "
        "begin from the weights without the optimizer's state: fsdp checkpoint convert, then "
        "--model",
        run->paths->optimizer, key, slot->name, FSDP_MAP_BLOCK, (long long)inner);
}

fsdp_status fsdp_foreign_add_blocks(fsdp_foreign_run *run, const fsdp_foreign_slot *slot,
                                    const char *key, const fsdp_source_item *item,
                                    fsdp_foreign_blocks **out)
{
    const fsdp_parameter *p = slot->parameter;
    fsdp_device *device = fsdp_tensor_device(fsdp_parameter_local(p));
    const int64_t shape[] = {fsdp_parameter_shape(p)[0], blocks_of_row(p)};
    FSDP_TRY(check_blocks(run, slot, key));
    if (!FSDP_GROW(run->blocks, run->cap_blocks, run->n_blocks + 1))
        return FSDP_ERR_NOMEM;
    fsdp_foreign_blocks *b = &run->blocks[run->n_blocks++];
    *b = (fsdp_foreign_blocks){.inner = elements_of_row(p)};
    FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, item->shape, FSDP_TAG_OPTIM, &b->flat));
    FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, shape, FSDP_TAG_OPTIM, &b->rows));
    *out = b;
    return FSDP_OK;
}

static fsdp_status fill_rows(const fsdp_foreign_blocks *b, float *flat, float *rows)
{
    const int64_t n = b->rows->shape[0], of_row = b->rows->shape[1];
    FSDP_TRY(fsdp_tensor_to_floats(b->flat, flat));
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < of_row; k++)
            rows[r * of_row + k] = flat[(r * b->inner + k * FSDP_MAP_BLOCK) / FSDP_MAP_BLOCK];
    return fsdp_tensor_from_host(b->rows, 0, rows, FSDP_DTYPE_F32, n * of_row);
}

fsdp_status fsdp_foreign_fill_blocks(const fsdp_foreign_run *run)
{
    for (size_t i = 0; i < run->n_blocks; i++) {
        const fsdp_foreign_blocks *b = &run->blocks[i];
        float *flat = fsdp_calloc((size_t)fsdp_tensor_numel(b->flat) + 1, sizeof *flat);
        float *rows = fsdp_calloc((size_t)fsdp_tensor_numel(b->rows) + 1, sizeof *rows);
        const fsdp_status status = flat && rows ? fill_rows(b, flat, rows) : FSDP_ERR_NOMEM;
        fsdp_free(rows);
        fsdp_free(flat);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

void fsdp_foreign_free_blocks(fsdp_foreign_run *run)
{
    for (size_t i = 0; i < run->n_blocks; i++) {
        fsdp_tensor_release(run->blocks[i].flat);
        fsdp_tensor_release(run->blocks[i].rows);
    }
    fsdp_free(run->blocks);
}
