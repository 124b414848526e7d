/* Joins tensors whose parts are DTensors in torch.save files. Each rank has saved one file. The
 * names of the files differ only in the rank ("model_world_size_4_rank_0.pt"). The caller opens one
 * of the files. The files of the other ranks are opened when the first DTensor is found. The offset
 * of a part is computed from its placements and from the rank's coordinate in the mesh, as in
 * torch.distributed.tensor. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/source/source_internal.h"
#include "src/torchfile/torch_dtensor.h"

enum {
    MAX_RANKS = 1 << 16,
    MAX_DIGITS = 9 /* largest number of digits of a rank in a file name */
};

/* ---- the files of the ranks ------------------------------------------------------------------ */

/* Find the last number in `name` that follows "rank". Set *at to its position in `name` and *digits
 * to its number of digits, and return true. Return false if there is no such number. */
static bool find_rank(const char *name, size_t *at, size_t *digits)
{
    bool found = false;
    for (const char *p = name; (p = strstr(p, "rank")); p++) {
        const char *number = p + 4 + strspn(p + 4, "_-=");
        const size_t n = strspn(number, "0123456789");
        if (n == 0 || n > MAX_DIGITS || strtoul(number, NULL, 10) >= MAX_RANKS)
            continue;
        *at = (size_t)(number - name);
        *digits = n;
        found = true;
    }
    return found;
}

/* Return the path of the file of `rank`; the caller owns it. The rank is written with at least
 * `width` digits. Return NULL if `path` contains no rank. */
static char *path_of_rank(const char *path, size_t width, size_t rank)
{
    const char *name = fsdp_path_name(path);
    size_t at, digits;
    if (!find_rank(name, &at, &digits))
        return NULL;
    return fsdp_strdup_printf("%.*s%0*zu%s", (int)(name - path + (ptrdiff_t)at), path, (int)width,
                              rank, name + at + digits);
}

/* Set *width to the minimum number of digits of a rank in the file names; shorter numbers get
 * leading zeros. If the number in `path` begins with a zero, *width is its number of digits. If it
 * does not, the numbers of smaller ranks may still have leading zeros: "rank_00" to "rank_10". In
 * this case, look for the file of rank 0 with 1, 2, 3, ... digits. */
static fsdp_status find_width(const char *path, size_t *width)
{
    const char *name = fsdp_path_name(path);
    size_t at, digits;
    *width = 1;
    if (!find_rank(name, &at, &digits))
        return FSDP_OK;
    if (name[at] == '0') {
        *width = digits;
        return FSDP_OK;
    }
    for (size_t n = 1; n <= digits; n++) {
        char *first = path_of_rank(path, n, 0);
        if (!first)
            return FSDP_ERR_NOMEM;
        const bool is_there = fsdp_path_is_file(first);
        fsdp_free(first);
        if (is_there) {
            *width = n;
            return FSDP_OK;
        }
    }
    return FSDP_OK;
}

static size_t rank_of(const char *path)
{
    const char *name = fsdp_path_name(path);
    size_t at, digits;
    return find_rank(name, &at, &digits) ? (size_t)strtoul(name + at, NULL, 10) : 0;
}

static fsdp_status open_rank(fsdp_source_rank *rank)
{
    FSDP_TRY(fsdp_file_map(rank->path, &rank->map));
    return fsdp_torch_archive_create(rank->path, rank->map.data, rank->map.bytes, &rank->archive);
}

static size_t count_ranks(const char *path, size_t width)
{
    size_t n = 0;
    for (bool is_there = true; is_there && n < MAX_RANKS; n += is_there) {
        char *other = path_of_rank(path, width, n);
        is_there = other && fsdp_path_is_file(other);
        fsdp_free(other);
    }
    return n;
}

/* Open the files of ranks 0, 1, 2 and so on, up to the first file that is missing. The file that is
 * already open is not opened again. */
static fsdp_status open_ranks(fsdp_source *source)
{
    size_t width;
    FSDP_TRY(find_width(source->path, &width));
    const size_t own = rank_of(source->path), n = count_ranks(source->path, width);
    source->ranks = fsdp_calloc(n > own ? n : own + 1, sizeof *source->ranks);
    if (!source->ranks)
        return FSDP_ERR_NOMEM;
    source->n_ranks = n > own ? n : own + 1;
    for (size_t i = 0; i < n; i++) {
        if (i == own)
            continue;
        source->ranks[i].path = path_of_rank(source->path, width, i);
        if (!source->ranks[i].path)
            return FSDP_ERR_NOMEM;
        FSDP_TRY(open_rank(&source->ranks[i]));
    }
    return FSDP_OK;
}

void fsdp_source_close_ranks(fsdp_source *source)
{
    for (size_t i = 0; i < source->n_ranks; i++) {
        fsdp_torch_archive_destroy(source->ranks[i].archive);
        fsdp_file_unmap(&source->ranks[i].map);
        fsdp_free(source->ranks[i].path);
    }
    fsdp_free(source->ranks);
}

/* ---- joining one tensor ---------------------------------------------------------------------- */

typedef struct joining {
    fsdp_source *source;
    const fsdp_nesting_key *keys; /* [n_keys] */
    int n_keys;
    const fsdp_pickle_value *value; /* the part in the file that fsdp_source_open() opened */
    fsdp_source_item *item;
    fsdp_torch_dtensor *parts; /* [n_ranks] the tensor's parts in the files of all ranks */
    int64_t mesh[FSDP_DTENSOR_MAX_MESH];
} joining;

static const fsdp_pickle_value *find_key(const fsdp_pickle_value *dict, const fsdp_nesting_key *key)
{
    if (!key->name)
        return fsdp_pickle_at(dict, (size_t)key->index);
    if (!key->is_int)
        return fsdp_pickle_find(dict, key->name);
    for (size_t i = 0; fsdp_pickle_is(dict, FSDP_PICKLE_DICT) && i + 1 < dict->list.n; i += 2)
        if (fsdp_pickle_is(dict->list.items[i], FSDP_PICKLE_INT) &&
            dict->list.items[i]->integer == strtoll(key->name, NULL, 10))
            return dict->list.items[i + 1];
    return NULL;
}

/* In the file of `rank`, follow the first n_keys keys of the tensor, and return the value to which
 * they lead. Return NULL if the file is missing or has no such value. */
static const fsdp_pickle_value *find_in(const joining *j, size_t rank, int n_keys)
{
    const fsdp_torch_archive *archive = j->source->ranks[rank].archive;
    const fsdp_pickle_value *value = archive ? fsdp_torch_archive_root(archive)
                                     : rank == rank_of(j->source->path)
                                         ? fsdp_torch_archive_root(j->source->archive)
                                         : NULL;
    for (int k = 0; k < n_keys && value; k++)
        value = find_key(value, &j->keys[k]);
    return value;
}

static const char all_ranks_needed[] =
    "the files of all ranks are needed in its folder, with names that differ only in the rank "
    "(..._rank_0.pt, ..._rank_1.pt)";

static fsdp_status refuse_tensor(const joining *j, const char *why)
{
    return fsdp_torch_refuse_part(j->source->path, j->item->fqn, j->value, why);
}

/* Check that the dict or list that contains the tensor has the same number of items in the file of
 * `rank` as in the opened file. The check fails, for example, after pipeline parallelism, because
 * each rank then saves tensors that other ranks do not have. The source lists only the tensors of
 * the opened file, so it would lack tensors that are only in other files. */
static fsdp_status check_same_keys(const joining *j, size_t rank)
{
    const fsdp_pickle_value *own = find_in(j, rank_of(j->source->path), j->n_keys - 1);
    const fsdp_pickle_value *other = find_in(j, rank, j->n_keys - 1);
    if (other && own && other->kind == own->kind && other->list.n == own->list.n)
        return FSDP_OK;
    return refuse_tensor(j, "the files of the other ranks hold other tensors");
}

static fsdp_status read_parts(joining *j)
{
    for (size_t r = 0; r < j->source->n_ranks; r++) {
        const fsdp_pickle_value *value = find_in(j, r, j->n_keys);
        if (!j->source->ranks[r].archive && r != rank_of(j->source->path))
            return refuse_tensor(j, "the files of the ranks before it are missing");
        FSDP_TRY(check_same_keys(j, r));
        if (!fsdp_torch_is_dtensor(value))
            return refuse_tensor(j, "the files of the other ranks have no part of it");
        FSDP_TRY(fsdp_torch_dtensor_read(j->source->path, j->item->fqn, value, &j->parts[r]));
        if (j->parts[r].ndim != j->parts[0].ndim ||
            j->parts[r].mesh_ndim != j->parts[0].mesh_ndim ||
            memcmp(j->parts[r].shape, j->parts[0].shape, sizeof j->parts[r].shape) != 0 ||
            memcmp(j->parts[r].shard_dims, j->parts[0].shard_dims, sizeof j->parts[r].shard_dims) !=
                0)
            return refuse_tensor(j, "the files of the other ranks have parts of another tensor");
    }
    return FSDP_OK;
}

/* Compute the sizes of the mesh from the coordinates of the ranks whose files are present. If a
 * file does not contain the coordinate of its rank, and the mesh has one dimension, use the number
 * of the rank as its coordinate. */
static fsdp_status read_mesh(joining *j)
{
    for (size_t r = 0; r < j->source->n_ranks; r++)
        for (int i = 0; i < j->parts[r].mesh_ndim; i++) {
            int64_t *at = &j->parts[r].coordinate[i];
            if (*at < 0 && j->parts[r].mesh_ndim == 1)
                *at = (int64_t)r;
            if (*at < 0 || *at >= MAX_RANKS)
                return refuse_tensor(j, "it does not say where in its mesh the rank is");
            if (*at >= j->mesh[i])
                j->mesh[i] = *at + 1;
        }
    return FSDP_OK;
}

/* Compute the box of a part: its offsets, which must be 0 before the call, and its sizes.
 * Initially, the box is the whole tensor. Then each mesh dimension that shards the tensor divides
 * the box into chunks, as torch.chunk() does, and the chunk at the part's coordinate becomes the
 * new box. If a mesh dimension replicates the tensor, several ranks have the same part. Return true
 * if the part is from the first of these ranks. */
static bool find_box(const joining *j, const fsdp_torch_dtensor *part, int64_t *offsets,
                     int64_t *sizes)
{
    bool is_first = true;
    memcpy(sizes, part->shape, (size_t)part->ndim * sizeof *sizes);
    for (int i = 0; i < part->mesh_ndim; i++) {
        const int d = part->shard_dims[i];
        if (d == FSDP_DTENSOR_REPLICATE) {
            is_first = is_first && part->coordinate[i] == 0;
            continue;
        }
        const int64_t chunk = (sizes[d] + j->mesh[i] - 1) / j->mesh[i];
        const int64_t begin =
            chunk * part->coordinate[i] < sizes[d] ? chunk * part->coordinate[i] : sizes[d];
        offsets[d] += begin;
        sizes[d] = sizes[d] - begin < chunk ? sizes[d] - begin : chunk;
    }
    return is_first;
}

static fsdp_status add_part(joining *j, fsdp_joined *joined, size_t rank)
{
    fsdp_source *source = j->source;
    const fsdp_torch_dtensor *dtensor = &j->parts[rank];
    fsdp_torch_archive *archive =
        source->ranks[rank].archive ? source->ranks[rank].archive : source->archive;
    int64_t sizes[FSDP_DTENSOR_MAX_DIMS] = {0};
    int64_t *offsets = fsdp_arena_alloc(&source->arena, sizeof sizes);
    fsdp_joined_part part = {.offsets = offsets, .archive = archive, .value = dtensor->local};
    if (!offsets)
        return FSDP_ERR_NOMEM;
    const bool is_first = find_box(j, dtensor, offsets, sizes);
    FSDP_TRY(fsdp_torch_archive_tensor(archive, dtensor->local, j->item->fqn, &part.entry));
    if (part.entry.ndim != dtensor->ndim ||
        memcmp(part.entry.shape, sizes, (size_t)dtensor->ndim * sizeof *sizes) != 0)
        return refuse_tensor(j, all_ranks_needed);
    return is_first ? fsdp_joined_add(joined, &source->arena, &part) : FSDP_OK;
}

static fsdp_status join(joining *j)
{
    fsdp_source *source = j->source;
    fsdp_joined *joined = fsdp_arena_alloc(&source->arena, sizeof *joined);
    int64_t *shape = fsdp_arena_alloc(&source->arena, sizeof j->parts[0].shape);
    if (!joined || !shape)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(read_parts(j));
    FSDP_TRY(read_mesh(j));
    memcpy(shape, j->parts[0].shape, sizeof j->parts[0].shape);
    joined->shape = shape;
    joined->ndim = j->parts[0].ndim;
    for (size_t r = 0; r < source->n_ranks; r++)
        FSDP_TRY(add_part(j, joined, r));
    fsdp_status status = fsdp_source_set_joined(j->item, source->path, joined);
    return status == FSDP_ERR_FORMAT ? refuse_tensor(j, all_ranks_needed) : status;
}

fsdp_status fsdp_source_add_dtensor(fsdp_source *source, const fsdp_nesting_key *keys, int n_keys,
                                    const fsdp_pickle_value *value)
{
    joining j = {.source = source, .keys = keys, .n_keys = n_keys, .value = value};
    if (!source->ranks)
        FSDP_TRY(open_ranks(source));
    FSDP_TRY(fsdp_source_add(source, keys, n_keys, &j.item));
    j.parts = fsdp_calloc(source->n_ranks, sizeof *j.parts);
    if (!j.parts)
        return FSDP_ERR_NOMEM;
    fsdp_status status = join(&j);
    fsdp_free(j.parts);
    return status;
}
