/* See output.h. OUTPUT.partial contains:
 *
 *     lock          locked (flock) by the process that is writing the output
 *     journal.json  how much has been written; see journal.h
 *     out/          the files of the output: train.bin, val.bin, and Megatron's indices
 *     *.sizes       Megatron: number of tokens of each sequence, int32
 *
 * After a crash, a file may be longer than the journal says. A run with --resume first cuts the
 * file to the length in the journal. */
#include "src/tokenize/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file_access.h"
#include "src/base/io.h"
#include "src/base/scratch_file.h"
#include "src/base/str.h"
#include "src/text/unknown_in_text.h"
#include "src/tokenize/token_header.h"

typedef struct part_file {
    char *path, *sizes_path;
    int fd, sizes_fd; /* -1: not open */
} part_file;

struct fsdp_token_output {
    fsdp_output_options options;
    char *path; /* without trailing slashes */
    /* final path of the output: `path` or, if `path` is a symbolic link, the target of the link */
    char *place;
    char *partial, *journal, *out;
    int lock;
    bool is_file, has_journal;
    int n_parts;
    part_file parts[FSDP_TOKENIZE_PARTS];
};

bool fsdp_output_is_file(const char *path)
{
    return fsdp_ends_with(path, ".bin");
}

static fsdp_status failed(const char *path)
{
    return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
}

/* ---- files ---- */

/* Open a file, and cut it to `bytes` bytes, its length in the journal. If the file is shorter,
 * return an error, because it cannot be the file that the journal describes. */
static fsdp_status open_at(const char *path, int64_t bytes, int *fd)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return failed(path);
    const off_t size = lseek(*fd, 0, SEEK_END);
    if (size < bytes)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: has %" PRId64 " bytes, but the journal beside it says %" PRId64
                          ": --overwrite begins again",
                          path, (int64_t)size, bytes);
    if (ftruncate(*fd, bytes) != 0 || lseek(*fd, bytes, SEEK_SET) != bytes)
        return failed(path);
    return FSDP_OK;
}

static size_t header_bytes(const fsdp_token_output *o)
{
    return o->options.format == FSDP_TOKENIZE_LLMC ? FSDP_LLMC_HEADER_BYTES : 0;
}

static fsdp_status open_part(fsdp_token_output *o, int i, const fsdp_tokenize_state *state)
{
    static const char *const names[] = {"train", "val"};
    part_file *part = &o->parts[i];
    part->path = fsdp_strdup_printf("%s/%s.bin", o->out, names[i]);
    part->sizes_path = fsdp_strdup_printf("%s/%s.sizes", o->partial, names[i]);
    if (!part->path || !part->sizes_path)
        return FSDP_ERR_NOMEM;
    const char zeros[FSDP_LLMC_HEADER_BYTES] = {0};
    FSDP_TRY(open_at(part->path,
                     state->parts[i].bytes ? state->parts[i].bytes + (int64_t)header_bytes(o) : 0,
                     &part->fd));
    if (!state->parts[i].bytes)
        FSDP_TRY(fsdp_fd_write(part->fd, part->path, zeros, header_bytes(o)));
    if (o->options.format != FSDP_TOKENIZE_MEGATRON)
        return FSDP_OK;
    return open_at(part->sizes_path, state->parts[i].rows * (int64_t)sizeof(int32_t),
                   &part->sizes_fd);
}

/* ---- beginning ---- */

/* Return the path of the index that belongs to Megatron's file `path`: for NAME.bin, this is
 * NAME.idx. */
static char *index_path(const char *path)
{
    return fsdp_strdup_printf("%.*s.idx", (int)(strlen(path) - strlen(".bin")), path);
}

/* Return an error if there is already an index file next to the output file, unless it may be
 * replaced. If the old index were kept, a reader would use it for the new output file, even if the
 * new file is not in Megatron's format. */
static fsdp_status check_index(const fsdp_token_output *o, bool may_replace)
{
    char *index = index_path(o->path);
    if (!index)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_path_exists(index) && !fsdp_path_is_file(index))
        status = fsdp_error(FSDP_ERR_INVALID, "%s: not a file, but has the name of an index of %s",
                            index, o->path);
    else if (fsdp_path_exists(index) && !may_replace)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "%s: exists, and would be taken for the index of %s; --overwrite %s it",
                            index, o->path,
                            o->options.format == FSDP_TOKENIZE_MEGATRON ? "replaces" : "removes");
    fsdp_free(index);
    return status;
}

/* Return an error if the output cannot be created at o->path. */
static fsdp_status check_target(const fsdp_token_output *o)
{
    if (!o->is_file) {
        fsdp_status status = fsdp_atomic_directory_check(o->path, FSDP_EXISTING_REFUSE);
        if (status == FSDP_ERR_INVALID && fsdp_path_is_directory(o->path))
            return fsdp_error(status,
                              "%s: exists and is not empty: remove it, or give another "
                              "--output",
                              o->path);
        return status;
    }
    if (fsdp_path_is_directory(o->path))
        return fsdp_error(FSDP_ERR_INVALID, "%s: is a folder", o->path);
    return FSDP_OK;
}

/* Return an error if the run would replace an existing file without permission. --overwrite gives
 * this permission. A run with --resume also has the permission of the interrupted run, and may
 * replace an index that the interrupted run has written. */
static fsdp_status check_existing(fsdp_token_output *o, fsdp_tokenize_state *state)
{
    state->overwrites |= o->options.overwrite;
    if (!o->is_file)
        return FSDP_OK;
    if (fsdp_path_exists(o->path) && !state->overwrites)
        return fsdp_error(FSDP_ERR_INVALID, "%s: exists; --overwrite replaces it", o->path);
    const bool own = o->options.format == FSDP_TOKENIZE_MEGATRON && state->is_complete;
    return check_index(o, state->overwrites || own);
}

static fsdp_status lock_partial(fsdp_token_output *o)
{
    char *path = fsdp_path_join(o->partial, "lock");
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    o->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (o->lock < 0)
        status = failed(path);
    else if (flock(o->lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? fsdp_error(FSDP_ERR_STATE, "%s: another process is writing it", o->partial)
                     : failed(path);
    if (status != FSDP_OK && o->lock >= 0) {
        close(o->lock);
        /* This process does not own the folder, so fsdp_output_close() must not remove it. It does
         * not if o->lock is -1. */
        o->lock = -1;
    }
    fsdp_free(path);
    return status;
}

/* If there is a journal of an interrupted run: with --resume, read it; with --overwrite, delete it;
 * otherwise, return an error. */
static fsdp_status read_journal(fsdp_token_output *o, fsdp_tokenize_state *state)
{
    if (!fsdp_path_exists(o->journal))
        return FSDP_OK;
    o->has_journal = true;
    if (o->options.resume)
        return fsdp_journal_read(o->journal, o->options.settings, state);
    if (!o->options.overwrite)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: left by a run that was interrupted: --resume goes on with it, "
                          "--overwrite begins again",
                          o->partial);
    o->has_journal = false;
    return fsdp_tree_remove(o->journal);
}

static fsdp_status find_place(fsdp_token_output *o)
{
    if (o->is_file)
        return fsdp_path_follow(o->path, &o->place);
    o->place = fsdp_strdup(o->path);
    return o->place ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status begin(fsdp_token_output *o, fsdp_tokenize_state *state)
{
    o->path = fsdp_path_stripped(o->options.path);
    if (!o->path)
        return FSDP_ERR_NOMEM;
    o->is_file = fsdp_output_is_file(o->path);
    FSDP_TRY(find_place(o));
    o->partial = fsdp_strdup_printf("%s.partial", o->place);
    o->journal = o->partial ? fsdp_path_join(o->partial, "journal.json") : NULL;
    o->out = o->journal ? fsdp_path_join(o->partial, "out") : NULL;
    if (!o->out)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(check_target(o));
    FSDP_TRY(fsdp_directory_make(o->partial));
    FSDP_TRY(lock_partial(o));
    FSDP_TRY(read_journal(o, state));
    FSDP_TRY(check_existing(o, state));
    if (!o->has_journal)
        FSDP_TRY(fsdp_tree_remove(o->out));
    FSDP_TRY(fsdp_directory_make(o->out));
    o->n_parts = o->options.has_validation ? 2 : 1;
    for (int i = 0; i < o->n_parts; i++)
        FSDP_TRY(open_part(o, i, state));
    return FSDP_OK;
}

fsdp_status fsdp_output_begin(const fsdp_output_options *options, fsdp_tokenize_state *state,
                              fsdp_token_output **out)
{
    fsdp_tokenize_state found = {0};
    fsdp_token_output *o = fsdp_calloc(1, sizeof *o);
    if (!o)
        return FSDP_ERR_NOMEM;
    o->options = *options;
    o->lock = -1;
    for (int i = 0; i < FSDP_TOKENIZE_PARTS; i++)
        o->parts[i].fd = o->parts[i].sizes_fd = -1;
    fsdp_status status = begin(o, &found);
    if (status != FSDP_OK) {
        fsdp_output_close(o, true);
        return status;
    }
    *state = found;
    *out = o;
    return FSDP_OK;
}

void fsdp_output_close(fsdp_token_output *o, bool keep)
{
    if (!o)
        return;
    for (int i = 0; i < FSDP_TOKENIZE_PARTS; i++) {
        if (o->parts[i].fd >= 0)
            close(o->parts[i].fd);
        if (o->parts[i].sizes_fd >= 0)
            close(o->parts[i].sizes_fd);
        fsdp_free(o->parts[i].path);
        fsdp_free(o->parts[i].sizes_path);
    }
    if (o->lock >= 0 && (!keep || !o->has_journal) && o->partial)
        /* failure is ignored: the remaining files do no harm */
        (void)!fsdp_tree_remove(o->partial);
    if (o->lock >= 0)
        close(o->lock);
    fsdp_free(o->path);
    fsdp_free(o->place);
    fsdp_free(o->partial);
    fsdp_free(o->journal);
    fsdp_free(o->out);
    fsdp_free(o);
}

const char *fsdp_output_spool(const fsdp_token_output *o, int part)
{
    return o->parts[part].path;
}

/* ---- writing ---- */

fsdp_status fsdp_output_append(fsdp_token_output *o, const fsdp_encoded *e,
                               fsdp_tokenize_state *state)
{
    for (int i = 0; i < o->n_parts; i++) {
        const fsdp_encoded_part *part = &e->parts[i];
        FSDP_TRY(fsdp_fd_write(o->parts[i].fd, o->parts[i].path, part->bytes, part->used));
        if (o->parts[i].sizes_fd >= 0)
            FSDP_TRY(fsdp_fd_write(o->parts[i].sizes_fd, o->parts[i].sizes_path, part->sizes,
                                   (size_t)part->rows * sizeof *part->sizes));
        state->parts[i].rows += part->rows;
        state->parts[i].tokens += part->tokens;
        state->parts[i].bytes += (int64_t)part->used;
        if (o->options.format == FSDP_TOKENIZE_LLMC && state->parts[i].tokens > INT32_MAX)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: more than %d tokens, which the header of llm.c's files cannot "
                              "count: use --format nanogpt, or several files",
                              o->path, INT32_MAX);
    }
    state->text_bytes += e->text_bytes;
    state->cut_rows += e->cut_rows;
    state->cut_tokens += e->cut_tokens;
    if (state->special_rows == 0)
        memcpy(state->special, e->special, sizeof state->special);
    state->special_rows += e->special_rows;
    if (state->unknown_rows == 0)
        memcpy(state->unknown, e->unknown, sizeof state->unknown);
    state->unknown_rows += e->unknown_rows;
    fsdp_unknown_examples_add(&state->unknown_examples, &e->unknown_examples);
    state->masked_rows += e->masked_rows;
    state->empty_rows += e->empty_rows;
    for (int i = 0; i < FSDP_SPOOLED_LISTS; i++)
        state->lists[i] |= e->lists[i];
    return FSDP_OK;
}

static fsdp_status sync_parts(const fsdp_token_output *o)
{
    for (int i = 0; i < o->n_parts; i++) {
        const part_file *part = &o->parts[i];
        if (fdatasync(part->fd) != 0)
            return failed(part->path);
        if (part->sizes_fd >= 0 && fdatasync(part->sizes_fd) != 0)
            return failed(part->sizes_path);
    }
    return FSDP_OK;
}

fsdp_status fsdp_output_save(fsdp_token_output *o, const fsdp_tokenize_state *state)
{
    FSDP_TRY(sync_parts(o));
    FSDP_TRY(fsdp_journal_write(o->journal, o->options.settings, state));
    o->has_journal = true;
    return FSDP_OK;
}

/* ---- the end ---- */

/* Return the path of the index of a part. If the output is one file, the index is next to its final
 * path. Otherwise, the index is in the folder that will be moved to the final path. */
static char *index_of_part(const fsdp_token_output *o, int i)
{
    return index_path(o->is_file ? o->path : o->parts[i].path);
}

static fsdp_status write_index(const fsdp_token_output *o, int i, const fsdp_tokenize_state *state)
{
    const part_file *part = &o->parts[i];
    char *path = index_of_part(o, i);
    if (!path)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        fsdp_megatron_index_write(path, part->sizes_path, state->parts[i].rows, o->options.width);
    fsdp_free(path);
    return status;
}

static fsdp_status finish_part(const fsdp_token_output *o, int i, const fsdp_tokenize_state *state)
{
    const part_file *part = &o->parts[i];
    unsigned char header[FSDP_LLMC_HEADER_BYTES];
    if (o->options.format == FSDP_TOKENIZE_LLMC) {
        fsdp_llmc_header(o->options.width, state->parts[i].tokens, header);
        if (pwrite(part->fd, header, sizeof header, 0) != (ssize_t)sizeof header)
            return failed(part->path);
    }
    if (fsync(part->fd) != 0)
        return failed(part->path);
    return o->options.format == FSDP_TOKENIZE_MEGATRON ? write_index(o, i, state) : FSDP_OK;
}

static fsdp_status sync_parent(const char *path)
{
    char *parent = fsdp_path_parent(path);
    if (!parent)
        return FSDP_ERR_NOMEM;
    const int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd); /* failure is ignored, because some file systems cannot sync a folder */
        close(fd);
    }
    fsdp_free(parent);
    return FSDP_OK;
}

/* Remove the index of the file that will be overwritten, because it does not fit the new file. If
 * the run is killed after this, it can be continued with --resume. */
static fsdp_status remove_old_index(const fsdp_token_output *o)
{
    if (!o->is_file || o->options.format == FSDP_TOKENIZE_MEGATRON)
        return FSDP_OK;
    char *index = index_path(o->path);
    if (!index)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = unlink(index) == 0 || errno == ENOENT ? FSDP_OK : failed(index);
    fsdp_free(index);
    return status;
}

fsdp_status fsdp_output_commit(fsdp_token_output *o, const fsdp_tokenize_state *state)
{
    for (int i = 0; i < o->n_parts; i++)
        FSDP_TRY(finish_part(o, i, state));
    FSDP_TRY(remove_old_index(o));
    const char *from = o->is_file ? o->parts[0].path : o->out;
    if (o->is_file)
        fsdp_file_copy_access(o->parts[0].fd, o->place);
    if (rename(from, o->place) != 0)
        return failed(o->place);
    FSDP_TRY(sync_parent(o->place));
    return FSDP_OK;
}
