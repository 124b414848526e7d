/* Reads the data files of a distributed checkpoint. Each file contains archives of torch.save, one
 * after the other. An archive contains one chunk of a tensor, or one plain value. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/crc32.h"
#include "src/base/error.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/dcp_reader.h"
#include "src/dcp/remote_blocks.h"

enum {
    MAX_NDIM = 64,
    MAX_OPEN = 16,       /* limit of the number of files with an open descriptor */
    EDGE_BYTES = 4 << 10 /* an archive has at most this many bytes before its data, and at most this
                            many bytes after its data */
};

static const uint64_t MAX_HELD_BYTES = 16 << 20; /* limit of the memory for blocks of remote files
                                                  * that is kept from one item to the next */

typedef struct data_file {
    const char *name; /* owned by the metadata */
    char *path;
    char *label; /* `path`, with the name of the host before it if hosts have different files */
    fsdp_mapping map;           /* mapping of the file, or the memory of `remote` */
    fsdp_remote_blocks *remote; /* memory for a file of other hosts; NULL: this host has the file */
    fsdp_block_check *blocks;   /* checksums of blocks; NULL: the file has none */
    fsdp_block_check *check;    /* `blocks`, or NULL if reads do not verify blocks */
    int fd; /* descriptor for reads that verify blocks; -1: such reads use the mapping */
} data_file;

struct fsdp_dcp_reader {
    char *path;
    fsdp_dcp_metadata *metadata;
    data_file *files; /* [n], sorted by name */
    size_t n;
    uint32_t metadata_crc; /* checksum of .metadata */
    int rank;
    /* Reads the files of other hosts; NULL: this rank has all files. */
    fsdp_remote_files *remote;
    const char **names, **paths; /* [n] arguments of fsdp_remote_files_open() */
};

/* ---- files ----------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const data_file *)a)->name, ((const data_file *)b)->name);
}

static const data_file *file_of(const fsdp_dcp_reader *reader, const fsdp_dcp_chunk *chunk)
{
    data_file key = {.name = chunk->file};
    return bsearch(&key, reader->files, reader->n, sizeof key, compare_files);
}

/* List the files that are named in the metadata, each file once. */
static fsdp_status list_files(fsdp_dcp_reader *reader)
{
    size_t cap = 0, n = 0;
    for (size_t i = 0; i < fsdp_dcp_metadata_count(reader->metadata); i++) {
        const fsdp_dcp_item *item = fsdp_dcp_metadata_at(reader->metadata, i);
        if (!FSDP_GROW(reader->files, cap, n + item->n_chunks))
            return FSDP_ERR_NOMEM;
        for (size_t k = 0; k < item->n_chunks; k++)
            reader->files[n++] = (data_file){.name = item->chunks[k].file, .fd = -1};
    }
    if (n)
        qsort(reader->files, n, sizeof *reader->files, compare_files);
    for (size_t i = 0; i < n; i++)
        if (reader->n == 0 || compare_files(&reader->files[reader->n - 1], &reader->files[i]) != 0)
            reader->files[reader->n++] = reader->files[i];
    return FSDP_OK;
}

static fsdp_status check_places(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    for (size_t i = 0; i < item->n_chunks; i++) {
        const fsdp_dcp_chunk *chunk = &item->chunks[i];
        const data_file *file = file_of(reader, chunk);
        if (chunk->offset <= file->map.bytes && chunk->length <= file->map.bytes - chunk->offset)
            continue;
        /* A file that begins with "PK" is an archive. It can be too short only because it was
         * truncated. Any other file is not an archive at all. If the kind of such a file is
         * recognized, report it. For a remote file this is not possible, because no bytes of the
         * file are in memory yet. */
        if (!file->remote && (file->map.bytes < 2 || memcmp(file->map.data, "PK", 2) != 0))
            FSDP_TRY(fsdp_file_explain(file->label, "a file of torch.distributed.checkpoint",
                                       FSDP_WANTED_TEXT, file->map.data, file->map.bytes));
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: truncated: '%s' ends at byte %llu of a file of %zu bytes",
                          file->label, item->fqn,
                          (unsigned long long)(chunk->offset + chunk->length), file->map.bytes);
    }
    return FSDP_OK;
}

/* Set file->path, and the label of messages. The label is the path. If `group` is not NULL, the
 * label begins with the name of the host of `rank`. */
static fsdp_status name_file(const fsdp_dcp_reader *reader, data_file *file, fsdp_group *group,
                             int rank)
{
    if (!file->path)
        file->path = fsdp_path_join(reader->path, file->name);
    if (!file->path)
        return FSDP_ERR_NOMEM;
    file->label =
        group ? fsdp_strdup_printf("%s: %s", fsdp_group_host_text(group, rank).text, file->path)
              : fsdp_strdup(file->path);
    return file->label ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status map_file(const fsdp_dcp_reader *reader, data_file *file)
{
    FSDP_TRY(fsdp_file_map(file->path, &file->map));
    if (!fsdp_dcp_metadata_is_own(reader->metadata))
        return FSDP_OK;
    FSDP_TRY(fsdp_block_check_open(file->path, &file->map, &file->blocks));
    fsdp_block_check_set_label(file->blocks, file->label);
    file->check = file->blocks;
    if (file - reader->files < MAX_OPEN)
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    return FSDP_OK;
}

static fsdp_status check_all_places(const fsdp_dcp_reader *reader)
{
    for (size_t i = 0; i < fsdp_dcp_metadata_count(reader->metadata); i++)
        FSDP_TRY(check_places(reader, fsdp_dcp_metadata_at(reader->metadata, i)));
    return FSDP_OK;
}

/* Return true if hosts with disks of their own saved the checkpoint. In that case, the companion of
 * the checkpoint is a JSON object with the field "hosts". */
static bool is_of_several_hosts(const fsdp_dcp_reader *reader)
{
    fsdp_json *doc;
    const char *name = fsdp_dcp_metadata_companion(reader->metadata);
    char *path = name ? fsdp_path_join(reader->path, name) : NULL;
    bool is = false;
    if (path && fsdp_path_is_file(path) && fsdp_json_read(path, &doc) == FSDP_OK) {
        is = fsdp_json_has(fsdp_json_root(doc), "hosts");
        fsdp_json_destroy(doc);
    }
    fsdp_free(path);
    return is;
}

/* If a data file is missing because it is on the disk of another host, return an error that says
 * so. Otherwise return `status`. */
static fsdp_status explain_missing_file(const fsdp_dcp_reader *reader, fsdp_status status)
{
    if (status != FSDP_ERR_NOT_FOUND)
        return status;
    fsdp_saved_error error;
    fsdp_error_save(status, &error);
    if (is_of_several_hosts(reader))
        return fsdp_error(status,
                          "%s: the checkpoint was saved on hosts with disks of their own, and this "
                          "folder has the files of one of them; 'fsdp checkpoint gather' puts it "
                          "together",
                          error.message);
    return fsdp_error_restore(&error);
}

static fsdp_status map_files(fsdp_dcp_reader *reader)
{
    for (size_t i = 0; i < reader->n; i++) {
        FSDP_TRY(name_file(reader, &reader->files[i], NULL, 0));
        FSDP_TRY(explain_missing_file(reader, map_file(reader, &reader->files[i])));
    }
    return check_all_places(reader);
}

/* ---- opening --------------------------------------------------------------------------------- */

static fsdp_status check_there(const char *directory, const char *metadata)
{
    if (fsdp_path_is_file(metadata))
        return FSDP_OK;
    char *per_rank = fsdp_path_join(directory, "__0.metadata");
    if (!per_rank)
        return FSDP_ERR_NOMEM;
    bool there = fsdp_path_is_file(per_rank);
    fsdp_free(per_rank);
    if (there)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: each rank has its own metadata; load it in torch and save it again "
                          "with torch.distributed.checkpoint",
                          directory);
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no .metadata there: no checkpoint of torch.distributed.checkpoint, or "
                      "one that was never completed",
                      directory);
}

/* Return the status of reading .metadata. `status` is the result of parsing the file. If parsing
 * failed and the file does not begin like a pickle, return an error that says what kind of file
 * this seems to be. */
static fsdp_status explain_missing(const char *path, const fsdp_mapping *map, fsdp_status status)
{
    const bool begins_well = map->bytes > 0 && map->data[0] == 0x80;
    if ((status == FSDP_ERR_FORMAT || status == FSDP_ERR_UNSUPPORTED) && !begins_well)
        FSDP_TRY(fsdp_file_explain(path, "metadata of torch.distributed.checkpoint",
                                   FSDP_WANTED_TEXT, map->data, map->bytes));
    return status;
}

static fsdp_status read_metadata(fsdp_dcp_reader *reader)
{
    fsdp_mapping map = {0};
    char *path = fsdp_path_join(reader->path, ".metadata");
    fsdp_status status = path ? check_there(reader->path, path) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_file_map(path, &map);
    if (status == FSDP_OK)
        status = explain_missing(
            path, &map, fsdp_dcp_metadata_create(path, map.data, map.bytes, &reader->metadata));
    if (status == FSDP_OK) {
        fsdp_crc32_table table;
        fsdp_crc32_init(&table);
        reader->metadata_crc = fsdp_crc32(&table, 0, map.data, map.bytes);
        status = list_files(reader);
    }
    fsdp_file_unmap(&map);
    fsdp_free(path);
    return status;
}

/* Create *reader and read .metadata of the directory `path`. The caller must close *reader if it is
 * not NULL, even after a failure. */
static fsdp_status begin_open(const char *path, fsdp_dcp_reader **reader)
{
    fsdp_dcp_reader *r = fsdp_calloc(1, sizeof *r);
    *reader = r;
    if (!r)
        return FSDP_ERR_NOMEM;
    r->path = fsdp_strdup(path);
    return r->path ? read_metadata(r) : FSDP_ERR_NOMEM;
}

static fsdp_status end_open(fsdp_status status, fsdp_dcp_reader *r, fsdp_dcp_reader **reader)
{
    if (status == FSDP_OK)
        *reader = r;
    else
        fsdp_dcp_reader_close(r);
    return status;
}

fsdp_status fsdp_dcp_reader_open(const char *path, fsdp_dcp_reader **reader)
{
    fsdp_dcp_reader *r;
    fsdp_status status = begin_open(path, &r);
    if (status == FSDP_OK)
        status = map_files(r);
    return end_open(status, r, reader);
}

fsdp_status fsdp_dcp_reader_open_metadata(const char *path, fsdp_dcp_reader **reader)
{
    fsdp_dcp_reader *r;
    const fsdp_status status = begin_open(path, &r);
    return end_open(status, r, reader);
}

/* ---- opening on several hosts ---------------------------------------------------------------- */

/* What must be equal on all ranks before the ranks compare their files. */
typedef struct edition {
    uint64_t n_files, metadata_crc;
} edition;

static fsdp_status compare_editions(fsdp_status mine, const fsdp_dcp_reader *reader,
                                    const char *path, fsdp_group *group)
{
    const int ranks = fsdp_group_world_size(group);
    edition own = {0}, *all = fsdp_calloc((size_t)ranks, sizeof *all);
    if (mine == FSDP_OK && !all)
        mine = FSDP_ERR_NOMEM;
    if (mine == FSDP_OK)
        own = (edition){.n_files = reader->n, .metadata_crc = reader->metadata_crc};
    fsdp_status status = fsdp_agree_gather(group, mine, &own, sizeof own, all);
    for (int r = 1; r < ranks && status == FSDP_OK; r++)
        if (memcmp(&all[r], &all[0], sizeof *all) != 0)
            status = fsdp_error(FSDP_ERR_FORMAT,
                                "%s: .metadata on %s is not the same as on %s: they are of two "
                                "different saves",
                                path, fsdp_group_host_text(group, r).text,
                                fsdp_group_host_text(group, 0).text);
    fsdp_free(all);
    return status;
}

static fsdp_status list_paths(fsdp_dcp_reader *r)
{
    r->names = fsdp_calloc(r->n + 1, sizeof(const char *));
    r->paths = fsdp_calloc(r->n + 1, sizeof(const char *));
    if (!r->names || !r->paths)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < r->n; i++) {
        data_file *file = &r->files[i];
        file->path = fsdp_path_join(r->path, file->name);
        if (!file->path)
            return FSDP_ERR_NOMEM;
        r->names[i] = file->name;
        r->paths[i] = fsdp_path_is_file(file->path) ? file->path : NULL;
    }
    return FSDP_OK;
}

/* Return FSDP_ERR_NOT_FOUND if no rank has one of the files. */
static fsdp_status check_all_are_somewhere(const fsdp_dcp_reader *r)
{
    fsdp_str text = {0};
    for (size_t i = 0; i < r->n; i++)
        if (fsdp_remote_files_server(r->remote, i) < 0)
            fsdp_str_printf(&text, "%s%s", text.len ? ", " : "", r->files[i].name);
    const fsdp_status status =
        text.failed ? fsdp_error_nomem()
        : text.len  ? fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no host has %s there", r->path, text.data)
                    : FSDP_OK;
    fsdp_str_fini(&text);
    return status;
}

static fsdp_status open_spread_files(fsdp_dcp_reader *r, fsdp_group *group)
{
    for (size_t i = 0; i < r->n; i++) {
        data_file *file = &r->files[i];
        const int host = r->paths[i] ? r->rank : fsdp_remote_files_server(r->remote, i);
        FSDP_TRY(name_file(r, file, group, host));
        if (r->paths[i]) {
            FSDP_TRY(map_file(r, file));
            continue;
        }
        FSDP_TRY(fsdp_remote_blocks_create(r->remote, i, file->label,
                                           fsdp_dcp_metadata_is_own(r->metadata), &file->remote));
        file->map = fsdp_remote_blocks_map(file->remote);
    }
    return check_all_places(r);
}

/* Open the data files of all hosts. Collective. */
static fsdp_status open_files_of_hosts(fsdp_dcp_reader *r, fsdp_group *group)
{
    int32_t has_all = 1;
    FSDP_TRY(fsdp_agree(group, list_paths(r)));
    for (size_t i = 0; i < r->n; i++)
        has_all &= r->paths[i] != NULL;
    FSDP_TRY(fsdp_all_reduce(group, &has_all, 1, FSDP_DTYPE_I32, FSDP_REDUCE_MIN));
    if (has_all)
        return fsdp_agree(group, map_files(r));
    FSDP_TRY(fsdp_remote_files_open(FSDP_OK, r->names, r->paths, r->n, group, &r->remote));
    FSDP_TRY(check_all_are_somewhere(r));
    return fsdp_agree(group, open_spread_files(r, group));
}

fsdp_status fsdp_dcp_reader_open_on_hosts(const char *path, fsdp_group *group,
                                          fsdp_dcp_reader **reader)
{
    fsdp_dcp_reader *r = NULL;
    if (!fsdp_group_is_on_several_hosts(group)) {
        fsdp_status status = fsdp_dcp_reader_open(path, &r);
        return end_open(fsdp_agree(group, status), r, reader);
    }
    fsdp_status status = begin_open(path, &r);
    status = compare_editions(status, r, path, group);
    if (status == FSDP_OK) {
        r->rank = fsdp_group_rank(group);
        status = open_files_of_hosts(r, group);
    }
    return end_open(status, r, reader);
}

fsdp_status fsdp_dcp_reader_end(fsdp_dcp_reader *reader, fsdp_status status)
{
    return reader->remote ? fsdp_remote_files_end(reader->remote, status) : status;
}

bool fsdp_dcp_reader_given_up(const fsdp_dcp_reader *reader)
{
    return reader->remote && fsdp_remote_files_given_up(reader->remote);
}

/* ---- closing, and checking files ------------------------------------------------------------- */

void fsdp_dcp_reader_close(fsdp_dcp_reader *reader)
{
    if (!reader)
        return;
    for (size_t i = 0; i < reader->n; i++) {
        if (reader->files[i].fd >= 0)
            close(reader->files[i].fd);
        fsdp_block_check_close(reader->files[i].blocks);
        if (reader->files[i].remote)
            fsdp_remote_blocks_destroy(reader->files[i].remote);
        else
            fsdp_file_unmap(&reader->files[i].map);
        fsdp_free(reader->files[i].path);
        fsdp_free(reader->files[i].label);
    }
    fsdp_remote_files_close(reader->remote);
    fsdp_free(reader->names);
    fsdp_free(reader->paths);
    fsdp_free(reader->files);
    fsdp_dcp_metadata_destroy(reader->metadata);
    fsdp_free(reader->path);
    fsdp_free(reader);
}

void fsdp_dcp_reader_skip_blocks(fsdp_dcp_reader *reader)
{
    for (size_t i = 0; i < reader->n; i++)
        reader->files[i].check = NULL;
}

fsdp_status fsdp_dcp_reader_check_files(const fsdp_dcp_reader *reader)
{
    for (size_t i = 0; i < reader->n; i++) {
        const data_file *file = &reader->files[i];
        if (!file->blocks)
            continue;
        FSDP_TRY(fsdp_block_check_range(file->blocks, 0, file->map.bytes));
        fsdp_checkpoint_advise(file->map.data, file->map.bytes, FSDP_CHECKPOINT_DONE);
    }
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_check_companion(const fsdp_dcp_reader *reader)
{
    const char *name = fsdp_dcp_metadata_companion(reader->metadata);
    char *path = name ? fsdp_path_join(reader->path, name) : NULL;
    if (name && !path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (name && !fsdp_path_is_file(path))
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: no such file, which .metadata in its folder names", path);
    fsdp_free(path);
    return status;
}

const char *fsdp_dcp_reader_file(const fsdp_dcp_reader *reader, size_t i)
{
    return i < reader->n ? reader->files[i].name : NULL;
}

const fsdp_dcp_metadata *fsdp_dcp_reader_metadata(const fsdp_dcp_reader *reader)
{
    return reader->metadata;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Advise the kernel that the first and the last EDGE_BYTES of a chunk's archive will be read. These
 * bytes are before and after the tensor's data. Without this advice, a page fault on one of these
 * bytes would read many more pages. */
static void advise_edges(const data_file *file, const fsdp_dcp_chunk *chunk)
{
    const unsigned char *data = file->map.data + chunk->offset;
    if (file->fd < 0 || chunk->length <= 2 * EDGE_BYTES)
        return;
    fsdp_checkpoint_advise(data, EDGE_BYTES, FSDP_CHECKPOINT_WILL_READ);
    fsdp_checkpoint_advise(data + chunk->length - EDGE_BYTES, EDGE_BYTES,
                           FSDP_CHECKPOINT_WILL_READ);
}

/* Free the memory of remote files if it is large. No archive may be open. */
static void limit_held_bytes(const fsdp_dcp_reader *reader)
{
    uint64_t held = 0;
    for (size_t i = 0; i < reader->n; i++)
        held +=
            reader->files[i].remote ? fsdp_remote_blocks_held_bytes(reader->files[i].remote) : 0;
    for (size_t i = 0; i < reader->n && held > MAX_HELD_BYTES; i++)
        if (reader->files[i].remote)
            fsdp_remote_blocks_drop(reader->files[i].remote);
}

/* Read those bytes of a remote chunk's archive that are before and after its data. Read the whole
 * archive if it is small, if it has a plain value, or if its file has no checksums of blocks: the
 * archive's own checksum, which covers the whole chunk, is then verified. */
static fsdp_status fetch_edges(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                               const fsdp_dcp_chunk *chunk)
{
    fsdp_remote_blocks *remote = file_of(reader, chunk)->remote;
    if (!remote)
        return FSDP_OK;
    limit_held_bytes(reader);
    if (!item->dtype_name || !fsdp_dcp_metadata_is_own(reader->metadata) ||
        chunk->length <= 2 * EDGE_BYTES)
        return fsdp_remote_blocks_need(remote, chunk->offset, chunk->length);
    FSDP_TRY(fsdp_remote_blocks_need(remote, chunk->offset, EDGE_BYTES));
    return fsdp_remote_blocks_need(remote, chunk->offset + chunk->length - EDGE_BYTES, EDGE_BYTES);
}

static fsdp_status open_item(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                             const fsdp_dcp_chunk *chunk, fsdp_torch_archive **archive)
{
    const data_file *file = file_of(reader, chunk);
    FSDP_TRY(fetch_edges(reader, item, chunk));
    advise_edges(file, chunk);
    fsdp_status status = fsdp_torch_archive_create(file->label, file->map.data + chunk->offset,
                                                   (size_t)chunk->length, archive);
    fsdp_error_context(status, "'%s' at byte %llu", item->fqn, (unsigned long long)chunk->offset);
    return status;
}

fsdp_status fsdp_dcp_reader_value(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                  fsdp_torch_archive **archive)
{
    if (item->dtype_name)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is a tensor, no plain value", reader->path,
                          item->fqn);
    return open_item(reader, item, &item->chunks[0], archive);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* The box of an item that the caller reads. Its elements are copied from chunks to `out`. */
typedef struct wanted {
    const fsdp_dcp_item *item;
    const int64_t *offsets, *sizes; /* [ndim] */
    size_t width;                   /* bytes per element */
    unsigned char *out;
} wanted;

/* The intersection of a box and a chunk. It is copied in runs. The elements of a run are contiguous
 * both in the box and in the chunk. */
typedef struct overlap {
    int64_t begin[MAX_NDIM], size[MAX_NDIM]; /* `begin`: coordinates in the tensor */
    int split;                               /* a run spans dimensions [split, ndim) */
    int64_t run;                             /* elements per run */
    int64_t n;                               /* number of runs */
} overlap;

static bool find_overlap(const wanted *w, const fsdp_dcp_chunk *chunk, overlap *o)
{
    const int ndim = w->item->ndim;
    for (int d = 0; d < ndim; d++) {
        int64_t end = chunk->offsets[d] + chunk->sizes[d], wanted_end = w->offsets[d] + w->sizes[d];
        o->begin[d] = w->offsets[d] > chunk->offsets[d] ? w->offsets[d] : chunk->offsets[d];
        o->size[d] = (end < wanted_end ? end : wanted_end) - o->begin[d];
        if (o->size[d] <= 0)
            return false;
    }
    o->run = o->n = 1;
    for (o->split = ndim; o->split > 0;) {
        int64_t size = o->size[--o->split];
        o->run *= size;
        if (size != chunk->sizes[o->split] || size != w->sizes[o->split])
            break;
    }
    for (int d = 0; d < o->split; d++)
        o->n *= o->size[d];
    return true;
}

/* Return the row-major index of an element within a box. `at` holds the coordinates of the element
 * in the tensor. The box begins at `offsets` and has the sizes `sizes`. */
static size_t place_in(int ndim, const int64_t *at, const int64_t *offsets, const int64_t *sizes)
{
    int64_t place = 0;
    for (int d = 0; d < ndim; d++)
        place = place * sizes[d] + at[d] - offsets[d];
    return (size_t)place;
}

static void copy_overlap(const wanted *w, const fsdp_dcp_chunk *chunk, const overlap *o,
                         const unsigned char *data)
{
    const int ndim = w->item->ndim;
    int64_t at[MAX_NDIM];
    memcpy(at, o->begin, (size_t)ndim * sizeof *at);
    for (int64_t i = 0; i < o->n; i++) {
        memcpy(w->out + place_in(ndim, at, w->offsets, w->sizes) * w->width,
               data + place_in(ndim, at, chunk->offsets, chunk->sizes) * w->width,
               (size_t)o->run * w->width);
        for (int d = o->split - 1; d >= 0 && ++at[d] == o->begin[d] + o->size[d]; d--)
            at[d] = o->begin[d];
    }
}

/* Set *entry to the tensor of a chunk, and check that its shape and dtype are those in the
 * metadata. */
static fsdp_status chunk_entry(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                               const fsdp_dcp_chunk *chunk, fsdp_torch_archive *archive,
                               fsdp_checkpoint_entry *entry)
{
    FSDP_TRY(
        fsdp_torch_archive_tensor(archive, fsdp_torch_archive_root(archive), item->fqn, entry));
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, chunk->sizes, item->ndim));
    if (strcmp(entry->dtype_name, item->dtype_name) != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is of %s, but its metadata say %s",
                          file_of(reader, chunk)->label, item->fqn, entry->dtype_name,
                          item->dtype_name);
    return FSDP_OK;
}

/* Set *begin and *end to the range of bytes in the chunk's data that contains all elements of the
 * overlap. */
static void span_of(const wanted *w, const fsdp_dcp_chunk *chunk, const overlap *o, size_t *begin,
                    size_t *end)
{
    const int ndim = w->item->ndim;
    int64_t last[MAX_NDIM];
    for (int d = 0; d < ndim; d++)
        last[d] = o->begin[d] + o->size[d] - 1;
    *begin = place_in(ndim, o->begin, chunk->offsets, chunk->sizes) * w->width;
    *end = (place_in(ndim, last, chunk->offsets, chunk->sizes) + 1) * w->width;
}

/* Return true if entry->data points into the mapping of the file, and false if it points to a copy
 * of strided data. */
static bool is_in_file(const data_file *file, const fsdp_dcp_chunk *chunk,
                       const fsdp_checkpoint_entry *entry)
{
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data;
    return from >= chunk->offset && from < chunk->offset + chunk->length;
}

/* Copy an overlap that is a single run, bytes [begin, end) of the chunk's data, and verify the
 * blocks that contain these bytes. Whole blocks are read with a descriptor, because the kernel then
 * reads ahead and uses large pages. Page faults on the mapping would read single pages. */
static fsdp_status read_blocks(const data_file *file, const fsdp_checkpoint_entry *entry,
                               const wanted *w, const overlap *o, size_t begin, size_t end)
{
    const size_t to = place_in(w->item->ndim, o->begin, w->offsets, w->sizes) * w->width;
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data;
    return fsdp_block_check_read(file->check, file->fd, from + begin, end - begin, w->out + to);
}

/* Verify the blocks that contain bytes [begin, end) of the chunk's data. If entry->data is a copy,
 * the order of its bytes differs from the order in the file. In this case, verify all blocks of the
 * chunk. */
static fsdp_status check_blocks(const data_file *file, const fsdp_dcp_chunk *chunk,
                                const fsdp_checkpoint_entry *entry, size_t begin, size_t end)
{
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data;
    if (!is_in_file(file, chunk, entry))
        return fsdp_block_check_range(file->check, chunk->offset, chunk->length);
    return fsdp_block_check_range(file->check, from + begin, end - begin);
}

/* Like copy_checked(), for a file that this rank reads through file->remote (Note [Remote files] in
 * src/dcp/remote_files.h). */
static fsdp_status copy_remote(const wanted *w, const data_file *file, const fsdp_dcp_chunk *chunk,
                               const overlap *o, const fsdp_checkpoint_entry *entry, size_t begin,
                               size_t end)
{
    const size_t to = place_in(w->item->ndim, o->begin, w->offsets, w->sizes) * w->width;
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data + begin;
    if (!is_in_file(file, chunk, entry))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: the tensor at byte %llu is strided",
                          file->label, (unsigned long long)chunk->offset);
    if (o->n == 1)
        return fsdp_remote_blocks_read(file->remote, from, end - begin, w->out + to);
    FSDP_TRY(fsdp_remote_blocks_need(file->remote, from, end - begin));
    copy_overlap(w, chunk, o, entry->data);
    return FSDP_OK;
}

/* Copy the overlap of a box and a chunk to w->out, and verify the blocks that contain the
 * overlap. */
static fsdp_status copy_checked(const wanted *w, const data_file *file, const fsdp_dcp_chunk *chunk,
                                const overlap *o, const fsdp_checkpoint_entry *entry)
{
    size_t begin, end;
    span_of(w, chunk, o, &begin, &end);
    if (file->remote)
        return copy_remote(w, file, chunk, o, entry, begin, end);
    if (o->n == 1 && file->fd >= 0 && is_in_file(file, chunk, entry))
        return read_blocks(file, entry, w, o, begin, end);
    fsdp_checkpoint_advise((const char *)entry->data + begin, end - begin,
                           FSDP_CHECKPOINT_WILL_READ);
    FSDP_TRY(check_blocks(file, chunk, entry, begin, end));
    copy_overlap(w, chunk, o, entry->data);
    return FSDP_OK;
}

static fsdp_status copy_chunk(const fsdp_dcp_reader *reader, const wanted *w,
                              const fsdp_dcp_chunk *chunk, const overlap *o,
                              fsdp_torch_archive *archive)
{
    const data_file *file = file_of(reader, chunk);
    const bool by_blocks =
        file->check || (file->remote && fsdp_dcp_metadata_is_own(reader->metadata));
    fsdp_checkpoint_entry entry;
    /* If reads of this file do not verify blocks, verify the checksum in the archive instead. The
     * archive's checksum covers the whole chunk, so verify it only if the whole chunk is read. */
    if (!by_blocks && o->n * o->run == chunk->numel)
        fsdp_torch_archive_check_all(archive);
    FSDP_TRY(chunk_entry(reader, w->item, chunk, archive, &entry));
    if (by_blocks) {
        fsdp_status status = copy_checked(w, file, chunk, o, &entry);
        fsdp_error_context(status, "'%s'", w->item->fqn);
        return status;
    }
    size_t begin, end;
    span_of(w, chunk, o, &begin, &end);
    fsdp_checkpoint_advise((const char *)entry.data + begin, end - begin,
                           FSDP_CHECKPOINT_WILL_READ);
    copy_overlap(w, chunk, o, entry.data);
    return FSDP_OK;
}

static fsdp_status check_box(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                             const int64_t *offsets, const int64_t *sizes)
{
    if (!item->dtype_name)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is a plain value, no tensor", reader->path,
                          item->fqn);
    for (int d = 0; d < item->ndim; d++)
        if (offsets[d] < 0 || sizes[d] < 0 || offsets[d] > item->shape[d] - sizes[d])
            return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' has no %lld from %lld on in dimension %d",
                              reader->path, item->fqn, (long long)sizes[d], (long long)offsets[d],
                              d);
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_box(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                const int64_t *offsets, const int64_t *sizes, void *out)
{
    FSDP_TRY(check_box(reader, item, offsets, sizes));
    size_t width = item->numel ? (size_t)(item->bytes / item->numel) : 1;
    wanted w = {.item = item, .offsets = offsets, .sizes = sizes, .width = width, .out = out};
    for (size_t i = 0; i < item->n_chunks; i++) {
        fsdp_torch_archive *archive;
        overlap o;
        if (!item->chunks[i].numel || !find_overlap(&w, &item->chunks[i], &o))
            continue;
        FSDP_TRY(open_item(reader, item, &item->chunks[i], &archive));
        fsdp_status status = copy_chunk(reader, &w, &item->chunks[i], &o, archive);
        fsdp_torch_archive_destroy(archive);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_rows(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                 int64_t begin, int64_t end, void *out)
{
    int64_t offsets[MAX_NDIM] = {0}, sizes[MAX_NDIM], n = item->ndim ? item->shape[0] : 1;
    if (!item->dtype_name || begin < 0 || end < begin || end > n)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' has no rows [%lld, %lld)", reader->path,
                          item->fqn, (long long)begin, (long long)end);
    if (begin == end)
        return FSDP_OK;
    for (int d = 0; d < item->ndim; d++)
        sizes[d] = item->shape[d];
    if (item->ndim) {
        offsets[0] = begin;
        sizes[0] = end - begin;
    }
    return fsdp_dcp_reader_box(reader, item, offsets, sizes, out);
}

/* ---- checking -------------------------------------------------------------------------------- */

static fsdp_status check_chunk(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                               const fsdp_dcp_chunk *chunk)
{
    fsdp_torch_archive *archive;
    fsdp_checkpoint_entry entry;
    FSDP_TRY(open_item(reader, item, chunk, &archive));
    fsdp_status status = chunk_entry(reader, item, chunk, archive, &entry);
    if (status == FSDP_OK)
        status = fsdp_torch_archive_check(archive, fsdp_torch_archive_root(archive), item->fqn);
    fsdp_torch_archive_destroy(archive);
    return status;
}

/* Return true if this rank checks chunk number `chunk`, which is in file `i`. If all ranks have the
 * file, `first` and `step` decide (fsdp_dcp_reader_check_share()). If some ranks do not have it,
 * the rank that sends it to other ranks checks the chunk. */
static bool is_in_share(const fsdp_dcp_reader *reader, size_t i, size_t chunk, size_t first,
                        size_t step)
{
    if (reader->remote && !fsdp_remote_files_all_have(reader->remote, i))
        return fsdp_remote_files_server(reader->remote, i) == reader->rank;
    return chunk >= first && (chunk - first) % step == 0;
}

fsdp_status fsdp_dcp_reader_check_share(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                        size_t first, size_t step)
{
    for (size_t i = 0; i < item->n_chunks; i++) {
        const data_file *file = file_of(reader, &item->chunks[i]);
        if (!file->check && !file->remote &&
            is_in_share(reader, (size_t)(file - reader->files), i, first, step))
            FSDP_TRY(check_chunk(reader, item, &item->chunks[i]));
    }
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_check(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    for (size_t i = 0; i < item->n_chunks; i++)
        FSDP_TRY(check_chunk(reader, item, &item->chunks[i]));
    return FSDP_OK;
}

void fsdp_dcp_reader_forget(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    for (size_t i = 0; i < item->n_chunks; i++) {
        const data_file *file = file_of(reader, &item->chunks[i]);
        if (!file->remote)
            fsdp_checkpoint_advise(file->map.data + item->chunks[i].offset,
                                   (size_t)item->chunks[i].length, FSDP_CHECKPOINT_DONE);
    }
}
