/* See checkpoint_verify.h. */
#include "src/train/checkpoint_verify.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/train/checkpoint_state.h"
#include "src/train/checkpoint_tie.h"

enum {
    MAX_RANKS = 1 << 20,
    MAX_NAME = 64
};

typedef struct looking {
    const char *dir;
    fsdp_damage_fn *found;
    void *context;
    size_t *damages;
} looking;

static void report_damage(const looking *l, const char *damage)
{
    ++*l->damages;
    l->found(damage, l->context);
}

static fsdp_status require_file(const looking *l, const char *name)
{
    char *path = fsdp_path_join(l->dir, name);
    if (!path)
        return FSDP_ERR_NOMEM;
    if (!fsdp_path_is_file(path)) {
        (void)fsdp_error(FSDP_ERR_NOT_FOUND, "%s: no such file, which the run wrote", path);
        report_damage(l, fsdp_last_error());
    }
    fsdp_free(path);
    return FSDP_OK;
}

/* Check that the file of each rank exists. Its name consists of `stem`, the rank and `ending`. */
static fsdp_status require_files_of_ranks(const looking *l, const char *stem, const char *ending,
                                          int64_t ranks)
{
    for (int64_t rank = 0; rank < ranks; rank++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "%s%d%s", stem, (int)rank, ending);
        FSDP_TRY(require_file(l, name));
    }
    return FSDP_OK;
}

/* ---- kinds of checkpoint (--checkpoint-format, --state-dict-type) and the files of each ------ */

typedef struct form {
    const char *format, *type; /* values of --checkpoint-format and --state-dict-type */
    const char *files[4];
    /* If each rank has a file of its own: its name is `of_ranks`, the number of the rank, and
     * `ending`. NULL: there are no such files. */
    const char *of_ranks, *ending;
    /* the file with the loss scaler's state, if losses were scaled; NULL: the state is in
     * trainer_state.json */
    const char *scaler;
} form;

#define RANDOM_STATES "random_states_", ".pkl", "scaler.pt"
static const form forms[] = {
    {"fsdp", "SHARDED_STATE_DICT", {".metadata"}, NULL, NULL, NULL},
    {"fsdp", "FULL_STATE_DICT", {"model_state_dict.pt", "optim_state_dict.pt"}, NULL, NULL, NULL},
    {"fsdp", "LOCAL_STATE_DICT", {NULL}, "local_state_dict_rank", ".pt", NULL},
    {"accelerate",
     "SHARDED_STATE_DICT",
     {"pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata", "scheduler.bin"},
     RANDOM_STATES},
    {"accelerate",
     "FULL_STATE_DICT",
     {"pytorch_model_fsdp.bin", "optimizer.bin", "scheduler.bin"},
     RANDOM_STATES},
    {"accelerate-0.24",
     "SHARDED_STATE_DICT",
     {"pytorch_model_0/.metadata", "optimizer_0/.metadata", "scheduler.bin"},
     RANDOM_STATES},
    {"accelerate-0.24",
     "FULL_STATE_DICT",
     {"pytorch_model.bin", "optimizer.bin", "scheduler.bin"},
     RANDOM_STATES},
};

static const form *find_form(const char *format, const char *type)
{
    for (size_t i = 0; i < FSDP_LENGTH(forms); i++)
        if (strcmp(forms[i].format, format) == 0 && strcmp(forms[i].type, type) == 0)
            return &forms[i];
    return NULL;
}

static fsdp_status check_form(const looking *l, const form *f, int64_t ranks)
{
    for (size_t i = 0; i < FSDP_LENGTH(f->files) && f->files[i]; i++)
        FSDP_TRY(require_file(l, f->files[i]));
    return f->of_ranks ? require_files_of_ranks(l, f->of_ranks, f->ending, ranks) : FSDP_OK;
}

/* Check that the checkpoint has all files of its kind (see `forms`). Check nothing if the kind is
 * unknown, because a later version of this program may have written the checkpoint. */
static fsdp_status check_files(const looking *l, fsdp_json_node root)
{
    fsdp_json_node configuration, position;
    const char *format, *type;
    int64_t ranks;
    FSDP_TRY(fsdp_json_get_object(root, "configuration", &configuration));
    FSDP_TRY(fsdp_json_opt_str(configuration, "checkpoint-format", forms[0].format, &format));
    FSDP_TRY(fsdp_json_opt_str(configuration, "state-dict-type", forms[0].type, &type));
    FSDP_TRY(fsdp_json_get_object(root, "position", &position));
    FSDP_TRY(fsdp_json_get_i64(position, "world_size", 1, MAX_RANKS, &ranks));
    const form *f = find_form(format, type);
    if (f && f->scaler && fsdp_json_has(root, "scaler"))
        FSDP_TRY(require_file(l, f->scaler));
    return f ? check_form(l, f, ranks) : FSDP_OK;
}

/* ---- trainer_state.json ---------------------------------------------------------------------- */

/* Set *yes to true if `dir` contains a file or folder named trainer_state.json, else to false. */
static fsdp_status has_state(const char *dir, bool *yes)
{
    struct stat st;
    char *path = fsdp_path_join(dir, FSDP_TRAINER_STATE);
    if (!path)
        return FSDP_ERR_NOMEM;
    *yes = stat(path, &st) == 0;
    fsdp_free(path);
    return FSDP_OK;
}

static fsdp_status check_folder(const looking *l)
{
    fsdp_json *state;
    FSDP_TRY(fsdp_trainer_state_open(l->dir, &state));
    fsdp_json_node root = fsdp_json_root(state);
    /* The trainer_state.json that transformers' Trainer writes has no field "format". */
    const bool own = fsdp_json_has(root, "format");
    fsdp_status status = own ? check_files(l, root) : FSDP_OK;
    if (status == FSDP_OK && own)
        status = fsdp_checkpoint_tie_check(root, l->dir);
    fsdp_json_destroy(state);
    return status;
}

fsdp_status fsdp_checkpoint_folder_verify(const char *dir, fsdp_damage_fn *found, void *context,
                                          size_t *damages)
{
    const looking l = {dir, found, context, damages};
    bool there;
    FSDP_TRY(has_state(dir, &there));
    fsdp_status status = there ? check_folder(&l) : FSDP_OK;
    if (status == FSDP_OK || status == FSDP_ERR_NOMEM)
        return status;
    report_damage(&l, fsdp_last_error());
    return FSDP_OK;
}
