/* Copies the tensors of a state dict into the tensors of a module or an optimizer. With
 * broadcast_from_rank0, rank 0 broadcasts its tensors one at a time, so the additional memory holds
 * at most one whole tensor. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/state_dict/box.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/host_copy.h"

static bool same_shape(int ndim, const int64_t *a, const int64_t *b)
{
    return memcmp(a, b, (size_t)ndim * sizeof *a) == 0;
}

/* Set *yes to true if `from` and `to` are the same box of a whole tensor: the shapes of the whole
 * tensors, the offsets and the sizes must be equal. */
static fsdp_status is_same_part(const fsdp_tensor *to, const fsdp_tensor *from, bool *yes)
{
    fsdp_box a, b;
    FSDP_TRY(fsdp_box_of(to, &a));
    FSDP_TRY(fsdp_box_of(from, &b));
    *yes = a.ndim == b.ndim && same_shape(a.ndim, a.shape, b.shape) &&
           same_shape(a.ndim, a.offset, b.offset) && same_shape(a.ndim, a.size, b.size);
    return FSDP_OK;
}

static bool is_whole(const fsdp_tensor *to, const fsdp_tensor *from)
{
    return from->ndim == to->ndim && same_shape(to->ndim, fsdp_dtensor_shape(to), from->shape);
}

fsdp_status fsdp_state_copies_add(fsdp_state_copies *c, const char *name, fsdp_tensor *to,
                                  fsdp_tensor *from)
{
    char have[FSDP_SHAPE_TEXT], want[FSDP_SHAPE_TEXT];
    bool same = false;
    if (from && !is_whole(to, from)) {
        FSDP_TRY(is_same_part(to, from, &same));
        if (!same)
            return fsdp_error(FSDP_ERR_INVALID, "'%s' is %s, the state dict has %s%s", name,
                              fsdp_shape_text(to->ndim, fsdp_dtensor_shape(to), want),
                              fsdp_shape_text(from->ndim, fsdp_dtensor_shape(from), have),
                              fsdp_is_dtensor(from) ? " in another placement" : "");
    }
    if (from && !fsdp_tensor_is_contiguous(from))
        return fsdp_error(FSDP_ERR_INVALID, "'%s': the state dict's tensor is not contiguous",
                          name);
    if (!FSDP_GROW(c->items, c->cap, c->n + 1))
        return FSDP_ERR_NOMEM;
    c->items[c->n++] = (fsdp_state_copy){.to = to, .from = from, .name = name};
    return FSDP_OK;
}

void fsdp_state_copies_fini(fsdp_state_copies *c)
{
    fsdp_free(c->items);
    *c = (fsdp_state_copies){0};
}

/* --- copying tensors that this rank has --- */

/* Copy a box of `from`, which may be on another device, to `to`. */
static fsdp_status copy_box(const fsdp_box *box, fsdp_tensor *to, const fsdp_tensor *from)
{
    fsdp_device *device = fsdp_tensor_device(to);
    fsdp_tensor *source;
    if (!device->kernels || !fsdp_tensor_numel(to))
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_check_data(from));
    FSDP_TRY(fsdp_tensor_for_device(from, device, &source));
    const fsdp_device *devices[] = {fsdp_tensor_device(source), device};
    fsdp_status status = fsdp_devices_synchronize(devices[0], devices[1]);
    if (status == FSDP_OK) {
        fsdp_box_copy(box, source, to);
        status = fsdp_devices_synchronize(devices[0], devices[1]);
    }
    fsdp_tensor_release(source);
    return status;
}

/* Copy `from` to `to`. If `from` is a whole tensor, copy only the part of it that belongs in `to`.
 * That part is this rank's box. */
static fsdp_status copy_part(fsdp_tensor *to, const fsdp_tensor *from)
{
    fsdp_box box;
    if (from == to)
        return FSDP_OK;
    FSDP_TRY(fsdp_box_of(to, &box));
    if (!is_whole(to, from)) {
        memcpy(box.shape, box.size, sizeof box.shape);
        memset(box.offset, 0, sizeof box.offset);
    }
    FSDP_TRY(fsdp_tensor_begin_read(from));
    const fsdp_status status = copy_box(&box, to, from);
    fsdp_tensor_end_read(from);
    return status;
}

/* Make all copies. Ranks wait for each other whenever a write of a tensor begins
 * (fsdp_tensor_begin_write()). The tensors of a unit are adjacent in the list, and
 * fsdp_writing_next() combines adjacent tensors of the same unit into one write. So ranks wait for
 * each other only once per unit.
 *
 * If a copy fails, this rank makes no further copies. It still begins and ends a write for each
 * remaining tensor, so that its peers do not wait forever. */
static fsdp_status copy_all(const fsdp_state_copies *c)
{
    fsdp_status status = FSDP_OK;
    fsdp_writing writing = {0};
    for (size_t i = 0; i < c->n; i++) {
        fsdp_status writes = fsdp_writing_next(&writing, c->items[i].to);
        if (status == FSDP_OK)
            status = writes == FSDP_OK ? copy_part(c->items[i].to, c->items[i].from) : writes;
        if (writes != FSDP_OK)
            break;
    }
    fsdp_writing_end(&writing);
    return status;
}

/* --- copying tensors that only rank 0 has --- */

static fsdp_status fill_whole(const fsdp_state_copy *item, fsdp_tensor *whole)
{
    if (!item->from)
        return FSDP_OK;
    if (!is_whole(item->to, item->from))
        return fsdp_error(FSDP_ERR_INVALID, "'%s': rank 0 broadcasts whole tensors, not its part",
                          item->name);
    return copy_part(whole, item->from);
}

static fsdp_status broadcast(fsdp_group *group, const fsdp_tensor *whole)
{
    fsdp_host_copy copy;
    FSDP_TRY(fsdp_host_copy_of(&copy, whole));
    const fsdp_status status =
        group && copy.bytes ? fsdp_broadcast(group, copy.data, copy.bytes, 0) : FSDP_OK;
    if (status == FSDP_OK)
        fsdp_host_copy_write(&copy);
    fsdp_host_copy_destroy(&copy);
    return status;
}

static fsdp_status broadcast_whole(const fsdp_state_copy *item, fsdp_group *group,
                                   fsdp_tensor *whole)
{
    FSDP_TRY(fsdp_agree(group, fill_whole(item, whole)));
    FSDP_TRY(broadcast(group, whole));
    fsdp_status status = fsdp_tensor_begin_write(item->to);
    if (status == FSDP_OK) {
        status = copy_part(item->to, whole);
        fsdp_tensor_end_write(item->to);
    }
    return fsdp_agree(group, status);
}

/* Broadcast a tensor from rank 0, and copy this rank's part of it to item->to. If rank 0 does not
 * have the tensor, item->to stays unchanged. */
static fsdp_status copy_from_rank0(const fsdp_state_copy *item, fsdp_group *group)
{
    fsdp_tensor *whole = NULL;
    unsigned char is_there = item->from != NULL;
    if (group)
        FSDP_TRY(fsdp_broadcast(group, &is_there, 1, 0));
    if (!is_there)
        return FSDP_OK;
    fsdp_status status =
        fsdp_tensor_create(fsdp_tensor_device(item->to), item->to->dtype, item->to->ndim,
                           fsdp_dtensor_shape(item->to), FSDP_TAG_COMM, &whole);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = broadcast_whole(item, group, whole);
    fsdp_tensor_release(whole);
    return status;
}

fsdp_status fsdp_state_copies_run(const fsdp_state_copies *c,
                                  const fsdp_state_dict_options *options)
{
    if (!options->broadcast_from_rank0)
        return fsdp_agree(options->group, copy_all(c));
    for (size_t i = 0; i < c->n; i++)
        FSDP_TRY(copy_from_rank0(&c->items[i], options->group));
    return FSDP_OK;
}
