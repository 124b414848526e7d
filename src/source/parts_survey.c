/* Implements fsdp_parts_classify() of parts.h, which opens the checkpoints that it finds. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/hf/rank_shards.h"
#include "src/hf/stale_files.h"
#include "src/source/parts.h"
#include "src/source/source.h"

enum {
    MAX_DEPTH = 2 /* largest depth of subfolders to search; checkpoint-5/optimizer_0 has depth 2 */
};

/* Return true if training programs use this name for torch.save files. The ending of the name is
 * not enough, because files of other kinds have the same endings. */
static bool is_state_name(const char *name)
{
    static const char *const names[] = {"optimizer.bin", "scheduler.bin", "pytorch_model_fsdp.bin",
                                        "training_args.bin"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return fsdp_is_weights_name(name) || fsdp_is_numbered_name(name, "random_states_", ".pkl") ||
           fsdp_is_numbered_name(name, "optimizer_", ".bin") ||
           fsdp_is_numbered_name(name, "scheduler_", ".bin");
}

/* Return true if the file begins like a zip archive or like a pickle. Older versions of torch.save
 * wrote pickles. */
static bool begins_as_torch(const char *path)
{
    char start[2];
    FILE *file = fopen(path, "rbe");
    const bool has = file && fread(start, 1, sizeof start, file) == sizeof start;
    if (file)
        fclose(file);
    return has && (memcmp(start, "PK", sizeof start) == 0 || start[0] == '\x80');
}

static bool is_state_file(const char *path, const char *name)
{
    if (!fsdp_path_is_file(path) || fsdp_ends_with(path, ".json"))
        return false;
    return is_state_name(name) || fsdp_ends_with(path, ".pt") || fsdp_ends_with(path, ".pth") ||
           fsdp_ends_with(path, ".safetensors") ||
           ((fsdp_ends_with(path, ".bin") || fsdp_ends_with(path, ".pkl")) &&
            begins_as_torch(path));
}

typedef struct survey {
    fsdp_parts *parts, *others;
} survey;

/* Return true if the file `path`, which has the name `name` in the folder `dir`, belongs to the
 * checkpoint in `dir`. This is true for the data, metadata, indexes and checksums of the
 * checkpoint, and for a trainer_state.json that `fsdp train` wrote. `main` is the opened
 * checkpoint, or NULL if `dir` has no checkpoint or if the checkpoint cannot be opened. */
static bool is_of_main(const fsdp_source *main, const char *dir, const char *path, const char *name)
{
    if (strcmp(name, "trainer_state.json") == 0)
        return fsdp_has_trainer_state(dir);
    if (fsdp_is_weights_name(name) && fsdp_ends_with(name, ".index.json"))
        return true;
    if (fsdp_parts_is_dcp(dir) && fsdp_is_stale_dcp_file(NULL, dir, NULL, name))
        return true;
    if (main && fsdp_shard_is_name(name))
        return true;
    for (size_t i = 0; main && i < fsdp_source_count(main); i++)
        if (strcmp(fsdp_source_at(main, i)->file, path) == 0)
            return true;
    return false;
}

static fsdp_status survey_folder(const survey *s, const char *dir, int depth);

static fsdp_status survey_entry(const survey *s, const char *path, const char *name, int depth)
{
    if (fsdp_path_is_directory(path)) {
        const bool is_checkpoint = fsdp_parts_is_checkpoint_name(name) || fsdp_parts_is_dcp(path);
        return is_checkpoint && depth < MAX_DEPTH ? survey_folder(s, path, depth + 1)
                                                  : fsdp_parts_add(s->others, path);
    }
    return fsdp_parts_add(is_state_file(path, name) ? s->parts : s->others, path);
}

static fsdp_status survey_entries(const survey *s, const char *dir, const fsdp_source *main,
                                  char *const *names, size_t n, int depth)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        char *path = fsdp_path_join(dir, names[i]);
        if (!path)
            return FSDP_ERR_NOMEM;
        if (!fsdp_atomic_directory_is_unfinished(names[i], NULL) &&
            !is_of_main(main, dir, path, names[i]))
            status = survey_entry(s, path, names[i], depth);
        fsdp_free(path);
    }
    return status;
}

static fsdp_status survey_folder(const survey *s, const char *dir, int depth)
{
    const size_t before = s->parts->n;
    fsdp_source *main = NULL;
    char **names;
    size_t n;
    if (fsdp_parts_is_dcp(dir) || fsdp_parts_is_model(dir) || fsdp_shard_is_folder(dir)) {
        FSDP_TRY(fsdp_parts_add(s->parts, dir));
        if (fsdp_source_open(dir, &main) != FSDP_OK)
            main = NULL; /* the caller gets the error when it opens `dir` */
    }
    fsdp_status status = fsdp_directory_list(dir, &names, &n);
    if (status == FSDP_OK) {
        fsdp_parts_sort(names, n);
        status = survey_entries(s, dir, main, names, n, depth);
        fsdp_free(names);
    }
    fsdp_source_close(main);
    if (status == FSDP_OK && s->parts->n == before)
        /* Nothing was found, so list `dir` itself. When the caller opens it, the error says what is
         * missing. */
        status = fsdp_parts_add(s->parts, dir);
    return status;
}

fsdp_status fsdp_parts_classify(const char *path, fsdp_parts *parts, fsdp_parts *others)
{
    const survey s = {parts, others};
    *parts = *others = (fsdp_parts){0};
    return fsdp_path_is_directory(path) ? survey_folder(&s, path, 0) : fsdp_parts_add(parts, path);
}
