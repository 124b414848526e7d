/* Writes a distributed checkpoint. Every rank knows which rows each rank has (Note [Ranks meet
 * three times] in dcp_writer.h). If several ranks have the same rows, the lowest of these ranks
 * writes them. Each rank writes its entries into one file, and sends rank 0 their positions in this
 * file. Rank 0 writes all positions to .metadata. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/comm/agree.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/dcp_metadata_writer.h"
#include "src/dcp/dcp_writer.h"
#include "src/torchfile/torch_writer.h"

enum {
    /* Limit of the bytes of one call of read(). It is a multiple of every element size. */
    PIECE_BYTES = 4 << 20,
    ITEM_BYTES = 2048 /* upper bound of the size of an archive without its data */
};

/* Which part of one entry of the manifest a rank has, and the signature of the entry on that
 * rank. */
typedef struct claim {
    fsdp_dcp_box box;
    int64_t signature;
} claim;

/* The place of an entry in the file of a rank. `length` is 0 if the rank did not write the
 * entry. */
typedef struct position {
    uint64_t offset, length;
} position;

/* What each rank sends to all ranks before it writes: a summary of its manifest. Rank 0 also sends
 * the path of the directory. */
typedef struct greeting {
    uint64_t n;   /* number of entries */
    uint32_t crc; /* checksum of all claims that this rank has computed: its own, and those of all
                     other ranks */
    uint32_t is_complete; /* nonzero: this rank was able to compute the claims of all ranks */
    char dir[PATH_MAX];
} greeting;

struct fsdp_dcp_job {
    fsdp_group_place place;
    /* On rank 0, the temporary directory. NULL on rank 0 once this directory has its final name.
     * NULL on all other ranks. If place.is_there, no rank makes a directory, so this is NULL on all
     * ranks. */
    fsdp_atomic_directory *target;
    char dir[PATH_MAX]; /* path of the directory before it gets its final name */
    fsdp_group *group;  /* NULL: this rank writes alone */
    const fsdp_dcp_manifest *manifest;
    int rank, world_size;
    claim *own_claims, *claims;          /* own_claims is [n], claims is [world_size][n] */
    position *own_positions, *positions; /* own_positions is [n], positions is [world_size][n] */
    unsigned char *piece;                /* [PIECE_BYTES] */
};

/* ---- which rank writes which entry ----------------------------------------------------------- */

static const claim *claim_of(const fsdp_dcp_job *run, int rank, size_t i)
{
    return &run->claims[(size_t)rank * run->manifest->n + i];
}

/* Return true if `rank` writes entry `i`. Rank 0 writes the plain values. If several ranks have
 * equal boxes of a tensor, only the lowest of these ranks writes the box. As in torch, empty boxes
 * are written, too, except an empty box of a scalar. No rank writes an empty box of a scalar:
 * .metadata has no sizes for a scalar, so a reader would mistake the empty box for the scalar
 * itself. */
static bool is_writer(const fsdp_dcp_job *run, int rank, size_t i)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    const claim *own = claim_of(run, rank, i);
    if (!entry->dtype)
        return rank == 0;
    if (own->box.size[0] == 0 && entry->tensor.ndim == 0)
        return false;
    for (int r = 0; r < rank; r++) {
        if (memcmp(&claim_of(run, r, i)->box, &own->box, sizeof own->box) == 0)
            return false;
    }
    return true;
}

static fsdp_status check_same(const fsdp_dcp_job *run, int rank)
{
    for (size_t i = 0; i < run->manifest->n; i++)
        if (claim_of(run, rank, i)->signature != claim_of(run, 0, i)->signature)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: entry %zu, '%s' on this rank, is not the same on ranks 0 and %d",
                              run->dir, i, run->manifest->entries[i]->fqn, rank);
    return FSDP_OK;
}

static bool overlap(const fsdp_dcp_entry *entry, const fsdp_dcp_box *a, const fsdp_dcp_box *b)
{
    int ndim = entry->tensor.ndim > 1 ? entry->tensor.ndim : 1;
    for (int d = 0; d < ndim && d < FSDP_DCP_BOX_NDIM; d++)
        if (a->offset[d] >= b->offset[d] + b->size[d] || b->offset[d] >= a->offset[d] + a->size[d])
            return false;
    return true;
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

/* Check that the boxes of all ranks cover the tensor, which is entry `i`. They must not overlap
 * (equal boxes count once), and must have as many elements in total as the tensor. */
static fsdp_status check_boxes(const fsdp_dcp_job *run, size_t i)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    int64_t numel = 0;
    for (int r = 0; r < run->world_size; r++) {
        const fsdp_dcp_box *own = &claim_of(run, r, i)->box;
        if (!is_writer(run, r, i))
            continue;
        numel += fsdp_dcp_box_numel(entry, own);
        for (int k = 0; k < r; k++)
            if (is_writer(run, k, i) && overlap(entry, own, &claim_of(run, k, i)->box))
                return fsdp_error(FSDP_ERR_INVALID, "%s: '%s': rows of ranks %d and %d overlap",
                                  run->dir, entry->fqn, k, r);
    }
    return numel == numel_from(entry, 0) ? FSDP_OK : not_covered(run, entry, numel);
}

/* Check the claims of all ranks. All ranks have the same array of claims. So the check succeeds on
 * all ranks, or it fails on all ranks with the same error. */
static fsdp_status check_claims(const fsdp_dcp_job *run)
{
    for (int r = 1; r < run->world_size; r++)
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
    run->claims = fsdp_calloc(all, sizeof *run->claims);
    run->own_positions = fsdp_calloc(n, sizeof *run->own_positions);
    run->positions = fsdp_calloc(all, sizeof *run->positions);
    run->piece = fsdp_calloc(PIECE_BYTES, 1);
    if (!run->own_claims || !run->claims || !run->own_positions || !run->positions || !run->piece)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const fsdp_dcp_entry *entry = run->manifest->entries[i];
        run->own_claims[i] = (claim){.box = entry->box, .signature = entry->signature};
    }
    return fsdp_dcp_manifest_check(run->manifest);
}

/* Check that the disk has space for the files of all ranks. Only rank 0 does this, because the
 * ranks share the disk. */
static fsdp_status check_room(const fsdp_dcp_job *run)
{
    uint64_t bytes = 0;
    if (run->rank != 0 || run->manifest->is_sparse)
        return FSDP_OK;
    for (size_t i = 0; i < run->manifest->n; i++)
        for (int r = 0; r < run->world_size; r++) {
            const fsdp_dcp_entry *entry = run->manifest->entries[i];
            const claim *has = claim_of(run, r, i);
            if (!is_writer(run, r, i))
                continue;
            uint64_t data = entry->dtype ? fsdp_dcp_box_bytes(entry, &has->box) : entry->value.len;
            if (__builtin_add_overflow(bytes, data + ITEM_BYTES, &bytes))
                return fsdp_error(FSDP_ERR_INVALID, "%s: the tensors are too large for a disk",
                                  run->dir);
        }
    return fsdp_check_free_space(run->dir, bytes);
}

/* Compute the claims of all ranks. Return false if this rank cannot compute one of them. */
static bool compute_claims(fsdp_dcp_job *run)
{
    const size_t n = run->manifest->n;
    for (int r = 0; r < run->world_size; r++)
        for (size_t i = 0; i < n; i++) {
            claim *has = &run->claims[(size_t)r * n + i];
            has->signature = run->own_claims[i].signature;
            if (r != run->rank &&
                !fsdp_dcp_entry_part(run->manifest->entries[i], run->group, r, &has->box))
                return false;
            if (r == run->rank)
                has->box = run->own_claims[i].box;
        }
    return true;
}

static greeting greet(fsdp_dcp_job *run)
{
    greeting own = {.n = run->manifest->n, .is_complete = compute_claims(run)};
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    own.crc = fsdp_crc32(&table, 0, run->claims,
                         (size_t)run->world_size * run->manifest->n * sizeof *run->claims);
    return own;
}

/* Return true if all ranks have computed the same claims. The claims are then correct. Every rank
 * knows its own part, so it computes its own claims correctly. All other ranks have computed the
 * same claims for this rank. */
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
    FSDP_TRY(fsdp_all_gather(run->group, run->own_claims, run->manifest->n * sizeof *run->claims,
                             run->claims));
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

/* Write the data of this rank's part of a tensor. The data are in memory, or are fetched in pieces
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

static void file_name(int rank, char name[32])
{
    snprintf(name, 32, "__%d_0.distcp", rank);
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
    char name[32];
    fsdp_block_sums sums;
    file_name(run->rank, name);
    fsdp_block_sums_init(&sums);
    char *path = fsdp_path_join(run->dir, name);
    fsdp_status status = path ? write_data_file(run, path, &sums) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_block_sums_write(&sums, path);
    fsdp_block_sums_fini(&sums);
    fsdp_free(path);
    return status;
}

/* ---- .metadata ------------------------------------------------------------------------------- */

/* Set *chunk to the box and the place of the part of entry `i` that `rank` wrote. */
static fsdp_status fill_chunk(const fsdp_dcp_job *run, fsdp_arena *arena, size_t i, int rank,
                              fsdp_dcp_chunk *chunk)
{
    const fsdp_dcp_entry *entry = run->manifest->entries[i];
    const claim *has = claim_of(run, rank, i);
    const position *at = &run->positions[(size_t)rank * run->manifest->n + i];
    size_t ndim = (size_t)entry->tensor.ndim;
    int64_t *offsets = fsdp_arena_alloc(arena, ndim * sizeof *offsets);
    int64_t *sizes = fsdp_arena_alloc(arena, ndim * sizeof *sizes);
    char *file = fsdp_arena_alloc(arena, 32);
    if (!offsets || !sizes || !file)
        return FSDP_ERR_NOMEM;
    for (size_t d = 0; d < ndim && d < FSDP_DCP_BOX_NDIM; d++)
        offsets[d] = has->box.offset[d];
    chunk_sizes(entry, &has->box, sizes);
    file_name(rank, file);
    *chunk = (fsdp_dcp_chunk){.offsets = offsets,
                              .sizes = sizes,
                              .file = file,
                              .offset = at->offset,
                              .length = at->length};
    return FSDP_OK;
}

/* Set *item to a description of entry `i`. Its chunks are in the order of the ranks that wrote
 * them. */
static fsdp_status fill_item(const fsdp_dcp_job *run, fsdp_arena *arena, size_t i,
                             fsdp_dcp_item *item)
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
            FSDP_TRY(fill_chunk(run, arena, i, r, &item->chunks[item->n_chunks++]));
    return FSDP_OK;
}

static fsdp_status pickle_items(const fsdp_dcp_job *run, fsdp_arena *arena, char **text,
                                size_t *bytes)
{
    size_t n = run->manifest->n;
    fsdp_dcp_item *items = fsdp_arena_alloc(arena, n * sizeof *items);
    if (!items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(fill_item(run, arena, i, &items[i]));
    *text = fsdp_dcp_metadata_pickle(items, n, run->manifest->companion, bytes);
    return *text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status write_metadata(const fsdp_dcp_job *run)
{
    fsdp_arena arena = {0};
    char *text = NULL, *path = fsdp_path_join(run->dir, ".metadata");
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
                           .group = group,
                           .manifest = manifest,
                           .rank = fsdp_group_rank(group),
                           .world_size = fsdp_group_world_size(group)};
    return allocate(made);
}

/* Do this rank's part of creating a job, up to the first meeting of the ranks. If `mine` is an
 * error, do nothing and return it. */
static fsdp_status prepare(fsdp_status mine, const fsdp_group_place *place, fsdp_group *group,
                           const fsdp_dcp_manifest *manifest, fsdp_dcp_job **job, greeting *own)
{
    FSDP_TRY(mine);
    FSDP_TRY(open_job(place, group, manifest, job));
    *own = greet(*job);
    if ((*job)->rank != 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_group_place_begin(place, &(*job)->target, (*job)->dir));
    memcpy(own->dir, (*job)->dir, sizeof own->dir);
    return own->is_complete ? check_room(*job) : FSDP_OK;
}

static fsdp_status agree_on_manifest(fsdp_status mine, const fsdp_group_place *place,
                                     fsdp_group *group, const fsdp_dcp_manifest *manifest,
                                     fsdp_dcp_job **job)
{
    greeting own = {0}, *all = fsdp_calloc((size_t)fsdp_group_world_size(group), sizeof *all);
    fsdp_status status =
        all || mine != FSDP_OK ? prepare(mine, place, group, manifest, job, &own) : FSDP_ERR_NOMEM;
    status = fsdp_agree_gather(group, status, &own, sizeof own, all);
    if (status == FSDP_OK) {
        memcpy((*job)->dir, all[0].dir, sizeof(*job)->dir);
        status = check_all_claims(*job, all);
    }
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
    fsdp_free(job->own_claims);
    fsdp_free(job->claims);
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

fsdp_status fsdp_dcp_job_complete(fsdp_dcp_job *job)
{
    FSDP_TRY(write_metadata(job));
    return fsdp_group_place_complete(&job->place, job->dir, &job->target);
}

/* ---- the whole save ------------------------------------------------------------------------ */

static fsdp_status run_job(fsdp_dcp_job *job)
{
    size_t bytes;
    const void *own = fsdp_dcp_job_own_positions(job, &bytes);
    FSDP_TRY(fsdp_agree_gather(job->group, write_file(job), own, bytes, job->positions));
    return fsdp_agree(job->group, job->rank == 0 ? fsdp_dcp_job_complete(job) : FSDP_OK);
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
