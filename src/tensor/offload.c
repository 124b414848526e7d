/* See offload.h. */
#include "src/tensor/offload.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    PLACE_ALIGN = 64,
    ZERO_BYTES = 1 << 16,
    IDLE_SETS = 1 /* number of idle sets that may keep their memory when the next set is read */
};

typedef enum set_state {
    SET_OUT,    /* the set has no memory */
    SET_COMING, /* the data is being read from the stage */
    SET_IN,
    SET_GOING /* the data is being written to the stage */
} set_state;

typedef struct offload_set {
    fsdp_offload_unit *unit;
    bool is_param;
    fsdp_staged *parts; /* list of the set's storages */
    set_state state;
    uint64_t ticket; /* ticket of the last request; used in SET_COMING and SET_GOING */
    bool dirty; /* the values in memory have changed since they were last written to the stage */
    int users;  /* number of open reads and writes */
    struct offload_set *older, *newer; /* neighbors in the list of sets with memory */
} offload_set;

struct fsdp_staged {
    offload_set *set;
    fsdp_storage *storage; /* the storage that owns this struct */
    uint64_t at;           /* byte offset in the stage */
    /* A buffer in host memory, which the stage (the file and its thread: see offload.h) reads or
     * writes while a request is pending. NULL if no request is pending, or if the stage can use the
     * device's memory. */
    void *host;
    fsdp_staged *next;
};

typedef struct fsdp_offload fsdp_offload;

/* A range of bytes of the stage that a removed storage has given back. */
typedef struct hole {
    uint64_t at, bytes;
} hole;

/* The data that all staged units of one device share. */
struct fsdp_offload {
    fsdp_device *device;
    const fsdp_stage_ops *ops;
    void *impl; /* NULL on meta */
    char *dir;
    /* End of the used part of the stage. Each byte before this offset belongs to a part or to a
     * hole. */
    uint64_t bytes;
    hole *holes;
    size_t n_holes, cap_holes;
    size_t n_units;
    /* the list of sets with memory, in the order of their last use */
    offload_set *oldest, *newest;
};

struct fsdp_offload_unit {
    int refs;
    fsdp_offload *offload;
    offload_set params, others;
    char name[128];
};

/* --- units --- */

static void offload_close(fsdp_offload *o)
{
    if (o->impl)
        o->ops->close(o->impl);
    o->device->offload = NULL;
    fsdp_free(o->holes);
    fsdp_free(o->dir);
    fsdp_free(o);
}

static fsdp_status offload_open(fsdp_device *device, const char *dir)
{
    fsdp_offload *o = fsdp_calloc(1, sizeof *o);
    if (!o)
        return FSDP_ERR_NOMEM;
    o->device = device;
    o->ops = &fsdp_stage_file;
    o->dir = fsdp_strdup(dir);
    fsdp_status status = o->dir ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && device->kernels)
        status = o->ops->open(dir, &o->impl);
    if (status != FSDP_OK) {
        fsdp_free(o->dir);
        fsdp_free(o);
        return status;
    }
    device->offload = o;
    return FSDP_OK;
}

fsdp_status fsdp_offload_unit_create(fsdp_device *device, const char *dir, fsdp_offload_unit **unit)
{
    fsdp_offload_unit *u = fsdp_calloc(1, sizeof *u);
    if (!u)
        return FSDP_ERR_NOMEM;
    fsdp_status status = device->offload ? FSDP_OK : offload_open(device, dir);
    if (status == FSDP_OK && strcmp(device->offload->dir, dir) != 0)
        status = fsdp_error(FSDP_ERR_INVALID, "offload to %s: this device offloads to %s already",
                            dir, device->offload->dir);
    if (status != FSDP_OK) {
        fsdp_free(u);
        return status;
    }
    u->refs = 1;
    u->offload = device->offload;
    u->offload->n_units++;
    u->params = (offload_set){.unit = u, .is_param = true};
    u->others = (offload_set){.unit = u};
    *unit = u;
    return FSDP_OK;
}

void fsdp_offload_unit_release(fsdp_offload_unit *u)
{
    if (!u || --u->refs > 0)
        return;
    FSDP_ASSERT(!u->params.parts && !u->others.parts);
    fsdp_offload *o = u->offload;
    fsdp_free(u);
    if (--o->n_units == 0)
        offload_close(o);
}

void fsdp_offload_unit_set_name(fsdp_offload_unit *u, const char *name)
{
    snprintf(u->name, sizeof u->name, "%s", *name ? name : "root");
}

/* --- memory of a set --- */

static void link_newest(offload_set *set)
{
    fsdp_offload *o = set->unit->offload;
    set->newer = NULL;
    set->older = o->newest;
    if (o->newest)
        o->newest->newer = set;
    else
        o->oldest = set;
    o->newest = set;
}

static void unlink_set(offload_set *set)
{
    fsdp_offload *o = set->unit->offload;
    if (set->older)
        set->older->newer = set->newer;
    else
        o->oldest = set->newer;
    if (set->newer)
        set->newer->older = set->older;
    else
        o->newest = set->older;
    set->older = set->newer = NULL;
}

static void free_part(fsdp_staged *part)
{
    fsdp_storage *st = part->storage;
    fsdp_allocator_free(st->device->allocator, st->block);
    st->block = NULL;
    st->data = NULL;
}

static fsdp_status alloc_part(fsdp_staged *part)
{
    fsdp_storage *st = part->storage;
    return fsdp_allocator_alloc(st->device->allocator, st->bytes, st->tag, &st->block, &st->data);
}

static void drop_memory(offload_set *set)
{
    for (fsdp_staged *part = set->parts; part; part = part->next)
        free_part(part);
    set->state = SET_OUT;
    set->dirty = false;
    unlink_set(set);
}

/* --- copies in host memory --- */

static void free_host_copies(const offload_set *set)
{
    for (fsdp_staged *part = set->parts; part; part = part->next) {
        fsdp_free(part->host);
        part->host = NULL;
    }
}

/* If the stage cannot use the device's memory, allocate a copy in host memory for each part. If
 * `out` is true, also wait for the device and copy the data of the parts to these copies. */
static fsdp_status create_host_copies(const offload_set *set, bool out)
{
    const fsdp_offload *o = set->unit->offload;
    fsdp_status status = FSDP_OK;
    if (!o->impl || !fsdp_device_has_own_memory(o->device))
        return FSDP_OK;
    for (fsdp_staged *part = set->parts; part && status == FSDP_OK; part = part->next) {
        const fsdp_storage *from = part->storage;
        part->host = fsdp_realloc(NULL, from->bytes, 1);
        if (!part->host && from->bytes)
            status = FSDP_ERR_NOMEM;
        else if (out)
            status = fsdp_device_to_host(o->device, part->host, from->data, from->bytes);
    }
    if (status != FSDP_OK)
        free_host_copies(set);
    return status;
}

/* Copy the data that was read from the stage to the device. */
static void send_host_copies(const offload_set *set)
{
    const fsdp_offload *o = set->unit->offload;
    for (const fsdp_staged *part = set->parts; part; part = part->next)
        if (part->host)
            fsdp_device_from_host(o->device, part->storage->data, part->host, part->storage->bytes);
}

/* --- requests --- */

/* Wait for the pending requests of a set, if there are any. If reading the set failed, free its
 * memory. If writing it failed, keep its memory. */
static fsdp_status finish_io(offload_set *set)
{
    const fsdp_offload *o = set->unit->offload;
    if (set->state != SET_COMING && set->state != SET_GOING)
        return FSDP_OK;
    const bool came = set->state == SET_COMING;
    fsdp_status status = o->impl ? o->ops->wait(o->impl, set->ticket) : FSDP_OK;
    set->state = SET_IN;
    if (status == FSDP_OK && came)
        send_host_copies(set);
    free_host_copies(set);
    if (status == FSDP_OK)
        return FSDP_OK;
    if (came)
        drop_memory(set);
    else
        set->dirty = true;
    fsdp_error_context(status, "unit '%s': %s of its %s", set->unit->name,
                       came ? "reading back" : "writing out",
                       set->is_param ? "parameters" : "optimizer state");
    return status;
}

/* Start reading all parts of the set from the stage or, if `out` is true, writing them to the
 * stage. Kernels that were started earlier may not have run yet. They may still write the data that
 * goes to the stage, or use the memory into which data is to be read. So the first request waits
 * for these kernels. Requests run in order, so all later requests also run after these kernels. */
static fsdp_status request_io(offload_set *set, bool out)
{
    const fsdp_offload *o = set->unit->offload;
    FSDP_TRY(create_host_copies(set, out));
    const bool is_copied = fsdp_device_has_own_memory(o->device);
    fsdp_event *after = is_copied ? NULL : fsdp_device_record(o->device);
    for (const fsdp_staged *part = set->parts; part && o->impl; part = part->next) {
        const fsdp_storage *from = part->storage;
        void *data = is_copied ? part->host : from->data;
        if (!from->bytes)
            continue;
        set->ticket = out ? o->ops->stage_out(o->impl, part->at, data, from->bytes, after)
                          : o->ops->stage_in(o->impl, part->at, data, from->bytes, after);
        after = NULL;
    }
    fsdp_event_destroy(after);
    set->dirty &= !out;
    set->state = out ? SET_GOING : SET_COMING;
    return FSDP_OK;
}

static bool is_idle_neighbor(const offload_set *s, const offload_set *set)
{
    return s != set && s->is_param == set->is_param && !s->users;
}

/* Make room for `set`: free the memory of idle sets of the same kind (parameters, or other data).
 * First, start writing each dirty idle set to the stage. Then free the memory of all idle sets
 * except the `keep` sets that were used most recently. */
static fsdp_status make_room(const offload_set *set, int keep)
{
    const fsdp_offload *o = set->unit->offload;
    int idle = 0;
    for (offload_set *s = o->oldest; s; s = s->newer) {
        if (!is_idle_neighbor(s, set))
            continue;
        if (s->state == SET_IN && s->dirty)
            FSDP_TRY(request_io(s, true));
        idle++;
    }
    for (offload_set *s = o->oldest, *next; s && idle > keep; s = next) {
        next = s->newer;
        if (!is_idle_neighbor(s, set))
            continue;
        FSDP_TRY(finish_io(s));
        drop_memory(s);
        idle--;
    }
    return FSDP_OK;
}

static fsdp_status alloc_parts(offload_set *set)
{
    for (fsdp_staged *part = set->parts; part; part = part->next) {
        fsdp_status status = alloc_part(part);
        if (status == FSDP_OK)
            continue;
        for (fsdp_staged *done = set->parts; done != part; done = done->next)
            free_part(done);
        return status;
    }
    return FSDP_OK;
}

/* Start reading a set that is in state SET_OUT. If its memory cannot be allocated, free the memory
 * of all idle sets of its kind, and try again. */
static fsdp_status bring_in(offload_set *set)
{
    FSDP_TRY(make_room(set, IDLE_SETS));
    fsdp_status status = alloc_parts(set);
    if (status == FSDP_ERR_NOMEM) {
        FSDP_TRY(make_room(set, 0));
        status = alloc_parts(set);
    }
    if (status != FSDP_OK)
        return status;
    link_newest(set);
    status = request_io(set, false);
    if (status != FSDP_OK)
        drop_memory(set);
    return status;
}

/* --- use --- */

static fsdp_status begin_use(fsdp_storage *st, bool write)
{
    offload_set *set = st->staged->set;
    if (set->state == SET_OUT)
        FSDP_TRY(bring_in(set));
    if (set->state == SET_COMING || write)
        FSDP_TRY(finish_io(set));
    unlink_set(set);
    link_newest(set);
    set->users++;
    set->dirty |= write;
    return FSDP_OK;
}

static void end_use(fsdp_storage *st, __attribute__((unused)) bool wrote)
{
    FSDP_ASSERT(st->staged->set->users > 0);
    st->staged->set->users--;
}

fsdp_status fsdp_staged_flush(fsdp_staged *staged)
{
    offload_set *set = staged->set;
    FSDP_TRY(finish_io(set));
    if (set->state == SET_IN && set->dirty)
        FSDP_TRY(request_io(set, true));
    return finish_io(set);
}

fsdp_status fsdp_staged_read(const fsdp_staged *staged, uint64_t offset, void *out, size_t bytes)
{
    const fsdp_offload *o = staged->set->unit->offload;
    return o->ops->peek(o->impl, staged->at + offset, out, bytes);
}

fsdp_status fsdp_tensor_prefetch(fsdp_tensor *t)
{
    offload_set *set = t->storage->staged ? t->storage->staged->set : NULL;
    if (!set || set->state != SET_OUT)
        return FSDP_OK;
    fsdp_status status = bring_in(set);
    /* If there is not enough memory to read the tensor ahead, return no error. The next use of the
     * tensor reads it. */
    return status == FSDP_ERR_NOMEM ? FSDP_OK : status;
}

static const void *key_of(const fsdp_storage *st)
{
    return st->staged->set;
}

/* --- storages --- */

static uint64_t room_of(const fsdp_storage *st)
{
    return (st->bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

static bool take_hole(fsdp_offload *o, fsdp_staged *part)
{
    for (size_t i = 0; i < o->n_holes; i++) {
        if (o->holes[i].bytes != room_of(part->storage))
            continue;
        part->at = o->holes[i].at;
        o->holes[i] = o->holes[--o->n_holes];
        return true;
    }
    return false;
}

/* Add the part's bytes of the stage to the list of holes. If there is no memory for a list entry,
 * these bytes remain unused until the stage is closed. */
static void leave_hole(fsdp_offload *o, const fsdp_staged *part)
{
    if (FSDP_GROW(o->holes, o->cap_holes, o->n_holes + 1))
        o->holes[o->n_holes++] = (hole){part->at, room_of(part->storage)};
}

static fsdp_status write_zeros(const fsdp_offload *o, const fsdp_staged *part)
{
    static char zeros[ZERO_BYTES];
    uint64_t ticket = 0;
    const uint64_t bytes = room_of(part->storage);
    for (uint64_t done = 0, n; o->impl && done < bytes; done += n) {
        n = bytes - done < sizeof zeros ? bytes - done : sizeof zeros;
        ticket = o->ops->stage_out(o->impl, part->at + done, zeros, (size_t)n, NULL);
    }
    return ticket ? o->ops->wait(o->impl, ticket) : FSDP_OK;
}

/* Assign bytes of the stage to the part: a hole of the part's size or, if there is no such hole,
 * new bytes at the end of the stage. Data other than parameters must begin as zeros. New bytes are
 * zeros already, but a hole contains old data, so zeros are written to it. Parameters may begin
 * with any values, because they are always written before they are read. */
static fsdp_status take_place(fsdp_offload *o, const offload_set *set, fsdp_staged *part)
{
    if (take_hole(o, part)) {
        fsdp_status status = set->is_param ? FSDP_OK : write_zeros(o, part);
        if (status != FSDP_OK)
            leave_hole(o, part);
        return status;
    }
    const uint64_t end = o->bytes + room_of(part->storage);
    if (o->impl)
        FSDP_TRY(o->ops->reserve(o->impl, end));
    part->at = o->bytes;
    o->bytes = end;
    return FSDP_OK;
}

static void remove_part(fsdp_storage *st)
{
    fsdp_staged *part = st->staged;
    offload_set *set = part->set;
    const bool had_memory = set->state != SET_OUT;
    if (finish_io(set) != FSDP_OK) {
        /* A pending read or write of the set has failed. For the storage that is being removed,
         * this does not matter, because its data is not needed any more. For the other storages of
         * the set, the read or write is repeated when it is needed, and its error is reported
         * then. */
    }
    fsdp_staged **at = &set->parts;
    while (*at != part)
        at = &(*at)->next;
    *at = part->next;
    st->staged = NULL;
    leave_hole(set->unit->offload, part);
    free_part(part);
    if (!set->parts && had_memory && set->state != SET_OUT)
        drop_memory(set);
    fsdp_free(part);
    fsdp_offload_unit_release(set->unit);
}

static const fsdp_storage_kind staged_kind = {begin_use, end_use, remove_part, key_of};

/* Add a part to the set. Assign bytes of the stage to the part, and allocate memory for it if the
 * set has memory now. */
static fsdp_status add_part(offload_set *set, fsdp_staged *part)
{
    fsdp_offload *o = set->unit->offload;
    FSDP_TRY(take_place(o, set, part));
    if (set->state != SET_OUT) {
        fsdp_status status = alloc_part(part);
        if (status != FSDP_OK) {
            leave_hole(o, part);
            return status;
        }
        if (part->storage->data)
            fsdp_device_memset(o->device, part->storage->data, 0, part->storage->bytes);
    }
    fsdp_staged **last = &set->parts;
    while (*last)
        last = &(*last)->next;
    *last = part;
    part->set = set;
    part->storage->staged = part;
    part->storage->kind = &staged_kind;
    set->unit->refs++;
    return FSDP_OK;
}

fsdp_status fsdp_offload_tensor(fsdp_offload_unit *u, fsdp_dtype dtype, int ndim,
                                const int64_t *shape, fsdp_tag tag, fsdp_tensor **tensor)
{
    int64_t numel;
    FSDP_TRY(fsdp_shape_numel(ndim, shape, &numel));
    if ((uint64_t)numel > INT64_MAX / fsdp_dtype_size(dtype))
        return fsdp_error(FSDP_ERR_NOMEM, "a tensor of %lld elements is too large",
                          (long long)numel);
    fsdp_staged *part = fsdp_calloc(1, sizeof *part);
    fsdp_storage *storage = NULL;
    fsdp_status status = part ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_storage_from_memory(u->offload->device, NULL,
                                          (size_t)numel * fsdp_dtype_size(dtype), &storage);
    if (status != FSDP_OK) {
        fsdp_free(part);
        return status;
    }
    storage->tag = tag;
    part->storage = storage;
    status = add_part(tag == FSDP_TAG_PARAM ? &u->params : &u->others, part);
    if (status != FSDP_OK)
        fsdp_free(part);
    else
        status = fsdp_tensor_over(storage, dtype, ndim, shape, 0, tensor);
    fsdp_storage_release(storage);
    return status;
}

fsdp_status fsdp_tensor_zeros(fsdp_device *device, fsdp_dtype dtype, int ndim, const int64_t *shape,
                              fsdp_tag tag, fsdp_tensor **tensor)
{
    FSDP_TRY(fsdp_tensor_create(device, dtype, ndim, shape, tag, tensor));
    if (device->kernels && fsdp_tensor_numel(*tensor))
        device->kernels->fill(device->context, fsdp_tensor_ptr(*tensor), dtype, 0.0,
                              fsdp_tensor_numel(*tensor));
    return FSDP_OK;
}

fsdp_status fsdp_tensor_zeros_placed_like(const fsdp_tensor *beside, fsdp_dtype dtype, int ndim,
                                          const int64_t *shape, fsdp_tag tag, fsdp_tensor **tensor)
{
    const fsdp_staged *staged = beside->storage->staged;
    return staged ? fsdp_offload_tensor(staged->set->unit, dtype, ndim, shape, tag, tensor)
                  : fsdp_tensor_zeros(beside->storage->device, dtype, ndim, shape, tag, tensor);
}
