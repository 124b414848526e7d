/* Writes a distributed checkpoint. Every rank knows which rows each rank has (Note [Ranks meet
 * three times] in dcp_writer.h). If several ranks have the same rows, the lowest of these ranks
 * writes them. Each rank writes its entries into one file, and sends rank 0 their positions in this
 * file. Rank 0 writes all positions to .metadata. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/crc32.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/box_overlap.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/dcp_metadata_writer.h"
#include "src/dcp/dcp_writer.h"
#include "src/torchfile/torch_writer.h"

enum {
    /* Limit of the bytes of one call of read(). It is a multiple of every element size. */
    PIECE_BYTES = 4 << 20,
    ITEM_BYTES = 2048, /* upper bound of the size of an archive without its data */
    FILE_NAME = 32     /* capacity of the buffer for the name of a rank's file */
};

static const char METADATA[] = ".metadata";

/* What a rank says about one entry of the manifest: which box of the entry the rank has, and the
 * signature of the entry on that rank. */
typedef struct claim {
    fsdp_dcp_box box;
    int64_t signature;
} claim;

/* The place of an entry in the file of a rank. `length` is 0 if the rank did not write the
 * entry. */
typedef struct position {
    uint64_t offset, length;
} position;

/* What each rank sends to all ranks before it writes: a summary of its manifest. */
typedef struct greeting {
    uint64_t n;   /* number of entries */
    uint32_t crc; /* checksum of this rank's signatures, and of the boxes of all ranks as this rank
                     computes them */
    uint32_t is_complete; /* nonzero: this rank was able to compute the claims of all ranks */
} greeting;

/* The box of one rank. */
typedef struct ranked_box {
    fsdp_dcp_box box;
    int rank;
} ranked_box;

struct fsdp_dcp_job {
    fsdp_group_place place;
    fsdp_disks disks; /* which ranks see the same directory */
    /* The temporary directory. Only the leader of a disk has one (rank 0, if all ranks see the same
     * directory). NULL on all other ranks, and on the leader once the directory has its final name.
     * If place.is_there, no rank makes a directory, so this is NULL on all ranks. */
    fsdp_atomic_directory *target;
    char dir[PATH_MAX]; /* path of the directory before it gets its final name */
    fsdp_group *group;  /* NULL: this rank writes alone */
    const fsdp_dcp_manifest *manifest;
    int rank, world_size;
    claim *own_claims; /* [n] */
    /* [world_size][n] The claims that the ranks have exchanged. NULL if the ranks have not
     * exchanged claims: each rank then computes the claims of all ranks whenever it needs them,
     * because the claims of thousands of ranks would take too much memory. */
    claim *claims;
    /* [world_size] Memory for the boxes that the ranks have of one entry. It is allocated before
     * the first meeting (Note [Ranks meet three times] in dcp_writer.h), so that no allocation can
     * fail after this meeting. */
    ranked_box *boxes;
    /* [world_size] Memory for those of `boxes` that are not empty. It is allocated with `boxes`. */
    fsdp_dcp_extent *extents;
    bool *writes; /* [world_size][n] true: the rank writes the entry; see find_writers() */
    position *own_positions; /* [n] */
    position *positions;     /* [world_size][n]; only on rank 0 */
    unsigned char *piece;    /* [PIECE_BYTES] */
};

/* ---- which rank writes which entry ----------------------------------------------------------- */

/* Set *box to the box of entry `i` that `rank` has. Return false if this rank cannot compute the
 * box.
 */
static bool find_box(const fsdp_dcp_job *run, int rank, size_t i, fsdp_dcp_box *box)
{
    if (run->claims)
        *box = run->claims[(size_t)rank * run->manifest->n + i].box;
    else if (rank == run->rank)
        *box = run->own_claims[i].box;
    else
        return fsdp_dcp_entry_part(run->manifest->entries[i], run->group, rank, box);
    return true;
}

/* Return true if `rank` writes entry `i`; see find_writers_of_entry(). */
static bool is_writer(const fsdp_dcp_job *run, int rank, size_t i)
{
    return run->writes[(size_t)rank * run->manifest->n + i];
}

static int compare_boxes(const void *a, const void *b)
{
    const ranked_box *x = a, *y = b;
    for (int d = 0; d < FSDP_DCP_BOX_NDIM; d++) {
        if (x->box.offset[d] != y->box.offset[d])
            return x->box.offset[d] < y->box.offset[d] ? -1 : 1;
        if (x->box.size[d] != y->box.size[d])
            return x->box.size[d] < y->box.size[d] ? -1 : 1;
    }
    return x->rank - y->rank;
}

/* Sort the boxes of all ranks. Usually they are already sorted. */
static void sort_boxes(ranked_box *boxes, int n)
{
    int i = 1;
    while (i < n && compare_boxes(&boxes[i - 1], &boxes[i]) < 0)
        i++;
    if (i < n)
        qsort(boxes, (size_t)n, sizeof *boxes, compare_boxes);
}

/* Find which ranks write entry `i`. Rank 0 writes the plain values. If several ranks have equal
 * boxes of a tensor, only the lowest of these ranks writes the box. As in torch, empty boxes are
 * written, too, except an empty box of a scalar. No rank writes an empty box of a scalar: .metadata
 * has no sizes for a scalar, so a reader would mistake the empty box for the scalar itself. Return
 * false if this rank cannot compute the boxes. */
static bool find_writers_of_entry(fsdp_dcp_job *run, size_t i)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    ranked_box *boxes = run->boxes;
    for (int r = 0; r < run->world_size; r++) {
        boxes[r].rank = r;
        if (!find_box(run, r, i, &boxes[r].box))
            return false;
    }
    if (!entry->dtype) {
        run->writes[i] = true;
        return true;
    }
    sort_boxes(boxes, run->world_size);
    for (int k = 0; k < run->world_size; k++) {
        const fsdp_dcp_box *box = &boxes[k].box;
        const bool is_first = k == 0 || memcmp(&boxes[k - 1].box, box, sizeof *box) != 0;
        run->writes[(size_t)boxes[k].rank * run->manifest->n + i] =
            is_first && !(box->size[0] == 0 && entry->tensor.ndim == 0);
    }
    return true;
}

/* Find which ranks write which entries. Return false if this rank cannot compute the boxes of all
 * ranks. */
static bool find_writers(fsdp_dcp_job *run)
{
    memset(run->writes, 0, (size_t)run->world_size * run->manifest->n * sizeof *run->writes);
    for (size_t i = 0; i < run->manifest->n; i++)
        if (!find_writers_of_entry(run, i))
            return false;
    return true;
}

/* Check that `rank` has the same signature as rank 0 for each entry. */
static fsdp_status check_same(const fsdp_dcp_job *run, int rank)
{
    const size_t n = run->manifest->n;
    for (size_t i = 0; i < n; i++)
        if (run->claims[(size_t)rank * n + i].signature != run->claims[i].signature)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: entry %zu, '%s' on this rank, is not the same on ranks 0 and %d",
                              run->dir, i, run->manifest->entries[i]->fqn, rank);
    return FSDP_OK;
}

/* Return the product of the sizes of dimensions [first, ndim). */
static int64_t numel_from(const fsdp_dcp_entry *entry, int first)
{
    int64_t numel = 1;
    for (int d = first; d < entry->tensor.ndim; d++)
        numel *= entry->tensor.shape[d];
    return numel;
}

static fsdp_status not_covered(const fsdp_dcp_job *run, const fsdp_dcp_entry *entry, int64_t numel)
{
    int64_t row = numel_from(entry, 1);
    if (numel % row == 0)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s': the ranks have %lld of its %lld rows",
                          run->dir, entry->fqn, (long long)(numel / row),
                          (long long)fsdp_dcp_entry_rows(entry));
    return fsdp_error(FSDP_ERR_INVALID, "%s: '%s': the ranks have %lld of its %lld elements",
                      run->dir, entry->fqn, (long long)numel, (long long)numel_from(entry, 0));
}

/* Check that the boxes of all ranks cover the tensor, which is entry `i`. Equal boxes count once.
 * The boxes must not overlap, and the sum of their elements must be the number of elements of the
 * tensor. */
static fsdp_status check_boxes(const fsdp_dcp_job *run, size_t i)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    const int ndim = entry->tensor.ndim > 1 ? entry->tensor.ndim : 1;
    int64_t numel = 0;
    size_t n = 0, first, second;
    for (int r = 0; r < run->world_size; r++) {
        fsdp_dcp_box *own = &run->boxes[r].box;
        if (!is_writer(run, r, i) || !find_box(run, r, i, own))
            continue;
        const int64_t elements = fsdp_dcp_box_numel(entry, own);
        numel += elements;
        if (elements)
            run->extents[n++] = (fsdp_dcp_extent){own->offset, own->size, (size_t)r};
    }
    if (fsdp_dcp_find_overlap(run->extents, n, ndim < FSDP_DCP_BOX_NDIM ? ndim : FSDP_DCP_BOX_NDIM,
                              &first, &second))
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s': rows of ranks %zu and %zu overlap", run->dir,
                          entry->fqn, first, second);
    return numel == numel_from(entry, 0) ? FSDP_OK : not_covered(run, entry, numel);
}

/* Check the claims of all ranks. All ranks use the same claims, which they have exchanged or
 * computed. So the check succeeds on all ranks, or it fails on all ranks with the same error. */
static fsdp_status check_claims(const fsdp_dcp_job *run)
{
    for (int r = 1; run->claims && r < run->world_size; r++)
        FSDP_TRY(check_same(run, r));
    for (size_t i = 0; i < run->manifest->n; i++)
        if (run->manifest->entries[i]->dtype)
            FSDP_TRY(check_boxes(run, i));
    return FSDP_OK;
}

static fsdp_status allocate(fsdp_dcp_job *run)
{
    size_t n = run->manifest->n, all = n * (size_t)run->world_size;
    run->own_claims = fsdp_calloc(n, sizeof *run->own_claims);
    run->boxes = fsdp_calloc((size_t)run->world_size, sizeof *run->boxes);
    run->extents = fsdp_calloc((size_t)run->world_size, sizeof *run->extents);
    run->writes = fsdp_calloc(all, sizeof *run->writes);
    run->own_positions = fsdp_calloc(n, sizeof *run->own_positions);
    run->positions = run->rank == 0 ? fsdp_calloc(all, sizeof *run->positions) : NULL;
    run->piece = fsdp_calloc(PIECE_BYTES, 1);
    if (!run->own_claims || !run->boxes || !run->extents || !run->writes || !run->own_positions ||
        !run->piece || (run->rank == 0 && !run->positions))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const fsdp_dcp_entry *entry = run->manifest->entries[i];
        run->own_claims[i] = (claim){.box = entry->box, .signature = entry->signature};
    }
    return fsdp_dcp_manifest_check(run->manifest);
}

/* Check that the disk has space for the files of all ranks that write to it. Only the disk's leader
 * checks, for all ranks that share the disk. */
static fsdp_status check_room(const fsdp_dcp_job *run)
{
    uint64_t bytes = 0;
    if (!fsdp_disks_leads(&run->disks, run->rank) || run->manifest->is_sparse)
        return FSDP_OK;
    for (size_t i = 0; i < run->manifest->n; i++)
        for (int r = 0; r < run->world_size; r++) {
            const fsdp_dcp_entry *entry = run->manifest->entries[i];
            fsdp_dcp_box box;
            if (!fsdp_disks_share(&run->disks, run->rank, r) || !is_writer(run, r, i) ||
                !find_box(run, r, i, &box))
                continue;
            uint64_t data = entry->dtype ? fsdp_dcp_box_bytes(entry, &box) : entry->value.len;
            if (__builtin_add_overflow(bytes, data + ITEM_BYTES, &bytes))
                return fsdp_error(FSDP_ERR_INVALID, "%s: the tensors are too large for a disk",
                                  run->dir);
        }
    fsdp_status status = fsdp_check_free_space(run->dir, bytes);
    if (run->disks.n > 1)
        fsdp_error_context(status, "%s", fsdp_group_host_text(run->group, run->rank).text);
    return status;
}

/* Return the checksum of this rank's signatures, and of the boxes of all ranks as this rank
 * computes them. Only the dimensions that the tensor has are included. */
static uint32_t checksum_of_claims(const fsdp_dcp_job *run)
{
    uint32_t crc = 0;
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    for (size_t i = 0; i < run->manifest->n; i++) {
        const int ndim = run->manifest->entries[i]->tensor.ndim;
        const size_t split = (size_t)(ndim < 1                   ? 1
                                      : ndim > FSDP_DCP_BOX_NDIM ? FSDP_DCP_BOX_NDIM
                                                                 : ndim);
        crc = fsdp_crc32(&table, crc, &run->own_claims[i].signature,
                         sizeof run->own_claims[i].signature);
        for (int r = 0; r < run->world_size; r++) {
            fsdp_dcp_box box;
            if (!find_box(run, r, i, &box))
                continue;
            crc = fsdp_crc32(&table, crc, box.offset, split * sizeof *box.offset);
            crc = fsdp_crc32(&table, crc, box.size, split * sizeof *box.size);
        }
    }
    return crc;
}

static greeting greet(fsdp_dcp_job *run)
{
    const bool known = find_writers(run);
    return (greeting){
        .n = run->manifest->n, .is_complete = known, .crc = known ? checksum_of_claims(run) : 0};
}

/* Return true if all ranks have computed the same claims. In that case the claims are correct:
 * every rank knows its own boxes, so its own claims are correct, and all other ranks have computed
 * the same claims for it. */
static bool is_known(const fsdp_dcp_job *run, const greeting *all)
{
    for (int r = 0; r < run->world_size; r++)
        if (!all[r].is_complete || all[r].crc != all[0].crc)
            return false;
    return true;
}

/* Return FSDP_ERR_INVALID, on all ranks, if two ranks have different numbers of entries. */
static fsdp_status check_counts(const fsdp_dcp_job *run, const greeting *all)
{
    uint64_t least = all[0].n, most = all[0].n;
    for (int r = 1; r < run->world_size; r++) {
        least = all[r].n < least ? all[r].n : least;
        most = all[r].n > most ? all[r].n : most;
    }
    if (least == most)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%s: one rank has %llu entries, another %llu", run->dir,
                      (unsigned long long)least, (unsigned long long)most);
}

static fsdp_status exchange_claims(fsdp_dcp_job *run)
{
    const size_t n = run->manifest->n;
    claim *claims = fsdp_calloc((size_t)run->world_size * n, sizeof *claims);
    const fsdp_status status = fsdp_agree_gather(run->group, claims ? FSDP_OK : fsdp_error_nomem(),
                                                 run->own_claims, n * sizeof *claims, claims);
    run->claims = claims; /* owned by the job */
    FSDP_TRY(status);
    (void)find_writers(run);
    FSDP_TRY(check_claims(run));
    return fsdp_agree(run->group, check_room(run));
}

/* Check the claims of all ranks. `all` [world_size] has the greetings of all ranks, and is the same
 * on all ranks. The greetings show whether all ranks have computed the same claims (is_known()). If
 * they have not, each rank first sends its own claims to the others. */
static fsdp_status check_all_claims(fsdp_dcp_job *run, const greeting *all)
{
    FSDP_TRY(check_counts(run, all));
    return is_known(run, all) ? check_claims(run) : exchange_claims(run);
}

/* ---- writing this rank's file ---------------------------------------------------------------- */

/* Write the data of this rank's box of a tensor. The data are in memory, or are fetched in pieces
 * with read(). */
static fsdp_status write_data(const fsdp_dcp_job *run, const fsdp_dcp_tensor *tensor,
                              uint64_t bytes, fsdp_torch_writer *writer)
{
    if (tensor->data)
        return fsdp_torch_writer_data(writer, tensor->data, (size_t)bytes);
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        size_t piece = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        FSDP_TRY(tensor->read(tensor->context, at, run->piece, piece));
        FSDP_TRY(fsdp_torch_writer_data(writer, run->piece, piece));
    }
    return FSDP_OK;
}

static void chunk_sizes(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box, int64_t *sizes)
{
    for (int i = 0; i < entry->tensor.ndim; i++)
        sizes[i] = i < FSDP_DCP_BOX_NDIM ? box->size[i] : entry->tensor.shape[i];
}

static fsdp_status write_tensor(const fsdp_dcp_job *run, const fsdp_dcp_entry *entry,
                                fsdp_torch_writer *writer)
{
    const fsdp_dcp_tensor *tensor = &entry->tensor;
    int64_t sizes[FSDP_DCP_MAX_NDIM];
    size_t number;
    chunk_sizes(entry, &entry->box, sizes);
    FSDP_TRY(fsdp_torch_writer_tensor(writer, entry->dtype->name, sizes, tensor->ndim, &number));
    FSDP_TRY(fsdp_torch_writer_begin_data(writer));
    return write_data(run, tensor, fsdp_dcp_box_bytes(entry, &entry->box), writer);
}

static fsdp_status write_value(const fsdp_dcp_entry *entry, fsdp_torch_writer *writer)
{
    fsdp_pickle_put_written(fsdp_torch_writer_pickle(writer), &entry->value);
    return fsdp_torch_writer_begin_data(writer);
}

static fsdp_status write_item(const fsdp_dcp_job *run, size_t i, fsdp_atomic_file *file,
                              const char *path)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    position *at = &run->own_positions[i];
    fsdp_torch_writer *writer;
    at->offset = fsdp_atomic_file_appended(file);
    FSDP_TRY(fsdp_torch_writer_create_in(file, path, &writer));
    if (run->manifest->is_sparse)
        fsdp_torch_writer_keep_holes(writer);
    fsdp_status status =
        entry->dtype ? write_tensor(run, entry, writer) : write_value(entry, writer);
    if (status == FSDP_OK)
        status = fsdp_torch_writer_finish(writer);
    else
        fsdp_torch_writer_discard(writer);
    fsdp_error_context(status, "'%s'", entry->fqn);
    at->length = fsdp_atomic_file_appended(file) - at->offset;
    return status;
}

/* Write the entries of this rank's file in torch's order: first the plain values, then the
 * tensors. */
static fsdp_status write_items(const fsdp_dcp_job *run, fsdp_atomic_file *file, const char *path)
{
    for (int tensors = 0; tensors < 2; tensors++)
        for (size_t i = 0; i < run->manifest->n; i++)
            if ((run->manifest->entries[i]->dtype != NULL) == tensors &&
                is_writer(run, run->rank, i))
                FSDP_TRY(write_item(run, i, file, path));
    return FSDP_OK;
}

static void file_name(int rank, char name[FILE_NAME])
{
    snprintf(name, FILE_NAME, "__%d_0.distcp", rank);
}

static fsdp_status write_data_file(const fsdp_dcp_job *run, const char *path, fsdp_block_sums *sums)
{
    fsdp_atomic_file *file;
    FSDP_TRY(fsdp_atomic_file_begin(path, 0, &file));
    fsdp_atomic_file_observe(file, fsdp_block_sums_add, sums);
    if (run->manifest->is_sparse)
        fsdp_atomic_file_keep_holes(file);
    fsdp_status status = write_items(run, file, path);
    if (status == FSDP_OK)
        return fsdp_atomic_file_commit(file);
    fsdp_atomic_file_discard(file);
    return status;
}

static fsdp_status write_file(const fsdp_dcp_job *run)
{
    char name[FILE_NAME];
    fsdp_block_sums sums;
    file_name(run->rank, name);
    fsdp_block_sums_init(&sums);
    char *path = fsdp_path_join(run->dir, name);
    fsdp_status status = path ? write_data_file(run, path, &sums) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_block_sums_write(&sums, path);
    fsdp_block_sums_fini(&sums);
    fsdp_free(path);
    if (run->disks.n > 1)
        fsdp_error_context(status, "%s", fsdp_group_host_text(run->group, run->rank).text);
    return status;
}

/* ---- .metadata ------------------------------------------------------------------------------- */

/* Set *chunk to the box of entry `i` that `rank` wrote, and to the place of this box in the
 * file. */
static fsdp_status fill_chunk(const fsdp_dcp_job *run, fsdp_arena *arena, size_t i, int rank,
                              const char *file, fsdp_dcp_chunk *chunk)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    const position *at = &run->positions[(size_t)rank * run->manifest->n + i];
    size_t ndim = (size_t)entry->tensor.ndim;
    int64_t *offsets = fsdp_arena_alloc(arena, ndim * sizeof *offsets);
    int64_t *sizes = fsdp_arena_alloc(arena, ndim * sizeof *sizes);
    fsdp_dcp_box box;
    if (!offsets || !sizes)
        return FSDP_ERR_NOMEM;
    if (!find_box(run, rank, i, &box))
        return fsdp_error(FSDP_ERR_STATE, "%s: the rows of rank %d are not known any more",
                          run->dir, rank);
    for (size_t d = 0; d < ndim && d < FSDP_DCP_BOX_NDIM; d++)
        offsets[d] = box.offset[d];
    chunk_sizes(entry, &box, sizes);
    *chunk = (fsdp_dcp_chunk){.offsets = offsets,
                              .sizes = sizes,
                              .file = file,
                              .offset = at->offset,
                              .length = at->length};
    return FSDP_OK;
}

/* Set *item to a description of entry `i`. Its chunks are in the order of the ranks that wrote
 * them. `files` [world_size] are the names of the ranks' files. */
static fsdp_status fill_item(const fsdp_dcp_job *run, fsdp_arena *arena, size_t i,
                             char (*files)[FILE_NAME], fsdp_dcp_item *item)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    *item = (fsdp_dcp_item){.fqn = entry->fqn,
                            .path = entry->path,
                            .dtype_name = entry->dtype ? entry->dtype->name : NULL,
                            .shape = entry->tensor.shape,
                            .ndim = entry->tensor.ndim};
    item->chunks = fsdp_arena_alloc(arena, (size_t)run->world_size * sizeof *item->chunks);
    if (!item->chunks)
        return FSDP_ERR_NOMEM;
    for (int r = 0; r < run->world_size; r++)
        if (is_writer(run, r, i))
            FSDP_TRY(fill_chunk(run, arena, i, r, files[r], &item->chunks[item->n_chunks++]));
    return FSDP_OK;
}

static fsdp_status pickle_items(const fsdp_dcp_job *run, fsdp_arena *arena, char **text,
                                size_t *bytes)
{
    size_t n = run->manifest->n;
    fsdp_dcp_item *items = fsdp_arena_alloc(arena, n * sizeof *items);
    char(*files)[FILE_NAME] = fsdp_arena_alloc(arena, (size_t)run->world_size * sizeof *files);
    if (!items || !files)
        return FSDP_ERR_NOMEM;
    for (int r = 0; r < run->world_size; r++)
        file_name(r, files[r]);
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(fill_item(run, arena, i, files, &items[i]));
    *text = fsdp_dcp_metadata_pickle(items, n, run->manifest->companion, bytes);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status write_metadata(const fsdp_dcp_job *run)
{
    fsdp_arena arena = {0};
    char *text = NULL, *path = fsdp_path_join(run->dir, METADATA);
    size_t bytes = 0;
    fsdp_status status = path ? pickle_items(run, &arena, &text, &bytes) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_file_write(path, text, bytes);
    fsdp_free(text);
    fsdp_free(path);
    fsdp_arena_fini(&arena);
    return status;
}

/* ---- creating and destroying a job --------------------------------------------------------- */

static fsdp_status open_job(const fsdp_group_place *place, fsdp_group *group,
                            const fsdp_dcp_manifest *manifest, fsdp_dcp_job **job)
{
    fsdp_dcp_job *made = fsdp_calloc(1, sizeof *made);
    if (!made)
        return FSDP_ERR_NOMEM;
    *job = made;
    *made = (fsdp_dcp_job){.place = *place,
                           .disks = {.n = 1},
                           .group = group,
                           .manifest = manifest,
                           .rank = fsdp_group_rank(group),
                           .world_size = fsdp_group_world_size(group)};
    return allocate(made);
}

/* Do what this rank does alone to create a job, up to the first meeting of the ranks (Note [Ranks
 * meet three times] in dcp_writer.h). If `mine` is an error, do nothing and return it. */
static fsdp_status prepare(fsdp_status mine, const fsdp_group_place *place, fsdp_group *group,
                           const fsdp_dcp_manifest *manifest, fsdp_disks *disks, fsdp_dcp_job **job,
                           greeting *own)
{
    FSDP_TRY(mine);
    FSDP_TRY(open_job(place, group, manifest, job));
    (*job)->disks = *disks; /* owned by the job */
    *disks = (fsdp_disks){.n = 1};
    *own = greet(*job);
    if (!fsdp_disks_leads(&(*job)->disks, (*job)->rank))
        return FSDP_OK;
    FSDP_TRY(fsdp_group_place_begin(place, &(*job)->target, (*job)->dir));
    return own->is_complete ? check_room(*job) : FSDP_OK;
}

static fsdp_status agree_on_manifest(fsdp_status mine, const fsdp_group_place *place,
                                     fsdp_group *group, const fsdp_dcp_manifest *manifest,
                                     fsdp_dcp_job **job)
{
    greeting own = {0}, *all = fsdp_calloc((size_t)fsdp_group_world_size(group), sizeof *all);
    fsdp_disks disks;
    if (mine == FSDP_OK && !all)
        mine = FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_group_place_find_disks(mine, place, group, &disks);
    status = prepare(status, place, group, manifest, &disks, job, &own);
    fsdp_disks_fini(&disks);
    status = fsdp_agree_gather(group, status, &own, sizeof own, all);
    if (status == FSDP_OK)
        status = fsdp_disks_share_path(&(*job)->disks, group, (*job)->dir);
    if (status == FSDP_OK)
        status = check_all_claims(*job, all);
    fsdp_free(all);
    return status;
}

fsdp_status fsdp_dcp_job_create(fsdp_status mine, const fsdp_group_place *place, fsdp_group *group,
                                const fsdp_dcp_manifest *manifest, fsdp_dcp_job **job)
{
    fsdp_dcp_job *made = NULL;
    fsdp_status status = agree_on_manifest(mine, place, group, manifest, &made);
    if (status != FSDP_OK) {
        fsdp_dcp_job_destroy(made);
        return status;
    }
    *job = made;
    return FSDP_OK;
}

void fsdp_dcp_job_discard(fsdp_dcp_job *job)
{
    fsdp_atomic_directory_discard(job->target);
    job->target = NULL;
}

void fsdp_dcp_job_destroy(fsdp_dcp_job *job)
{
    if (!job)
        return;
    fsdp_dcp_job_discard(job);
    fsdp_disks_fini(&job->disks);
    fsdp_free(job->own_claims);
    fsdp_free(job->claims);
    fsdp_free(job->boxes);
    fsdp_free(job->extents);
    fsdp_free(job->writes);
    fsdp_free(job->own_positions);
    fsdp_free(job->positions);
    fsdp_free(job->piece);
    fsdp_free(job);
}

const char *fsdp_dcp_job_dir(const fsdp_dcp_job *job)
{
    return job->dir;
}

bool fsdp_dcp_job_writes(const fsdp_dcp_job *job, size_t i)
{
    return is_writer(job, job->rank, i);
}

fsdp_status fsdp_dcp_job_write_file(fsdp_dcp_job *job)
{
    return write_file(job);
}

const void *fsdp_dcp_job_own_positions(const fsdp_dcp_job *job, size_t *bytes)
{
    *bytes = job->manifest->n * sizeof *job->own_positions;
    return job->own_positions;
}

void *fsdp_dcp_job_positions(fsdp_dcp_job *job, int rank)
{
    return &job->positions[(size_t)rank * job->manifest->n];
}

bool fsdp_dcp_job_is_on_disks(const fsdp_dcp_job *job)
{
    return job->disks.n > 1;
}

fsdp_status fsdp_dcp_job_complete(fsdp_dcp_job *job)
{
    FSDP_ASSERT(!fsdp_dcp_job_is_on_disks(job));
    FSDP_TRY(write_metadata(job));
    return fsdp_group_place_complete(&job->place, job->dir, &job->target);
}

fsdp_status fsdp_dcp_job_complete_on_all(fsdp_dcp_job *job)
{
    size_t bytes;
    const void *own = fsdp_dcp_job_own_positions(job, &bytes);
    FSDP_TRY(fsdp_gather(job->group, own, bytes, job->positions));
    if (!fsdp_dcp_job_is_on_disks(job))
        return fsdp_agree(job->group, job->rank == 0 ? fsdp_dcp_job_complete(job) : FSDP_OK);
    return fsdp_group_place_complete_on_disks(job->rank == 0 ? write_metadata(job) : FSDP_OK,
                                              &job->place, job->group, &job->disks, METADATA,
                                              job->dir, &job->target);
}

/* ---- the whole save ------------------------------------------------------------------------ */

static fsdp_status run_job(fsdp_dcp_job *job)
{
    FSDP_TRY(fsdp_agree(job->group, write_file(job)));
    return fsdp_dcp_job_complete_on_all(job);
}

fsdp_status fsdp_dcp_save_manifest(fsdp_status mine, const fsdp_group_place *place,
                                   fsdp_group *group, const fsdp_dcp_manifest *manifest)
{
    fsdp_dcp_job *job;
    FSDP_TRY(fsdp_dcp_job_create(mine, place, group, manifest, &job));
    fsdp_status status = run_job(job);
    fsdp_dcp_job_destroy(job);
    return status;
}
