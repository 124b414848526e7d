/* Implements gather_object and broadcast_object_list, which exchange objects between ranks. An
 * object is a sequence of bytes, and its length may be different on each rank. */
#include <stdint.h>
#include <string.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/comm/agree.h"

/* Create `count` objects of the given lengths, filled with zeros. They are in one allocation: the
 * array of objects, and after it the bytes of each object, each followed by a NUL. */
static fsdp_status make_objects(const uint64_t *lengths, size_t count, fsdp_object_bytes **out)
{
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++)
        if (lengths[i] >= SIZE_MAX / 2 || (all += lengths[i] + 1) >= SIZE_MAX / 2)
            return fsdp_error_nomem();
    fsdp_object_bytes *objects = fsdp_calloc(count * sizeof *objects + (size_t)all, 1);
    if (!objects)
        return FSDP_ERR_NOMEM;
    unsigned char *at = (unsigned char *)(objects + count);
    for (size_t i = 0; i < count; i++) {
        objects[i] = (fsdp_object_bytes){at, (size_t)lengths[i]};
        at += lengths[i] + 1;
    }
    *out = objects;
    return FSDP_OK;
}

/* Return a pointer through which the bytes of object i can be written. `count` is the number of
 * objects. */
static unsigned char *bytes_of(fsdp_object_bytes *objects, size_t count, size_t i)
{
    unsigned char *first = (unsigned char *)(objects + count);
    return first + ((const unsigned char *)objects[i].bytes - first);
}

/* Gather the objects of all ranks. The longest of them has `most` bytes; `most` is above 0.
 * Collective. */
static fsdp_status gather(fsdp_accelerator *a, const void *bytes, size_t n, size_t most,
                          fsdp_object_bytes *objects)
{
    const size_t count = (size_t)fsdp_group_world_size(a->group);
    unsigned char *mine = fsdp_calloc(most, 1), *all = fsdp_calloc(count, most);
    fsdp_status status = fsdp_agree(a->group, mine && all ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK && n)
        memcpy(mine, bytes, n);
    if (status == FSDP_OK)
        status = fsdp_all_gather(a->group, mine, most, all);
    for (size_t i = 0; status == FSDP_OK && i < count; i++)
        memcpy(bytes_of(objects, count, i), all + i * most, objects[i].n);
    fsdp_free(all);
    fsdp_free(mine);
    return status;
}

fsdp_status fsdp_accelerator_gather_object(fsdp_accelerator *a, const void *bytes, size_t n,
                                           fsdp_object_bytes **out)
{
    const size_t count = (size_t)fsdp_group_world_size(a->group);
    const uint64_t mine = n;
    uint64_t most = 0;
    fsdp_object_bytes *objects = NULL;
    uint64_t *lengths = fsdp_calloc(count, sizeof *lengths);
    fsdp_status status = lengths ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && n && !bytes)
        status = fsdp_error(FSDP_ERR_INVALID, "accelerator: gather_object: bytes is NULL");
    status = fsdp_agree_gather(a->group, status, &mine, sizeof mine, lengths);
    for (size_t i = 0; status == FSDP_OK && i < count; i++)
        most = lengths[i] > most ? lengths[i] : most;
    if (status == FSDP_OK)
        status = fsdp_agree(a->group, make_objects(lengths, count, &objects));
    if (status == FSDP_OK && most)
        status = gather(a, bytes, n, (size_t)most, objects);
    fsdp_free(lengths);
    if (status == FSDP_OK)
        *out = objects;
    else
        fsdp_object_bytes_free(objects);
    return status;
}

static fsdp_status check_source(const fsdp_accelerator *a, const void *bytes, size_t n, int from)
{
    const int count = fsdp_group_world_size(a->group);
    if (from < 0 || from >= count)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: broadcast_object: from_process %d, but the processes are 0 "
                          "to %d",
                          from, count - 1);
    if (from == fsdp_group_rank(a->group) && n && !bytes)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: broadcast_object: bytes is NULL");
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_broadcast_object(fsdp_accelerator *a, const void *bytes, size_t n,
                                              int from_process, fsdp_object_bytes **out)
{
    uint64_t length = n;
    fsdp_object_bytes *object = NULL;
    FSDP_TRY(fsdp_agree(a->group, check_source(a, bytes, n, from_process)));
    FSDP_TRY(fsdp_broadcast(a->group, &length, sizeof length, from_process));
    fsdp_status status = fsdp_agree(a->group, make_objects(&length, 1, &object));
    if (status == FSDP_OK && length && from_process == fsdp_group_rank(a->group))
        memcpy(bytes_of(object, 1, 0), bytes, n);
    if (status == FSDP_OK && length)
        status = fsdp_broadcast(a->group, bytes_of(object, 1, 0), (size_t)length, from_process);
    if (status == FSDP_OK)
        *out = object;
    else
        fsdp_object_bytes_free(object);
    return status;
}

void fsdp_object_bytes_free(fsdp_object_bytes *objects)
{
    fsdp_free(objects);
}
