/* See config_paths.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/hf/hf_dir.h"
#include "src/hf/stale_files.h"
#include "src/train_config/config_paths.h"
#include "src/train_config/config_sources.h"

typedef struct named_path {
    const char *flag, *path; /* path is NULL if the flag is not given */
} named_path;

static bool is_same_place(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Return true if two paths have the same file name in the same folder. The files need not exist
 * yet. */
static bool will_be_same(const char *a, const char *b)
{
    struct stat st_a, st_b;
    char *dir_a = fsdp_path_parent(a), *dir_b = fsdp_path_parent(b);
    char *file_a = fsdp_path_stripped(a), *file_b = fsdp_path_stripped(b);
    bool same = dir_a && dir_b && file_a && file_b &&
                strcmp(fsdp_path_name(file_a), fsdp_path_name(file_b)) == 0 &&
                stat(dir_a, &st_a) == 0 && stat(dir_b, &st_b) == 0 && is_same_place(&st_a, &st_b);
    fsdp_free(dir_a);
    fsdp_free(dir_b);
    fsdp_free(file_a);
    fsdp_free(file_b);
    return same;
}

bool fsdp_train_is_same_file(const char *a, const char *b)
{
    struct stat st_a, st_b;
    const bool has_a = stat(a, &st_a) == 0, has_b = stat(b, &st_b) == 0;
    if (has_a && !S_ISREG(st_a.st_mode) && !S_ISDIR(st_a.st_mode))
        return false;
    if (has_a && has_b)
        return is_same_place(&st_a, &st_b);
    return strcmp(a, b) == 0 || will_be_same(a, b);
}

/* ---- the kind of an existing file ------------------------------------------------------------ */

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_of_kind(const char *start, fsdp_train_file kind)
{
    switch (kind) {
    case FSDP_TRAIN_FILE_METRICS:
        return start[0] == '{' && strstr(start, "\"kind\"");
    case FSDP_TRAIN_FILE_PROFILE:
        return begins_with(start, "{\"displayTimeUnit\"");
    default:
        return begins_with(start, "\x89PNG") || begins_with(start, "%PDF") ||
               begins_with(start, "<?xml") || begins_with(start, "<svg");
    }
}

fsdp_status fsdp_train_file_check(const char *flag, const char *path, fsdp_train_file kind)
{
    static const char *const names[] = {"metrics file", "profile", "picture"};
    struct stat st;
    char start[1024];
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return FSDP_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? pread(fd, start, sizeof start - 1, 0) : -1;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return FSDP_OK; /* not readable: the run will report the reason when it opens the file */
    start[n] = 0;
    if (n == 0 || is_of_kind(start, kind))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID,
        "--%s %s: the existing file is not a %s and would be overwritten; name another file", flag,
        path, names[kind]);
}

/* ---- all paths of a run ---------------------------------------------------------------------- */

static fsdp_status check_mixed(const fsdp_train_config *c, const named_path *written)
{
    for (size_t i = 0; i < c->mix_data.count && written->path; i++) {
        fsdp_train_source source;
        FSDP_TRY(fsdp_train_source_parse(c->mix_data.items[i], &source));
        if (fsdp_train_is_same_file(source.path, written->path))
            return fsdp_error(FSDP_ERR_INVALID, "--%s %s and --mix-data %s are the same file",
                              written->flag, written->path, c->mix_data.items[i]);
    }
    return FSDP_OK;
}

/* Return an error if a file would be written into the model's folder under the name of one of the
 * model's files, because the saved model would overwrite this file. */
static fsdp_status check_beside_model(const fsdp_train_config *c, const named_path *written)
{
    const char *name = written->path ? fsdp_path_name(written->path) : "";
    if (!c->save_model || !c->output ||
        (!fsdp_is_weights_name(name) && !fsdp_hf_dir_is_tokenizer_file(name) &&
         strcmp(name, "config.json") != 0 && strcmp(name, "generation_config.json") != 0))
        return FSDP_OK;
    char *parent = fsdp_path_parent(written->path);
    if (!parent)
        return FSDP_ERR_NOMEM;
    const bool same = fsdp_train_is_same_file(parent, c->output);
    fsdp_free(parent);
    if (!same)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "--%s %s: the model that is saved in --output has a file of this name, which "
                      "would replace it; name another file",
                      written->flag, written->path);
}

fsdp_status fsdp_train_paths_check(const fsdp_train_config *c)
{
    const named_path written[] = {
        {"metrics", c->metrics}, {"profile", c->profile}, {"plot", c->plot}};
    const named_path others[] = {{"data", c->data},
                                 {"validation-data", c->validation_data},
                                 {"tokenizer", c->tokenizer},
                                 {"output", c->output},
                                 {"checkpoint-dir", c->checkpoint_dir}};
    static const fsdp_train_file kinds[] = {FSDP_TRAIN_FILE_METRICS, FSDP_TRAIN_FILE_PROFILE,
                                            FSDP_TRAIN_FILE_PICTURE};
    for (size_t i = 0; i < FSDP_LENGTH(written); i++) {
        const named_path *w = &written[i], *o = NULL;
        FSDP_TRY(check_mixed(c, w));
        FSDP_TRY(check_beside_model(c, w));
        for (size_t k = 0; k < FSDP_LENGTH(others) + i && w->path; k++) {
            o = k < FSDP_LENGTH(others) ? &others[k] : &written[k - FSDP_LENGTH(others)];
            if (o->path && fsdp_train_is_same_file(o->path, w->path))
                return fsdp_error(FSDP_ERR_INVALID, "--%s %s and --%s %s are the same file",
                                  w->flag, w->path, o->flag, o->path);
        }
        if (w->path)
            FSDP_TRY(fsdp_train_file_check(w->flag, w->path, kinds[i]));
    }
    return FSDP_OK;
}
