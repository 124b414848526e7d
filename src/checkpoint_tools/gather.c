/* See gather.h. */
#include "src/checkpoint_tools/gather.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/io_internal.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/dcp_reader.h"
#include "src/dcp/remote_files.h"
#include "src/train/checkpoint_state.h"
#include "src/train/checkpoint_tie.h"

enum {
    PIECE_BYTES = 1 << 20, /* number of bytes that are read at a time from a file that has no
                              checksums of blocks */
    MAX_SHOWN = 8
};

static const char METADATA[] = ".metadata";

/* The content of a file that all folders have. */
typedef struct text {
    char *data; /* NULL: there is no such file */
    size_t bytes;
} text;

typedef struct gathering {
    const char *const *dirs; /* [n_dirs] */
    size_t n_dirs;
    const char *to;
    fsdp_group *group;
    const fsdp_gather_options *options;
    fsdp_gather_result *result;
    text metadata, state; /* the contents of .metadata and trainer_state.json */
    const char *from;     /* the folder on this host from which `metadata` and `state` were read;
                             NULL: none */
    fsdp_dcp_metadata *parsed;
    const char **names; /* [n] names of the files that the ranks wrote, sorted; borrowed from
                           `parsed` */
    char **paths;       /* [n] paths of these files on this host; NULL: this host does not have the
                           file */
    size_t n;
    fsdp_remote_files *files;
    fsdp_atomic_directory *target; /* the new folder, on rank 0; NULL on other ranks */
} gathering;

static bool is_first(const gathering *g)
{
    return fsdp_group_rank(g->group) == 0;
}

/* ---- the folders ----------------------------------------------------------------------------- */

/* A file that only checkpoints of another format have, and what to do with such a checkpoint. */
static const struct {
    const char *name, *what;
} other_forms[] = {
    {"model_state_dict.pt",
     "a FULL_STATE_DICT: its files are whole, so there is nothing to gather"},
    {"local_state_dict_rank0.pt",
     "a LOCAL_STATE_DICT: copy its files local_state_dict_rank*.pt and trainer_state.json into one "
     "folder, and check it with 'fsdp checkpoint verify'"},
    {"pytorch_model_fsdp.bin",
     "a folder of Accelerate, which is saved on shared file systems only"},
    {"scheduler.bin", "a folder of Accelerate, which is saved on shared file systems only"},
    {"model.safetensors", "a Hugging Face model"},
};

static fsdp_status refuse_folder(const char *dir)
{
    for (size_t i = 0; i < FSDP_LENGTH(other_forms); i++)
        if (fsdp_directory_has_file(dir, other_forms[i].name))
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: is %s", dir, other_forms[i].what);
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: there is no .metadata in it, so it is no checkpoint of "
                      "torch.distributed.checkpoint, or one that was never completed",
                      dir);
}

static fsdp_status read_text(const char *dir, const char *name, text *out)
{
    char *path = fsdp_path_join(dir, name);
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_is_file(path))
        status = fsdp_file_read(path, SIZE_MAX / 2, &out->data, &out->bytes);
    fsdp_free(path);
    return status;
}

static bool is_equal(const text *a, const text *b)
{
    if (!a->data || !b->data)
        return !a->data == !b->data;
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

/* Return the step in trainer_state.json, or -1. */
static int64_t step_of(const text *state)
{
    fsdp_json *doc;
    int64_t step = -1;
    if (!state->data || fsdp_json_parse("", 1, state->data, state->bytes, &doc) != FSDP_OK)
        return -1;
    if (fsdp_json_opt_i64(fsdp_json_root(doc), "global_step", 0, INT64_MAX, -1, &step) != FSDP_OK)
        step = -1;
    fsdp_json_destroy(doc);
    return step;
}

static fsdp_status refuse_two_saves(const char *dir, const char *other, const text *state,
                                    const text *other_state)
{
    const int64_t a = step_of(state), b = step_of(other_state);
    if (!state->data != !other_state->data)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: has %s" FSDP_TRAINER_STATE ", unlike %s: they are of two saves", dir,
                          state->data ? "a " : "no ", other);
    if (a != b)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: is of step %lld, but %s is of step %lld: they are of two saves", dir,
                          (long long)a, other, (long long)b);
    return fsdp_error(FSDP_ERR_INVALID, "%s: its %s is not that of %s: they are of two saves", dir,
                      state->data && other_state->data && !is_equal(state, other_state)
                          ? FSDP_TRAINER_STATE
                          : METADATA,
                      other);
}

/* Check that the files in `dir` belong to its trainer_state.json. */
static fsdp_status check_save(const char *dir, const text *state)
{
    fsdp_json *doc;
    if (!state->data)
        return FSDP_OK;
    FSDP_TRY(fsdp_trainer_state_open(dir, &doc));
    /* The trainer_state.json that transformers' Trainer writes has no field "format". */
    fsdp_status status = fsdp_json_has(fsdp_json_root(doc), "format")
                             ? fsdp_checkpoint_tie_check(fsdp_json_root(doc), dir)
                             : FSDP_OK;
    fsdp_json_destroy(doc);
    return status;
}

/* Check that the files of the folder `dir` are equal to g->metadata and g->state, which were read
 * from the folder `label`. If g->metadata is not set, set g->metadata and g->state from `dir`. */
static fsdp_status examine_folder(gathering *g, const char *dir, const char *label)
{
    text metadata = {0}, state = {0};
    fsdp_status status = read_text(dir, METADATA, &metadata);
    if (status == FSDP_OK && !metadata.data)
        status = refuse_folder(dir);
    if (status == FSDP_OK)
        status = read_text(dir, FSDP_TRAINER_STATE, &state);
    if (status == FSDP_OK)
        status = check_save(dir, &state);
    if (status == FSDP_OK && !g->metadata.data) {
        g->metadata = metadata;
        g->state = state;
        g->from = dir;
        return FSDP_OK;
    }
    if (status == FSDP_OK && (!is_equal(&metadata, &g->metadata) || !is_equal(&state, &g->state)))
        status = refuse_two_saves(dir, label, &state, &g->state);
    fsdp_free(metadata.data);
    fsdp_free(state.data);
    return status;
}

/* Examine the folders that this host has. If this rank is the only one, its host must have all
 * folders. */
static fsdp_status examine_folders(gathering *g)
{
    const bool alone = fsdp_group_world_size(g->group) == 1;
    for (size_t i = 0; i < g->n_dirs; i++) {
        if (fsdp_path_is_directory(g->dirs[i]))
            FSDP_TRY(examine_folder(g, g->dirs[i], g->from));
        else if (alone || fsdp_path_exists(g->dirs[i]))
            return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no such folder", g->dirs[i]);
    }
    return FSDP_OK;
}

/* Give all ranks the text of rank `root`. Collective. */
static fsdp_status send_text(const gathering *g, text *t, int root)
{
    const int rank = fsdp_group_rank(g->group);
    int64_t bytes = rank == root && t->data ? (int64_t)t->bytes : -1;
    FSDP_TRY(fsdp_broadcast(g->group, &bytes, sizeof bytes, root));
    if (rank != root) {
        fsdp_free(t->data);
        *t = (text){0};
        if (bytes >= 0)
            *t = (text){fsdp_calloc((size_t)bytes + 1, 1), (size_t)bytes};
    }
    FSDP_TRY(fsdp_agree(g->group, bytes < 0 || t->data ? FSDP_OK : FSDP_ERR_NOMEM));
    return bytes > 0 ? fsdp_broadcast(g->group, t->data, (size_t)bytes, root) : FSDP_OK;
}

/* Compare the folders of all hosts. Collective. */
static fsdp_status compare_folders(gathering *g)
{
    const int rank = fsdp_group_rank(g->group), ranks = fsdp_group_world_size(g->group);
    int32_t first = g->from ? rank : ranks;
    FSDP_TRY(fsdp_all_reduce(g->group, &first, 1, FSDP_DTYPE_I32, FSDP_REDUCE_MIN));
    if (first == ranks)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no host has such a folder", g->dirs[0]);
    const char *own = g->from;
    FSDP_TRY(send_text(g, &g->metadata, first));
    FSDP_TRY(send_text(g, &g->state, first));
    return fsdp_agree(g->group,
                      own && rank != first
                          ? examine_folder(g, own, fsdp_group_host_text(g->group, first).text)
                          : FSDP_OK);
}

/* ---- the files of ranks ---------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* List the files that .metadata names, each once. */
static fsdp_status list_names(gathering *g)
{
    size_t cap = 0, n = 0;
    FSDP_TRY(fsdp_dcp_metadata_create(METADATA, g->metadata.data, g->metadata.bytes, &g->parsed));
    for (size_t i = 0; i < fsdp_dcp_metadata_count(g->parsed); i++) {
        const fsdp_dcp_item *item = fsdp_dcp_metadata_at(g->parsed, i);
        if (!FSDP_GROW(g->names, cap, n + item->n_chunks))
            return FSDP_ERR_NOMEM;
        for (size_t k = 0; k < item->n_chunks; k++)
            g->names[n++] = item->chunks[k].file;
    }
    if (n)
        qsort(g->names, n, sizeof *g->names, compare_names);
    for (size_t i = 0; i < n; i++)
        if (g->n == 0 || strcmp(g->names[g->n - 1], g->names[i]) != 0)
            g->names[g->n++] = g->names[i];
    g->paths = fsdp_calloc(g->n + 1, sizeof(char *));
    return g->paths ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Find file `i` in the folders of this host. If several folders have the file, use the first of
 * them. */
static fsdp_status find_path(gathering *g, size_t i)
{
    for (size_t d = 0; d < g->n_dirs && !g->paths[i]; d++) {
        char *path = fsdp_path_join(g->dirs[d], g->names[i]);
        if (!path)
            return FSDP_ERR_NOMEM;
        if (fsdp_path_is_file(path))
            g->paths[i] = path;
        else
            fsdp_free(path);
    }
    return FSDP_OK;
}

static fsdp_status find_paths(gathering *g)
{
    FSDP_TRY(list_names(g));
    for (size_t i = 0; i < g->n; i++)
        FSDP_TRY(find_path(g, i));
    return FSDP_OK;
}

/* Check that each file is in a folder of some host. If not, return an error that names the missing
 * files and the hosts that saved them. */
static fsdp_status check_all_are_somewhere(const gathering *g)
{
    fsdp_json *state = NULL;
    fsdp_str list = {0};
    size_t missing = 0;
    if (g->state.data &&
        fsdp_json_parse(FSDP_TRAINER_STATE, 1, g->state.data, g->state.bytes, &state) != FSDP_OK)
        state = NULL;
    for (size_t i = 0; i < g->n; i++) {
        const char *host = "";
        if (fsdp_remote_files_server(g->files, i) >= 0 || missing++ >= MAX_SHOWN)
            continue;
        if (state && strncmp(g->names[i], "__", 2) == 0)
            host = fsdp_trainer_state_host_of(fsdp_json_root(state),
                                              strtoll(g->names[i] + 2, NULL, 10));
        fsdp_str_printf(&list, "%s%s", missing == 1 ? "" : ", ", g->names[i]);
        if (*host)
            fsdp_str_printf(&list, " (saved on host %s)", host);
    }
    if (missing > MAX_SHOWN)
        fsdp_str_printf(&list, " and %zu more", missing - MAX_SHOWN);
    fsdp_status status = list.failed ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK && missing)
        status =
            fsdp_error(FSDP_ERR_NOT_FOUND,
                       "%s%s: there is no %s. Name the folders with the files of all hosts, or "
                       "start this command by mpirun or srun on the hosts",
                       g->dirs[0], g->n_dirs > 1 ? " and the other folders" : "", list.data);
    fsdp_str_fini(&list);
    fsdp_json_destroy(state);
    return status;
}

/* ---- copying --------------------------------------------------------------------------------- */

/* A file that is copied. */
typedef struct copying {
    const gathering *g;
    size_t i;
    int fd; /* the open file; -1: another host has it */
    char *label;
    fsdp_mapping size;       /* only `bytes` is set: the size of the file */
    fsdp_block_check *check; /* NULL: the file has no checksums of blocks */
    unsigned char *piece;
    size_t piece_bytes;
} copying;

/* Read bytes [offset, offset + bytes) of the open file `fd`. */
static fsdp_status read_descriptor(int fd, const char *label, uint64_t offset, unsigned char *to,
                                   size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fsdp_io_error(label, "cannot read");
        if (n == 0)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: ends at byte %llu: it was shortened", label,
                              (unsigned long long)offset);
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return FSDP_OK;
}

static fsdp_status read_data(void *context, uint64_t offset, void *out, size_t bytes)
{
    const copying *c = context;
    if (c->fd >= 0)
        return read_descriptor(c->fd, c->label, offset, out, bytes);
    return fsdp_remote_files_read(c->g->files, c->i, FSDP_REMOTE_DATA, offset, out, bytes);
}

/* Copy the file with the checksums of blocks, and create c->check from it. Do nothing if another
 * program wrote the checkpoint, because such a checkpoint does not have this file. */
static fsdp_status copy_sums(copying *c, const char *to)
{
    const gathering *g = c->g;
    text sums = {0};
    if (!fsdp_dcp_metadata_is_own(g->parsed))
        return FSDP_OK;
    sums.bytes = (size_t)fsdp_remote_files_bytes(g->files, c->i, FSDP_REMOTE_SUMS);
    if (sums.bytes == 0)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no .crc32 file with its checksums",
                          c->label);
    char *from = c->fd >= 0 ? fsdp_block_sums_path(g->paths[c->i]) : NULL;
    char *path = fsdp_block_sums_path(to);
    fsdp_status status = path && (from || c->fd < 0) ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && from)
        status = fsdp_file_read(from, SIZE_MAX / 2, &sums.data, &sums.bytes);
    else if (status == FSDP_OK) {
        sums.data = fsdp_calloc(sums.bytes, 1);
        status = sums.data ? fsdp_remote_files_read(g->files, c->i, FSDP_REMOTE_SUMS, 0, sums.data,
                                                    sums.bytes)
                           : FSDP_ERR_NOMEM;
    }
    if (status == FSDP_OK)
        status = fsdp_block_check_create(c->label, &c->size, sums.data, sums.bytes, &c->check);
    if (status == FSDP_OK)
        status = fsdp_file_write(path, sums.data, sums.bytes);
    fsdp_free(sums.data);
    fsdp_free(path);
    fsdp_free(from);
    return status;
}

static fsdp_status append_all(copying *c, fsdp_atomic_file *file)
{
    for (uint64_t at = 0; at < c->size.bytes; at += c->piece_bytes) {
        const uint64_t left = c->size.bytes - at;
        const size_t n = left < c->piece_bytes ? (size_t)left : c->piece_bytes;
        FSDP_TRY(c->check ? fsdp_block_check_read_by(c->check, read_data, c, at, n, c->piece)
                          : read_data(c, at, c->piece, n));
        FSDP_TRY(fsdp_atomic_file_append(file, c->piece, n));
    }
    return FSDP_OK;
}

static fsdp_status copy_data(copying *c, const char *to)
{
    fsdp_atomic_file *file;
    FSDP_TRY(copy_sums(c, to));
    c->piece_bytes = c->check ? (size_t)fsdp_block_check_block_bytes(c->check) : PIECE_BYTES;
    c->piece = fsdp_calloc(c->piece_bytes, 1);
    if (!c->piece)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_atomic_file_begin(to, c->size.bytes, &file));
    const fsdp_status status = append_all(c, file);
    if (status == FSDP_OK)
        return fsdp_atomic_file_commit(file);
    fsdp_atomic_file_discard(file);
    return status;
}

static fsdp_status copy_file(const gathering *g, size_t i)
{
    copying c = {.g = g,
                 .i = i,
                 .fd = -1,
                 .size.bytes = (size_t)fsdp_remote_files_bytes(g->files, i, FSDP_REMOTE_DATA)};
    const int server = fsdp_remote_files_server(g->files, i);
    char *to = fsdp_path_join(fsdp_atomic_directory_path(g->target), g->names[i]);
    c.label = g->paths[i]
                  ? fsdp_strdup(g->paths[i])
                  : fsdp_strdup_printf("%s: %s/%s", fsdp_group_host_text(g->group, server).text,
                                       g->dirs[0], g->names[i]);
    fsdp_status status = to && c.label ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && g->paths[i] && (c.fd = open(g->paths[i], O_RDONLY | O_CLOEXEC)) < 0)
        status = fsdp_io_error(g->paths[i], "cannot open");
    if (status == FSDP_OK)
        status = copy_data(&c, to);
    if (c.fd >= 0)
        close(c.fd);
    fsdp_block_check_close(c.check);
    fsdp_free(c.piece);
    fsdp_free(c.label);
    fsdp_free(to);
    return status;
}

static fsdp_status check_room(const gathering *g)
{
    uint64_t bytes = g->metadata.bytes + g->state.bytes;
    for (size_t i = 0; i < g->n; i++)
        if (__builtin_add_overflow(bytes, fsdp_remote_files_bytes(g->files, i, FSDP_REMOTE_DATA),
                                   &bytes) ||
            __builtin_add_overflow(bytes, fsdp_remote_files_bytes(g->files, i, FSDP_REMOTE_SUMS),
                                   &bytes))
            return fsdp_error(FSDP_ERR_INVALID, "%s: the files are too large for a disk", g->to);
    return fsdp_check_free_space(fsdp_atomic_directory_path(g->target), bytes);
}

static void count_hosts(const gathering *g)
{
    const int ranks = fsdp_group_world_size(g->group);
    for (int r = 0; r < ranks; r++) {
        bool sends = false;
        for (size_t i = 0; i < g->n && fsdp_group_leads_host(g->group, r); i++) {
            const int from = g->paths[i] ? 0 : fsdp_remote_files_server(g->files, i);
            int host = from;
            while (!fsdp_group_leads_host(g->group, host))
                host--;
            sends |= host == r;
        }
        g->result->hosts += sends;
    }
}

static fsdp_status copy_files(const gathering *g)
{
    FSDP_TRY(check_room(g));
    for (size_t i = 0; i < g->n; i++) {
        if (g->options->progress)
            g->options->progress(g->options->context, i, g->n);
        FSDP_TRY(copy_file(g, i));
        g->result->bytes += (int64_t)fsdp_remote_files_bytes(g->files, i, FSDP_REMOTE_DATA);
    }
    if (g->options->progress)
        g->options->progress(g->options->context, g->n, g->n);
    g->result->files = g->n;
    count_hosts(g);
    return FSDP_OK;
}

/* ---- the result ------------------------------------------------------------------------------ */

static fsdp_status write_text(const gathering *g, const char *name, const text *t)
{
    if (!t->data)
        return FSDP_OK;
    char *path = fsdp_path_join(fsdp_atomic_directory_path(g->target), name);
    fsdp_status status = path ? fsdp_file_write(path, t->data, t->bytes) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

/* Check that the new folder is a whole checkpoint. Blocks have been verified when they were copied;
 * files without checksums of blocks are verified now. */
static fsdp_status check_new_folder(const char *dir)
{
    fsdp_dcp_reader *reader;
    FSDP_TRY(fsdp_dcp_reader_open(dir, &reader));
    const fsdp_dcp_metadata *metadata = fsdp_dcp_reader_metadata(reader);
    fsdp_status status = fsdp_dcp_reader_check_companion(reader);
    for (size_t i = 0; i < fsdp_dcp_metadata_count(metadata) && status == FSDP_OK; i++) {
        const fsdp_dcp_item *item = fsdp_dcp_metadata_at(metadata, i);
        if (!fsdp_dcp_metadata_is_own(metadata) && item->dtype_name)
            status = fsdp_dcp_reader_check(reader, item);
    }
    fsdp_dcp_reader_close(reader);
    return status;
}

static fsdp_status complete(gathering *g)
{
    FSDP_TRY(write_text(g, METADATA, &g->metadata));
    FSDP_TRY(write_text(g, FSDP_TRAINER_STATE, &g->state));
    FSDP_TRY(check_new_folder(fsdp_atomic_directory_path(g->target)));
    fsdp_atomic_directory *finished = g->target;
    g->target = NULL;
    return fsdp_atomic_directory_commit(finished);
}

static fsdp_status gather(gathering *g)
{
    const fsdp_status begun =
        is_first(g) ? fsdp_atomic_directory_begin(g->to, FSDP_EXISTING_REFUSE, &g->target)
                    : FSDP_OK;
    FSDP_TRY(fsdp_agree(g->group, begun));
    FSDP_TRY(fsdp_agree(g->group, examine_folders(g)));
    FSDP_TRY(compare_folders(g));
    FSDP_TRY(fsdp_agree(g->group, find_paths(g)));
    FSDP_TRY(fsdp_remote_files_open(FSDP_OK, g->names, (const char *const *)g->paths, g->n,
                                    g->group, &g->files));
    FSDP_TRY(check_all_are_somewhere(g));
    const fsdp_status copied = is_first(g) ? copy_files(g) : FSDP_OK;
    FSDP_TRY(fsdp_agree(g->group, fsdp_remote_files_end(g->files, copied)));
    return fsdp_agree(g->group, is_first(g) ? complete(g) : FSDP_OK);
}

fsdp_status fsdp_gather_checkpoint(const char *const *dirs, size_t n_dirs, const char *to,
                                   fsdp_group *group, const fsdp_gather_options *options,
                                   fsdp_gather_result *result)
{
    static const fsdp_gather_options defaults = {0};
    FSDP_ASSERT(n_dirs > 0);
    *result = (fsdp_gather_result){0};
    gathering g = {.dirs = dirs,
                   .n_dirs = n_dirs,
                   .to = to,
                   .group = group,
                   .options = options ? options : &defaults,
                   .result = result};
    const fsdp_status status = gather(&g);
    fsdp_atomic_directory_discard(g.target);
    fsdp_remote_files_close(g.files);
    for (size_t i = 0; g.paths && i < g.n; i++)
        fsdp_free(g.paths[i]);
    fsdp_free(g.paths);
    fsdp_free(g.names);
    fsdp_dcp_metadata_destroy(g.parsed);
    fsdp_free(g.metadata.data);
    fsdp_free(g.state.data);
    return status;
}
